"""How long late interaction takes: over a few hundred stored candidates, over whole collections, and on a GPU.

    python -m benchmarks.late                  on the processor; --quick for a smaller case, in a minute or so
    python -m benchmarks.late --gpu            on a GPU, with torch and Triton (writes late-gpu.json)

On the processor, SIGHTLINE_DATA and a bundle (the bundled one) give real fragments and captions; without
SIGHTLINE_DATA, what needs them is left out. Collections are made up: fragments of random directions.
"""

import argparse
import json
import os
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.provenance import provenance
from sightline.bundle import Bundle, Encoded
from sightline.datasets import read_all
from sightline.media import load_pixels
from sightline.registry.loader import locate
from sightline.retrieval.late import Late, rank_all
from sightline.retrieval.query import Asked
from sightline.stores.base import Shape
from sightline.stores.local import LocalStore

Singles = npt.NDArray[np.float32]
PATCHES, DIM, EMBEDDING = 49, 128, 512
POOL = 512  # different items in a made-up collection
AT_ONCE = 5_000
ON_GPU = 100_000, 32, 128


def units(rng: np.random.Generator, *shape: int) -> Singles:
    vectors = rng.standard_normal(shape, dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors


def filled(folder: Path, count: int, rng: np.random.Generator) -> LocalStore:
    """A store of so many items, each with the fragments of one of a few."""
    store = LocalStore.open(folder, Shape(EMBEDDING, DIM), write=True)
    fragments = units(rng, POOL, PATCHES, DIM)
    for start in range(0, count, AT_ONCE):
        ids = np.arange(start, min(start + AT_ONCE, count))
        embeddings, chosen = units(rng, len(ids), EMBEDDING), rng.integers(0, POOL, len(ids))
        store.add(ids, Encoded(embeddings, np.ones((len(ids), PATCHES), dtype=np.bool_), fragments[chosen]))
    store.flush()
    return store


def text_of(rng: np.random.Generator, words: int) -> Encoded:
    return Encoded(units(rng, 1, EMBEDDING), np.ones((1, words), dtype=np.bool_), units(rng, 1, words, DIM))


def timed(run: Callable[[], object], rounds: int) -> list[float]:
    run()
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        run()
        times.append(1000 * (time.perf_counter() - started))
    return times


def over_candidates(count: int, rounds: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Milliseconds over some candidates of 10,000 items, from the memory map, beside plain numpy on float32 arrays."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        store = filled(Path(folder), 10_000, rng)
        for words in (8, 16, 32):
            text, ids = text_of(rng, words), rng.permutation(10_000)[:count]
            late, stored, own = Late(store, text, "images"), store.fetch(ids, "fragments"), text.fragments
            assert own is not None
            ways: dict[str, Callable[[], Singles]] = {
                "late": lambda late=late, ids=ids: late.scores(ids),  # type: ignore[misc]
                "einsum": lambda own=own, stored=stored: _einsum(own[0], stored.values),  # type: ignore[misc]
                "fetch and einsum": lambda own=own, ids=ids: _einsum(  # type: ignore[misc]
                    own[0], store.fetch(ids, "fragments").values
                ),
            }
            np.testing.assert_allclose(ways["late"](), ways["einsum"](), rtol=1e-4)
            row: dict[str, Any] = {"candidates": count, "fragments": PATCHES, "words": words}
            for name, way in ways.items():
                times = timed(way, rounds)
                row[name] = {"p50_ms": median(times), "best_ms": min(times), "p90_ms": float(np.percentile(times, 90))}
            row["ratio"] = {of: row["fetch and einsum"][of] / row["late"][of] for of in ("p50_ms", "best_ms")}
            told = ", ".join(f"{name} {row[name]['p50_ms']:.2f} ms (best {row[name]['best_ms']:.2f})" for name in ways)
            ratio = f"{row['ratio']['p50_ms']:.1f} x plain (best {row['ratio']['best_ms']:.1f} x)"
            print(f"late {count} candidates, {words} words: {told}; {ratio}", flush=True)
            rows.append(row)
        store.close()
    return rows


def _einsum(words: npt.NDArray[np.floating], fragments: Singles) -> Singles:
    """Late interaction as one would write it first: every cosine at once, in float32."""
    found: Singles = np.einsum("wd,npd->nwp", words, fragments, optimize=True).max(axis=2).sum(axis=1)
    return found


def over_all(sizes: list[int], rng: np.random.Generator) -> list[dict[str, Any]]:
    """Seconds to rank a whole collection, the first time and the median after, and the memory that it takes."""
    rows = []
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            store = filled(Path(folder), size, rng)
            text = text_of(rng, 16)
            asked = Asked(text.embedding[0], text, None, np.empty((0, EMBEDDING), dtype=np.float32))
            late = Late(store, text, "images")
            started = time.perf_counter()
            rank_all(late, asked, 20)
            first = time.perf_counter() - started
            times = timed(lambda late=late, asked=asked: rank_all(late, asked, 20), 3)  # type: ignore[misc]
            tracemalloc.start()
            rank_all(late, asked, 20)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            row = {"items": size, "fragments": PATCHES, "words": 16, "first_seconds": first}
            row |= {"seconds": median(times) / 1000, "peak_memory_mb": peak / 1e6}
            told = f"{row['seconds']:.2f} s (first {first:.2f} s), {row['peak_memory_mb']:.1f} MB held"
            print(f"late all, {size} items: {told}", flush=True)
            rows.append(row)
            store.close()
    return rows


def agreement(model: str, photos: int, k: int = 20) -> dict[str, Any]:
    """How many of the k best by float32 fragments are among the k best by stored ones, of photos and for captions."""
    bundle = Bundle.open(locate(model))
    records = read_all([os.environ["SIGHTLINE_DATA"] + "/flickr8k-test.tar"])[:photos]
    pixels = [loaded.pixels for loaded in load_pixels([r.image for r in records], bundle.preprocess)]
    parts = [bundle.encode_images(p[None]) for p in pixels if p is not None]
    fragments = np.concatenate([part.fragments for part in parts if part.fragments is not None]).astype(np.float32)
    images = Encoded(np.concatenate([part.embedding for part in parts]), np.ones(fragments.shape[:2], bool), fragments)
    captions = [record.captions_in("en")[0] for record in records]
    shares = []
    with tempfile.TemporaryDirectory() as folder:
        store = LocalStore.open(Path(folder), Shape(images.embedding.shape[1], fragments.shape[2]), write=True)
        ids = np.arange(len(images))
        store.add(ids, images)
        for caption in captions:
            text = bundle.encode_texts([caption])
            assert text.fragments is not None
            exact = _einsum(text.fragments[0], fragments)
            rounded = Late(store, text, "images").scores(ids)
            shares.append(len(set(np.argsort(-exact)[:k]) & set(np.argsort(-rounded)[:k])) / k)
        store.close()
    found: dict[str, Any] = {"model": bundle.name, "photos": len(ids), "captions": len(captions), "k": k}
    found |= {"mean": float(np.mean(shares)), "least": min(shares)}
    print(f"late int8: {100 * found['mean']:.2f} % of the {k} best of float32, {100 * min(shares):.0f} % at least")
    return found


def on_gpu(bandwidth: float, rounds: int) -> list[dict[str, Any]]:
    """Milliseconds of the fused kernel over a collection, beside the time that reading its fragments takes at least."""
    import torch
    import triton

    from sightline.kernels.maxsim import best, maxsim, reference

    torch.manual_seed(0)
    rows: list[dict[str, Any]] = []
    for name, words, each, dtype in (
        ("base", 32, ON_GPU[1], "float16"),
        ("base", 32, ON_GPU[1], "bfloat16"),
        ("base", 32, ON_GPU[1], "int8"),
        ("grid", 32, 49, "float16"),
        ("inflated", 64, 64, "float16"),
    ):
        half = torch.float16 if dtype == "int8" else getattr(torch, dtype)
        asked = torch.nn.functional.normalize(torch.randn(words, ON_GPU[2], device="cuda"), dim=-1).to(half)
        stored = torch.empty(ON_GPU[0], each, ON_GPU[2], device="cuda", dtype=half)
        for block in torch.split(stored, AT_ONCE):
            block.copy_(torch.nn.functional.normalize(torch.randn(block.shape, device="cuda"), dim=-1))
        scales = None
        if dtype == "int8":
            scales = (stored.abs().amax(-1).float() / 127).contiguous()
            stored = (stored.float() / scales[..., None]).round().to(torch.int8)
        exact = reference(asked, stored, None, scales)
        error = float(((maxsim(asked, stored, None, scales) - exact).abs() / exact.abs()).max())
        limit = 1e-2 if dtype == "bfloat16" else 1e-3

        def score(asked: Any = asked, stored: Any = stored, scales: Any = scales) -> object:
            return maxsim(asked, stored, None, scales)

        def top(asked: Any = asked, stored: Any = stored, scales: Any = scales) -> object:
            return best(asked, stored, 20, None, scales)

        bytes_read = stored.numel() * stored.element_size() + (0 if scales is None else 4 * scales.numel())
        floor = 1000 * bytes_read / bandwidth
        took, with_top = (triton.testing.do_bench(way, rep=rounds, return_mode="median") for way in (score, top))
        row = {"model": name, "images": ON_GPU[0], "fragments": each, "words": words, "dtype": dtype}
        row |= {
            "ms": took,
            "with_top_20_ms": with_top,
            "floor_ms": floor,
            "ratio": took / floor,
            "error": error,
            "error_limit": limit,
        }
        told = f"{took:.3f} ms, with top 20 {with_top:.3f} ms, floor {floor:.3f} ms, {took / floor:.2f} x the floor"
        print(f"late gpu {name}, {words} x {each}, {dtype}: {told}, error {error:.1e}", flush=True)
        rows.append(row)
        del stored, exact
    rows.append(_fast(bandwidth, rounds))
    return rows


def _fast(bandwidth: float, rounds: int) -> dict[str, Any]:
    """One product an image, by torch: the paper's fast model."""
    import torch
    import triton

    stored = torch.randn(ON_GPU[0], EMBEDDING, device="cuda", dtype=torch.float16)
    asked = torch.randn(EMBEDDING, device="cuda", dtype=torch.float16)
    took = triton.testing.do_bench(lambda: stored @ asked, rep=rounds, return_mode="median")
    with_top = triton.testing.do_bench(lambda: torch.topk(stored @ asked, 20), rep=rounds, return_mode="median")
    floor = 1000 * stored.numel() * 2 / bandwidth
    print(f"late gpu fast, 1 x 1: {took:.3f} ms, with top 20 {with_top:.3f} ms, floor {floor:.3f} ms", flush=True)
    row = {"model": "fast", "images": ON_GPU[0], "fragments": 1, "words": 1, "dtype": "float16"}
    return row | {"ms": took, "with_top_20_ms": with_top, "floor_ms": floor, "ratio": took / floor}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--bandwidth", type=float, default=4.8e12, help="of the GPU's memory, bytes a second (H200)")
    parser.add_argument("--candidates", type=int, default=200)
    parser.add_argument("--sizes", default="10000,100000")
    parser.add_argument("--photos", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--model", default="default")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    result: dict[str, Any] = {"experiment": "late"}
    if arguments.gpu:
        rows = on_gpu(arguments.bandwidth, arguments.rounds)
        result |= {**provenance(0, ["made up"]), "bandwidth": arguments.bandwidth, "gpu": rows}
    else:
        if arguments.quick:
            arguments.sizes, arguments.rounds = "10000", 20
        has_data = "SIGHTLINE_DATA" in os.environ and not arguments.quick
        result |= provenance(0, ["made up", *(["flickr8k-test"] if has_data else [])])
        result["load_average"] = os.getloadavg()[0]
        result["candidates"] = over_candidates(arguments.candidates, arguments.rounds, rng)
        result["all"] = over_all([int(size) for size in arguments.sizes.split(",")], rng)
        result["int8"] = agreement(arguments.model, arguments.photos) if has_data else None
        ratio = result["candidates"][-1]["ratio"]["p50_ms"]
        result["ratios"] = {f"late interaction of {arguments.candidates} candidates, times plain numpy": ratio}
    folder = Path("benchmarks/results", "quick" if arguments.quick else "")
    path = arguments.json or folder / ("late-gpu.json" if arguments.gpu else "late.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")
    wrong = [row for row in result.get("gpu", ()) if row.get("error", 0.0) > row.get("error_limit", 0.0)]
    if wrong:
        sys.exit(f"off by more than is allowed: {wrong}")


if __name__ == "__main__":
    main()
