"""How long late interaction takes: over a few hundred candidates, and over all images on a GPU.

    python -m benchmarks.late                  on the CPU
    python -m benchmarks.late --gpu            on a GPU, with torch and Triton (writes late-gpu.json)

Fragments are random.
"""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.timing import in_turns, options, save
from sightline.bundle import Encoded
from sightline.retrieval.late import LateScorer
from sightline.stores.base import Shape
from sightline.stores.local import LocalStore

Vectors = npt.NDArray[np.float32]
PATCHES, DIM, EMBEDDING = 49, 128, 512
POOL = 512  # different items in a made-up collection
BATCH = 5_000
GPU_IMAGES, GPU_DIM = 100_000, 128
GPU_CASES = (
    ("base", 32, 32, "float16"), ("base", 32, 32, "bfloat16"), ("base", 32, 32, "int8"),
    ("grid", 32, 49, "float16"), ("inflated", 64, 64, "float16"),
)  # fmt: skip
"""Model, words, fragments and type: the paper's base and inflated models, and the bundled one's grid."""


def units(rng: np.random.Generator, *shape: int) -> Vectors:
    """Random vectors of unit length."""
    vectors = rng.standard_normal(shape, dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors


def filled(folder: Path, count: int, rng: np.random.Generator) -> LocalStore:
    """A store of so many items, each with the fragments of one of a few."""
    store = LocalStore.open(folder, Shape(EMBEDDING, DIM), write=True)
    fragments = units(rng, POOL, PATCHES, DIM)
    for start in range(0, count, BATCH):
        ids = np.arange(start, min(start + BATCH, count))
        embeddings, chosen = units(rng, len(ids), EMBEDDING), rng.integers(0, POOL, len(ids))
        store.add(ids, Encoded(embeddings, np.ones((len(ids), PATCHES), dtype=np.bool_), fragments[chosen]))
    store.flush()
    return store


def query(rng: np.random.Generator, words: int) -> Encoded:
    """A text of so many words."""
    return Encoded(units(rng, 1, EMBEDDING), np.ones((1, words), dtype=np.bool_), units(rng, 1, words, DIM))


def einsum(words: Any, fragments: Any) -> Vectors:
    """Late interaction as you would write it first: every cosine at once, in float32."""
    found: Vectors = np.einsum("wd,npd->nwp", words, fragments, optimize=True).max(axis=2).sum(axis=1)
    return found


def over_candidates(count: int, rounds: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Milliseconds over some candidates of 10,000 items, from the memory map, against plain numpy."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        store = filled(Path(folder), 10_000, rng)
        for words in (8, 16, 32):
            text, ids = query(rng, words), rng.permutation(10_000)[:count]
            assert text.fragments is not None
            asked, late = text.fragments[0], LateScorer(store, text, "images")
            ways: dict[str, Callable[[], Vectors]] = {
                "late": partial(late.scores, ids),
                "fetch and einsum": lambda a=asked, i=ids: einsum(a, store.fetch(i, "fragments").values),  # type: ignore[misc]
            }
            np.testing.assert_allclose(ways["late"](), ways["fetch and einsum"](), rtol=1e-4)
            row: dict[str, Any] = {"candidates": count, "fragments": PATCHES, "words": words}
            for name, seconds in in_turns(ways, rounds).items():
                row[name] = {"p50_ms": 1000 * median(seconds), "best_ms": 1000 * min(seconds)}
            row["ratio"] = {of: row["fetch and einsum"][of] / row["late"][of] for of in ("p50_ms", "best_ms")}
            rows.append(row)
        store.close()
    return rows


def on_gpu(bandwidth: float, rounds: int) -> list[dict[str, Any]]:
    """Milliseconds of the fused kernel over all images, and the least that reading their fragments takes."""
    import torch
    import triton

    from benchmarks.maxsim_kernel import best, maxsim, reference

    torch.manual_seed(0)
    time = partial(triton.testing.do_bench, rep=rounds, return_mode="median")
    rows: list[dict[str, Any]] = []
    for name, words, each, dtype in GPU_CASES:
        half = torch.float16 if dtype == "int8" else getattr(torch, dtype)
        asked = torch.nn.functional.normalize(torch.randn(words, GPU_DIM, device="cuda"), dim=-1).to(half)
        stored = torch.empty(GPU_IMAGES, each, GPU_DIM, device="cuda", dtype=half)
        for block in torch.split(stored, BATCH):
            block.copy_(torch.nn.functional.normalize(torch.randn(block.shape, device="cuda"), dim=-1))
        scales = None
        if dtype == "int8":
            scales = (stored.abs().amax(-1).float() / 127).contiguous()
            stored = (stored.float() / scales[..., None]).round().to(torch.int8)
        exact = reference(asked, stored, None, scales)
        error = float(((maxsim(asked, stored, None, scales) - exact).abs() / exact.abs()).max())
        if error > (1e-2 if dtype == "bfloat16" else 1e-3):
            raise SystemExit(f"{name}, {dtype}: off by {error:.1e}")
        floor = 1000 * (stored.nbytes + (0 if scales is None else scales.nbytes)) / bandwidth
        row: dict[str, Any] = {"model": name, "images": GPU_IMAGES, "fragments": each, "words": words, "dtype": dtype}
        row |= {"ms": time(partial(maxsim, asked, stored, None, scales)), "floor_ms": floor, "error": error}
        row |= {"with_top_20_ms": time(partial(best, asked, stored, 20, None, scales)), "ratio": row["ms"] / floor}
        rows.append(row)
        del stored, exact
    vectors, one = (torch.randn(*shape, EMBEDDING, device="cuda").half() for shape in ((GPU_IMAGES,), ()))
    row = {"model": "fast", "images": GPU_IMAGES, "fragments": 1, "words": 1, "dtype": "float16"}
    row |= {"ms": time(lambda: vectors @ one), "with_top_20_ms": time(lambda: torch.topk(vectors @ one, 20))}
    floor = 1000 * vectors.nbytes / bandwidth
    return [*rows, row | {"floor_ms": floor, "ratio": row["ms"] / floor}]


def main() -> None:
    parser = options(__doc__, model=False)
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--bandwidth", type=float, default=4.8e12, help="of the GPU's memory, bytes a second (H200)")
    parser.add_argument("--candidates", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=100)
    arguments = parser.parse_args()
    if arguments.gpu:
        found = on_gpu(arguments.bandwidth, arguments.rounds)
        save("late-gpu", arguments, ["random"], [], {}, bandwidth=arguments.bandwidth, gpu=found)
        return
    rounds = 20 if arguments.quick else arguments.rounds
    found = over_candidates(arguments.candidates, rounds, np.random.default_rng(0))
    what = f"late interaction of {arguments.candidates} candidates, times plain numpy"
    save("late", arguments, ["random"], [], {what: found[-1]["ratio"]["p50_ms"]}, candidates=found)


if __name__ == "__main__":
    main()
