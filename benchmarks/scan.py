"""Measure the time of an exact search on a GPU, compared with reading the vectors once, and with plain torch.

    python -m benchmarks.scan --gpu                   writes benchmarks/results/scan-gpu.json

Needs torch and Triton. Times include copies to and from CPU memory. Vectors are synthetic, scattered around a few
thousand directions; queries are near the same directions. The first results of every batch must equal those of an
exact comparison in float64.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor

from benchmarks.timing import numbers, options, percentiles, save
from sightline.kernels.scan import Dtype, Scan
from sightline.kernels.scan_plain import every_score

SIZES = {"cuda": [10_000, 100_000, 1_000_000, 10_000_000], "cpu": [1_000]}
SIZE = 1_000_000  # the number of vectors that the targets are set for
BATCHES = 1, 8, 64
K, CHECKED, CENTRES = 20, 4, 4096
units = partial(torch.nn.functional.normalize, dim=-1)
SECONDS = 2.0  # per measurement, at most


def made_up(count: int, dim: int, device: str) -> tuple[Tensor, Any]:
    """Return the vectors [count, dim] in float16 on the device, and queries [64, dim]."""
    chance = torch.Generator(device).manual_seed(0)

    def around(some: int) -> Tensor:
        chosen = torch.randint(0, CENTRES, (some,), device=device, generator=chance)
        return units(centres[chosen] + units(torch.randn(some, dim, device=device, generator=chance)))

    centres = units(torch.randn(CENTRES, dim, device=device, generator=chance))
    vectors = torch.empty(count, dim, dtype=torch.float16, device=device)
    for start in range(0, count, 100_000):
        vectors[start : start + 100_000] = around(min(100_000, count - start))
    return vectors, around(max(BATCHES)).cpu().numpy()


def times(run: Callable[[], object], calls: int, device: str) -> list[float]:
    """Time calls, in milliseconds, each until it has ended on the device; three warm-up calls are not counted."""
    took: list[float] = []
    for number in range(-3, calls):
        began = time.perf_counter()
        run()
        if device == "cuda":
            torch.cuda.synchronize()
        if number >= 0:
            took.append(1000 * (time.perf_counter() - began))
        if sum(took) > 1000 * SECONDS:
            break
    return took


def measured_bandwidth(device: str) -> float:
    """Measure memory bandwidth, in bytes per second, by a sum over far more data than fits in caches."""
    array = torch.ones((1 << 30) if device == "cuda" else (1 << 22), device=device)
    return array.nbytes / (min(times(lambda: array.sum(), 20, device)) / 1000)


def searches(vectors: Tensor, queries: Any, bandwidth: float, calls: int) -> Iterator[dict[str, Any]]:
    """Time searches for batches of queries in both dtypes, with and without a filter, and plain torch."""
    rows = np.flatnonzero(np.random.default_rng(0).random(len(vectors)) < 0.1)

    def measured(run: Callable[[], object]) -> dict[str, float]:
        return percentiles(times(run, calls, vectors.device.type))

    plain = {batch: measured(partial(plain_search, vectors, queries[:batch])) for batch in BATCHES}
    for dtype in get_args(Dtype):
        scan = Scan(vectors, dtype, device=vectors.device.type)
        stored = vectors.nbytes if dtype == "float16" else vectors.numel() + 4 * len(vectors)
        for batch in BATCHES:
            row: dict[str, Any] = {"vectors": len(vectors), "dtype": dtype, "batch": batch, "k": K}
            row |= measured(partial(scan.search, queries[:batch], K)) | {"floor_ms": 1000 * stored / bandwidth}
            row |= {"times_floor": row["p50_ms"] / row["floor_ms"], "plain_torch": plain[batch]}
            row["times_as_quick"] = plain[batch]["p50_ms"] / row["p50_ms"]
            yield row | {"is_right": is_right(scan, vectors, queries[:batch])}
        for given, some in (("anew", (rows, rows.copy())), ("again", (rows,))):
            turns = cycle(some)  # every new filter has to be sent to the device
            row = {"vectors": len(vectors), "dtype": dtype, "batch": 1, "k": K, "filter": 0.1, "given": given}
            row |= measured(lambda scan=scan, turns=turns: scan.search(queries[:1], K, next(turns)))  # type: ignore[misc]
            yield row | {"is_right": is_right(scan, vectors, queries[:1], rows)}


def plain_search(vectors: Tensor, queries: Any) -> object:
    """Search in the simplest way in torch: compute every product in float16, and take the highest."""
    asked = torch.from_numpy(queries).to(vectors.device).half()
    found = torch.topk(asked @ vectors.T, min(K, len(vectors)))
    return found.values.cpu(), found.indices.cpu()


def is_right(scan: Scan, vectors: Tensor, queries: Any, allowed: Any = None) -> bool:
    """Return whether the first few results equal those of an exact comparison, in rows and cosines."""
    mask = torch.zeros(len(vectors), dtype=torch.bool)
    mask[slice(None) if allowed is None else torch.from_numpy(allowed)] = True
    scores, rows = scan.search(queries, K, allowed)
    for query, its_scores, its_rows in list(zip(queries, scores, rows, strict=True))[:CHECKED]:
        every = every_score(torch.from_numpy(query).to(vectors.device), vectors, mask.to(vectors.device))
        right, count = torch.sort(every, descending=True, stable=True), min(K, int(mask.sum()))
        found = its_scores[:count].tolist(), its_rows[:count].tolist()
        if found != (right.values[:count].tolist(), right.indices[:count].tolist()):
            return False
    return True


def ratios(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return the ratios that have targets, each at the measured size nearest to the target's."""
    checked = [row["is_right"] for row in rows]
    found = {"share of the searches that were right": sum(checked) / len(checked)}
    size = min({row["vectors"] for row in rows}, key=lambda size: abs(size - SIZE))
    for row in rows:
        if "times_floor" in row and row["vectors"] == size and row["batch"] in (1, 64):
            asked = "one query" if row["batch"] == 1 else f"{row['batch']} queries"
            of = f"{asked} over {size:,} vectors in {row['dtype']}"
            found[f"ms, {of}"] = row["p50_ms"]
            found[f"times as quick as plain torch, {of}"] = row["times_as_quick"]
            if row["batch"] == 1:
                found[f"times the floor, {of}"] = row["times_floor"]
    return found


def main() -> None:
    parser = options(__doc__, model=False)
    help = "without it, the CPU is used, which only shows that it runs"
    parser.add_argument("--gpu", dest="device", action="store_const", const="cuda", default="cpu", help=help)
    parser.add_argument("--sizes", type=numbers)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--calls", type=int, default=200)
    arguments = parser.parse_args()
    device, bandwidth = arguments.device, measured_bandwidth(arguments.device)
    rows: list[dict[str, Any]] = []
    for size in arguments.sizes or [size for size in SIZES[device] if size <= SIZE or not arguments.quick]:
        vectors, queries = made_up(size, arguments.dim, device)
        rows += searches(vectors, queries, bandwidth, arguments.calls)
        del vectors
    name = "scan-gpu" if device == "cuda" else "scan"
    save(name, arguments, ["random"], rows, ratios(rows), bytes_per_second=bandwidth)


if __name__ == "__main__":
    main()
