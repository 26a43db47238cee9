"""How long an exact search on a GPU takes, beside the time that reading the vectors takes, and beside plain torch.

    python -m benchmarks.scan --gpu                   the table: writes benchmarks/results/scan-gpu.json
    python -m benchmarks.scan --gpu --alternatives    also every way of cutting the scan up, and each of its steps

Needs torch and Triton, no other package of Sightline's. A search is timed from queries on the processor to an answer
there. Vectors are made up: a few thousand directions with others scattered around them, as photos are; queries lie
around the same directions. Of every batch, the first answers must be those of comparing all vectors in float64.
"""

import time
from collections.abc import Callable, Collection, Iterator
from functools import partial
from itertools import cycle
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor

from benchmarks.timing import options, write
from sightline.kernels import scan as scanning
from sightline.kernels.scan import CUTS, Dtype, Scan
from sightline.kernels.scan_near import Near
from sightline.kernels.scan_plain import Cut, Rounded, every_score, in_one_digit, in_two_digits

SIZES = {"cuda": (10_000, 100_000, 1_000_000, 10_000_000), "cpu": (1_000,)}
SIZE = 1_000_000
"""That the targets speak of."""
BATCHES = 1, 8, 64
K, CHECKED, CENTRES = 20, 4, 4096
SECONDS = 2.0  # that one measurement takes at most
REPEATS = 20  # of a step, one right after the other
ALTERNATIVES = (
    *(Cut(32, *tile) for tile in ((128, 64, 4, 3), (128, 64, 4, 4), (128, 64, 8, 5), (64, 64, 4, 6), (256, 64, 8, 3))),
    *(Cut(32, *tile) for tile in ((64, 128, 4, 3), (64, 128, 4, 4), (128, 128, 4, 3), (128, 128, 4, 4))),
    *(Cut(each, 128, 128, 8, 4) for each in (16, 32, 64, 128)),
)


class Counted(Scan):
    """A scan that counts the queries for which it had to compare every row."""

    compared = 0

    def _compared(self, query: Tensor, k: int) -> Near:
        self.compared += 1
        return super()._compared(query, k)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="cpu only shows that it runs")
    parser.add_argument("--gpu", dest="device", action="store_const", const="cuda")
    parser.add_argument("--sizes", help="how many vectors; by default 10,000 to 10,000,000, with --quick to 1,000,000")
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--alternatives", action="store_true")
    arguments = parser.parse_args()
    device, calls = arguments.device, arguments.calls
    sizes = tuple(map(int, arguments.sizes.split(","))) if arguments.sizes else SIZES[device]
    sizes = tuple(size for size in sizes if size <= SIZE) if arguments.quick else sizes
    bandwidth = measured_bandwidth(device)
    rows: list[dict[str, Any]] = []
    for size in sizes:
        vectors, queries = made_up(size, arguments.dim, device)
        rows += searches(vectors, queries, bandwidth, calls)
        if arguments.alternatives and size == nearest(sizes):
            rows += alternatives(vectors, queries, calls)
        del vectors
    name = "scan-gpu" if device == "cuda" else "scan"
    write(name, arguments, ["made up"], rows, ratios(rows), bytes_per_second=bandwidth)


def made_up(count: int, dim: int, device: str) -> tuple[Tensor, Any]:
    """Vectors [count, dim] in float16 on the device, and queries [64, dim]."""
    chance = torch.Generator(device).manual_seed(0)

    def around(some: int) -> Tensor:
        chosen = torch.randint(0, CENTRES, (some,), device=device, generator=chance)
        return units(centres[chosen] + units(torch.randn(some, dim, device=device, generator=chance)))

    centres = units(torch.randn(CENTRES, dim, device=device, generator=chance))
    vectors = torch.empty(count, dim, dtype=torch.float16, device=device)
    for start in range(0, count, 100_000):
        vectors[start : start + 100_000] = around(min(100_000, count - start))
    return vectors, around(max(BATCHES)).cpu().numpy()


def units(vectors: Tensor) -> Tensor:
    return torch.nn.functional.normalize(vectors, dim=-1)


def measured_bandwidth(device: str) -> float:
    """Bytes a second that a sum of far more than fits into caches reads."""
    array = torch.ones((1 << 30) if device == "cuda" else (1 << 22), device=device)
    return array.nbytes / (min(times(lambda: array.sum(), 20, device)) / 1000)


def searches(vectors: Tensor, queries: Any, bandwidth: float, calls: int) -> Iterator[dict[str, Any]]:
    """Searches for batches of queries in both types, with and without a filter, beside the plain way in torch."""
    allowed = np.random.default_rng(0).random(len(vectors)) < 0.1
    filters = {"rows": np.flatnonzero(allowed), "mask": allowed}
    plain = {batch: measured(plainly(vectors, queries[:batch]), calls, vectors) for batch in BATCHES}
    for dtype in get_args(Dtype):
        scan = Counted(vectors, dtype, device=vectors.device.type)
        for batch in BATCHES:
            asked = queries[:batch]
            row: dict[str, Any] = {"vectors": len(vectors), "dtype": dtype, "batch": batch, "k": K}
            row |= measured(partial(scan.search, asked, K), calls, vectors)
            row["floor_ms"] = 1000 * floor_bytes(vectors, dtype) / bandwidth
            row |= {"times_floor": row["p50_ms"] / row["floor_ms"], "plain_torch": plain[batch]}
            row["times_as_quick"] = plain[batch]["p50_ms"] / row["p50_ms"]
            scan.compared = 0
            scan.search(asked, K)
            yield row | {"compared_all": scan.compared, "is_right": is_right(scan, vectors, asked)}
        for told, own in filters.items():
            for given, some in (("anew", (own, own.copy())), ("again", (own,))):
                row = {"vectors": len(vectors), "dtype": dtype, "batch": 1, "k": K, "filter": 0.1}
                row |= {"told": told, "given": given}
                row |= measured(partial(filtered, scan, queries[:1], cycle(some)), calls, vectors)
                yield row | {"is_right": is_right(scan, vectors, queries[:1], own)}


def floor_bytes(vectors: Tensor, dtype: Dtype) -> int:
    """What has to be read."""
    return vectors.nbytes if dtype == "float16" else vectors.numel() + 4 * len(vectors)


def filtered(scan: Scan, queries: Any, filters: Iterator[Any]) -> object:
    """A search with the next filter: one that is not the last again is sent anew."""
    return scan.search(queries, K, next(filters))


def plainly(vectors: Tensor, queries: Any) -> Callable[[], object]:
    """A search as one writes it first in torch: every product in float16, and the highest of them."""

    def search() -> object:
        asked = torch.from_numpy(queries).to(vectors.device).half()
        found = torch.topk(asked @ vectors.T, min(K, len(vectors)))
        return found.values.cpu(), found.indices.cpu()

    return search


def is_right(scan: Scan, vectors: Tensor, queries: Any, allowed: Any = None) -> bool:
    """Whether the first few answers are those of comparing everything, rows and cosines."""
    mask = torch.zeros(len(vectors), dtype=torch.bool)
    mask[slice(None) if allowed is None else torch.from_numpy(allowed)] = True
    scores, rows = scan.search(queries, K, allowed)
    for query, its_scores, its_rows in list(zip(queries, scores, rows, strict=True))[:CHECKED]:
        every = every_score(torch.from_numpy(query).to(vectors.device), vectors, mask.to(vectors.device))
        right = torch.sort(every, descending=True, stable=True)
        count = min(K, int(mask.sum()))
        found = its_scores[:count].tolist(), its_rows[:count].tolist()
        if found != (right.values[:count].tolist(), right.indices[:count].tolist()):
            return False
    return True


def alternatives(vectors: Tensor, queries: Any, calls: int) -> Iterator[dict[str, Any]]:
    """Every way of cutting the scan up: the scan alone, each step after it, and whole searches."""
    for dtype in get_args(Dtype):
        for cut in (CUTS[dtype], *ALTERNATIVES):
            for batch in (1, 64):
                row = {"vectors": len(vectors), "dtype": dtype, "batch": batch, "cut": cut._asdict()}
                try:
                    yield row | {"steps_ms": steps(vectors, queries[:batch], dtype, cut)}
                except Exception as error:  # a way that this GPU cannot go is a finding, too
                    yield row | {"failed": str(error)}
        for records in (True, False):
            scanning.RECORDS = records
            scan = Scan(vectors, dtype, device=vectors.device.type)
            row = {"vectors": len(vectors), "dtype": dtype, "batch": 1, "recorded": records}
            yield row | measured(partial(scan.search, queries[:1], K), calls, vectors)
        scanning.RECORDS = True


def steps(vectors: Tensor, queries: Any, dtype: Dtype, cut: Cut) -> dict[str, float]:
    """Milliseconds of each step of a search when many follow one another, so that starting them costs nothing."""
    device = vectors.device
    kernels, asked = scanning._kernels(device), torch.from_numpy(queries).to(device)
    halves = dtype == "float16"
    stored = Rounded(vectors) if halves else in_one_digit(vectors)
    rounded = Rounded(asked.half()) if halves else in_two_digits(asked)
    allowed = torch.ones(len(vectors), dtype=torch.bool, device=device)
    wanted = 32 if halves else 128
    scores = kernels.group_scores(rounded, stored, allowed, cut)
    groups = torch.topk(scores, min(wanted, scores.shape[1]), sorted=False).indices
    exact = kernels.exact_scores(asked, vectors, allowed, groups, cut.each).flatten(1)
    return {
        "scan": in_a_row(lambda: kernels.group_scores(rounded, stored, allowed, cut), device),
        "best groups": in_a_row(lambda: torch.topk(scores, groups.shape[1], sorted=False), device),
        "exact": in_a_row(lambda: kernels.exact_scores(asked, vectors, allowed, groups, cut.each), device),
        "best rows": in_a_row(lambda: torch.topk(exact, min(wanted, exact.shape[1])), device),
    }


def in_a_row(run: Callable[[], object], device: torch.device) -> float:
    """Milliseconds of one of many calls that are started without waiting for the one before."""

    def many() -> None:
        for _ in range(REPEATS):
            run()

    return min(times(many, 3, device.type)) / REPEATS


def measured(run: Callable[[], object], calls: int, vectors: Tensor) -> dict[str, float]:
    """The median and the ninety-ninth percentile of the milliseconds of so many calls, or fewer where they are slow."""
    took = times(run, calls, vectors.device.type)
    return {"p50_ms": float(np.median(took)), "p99_ms": float(np.percentile(took, 99)), "calls": len(took)}


def times(run: Callable[[], object], calls: int, device: str) -> list[float]:
    """Milliseconds of each call, to its very end; three calls before them do not count."""
    took: list[float] = []
    for number in range(-3, calls):
        finish(device)
        began = time.perf_counter()
        run()
        finish(device)
        if number >= 0:
            took.append(1000 * (time.perf_counter() - began))
        if sum(took) > 1000 * SECONDS:
            break
    return took


def finish(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def ratios(rows: list[dict[str, Any]]) -> dict[str, float]:
    """What the targets speak of, and how much quicker than plain torch it is; of the size that is nearest to theirs."""
    checked = [row["is_right"] for row in rows if "is_right" in row]
    found = {"share of the searches that were right": sum(checked) / len(checked)}
    size = nearest({row["vectors"] for row in rows})
    for row in rows:
        if "times_floor" in row and row["vectors"] == size and row["batch"] in (1, 64):
            asked = "one query" if row["batch"] == 1 else f"{row['batch']} queries"
            of = f"{asked} over {size:,} vectors in {row['dtype']}"
            found[f"ms, {of}"] = row["p50_ms"]
            found[f"times as quick as plain torch, {of}"] = row["times_as_quick"]
            if row["batch"] == 1:
                found[f"times the floor, {of}"] = row["times_floor"]
    return found


def nearest(sizes: Collection[int]) -> int:
    return min(sizes, key=lambda size: abs(size - SIZE))


if __name__ == "__main__":
    main()
