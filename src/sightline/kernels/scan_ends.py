"""The first and last steps of a scan as Triton kernels: each fuses a dozen small steps of `scan_plain`.

For few vectors or few queries, the small steps take longer than the scan itself.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from sightline.kernels.scan_plain import DIGIT, LONGEST, ROUNDING, Best, Rounded

_AT_ONCE = 1024  # results written by one program


def quantize_queries(queries: Tensor, is_whole: bool, error: float) -> tuple[Rounded, Tensor]:
    """Quantise queries, and bound how far a cosine may exceed a score; see `scan_plain`."""
    batch, dim = queries.shape
    if is_whole:
        values = queries.new_empty(batch, 2, dim, dtype=torch.int8)
    else:
        values = queries.new_empty(batch, dim, dtype=torch.float16)
    worth, slack = queries.new_empty(batch), queries.new_empty(batch)
    _quantize_queries[(batch,)](
        queries,
        values,
        worth,
        slack,
        error + ROUNDING,
        dim=dim,
        tile=triton.next_power_of_2(dim),
        digit=DIGIT,
        longest=LONGEST,
        is_whole=is_whole,
    )
    return Rounded(values, worth if is_whole else None), slack


def pack_results(best: Best, groups: Best, slack: Tensor, each: int, are_all: tuple[bool, bool]) -> Tensor:
    """Pack all results into one tensor of 32-bit numbers, as `scan_plain.pack_results` does."""
    (batch, count), chosen = best.values.shape, groups.values.shape[1]
    found = torch.empty(batch, 2 * count + 1, dtype=torch.int32, device=slack.device)
    tile = min(_AT_ONCE, triton.next_power_of_2(max(count, chosen)))
    _pack_results[(triton.cdiv(count, tile), batch)](
        best.values,
        best.indices,
        groups.values,
        groups.indices,
        slack,
        found.view(torch.float32),
        found,
        count,
        chosen=chosen,
        each=each,
        tile=tile,
        has_all_groups=are_all[0],
        has_all_rows=are_all[1],
    )
    return found


@triton.jit  # type: ignore[untyped-decorator]
def _quantize_queries(  # type: ignore[no-untyped-def]
    queries,
    values,
    worth,
    slack,
    error,
    dim: tl.constexpr,
    tile: tl.constexpr,
    digit: tl.constexpr,
    longest: tl.constexpr,
    is_whole: tl.constexpr,
):
    """Round one query. Ties may round either way: the slack is computed from the rounded value."""
    query = tl.program_id(0)
    number = tl.arange(0, tile)
    is_number = number < dim
    given = tl.load(queries + query * dim + number, mask=is_number, other=0.0)
    if is_whole:
        own = tl.maximum(tl.max(tl.abs(given), axis=0), 1e-30) / (127 * digit)
        whole = tl.floor(given / own + 0.5)
        first = tl.floor(whole / digit + 0.5)
        kept = whole * own
        place = values + query * 2 * dim + number
        tl.store(place, first.to(tl.int8), mask=is_number)
        tl.store(place + dim, (whole - first * digit).to(tl.int8), mask=is_number)
        tl.store(worth + query, own)
    else:
        half = given.to(tl.float16)
        kept = half.to(tl.float32)
        tl.store(values + query * dim + number, half, mask=is_number)
    lost = tl.sqrt(tl.sum((given - kept) * (given - kept), axis=0))
    length = tl.sqrt(tl.sum(given * given, axis=0))
    tl.store(slack + query, longest * lost + error * length)


@triton.jit  # type: ignore[untyped-decorator]
def _pack_results(  # type: ignore[no-untyped-def]
    best,
    best_places,
    group_scores,
    groups,
    slack,
    found_scores,
    found_rows,
    count,
    chosen: tl.constexpr,
    each: tl.constexpr,
    tile: tl.constexpr,
    has_all_groups: tl.constexpr,
    has_all_rows: tl.constexpr,
):
    """Write some of the results of one query; its first program also writes the bound on all other rows.

    Scores and rows are written to the same memory, each in its own type.
    """
    query = tl.program_id(1).to(tl.int64)
    place = tl.arange(0, tile)
    result = tl.program_id(0) * tile + place
    is_result = result < count
    scores = tl.load(best + query * count + result, mask=is_result, other=0.0)
    own = tl.load(best_places + query * count + result, mask=is_result, other=0)
    rows = tl.load(groups + query * chosen + own // each, mask=is_result, other=0) * each + own % each
    start = query * (2 * count + 1)
    tl.store(found_scores + start + result, scores, mask=is_result)
    tl.store(found_rows + start + count + result, rows.to(tl.int32), mask=is_result)
    if tl.program_id(0) == 0:
        beyond = float("-inf")
        if not has_all_groups:
            least = tl.full((tile,), float("inf"), dtype=tl.float32)
            for first in tl.range(0, chosen, tile):
                some = tl.load(
                    group_scores + query * chosen + first + place, mask=first + place < chosen, other=float("inf")
                )
                least = tl.minimum(least, some)
            beyond = tl.min(least, axis=0) + tl.load(slack + query)
        if not has_all_rows:
            beyond = tl.maximum(beyond, tl.load(best + query * count + count - 1))
        tl.store(found_scores + start + 2 * count, beyond)
