"""The steps of a scan as Triton kernels: the computations of `scan_plain`, at memory bandwidth.

The scores of single rows are never written: a tile of them stays in registers, where the best of each group is found.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from sightline.kernels.scan_ends import pack_results as pack_results
from sightline.kernels.scan_ends import quantize_queries as quantize_queries
from sightline.kernels.scan_plain import DIGIT, Cut, Rounded

_LEAST = 16  # minimal tile size of tensor cores, in queries or numbers
_SUMS = 4096  # sums that `exact_scores` keeps at once: more would not fit in registers


def group_scores(queries: Rounded, vectors: Rounded, allowed: Tensor, cut: Cut) -> Tensor:
    """Return the best score of every group of rows for each of at most 64 queries: float32 [queries, groups].

    Arguments are those of `scan_plain.group_scores`, and must be contiguous.
    """
    (count, dim), batch = vectors.values.shape, len(queries.values)
    groups = triton.cdiv(count, cut.each)
    scores = torch.empty(batch, groups, dtype=torch.float32, device=allowed.device)
    _group_scores[(triton.cdiv(count, cut.rows),)](
        queries.values,
        scores if queries.worth is None else queries.worth,
        vectors.values,
        scores if vectors.worth is None else vectors.worth,
        allowed.view(torch.uint8),
        scores,
        count,
        groups,
        batch,
        dim=dim,
        query_tile=max(_LEAST, triton.next_power_of_2(batch)),
        row_tile=cut.rows,
        number_tile=cut.numbers,
        each=cut.each,
        digit=DIGIT,
        is_whole=vectors.worth is not None,
        num_warps=cut.warps,
        num_stages=cut.stages,
    )
    return scores


def exact_scores(queries: Tensor, vectors: Tensor, allowed: Tensor, groups: Tensor, each: int) -> Tensor:
    """Return the cosines of every row of some groups, to float32 precision: [queries, n, each].

    Arguments are those of `scan_plain.exact_scores`, and must be contiguous.
    """
    (count, dim), (batch, chosen) = vectors.shape, groups.shape
    scores = torch.empty(batch, chosen, each, dtype=torch.float32, device=vectors.device)
    _exact_scores[(chosen, batch)](
        queries,
        vectors,
        allowed.view(torch.uint8),
        groups,
        scores,
        count,
        chosen,
        dim=dim,
        number_tile=_SUMS // each,
        each=each,
    )
    return scores


@triton.jit  # type: ignore[untyped-decorator]
def _group_scores(  # type: ignore[no-untyped-def]
    queries,
    query_worth,
    vectors,
    worth,
    allowed,
    scores,
    count,
    groups,
    batch,
    dim: tl.constexpr,
    query_tile: tl.constexpr,
    row_tile: tl.constexpr,
    number_tile: tl.constexpr,
    each: tl.constexpr,
    digit: tl.constexpr,
    is_whole: tl.constexpr,
):
    """Score `row_tile` rows. Past the end, the last row is read again, which does not affect the best of its group.

    Integers are multiplied and summed as integers, with each digit of the queries separately: the numbers of a row are
    never converted.
    """
    row = tl.program_id(0) * row_tile + tl.arange(0, row_tile)
    place = tl.minimum(row, count - 1).to(tl.int64)
    query = tl.arange(0, query_tile)
    is_asked = query < batch
    number = tl.arange(0, number_tile)
    kind: tl.constexpr = tl.int32 if is_whole else tl.float32
    width: tl.constexpr = 2 * dim if is_whole else dim
    first = tl.zeros((row_tile, query_tile), dtype=kind)
    second = tl.zeros((row_tile, query_tile), dtype=kind)
    for start in tl.range(0, dim, number_tile):
        is_number = start + number < dim
        stored = tl.load(vectors + place[:, None] * dim + (start + number)[None, :], mask=is_number[None, :], other=0)
        asked = queries + query[None, :] * width + (start + number)[:, None]
        is_there = is_asked[None, :] & is_number[:, None]
        first = tl.dot(stored, tl.load(asked, mask=is_there, other=0), first, out_dtype=kind)
        if is_whole:
            second = tl.dot(stored, tl.load(asked + dim, mask=is_there, other=0), second, out_dtype=kind)
    if is_whole:
        products = first.to(tl.float32) * digit + second.to(tl.float32)
        products *= tl.load(worth + place)[:, None] * tl.load(query_worth + query, mask=is_asked, other=0.0)[None, :]
    else:
        products = first
    is_allowed = tl.load(allowed + place) != 0
    products = tl.where(is_allowed[:, None], products, float("-inf"))
    best = tl.max(tl.reshape(products, (row_tile // each, each, query_tile)), axis=1)
    group = tl.program_id(0) * (row_tile // each) + tl.arange(0, row_tile // each)
    tl.store(
        scores + query[None, :].to(tl.int64) * groups + group[:, None],
        best,
        mask=is_asked[None, :] & (group[:, None] < groups),
    )


@triton.jit  # type: ignore[untyped-decorator]
def _exact_scores(  # type: ignore[no-untyped-def]
    queries,
    vectors,
    allowed,
    groups,
    scores,
    count,
    chosen,
    dim: tl.constexpr,
    number_tile: tl.constexpr,
    each: tl.constexpr,
):
    """Score the rows of one group for one query."""
    own = tl.program_id(1).to(tl.int64) * chosen + tl.program_id(0)
    row = tl.load(groups + own) * each + tl.arange(0, each)
    place = tl.minimum(row, count - 1)
    number = tl.arange(0, number_tile)
    sums = tl.zeros((each, number_tile), dtype=tl.float64)
    for start in tl.range(0, dim, number_tile):
        is_number = start + number < dim
        stored = tl.load(vectors + place[:, None] * dim + (start + number)[None, :], mask=is_number[None, :], other=0.0)
        asked = tl.load(queries + tl.program_id(1) * dim + start + number, mask=is_number, other=0.0)
        sums += stored.to(tl.float32).to(tl.float64) * asked.to(tl.float64)[None, :]
    is_allowed = (row < count) & (tl.load(allowed + place) != 0)
    cosines = tl.where(is_allowed, tl.sum(sums, axis=1).to(tl.float32), float("-inf"))
    tl.store(scores + own * each + tl.arange(0, each), cosines)
