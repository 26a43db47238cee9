"""Exact nearest-neighbour search on a GPU, limited only by memory bandwidth.

    scan = Scan(vectors, "float16")          vectors [rows, dim] of unit length, an array or a tensor; or "int8"
    scores, rows = scan.search(queries, k)   queries [queries, dim]; arrays [queries, k], best first

One kernel reads every vector once for a batch of queries, and keeps the best score of every small group of rows. Up to
rounding, the k best rows lie in the k best groups: all rows of somewhat more groups are compared exactly, and a bound
on the rounding error proves that no row of another group can be among the k best. If the bound is not sufficient,
because very many vectors are equally near, every row is compared exactly.
"""

import threading
from types import ModuleType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sightline.arrays import Float32Array
from sightline.errors import ModelError
from sightline.kernels import scan_plain
from sightline.kernels.scan_near import Ids, Near, joined
from sightline.kernels.scan_plain import Cut, Rounded, every_score, in_one_digit
from sightline.kernels.scan_recorded import CapturedScan

Dtype = Literal["float16", "int8"]
Vectors = Tensor | npt.NDArray[np.floating[Any]]
Allowed = Tensor | npt.NDArray[np.bool_] | Ids

CUTS: dict[Dtype, Cut] = {"float16": Cut(32, 128, 64, 4, 4), "int8": Cut(32, 128, 128, 4, 3)}
RECORDS = True  # whether a search runs as one CUDA graph instead of a dozen launches
BATCHES = 1, 4, 16, 64  # batch sizes; a batch of queries is padded to one of these
_ROOM = 8  # spare capacity for rows added later: an eighth
_SENT = 65_536  # rows copied to the device at once
_HELD = 1 << 24  # exact scores held at once, at most
_SPARE = 12  # extra groups, at least


class Scan:
    """Exact search over vectors on a device, to which more can be added. Thread-safe: concurrent searches take turns.

    vectors: [rows, dim], each of unit length; stored in float16. dtype: with `int8`, a copy of half the size is
    scanned, and more rows are compared exactly; the results are the same. device: `cpu` is meant for tests.
    cut: the tile sizes of the scan, by default those of CUTS; benchmarks/scan.py compares them.
    """

    def __init__(
        self, vectors: Vectors, dtype: Dtype = "float16", *, device: str = "cuda", cut: Cut | None = None
    ) -> None:
        self._device, self._dtype, self._cut = torch.device(device), dtype, cut or CUTS[dtype]
        self._kernels = _kernels(self._device)
        self._lock = threading.Lock()
        self._count = 0
        self._vectors = torch.empty(0, vectors.shape[1], dtype=torch.float16, device=self._device)
        self._copy = Rounded(self._vectors) if dtype == "float16" else in_one_digit(self._vectors)
        self._error = 0.0  # the largest norm of a vector's rounding error
        self._allowed = torch.empty(0, dtype=torch.bool, device=self._device)
        self._allows: object = self  # the filter that `_allowed` was made from
        self._recorded: dict[tuple[int, int], CapturedScan] = {}
        self.append(vectors)

    def __len__(self) -> int:
        return self._count

    def append(self, vectors: Vectors) -> None:
        """Append rows."""
        if vectors.ndim != 2 or vectors.shape[1] != self._vectors.shape[1]:
            raise ModelError(
                f"vectors have shape {list(vectors.shape)}, but the index has {self._vectors.shape[1]} dimensions"
            )
        with self._lock:
            self._recorded.clear()
            self._allows = self
            self._make_room(self._count + len(vectors))
            for start in range(0, len(vectors), _SENT):
                self._write(_tensor(vectors[start : start + _SENT]).to(self._device))

    def search(self, queries: Vectors, k: int, allowed: Allowed | None = None) -> tuple[Float32Array, Ids]:
        """Return the k highest cosines to each of the queries [queries, dim], and their rows: [queries, k], best first.

        Ties are ordered by row. If a query has fewer than k rows to choose from, the remaining cosines are -inf and the
        rows -1. allowed: as in `near`.
        """
        near = self.near(queries, k, allowed)
        return near.best(near.rows, k)

    def near(self, queries: Vectors, k: int, allowed: Allowed | None = None) -> Near:
        """Return every row that may be among the k nearest to each of the queries [queries, dim], with its cosine.

        allowed: bool, whether each row may be found (rows beyond the array may not); or int64, the rows that may be
            found, in ascending order, which is smaller if they are few. If the same object is passed again, it must be
            unchanged.
        """
        if k < 1:
            raise ModelError(f"k must be at least 1, not {k}")
        dim = self._vectors.shape[1]
        if queries.ndim != 2 or queries.shape[1] != dim:
            raise ModelError(f"queries have shape {list(queries.shape)}, not [queries, {dim}]")
        asked = _tensor(queries).float()
        with self._lock, torch.inference_mode():
            if not self._count or not len(asked):
                return Near(np.empty((len(asked), 0), dtype=np.int64), np.empty((len(asked), 0), dtype=np.float32))
            self._allow(allowed)
            wanted = self._wanted(k)
            step = max((batch for batch in BATCHES if batch * wanted * self._cut.each <= _HELD), default=1)
            return joined([self._near(asked[at : at + step], k, wanted) for at in range(0, len(asked), step)])

    def _near(self, queries: Tensor, k: int, wanted: int) -> Near:
        """Return the rows near one batch of queries: from the scan or, if necessary, by comparing all rows."""
        found = self._scanned(queries, wanted)
        width = found.shape[1] // 2
        scores, beyond = found[:, :width].view(np.float32), found[:, -1:].view(np.float32)[:, 0]
        kth = scores[:, min(k, width) - 1]
        needed = k if k < width and not (scores[:, k] == kth).any() else width  # others may tie with the k-th
        scores, rows = scores[:, :needed], found[:, width : width + needed].astype(np.int64)
        rows[scores == -np.inf] = -1
        is_open = (beyond >= kth) & (beyond > -np.inf)
        if not is_open.any():
            return Near(rows, scores)
        ones = [Near(rows[number : number + 1], scores[number : number + 1]) for number in range(len(rows))]
        for number in np.flatnonzero(is_open).tolist():
            ones[number] = self._compared(queries[number], k)
        return joined(ones)

    def _wanted(self, k: int) -> int:
        """Return the number of groups, and then rows, to compare exactly for k results: a power of two, or all."""
        wanted = max(4 * k if self._dtype == "int8" else k + k // 4, k + _SPARE)
        return min(1 << (wanted - 1).bit_length(), self._count)

    def _scanned(self, queries: Tensor, wanted: int) -> npt.NDArray[np.int32]:
        """Return the result of `_steps`, in CPU memory."""
        if not (RECORDS and self._device.type == "cuda"):
            return self._steps(queries.to(self._device), wanted).cpu().numpy()
        batch = next(batch for batch in BATCHES if batch >= len(queries))
        if (batch, wanted) not in self._recorded:
            shape = batch, queries.shape[1]
            self._recorded[batch, wanted] = CapturedScan(lambda asked: self._steps(asked, wanted), shape, self._device)
        return self._recorded[batch, wanted](queries)

    def _steps(self, queries: Tensor, wanted: int) -> Tensor:
        """Scan, and compare the rows of the best groups exactly; returns the result of `scan_plain.pack_results`."""
        kernels, each = self._kernels, self._cut.each
        vectors, allowed = self._vectors[: self._count], self._allowed[: self._count]
        asked, slack = kernels.quantize_queries(queries, self._dtype == "int8", self._error)
        scores = kernels.group_scores(asked, self._copy.between(0, self._count), allowed, self._cut)
        groups = torch.topk(scores, min(wanted, scores.shape[1]), sorted=False)
        exact = kernels.exact_scores(queries, vectors, allowed, groups.indices, each).flatten(1)
        best = torch.topk(exact, min(wanted, exact.shape[1]))
        are_all = groups.indices.shape[1] == scores.shape[1], best.indices.shape[1] == exact.shape[1]
        found: Tensor = kernels.pack_results(best, groups, slack, each, are_all)
        return found

    def _compared(self, query: Tensor, k: int) -> Near:
        """Return every row that is at least as near to a query [dim] as the k-th best, by comparing all rows."""
        allowed = self._allowed[: self._count]
        scores = every_score(query.to(self._device), self._vectors[: self._count], allowed)
        kth = torch.topk(scores, min(k, self._count)).values[-1]
        rows = torch.nonzero((scores >= kth) & allowed)[:, 0]
        best = torch.sort(scores[rows], descending=True)
        return Near(rows[best.indices].cpu().numpy()[None], best.values.cpu().numpy()[None])

    def _allow(self, allowed: Allowed | None) -> None:
        if allowed is self._allows:
            return
        self._allows = self
        if allowed is None:
            self._allowed.fill_(True)
        elif (given := torch.as_tensor(allowed)).dtype == torch.bool:
            if len(given) > self._count:
                raise ModelError(f"the mask has {len(given)} values, but there are {self._count} rows")
            self._allowed[: len(given)].copy_(given)
            self._allowed[len(given) :] = False
        else:
            if len(given) and not 0 <= int(given[0]) <= int(given[-1]) < self._count:
                raise ModelError(
                    f"rows {int(given[0])} to {int(given[-1])} were requested, but there are only {self._count}"
                )
            self._allowed.fill_(False).index_fill_(0, given.to(self._device), True)
        self._allows = allowed

    def _make_room(self, count: int) -> None:
        """Grow the capacity to `count` rows, keeping the existing ones."""
        if count <= len(self._vectors):
            return
        rows = _with_room(count)
        vectors, allowed = _longer(self._vectors, rows), _longer(self._allowed, rows)
        if self._copy.worth is not None:
            self._copy = Rounded(_longer(self._copy.values, rows), _longer(self._copy.worth, rows))
        else:
            self._copy = Rounded(vectors)
        self._vectors, self._allowed = vectors, allowed

    def _write(self, vectors: Tensor) -> None:
        """Write vectors [n, dim] to the next rows."""
        start, end = self._count, self._count + len(vectors)
        self._vectors[start:end] = vectors
        if self._copy.worth is not None:
            rounded = in_one_digit(self._vectors[start:end])
            assert rounded.worth is not None
            self._copy.values[start:end], self._copy.worth[start:end] = rounded.values, rounded.worth
            lost = torch.linalg.vector_norm(self._vectors[start:end].float() - rounded.restored(), dim=1)
            self._error = max(self._error, float(lost.max()))
        self._count = end


def bytes_of(rows: int, dim: int, dtype: Dtype = "float16") -> int:
    """Return the bytes of device memory that a scan over this many vectors takes, including spare capacity."""
    return (2 * dim if dtype == "float16" else 3 * dim + 4) * _with_room(rows)


def _with_room(rows: int) -> int:
    return rows + rows // _ROOM


def _kernels(device: torch.device) -> ModuleType:
    """Return the implementation of a scan's steps: Triton on a GPU, otherwise plain torch."""
    if device.type != "cuda":
        return scan_plain
    from sightline.kernels import scan_fused

    return scan_fused


def _tensor(vectors: Vectors) -> Tensor:
    return vectors if isinstance(vectors, Tensor) else torch.from_numpy(np.array(vectors))


def _longer(old: Tensor, rows: int) -> Tensor:
    longer = old.new_empty(rows, *old.shape[1:])
    longer[: len(old)] = old
    return longer
