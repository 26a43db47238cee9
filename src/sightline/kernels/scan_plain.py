"""The steps of a scan in plain torch: for any device, and as the reference for the kernels of `scan_fused`."""

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

DIGIT = 254  # base of the two-digit numbers of a query
ROUNDING = 1e-5  # bound on the error of float32 sums, for vectors of unit length
LONGEST = 1.01  # bound on the norm of a unit vector after rounding
_AT_ONCE = 16_384  # rows converted to float32 or float64 at once


class Cut(NamedTuple):
    """The tile sizes of a scan.

    each: rows in a group. rows: rows in a tile, one group or more. numbers: numbers of each row that are read at once.
    warps: warps per tile. stages: tiles in flight at once.
    """

    each: int
    rows: int
    numbers: int
    warps: int
    stages: int


class Rounded(NamedTuple):
    """Vectors in the type in which they are multiplied: float16 [n, dim], or integers with a scale [n].

    Vectors of a collection are int8 [n, dim]; those of queries have two digits, int8 [n, 2, dim].
    """

    values: Tensor
    worth: Tensor | None = None

    def restored(self) -> Tensor:
        """Return the vectors [n, dim] in float32."""
        values = self.values.float()
        if values.ndim == 3:
            values = DIGIT * values[:, 0] + values[:, 1]
        return values if self.worth is None else values * self.worth[:, None]

    def between(self, start: int, end: int) -> "Rounded":
        """Return the vectors from `start` to `end`."""
        return Rounded(self.values[start:end], None if self.worth is None else self.worth[start:end])


class Best(Protocol):
    """The result of `topk`, with two tensors [queries, n]."""

    @property
    def values(self) -> Tensor:
        """Scores, in float32."""
        ...

    @property
    def indices(self) -> Tensor:
        """The indices of the scores."""
        ...


def in_one_digit(vectors: Tensor) -> Rounded:
    """Quantise vectors [n, dim] to integers from -127 to 127, for a collection."""
    worth = vectors.float().abs().amax(dim=1).clamp(min=1e-30) / 127
    return Rounded((vectors.float() / worth[:, None]).round().to(torch.int8), worth)


def in_two_digits(vectors: Tensor) -> Rounded:
    """Quantise vectors [n, dim] to two-digit integers, each digit from -127 to 127, for queries."""
    worth = vectors.abs().amax(dim=1).clamp(min=1e-30) / (127 * DIGIT)
    whole = (vectors / worth[:, None]).round()
    first = (whole / DIGIT).round()
    return Rounded(torch.stack([first, whole - DIGIT * first], dim=1).to(torch.int8), worth)


def quantize_queries(queries: Tensor, is_whole: bool, error: float) -> tuple[Rounded, Tensor]:
    """Quantise queries [n, dim], and bound how far a cosine may exceed the score of the quantised vectors [n].

    error: the largest norm of the difference between a vector and its copy. The bound follows from Cauchy-Schwarz.
    """
    asked = in_two_digits(queries) if is_whole else Rounded(queries.half())
    lost, length = (torch.linalg.vector_norm(part, dim=1) for part in (queries - asked.restored(), queries))
    return asked, LONGEST * lost + (error + ROUNDING) * length


def pack_results(best: Best, groups: Best, slack: Tensor, each: int, are_all: tuple[bool, bool]) -> Tensor:
    """Pack all results into one tensor of 32-bit numbers, so that one copy fetches them.

    It is int32 [queries, 2 n + 1]: the n best cosines, best first, their rows, and an upper bound for all other rows.
    best: the n best of all rows of `groups`, indexed group by group. groups: the best groups, unordered.
    are_all: whether there are no other groups, and no other rows in these groups.
    """
    rows = groups.indices.gather(1, best.indices // each) * each + best.indices % each
    beyond = torch.full_like(slack, float("-inf")) if are_all[0] else groups.values.amin(dim=1) + slack
    if not are_all[1]:
        beyond = torch.maximum(beyond, best.values[:, -1])
    return torch.cat([best.values.view(torch.int32), rows.int(), beyond[:, None].view(torch.int32)], dim=1)


def group_scores(queries: Rounded, vectors: Rounded, allowed: Tensor, cut: Cut) -> Tensor:
    """Return the best score of every group of rows for each of the queries: float32 [queries, groups].

    allowed: bool [rows]; a group without an allowed row scores -inf.
    """
    count, each, asked = len(allowed), cut.each, queries.restored()
    scores = asked.new_full((len(asked), -(-count // each) * each), float("-inf"))
    for start in range(0, count, _AT_ONCE):
        end = min(start + _AT_ONCE, count)
        products = asked @ vectors.between(start, end).restored().T
        scores[:, start:end] = products.masked_fill(~allowed[start:end], float("-inf"))
    return scores.view(len(asked), -1, each).amax(dim=2)


def exact_scores(queries: Tensor, vectors: Tensor, allowed: Tensor, groups: Tensor, each: int) -> Tensor:
    """Return the cosines of every row of some groups, to float32 precision: [queries, n, each].

    queries: float32 [queries, dim]. vectors: float16 [rows, dim]. allowed: bool [rows]; other rows score -inf.
    groups: [queries, n], for each query.
    """
    rows = groups[:, :, None] * each + torch.arange(each, device=groups.device)
    inside = rows.clamp(max=len(vectors) - 1)
    cosines = torch.stack([cosines_of(vectors[own], query) for own, query in zip(inside, queries, strict=True)])
    return cosines.masked_fill((rows >= len(vectors)) | ~allowed[inside], float("-inf"))


def every_score(query: Tensor, vectors: Tensor, allowed: Tensor) -> Tensor:
    """Return the cosines of all rows [rows] to a query float32 [dim]; -inf where a row is not allowed."""
    found = [cosines_of(block, query) for block in torch.split(vectors, _AT_ONCE)]
    return torch.cat(found).masked_fill(~allowed, float("-inf"))


def cosines_of(vectors: Tensor, query: Tensor) -> Tensor:
    """Return the cosines [...] of float16 vectors [..., dim] to a query [dim], in float32, summed in float64.

    A store computes them the same way on the CPU: the result does not depend on the position of a vector.
    """
    return (vectors.double() * query.double()).sum(dim=-1).float()
