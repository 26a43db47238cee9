"""What was promised of speed, and whether a measurement keeps it."""

from collections.abc import Mapping
from dataclasses import dataclass

MET, UNMEASURED = "met", "not measured yet"


@dataclass(frozen=True, slots=True)
class Target:
    """A ratio of a benchmark that must reach a bound, or stay within it.

    what: in plain words. experiment, ratio: the result file, and which of its ratios. limit: whether the bound is the
    most that is allowed, rather than the least. unit: of the ratio, where it has one.
    """

    what: str
    experiment: str
    ratio: str
    bound: float
    limit: bool = False
    unit: str = ""

    @property
    def asked(self) -> str:
        """The bound, in words."""
        return f"at {'most' if self.limit else 'least'} {self.bound:g}{self.unit}"

    def verdict(self, value: float | None) -> str:
        """Whether a value keeps it, and if not, how many times the value would have to improve."""
        if value is None:
            return UNMEASURED
        if value <= self.bound if self.limit else value >= self.bound:
            return MET
        short = value / self.bound if self.limit else self.bound / value
        return f"missed, by {short:.2f} times"


_SCAN = "one query over 1,000,000 vectors in float16"
TARGETS = (
    Target(
        "indexing, times a plain transformers loop",
        "indexing",
        "photos a second, times a plain transformers loop",
        3.0,
    ),
    Target(
        "retrieval at 1M at a recall of 0.97, times as quick as paper 1's 1.6 s",
        "retrieval",
        "times as quick as paper 1's 1.6 s at 1,000,000",
        20.0,
    ),
    Target(
        "growth of retrieval from 10,000 items on, exponent",
        "retrieval",
        "exponent of Sightline, in items",
        1.05,
        limit=True,
    ),
    Target("growth of retrieval with HNSW, exponent", "retrieval", "exponent of FAISS HNSW, in items", 0.3, limit=True),
    Target(
        "matching 20 pairs, times a CrossEncoder of the same shape",
        "matching",
        "pairs a second, 20 at once, times a CrossEncoder",
        2.0,
    ),
    Target(
        "matching 100 pairs, times a CrossEncoder of the same shape",
        "matching",
        "pairs a second, 100 at once, times a CrossEncoder",
        2.0,
    ),
    Target(
        "a cold command at 10,000 items, with 20 matched",
        "end_to_end",
        "seconds of a cold command, 20 matched",
        1.0,
        limit=True,
        unit=" s",
    ),
    *(
        Target(f"growth of {stage}, exponent in {of}", "growing", f"exponent of {stage}, in {of}", 1.05, limit=True)
        for stage, of in (
            ("index", "pictures"),
            ("index, nothing changed", "pictures"),
            ("open", "items"),
            ("retrieve", "items"),
            ("compact", "items"),
            ("match", "candidates"),
            ("interact", "candidates"),
            ("rank a test set", "pairs"),
        )
    ),
    Target(f"GPU: {_SCAN}, exact", "scan-gpu", f"ms, {_SCAN}", 1.0, limit=True, unit=" ms"),
    Target(f"GPU: {_SCAN}, times the floor of its memory", "scan-gpu", f"times the floor, {_SCAN}", 3.0, limit=True),
    Target(
        "GPU: one query over 1,000,000 vectors, 20 matched",
        "gpu",
        "ms, retrieve from 1,000,000 and rerank 20",
        8.0,
        limit=True,
        unit=" ms",
    ),
    *(
        Target(
            f"GPU: evaluation of {images} images, 20 matched",
            "gpu",
            f"seconds, evaluate {images} images with rerank 20",
            seconds,
            limit=True,
            unit=" s",
        )
        for images, seconds in (("1,000", 10.0), ("5,000", 60.0))
    ),
)
"""Those of a GPU are for an H200."""


def judged(ratios: Mapping[str, Mapping[str, float]]) -> list[tuple[Target, float | None]]:
    """Each target with the value that was measured; ratios: of every experiment that was."""
    return [(target, ratios.get(target.experiment, {}).get(target.ratio)) for target in TARGETS]
