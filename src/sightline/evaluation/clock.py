"""Where the time of an evaluation went."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

PARTS = ("encode_images", "encode_texts", "rank", "late", "match")


@dataclass(frozen=True, slots=True)
class Clock:
    """Seconds spent on each part of the work, added up over folds; 0 for a part that was not asked for."""

    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PARTS, 0.0))

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        """Count the time of a `with` block towards a part."""
        start = time.perf_counter()
        yield
        self.seconds[part] += time.perf_counter() - start
