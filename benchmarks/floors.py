"""The least time that each path can take on this machine, from its memory bandwidth and its rate of operations.

    python -m benchmarks.floors

Both are measured here with all cores: a product of vectors far larger than the caches, and one of matrices in float32.
Graphs in int8 do more operations a second, and may go below. The shapes are those of the bundled model.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.timing import best, options, save
from benchmarks.vector_search.summary import bandwidth, bytes_read
from sightline.parallel import usable_cpus

WORDS, PARTS, PATCHES = 13, 49, 197
"""Of a typical query; of an image, as the matcher reads it; of an image, as the image tower reads it."""


def transformer(positions: int, layers: int, width: int, inner: int) -> float:
    """Operations of a transformer: a multiplication and an addition per weight and position, and the attention."""
    weights = 4 * width * width + 2 * width * inner
    return layers * (2.0 * positions * weights + 4.0 * positions * positions * width)


@dataclass(frozen=True, slots=True)
class Work:
    """A path: the bytes that must be read, and the operations that must be done."""

    what: str
    bytes: float
    operations: float


WORK = (
    Work("encode a picture", 86e6, transformer(PATCHES, 12, 768, 3072)),
    Work("encode a query", 11e6, transformer(WORDS, 6, 384, 1536)),
    *(Work(f"retrieve from {items:,} items", bytes_read(items, 512), 0.0) for items in (10_000, 1_000_000)),
    Work("interact with 200 candidates", 200.0 * PARTS * (128 + 4), 2.0 * 200 * PARTS * WORDS * 128),
    Work("match 20 candidates", 20.0 * PARTS * (384 + 4) + 6e6, 20 * transformer(WORDS + PARTS, 3, 384, 1536)),
    Work("rank 5,000 images and 25,000 captions", 30_000.0 * 512 * 4, 2.0 * 5_000 * 25_000 * 512),
)


def rate(side: int, rounds: int) -> float:
    """Operations a second of a product of two square matrices in float32."""
    left, right = np.ones((2, side, side), dtype=np.float32)
    return float(2.0 * side**3 / best(lambda: left @ right, rounds))


def rows(bytes_per_second: float, operations_per_second: float) -> list[dict[str, Any]]:
    """The floor of each path: whichever takes longer, bytes or operations."""
    found: list[dict[str, Any]] = []
    for work in WORK:
        ms = {"bytes": 1000 * work.bytes / bytes_per_second}
        ms["operations"] = 1000 * work.operations / operations_per_second
        row = {"path": work.what, "bytes": work.bytes, "operations": work.operations, "ms": ms}
        found.append(row | {"floor_ms": max(ms.values()), "bound_by": max(ms, key=lambda part: ms[part])})
    return found


def main() -> None:
    arguments = options(__doc__, model=False).parse_args()
    rounds = 5 if arguments.quick else 20
    reached = {"bytes_per_second": bandwidth(usable_cpus(), rounds=rounds), "operations_per_second": rate(2048, rounds)}
    save("floors", arguments, [], rows(**reached), {}, **reached)


if __name__ == "__main__":
    main()
