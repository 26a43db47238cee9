"""Measure the time of late interaction over a few hundred candidates, with random fragments.

python -m benchmarks.late

On a busy machine, bind it to one core (taskset -c 0), so that neither side waits for threads.
"""

import tempfile
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.samples import fill, shape_of, units
from benchmarks.timing import cpu_seconds_of, in_turns, options, save
from sightline.arrays import Float32Array
from sightline.bundle import Encoded
from sightline.parallel import usable_cpus
from sightline.retrieval.late import LateScorer
from sightline.stores.local import LocalStore

PATCHES, DIM, EMBEDDING = 49, 128, 512
POOL = 512  # distinct items in a synthetic collection


def filled(folder: Path, count: int, rng: np.random.Generator) -> LocalStore:
    """Make a store of `count` items, which are copies of a few distinct ones, and open it for reading."""
    patches = units(rng, POOL, PATCHES, DIM)
    pool = Encoded(units(rng, POOL, EMBEDDING), np.ones(patches.shape[:2], dtype=np.bool_), patches)
    with closing(LocalStore.open(folder, shape_of(pool), write=True)) as store:
        fill(store, pool, count)
    return LocalStore.open(folder, shape_of(pool), write=False)


def einsum(words: Any, fragments: Any) -> Float32Array:
    """Compute late interaction in its simplest form: every cosine at once, in float32."""
    found: Float32Array = np.einsum("wd,npd->nwp", words, fragments, optimize=True).max(axis=2).sum(axis=1)
    return found


def over_candidates(count: int, rounds: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Time scoring some of 10,000 memory-mapped items, in milliseconds, and compare it with plain NumPy."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        store = filled(Path(folder), 10_000, rng)
        for words in (8, 16, 32):
            embedding, asked, ids = units(rng, 1, EMBEDDING), units(rng, words, DIM), rng.permutation(10_000)[:count]
            text = Encoded(embedding, np.ones((1, words), dtype=np.bool_), asked[None])
            late = LateScorer(store, text, "images")
            ways: dict[str, Callable[[], Float32Array]] = {
                "late": partial(late.scores, ids),
                "fetch and einsum": lambda a=asked, i=ids: einsum(a, store.fetch(i, "fragments").values),  # type: ignore[misc]
            }
            np.testing.assert_allclose(ways["late"](), ways["fetch and einsum"](), rtol=1e-4)
            row: dict[str, Any] = {"candidates": count, "fragments": PATCHES, "words": words}
            wall = in_turns(ways, rounds)
            cpu = in_turns({name: partial(cpu_seconds_of, way) for name, way in ways.items()}, rounds)
            row |= {n: {"p50_ms": 1000 * median(wall[n]), "cpu_p50_ms": 1000 * median(cpu[n])} for n in ways}
            row["ratio"] = {of: row["late"][of] / row["fetch and einsum"][of] for of in row["late"]}
            rows.append(row)
        store.close()
    return rows


def main() -> None:
    parser = options(__doc__, model=False)
    parser.add_argument("--candidates", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=100)
    arguments = parser.parse_args()
    rounds = 20 if arguments.quick else arguments.rounds
    found = over_candidates(arguments.candidates, rounds, np.random.default_rng(0))
    what = f"late interaction of {arguments.candidates} candidates, times plain numpy"
    ratios = {f"{what}, {row['words']} words": row["ratio"]["p50_ms"] for row in found}
    ratios |= {f"{what}, {row['words']} words, CPU time": row["ratio"]["cpu_p50_ms"] for row in found}
    save("late", arguments, ["random"], [], ratios, cores=usable_cpus(), candidates=found)


if __name__ == "__main__":
    main()
