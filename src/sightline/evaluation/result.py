"""The result of an evaluation, with its gallery, stages, intervals, problems, time and seed."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sightline.arrays import Int64Array
from sightline.datasets.record import Problem
from sightline.errors import EvaluationError
from sightline.evaluation.metrics import RECALLS, Ranks, summary
from sightline.evaluation.resampling import Difference, Interval, bootstrap_both, paired_difference
from sightline.evaluation.test_set import Questions
from sightline.unicode_text import as_unicode


@dataclass(frozen=True, slots=True)
class FoldRanks:
    """The ranks of one gallery's queries, and the image that each query belongs to (an index into the records).

    text_to_image: [captions], ranks; caption_of: [captions], their images. image_to_text, image: the same by image.
    best_images: [captions, top], the best images for each caption, as indices into the records followed by the
    distractors; best_captions: [images, top]. Both are filled with -1 after the last result, and are empty unless `top`
    results were requested. caption: [captions], the index of each among all captions.
    """

    text_to_image: Ranks
    caption_of: Int64Array
    image_to_text: Ranks
    image: Int64Array
    caption: Int64Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    best_images: Int64Array = field(default_factory=lambda: np.empty((0, 0), dtype=np.int64))
    best_captions: Int64Array = field(default_factory=lambda: np.empty((0, 0), dtype=np.int64))


class Recalls(ABC):
    """The recalls in both directions, as means over folds or languages."""

    __slots__ = ()

    @abstractmethod
    def parts(self) -> list[tuple[dict[str, float], dict[str, float]]]:
        """Return the summaries to average, in pairs: text to image, and image to text."""

    @property
    def text_to_image(self) -> dict[str, float]:
        """R@1, R@5, R@10 and medR from captions to images."""
        return _mean([part[0] for part in self.parts()])

    @property
    def image_to_text(self) -> dict[str, float]:
        """R@1, R@5, R@10 and medR from images to any of their captions."""
        return _mean([part[1] for part in self.parts()])

    @property
    def r_sum(self) -> float:
        """The sum of the six recalls (rSum): 600 is perfect."""
        return sum(direction[name] for direction in (self.text_to_image, self.image_to_text) for name in RECALLS)

    @property
    def mean_recall(self) -> float:
        """The mean of the six recalls (mR); over several languages, it is paper 4's Meta-Ave."""
        return self.r_sum / (2 * len(RECALLS))

    def numbers(self) -> dict[str, Any]:
        """Return the recalls as JSON values; an infinite median rank becomes null."""
        sides = {"text_to_image": self.text_to_image, "image_to_text": self.image_to_text}
        return plain({**sides, "rSum": self.r_sum, "mR": self.mean_recall})  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Evaluation(Recalls):
    """Recalls in both directions of one model on one test set; `to_json` gives the result file.

    Unreadable images are included in `images`, and their captions in `captions`: they count as missed.
    `folds` holds the ranks of every query, for paired tests and error analysis.
    """

    model: str
    data: str
    lang: str
    protocol: str
    stages: tuple[str, ...]
    fusion: str | None
    weight: float | None
    distractors: int
    folds: tuple[FoldRanks, ...] = field(repr=False)
    fingerprint: str
    """Hash of the query keys and captions: evaluations with equal hashes can be compared pairwise."""
    problems: Mapping[str, int]
    seconds: Mapping[str, float]
    seed: int
    distractor_captions: int = 0
    """Captions that are in the gallery of captions but never queries (protocol `full`)."""
    translated_by: str | None = None
    """The translator that translated the captions into the model's language, if any."""
    unreadable: tuple[Problem, ...] = ()
    """The unreadable images, each with the reason."""
    questions: Questions | None = field(default=None, repr=False)
    """The queries and galleries."""

    @property
    def images(self) -> int:
        """The number of images with captions, which are the image queries."""
        return sum(len(fold.image_to_text) for fold in self.folds)

    @property
    def captions(self) -> int:
        """The number of captions that are queries."""
        return sum(len(fold.text_to_image) for fold in self.folds)

    def parts(self) -> list[tuple[dict[str, float], dict[str, float]]]:
        """Return the recall summaries of each fold."""
        return [(summary(fold.text_to_image), summary(fold.image_to_text)) for fold in self.folds]

    @property
    def ci95(self) -> dict[str, dict[str, Interval] | Interval]:
        """The 95 % intervals from resampling images with their captions; the queries of several folds are pooled."""
        return bootstrap_both(*self.ranks(), seed=self.seed)

    def ranks(self) -> tuple[Ranks, Int64Array, Ranks, Int64Array]:
        """Return the ranks of all captions and the image of each, then the ranks of all images and their indices."""
        return (
            np.concatenate([fold.text_to_image for fold in self.folds]),
            np.concatenate([fold.caption_of for fold in self.folds]),
            np.concatenate([fold.image_to_text for fold in self.folds]),
            np.concatenate([fold.image for fold in self.folds]),
        )

    def gain_of(self, other: "Evaluation", *, seed: int = 0) -> dict[str, dict[str, Difference]]:
        """Return how much higher the recalls of `other` are, on the same queries, with paired 95 % intervals."""
        if (self.fingerprint, self.protocol) != (other.fingerprint, other.protocol):
            raise EvaluationError(
                f"{self.model} and {other.model} were evaluated on different queries",
                "Evaluate both on the same data, language and protocol.",
            )
        texts, caption_of, images, _ = self.ranks()
        other_texts, _, other_images, _ = other.ranks()
        return {
            "text_to_image": paired_difference(texts, other_texts, caption_of, seed=seed),
            "image_to_text": paired_difference(images, other_images, seed=seed),
        }

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        names = ("model", "data", "lang", "protocol", "stages", "fusion", "weight", "images", "captions", "distractors")
        only_if = {"distractor_captions": self.distractor_captions, "translated_by": self.translated_by}
        return {
            **{name: getattr(self, name) for name in names},
            "model": as_unicode(self.model),
            "data": as_unicode(self.data),
            "stages": list(self.stages),
            **{name: value for name, value in only_if.items() if value},
            **self.numbers(),
            "ci95": plain(self.ci95),
            "problems": dict(self.problems),
            "unreadable": [
                {"image": as_unicode(one.place), "reason": as_unicode(one.reason)} for one in self.unreadable
            ],
            "seconds": plain(self.seconds),
            "seed": self.seed,
        }


def _mean(summaries: list[dict[str, float]]) -> dict[str, float]:
    """Average several summaries, number by number."""
    return {name: sum(one[name] for one in summaries) / len(summaries) for name in summaries[0]}


def plain(value: Any) -> Any:
    """Round numbers to a meaningful precision, and convert values to JSON types."""
    if isinstance(value, Mapping):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, tuple | list):
        return [plain(inner) for inner in value]
    return round(value, 3) if math.isfinite(value) else None
