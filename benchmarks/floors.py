"""What this machine can do at best: bytes a second, operations a second, and what that leaves of each path's time.

    python -m benchmarks.floors

No path can be quicker than its bytes over the bandwidth of the memory, or its operations over the rate of the
processor, whichever takes longer. Both are measured here: a product of vectors far larger than the caches, and one of
matrices in float32, with all processors. Graphs in int8 do more operations a second than that, and may go below.
Counted are the bundled model's shapes: see WORK.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.timing import best, options, write
from benchmarks.vector_search.summary import bandwidth, floor_ms
from sightline.parallel import usable_cpus

WORDS, PARTS, PATCHES = 13, 49, 197
"""Of a typical query, with its marks; that a matcher reads of a picture; that an image tower does."""


def transformer(positions: int, layers: int, width: int, inner: int) -> float:
    """Operations of a transformer: a multiplication and an addition for each weight and position, and the attention."""
    weights = 4 * width * width + 2 * width * inner
    return layers * (2.0 * positions * weights + 4.0 * positions * positions * width)


@dataclass(frozen=True, slots=True)
class Work:
    """Something a user waits for: the bytes that must be read, and the operations that must be done."""

    what: str
    bytes: float
    operations: float

    def milliseconds(self, bandwidth: float, rate: float) -> dict[str, float]:
        """How long each would take alone."""
        return {"bytes": 1000 * self.bytes / bandwidth, "operations": 1000 * self.operations / rate}


WORK = (
    Work("encode a picture", 86e6, transformer(PATCHES, 12, 768, 3072)),
    Work("encode a query", 11e6, transformer(WORDS, 6, 384, 1536)),
    *(Work(f"retrieve from {items:,} items", floor_ms(items, 512, 1000.0), 0.0) for items in (10_000, 1_000_000)),
    Work("interact with 200 candidates", 200.0 * PARTS * (128 + 4), 2.0 * 200 * PARTS * WORDS * 128),
    Work("match 20 candidates", 20.0 * PARTS * (384 + 4) + 6e6, 20 * transformer(WORDS + PARTS, 3, 384, 1536)),
    Work("rank 5,000 images and 25,000 captions", 30_000.0 * 512 * 4, 2.0 * 5_000 * 25_000 * 512),
)
"""What a search reads comes from `floor_ms`: at a thousand bytes a second, its milliseconds are bytes."""


def rate(side: int, rounds: int) -> float:
    """Operations a second of a product of two square matrices in float32."""
    left, right = np.ones((2, side, side), dtype=np.float32)
    return float(2.0 * side**3 / best(lambda: left @ right, rounds))


def rows(bytes_per_second: float, operations_per_second: float) -> list[dict[str, Any]]:
    """The floor of each path."""
    found: list[dict[str, Any]] = []
    for work in WORK:
        parts = work.milliseconds(bytes_per_second, operations_per_second)
        row = {"path": work.what, "bytes": work.bytes, "operations": work.operations, "ms": parts}
        found.append(row | {"floor_ms": max(parts.values()), "bound_by": max(parts, key=lambda part: parts[part])})
    return found


def main() -> None:
    parser = options(__doc__)
    arguments = parser.parse_args()
    rounds = 5 if arguments.quick else 20
    reached = {"bytes_per_second": bandwidth(usable_cpus(), rounds=rounds), "operations_per_second": rate(2048, rounds)}
    write("floors", arguments, [], rows(**reached), {}, **reached)


if __name__ == "__main__":
    main()
