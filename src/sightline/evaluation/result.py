"""What an evaluation found, with all it takes to judge it: gallery, stages, intervals, problems, time and seed."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sightline.arrays import Int64Array
from sightline.datasets.record import Problem
from sightline.errors import EvaluationError
from sightline.evaluation.metrics import Ranks, mean_recall, r_sum, summary
from sightline.evaluation.resampling import Difference, Interval, bootstrap_both, paired_difference


@dataclass(frozen=True, slots=True)
class FoldRanks:
    """Ranks of one gallery's queries, and which image each belongs to (an index into the records).

    text_to_image: [captions] with caption_of [captions]; image_to_text: [images] with image [images].
    """

    text_to_image: Ranks
    caption_of: Int64Array
    image_to_text: Ranks
    image: Int64Array


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Recalls in both directions of one model on one test set; `to_json` gives the result file.

    Images that cannot be read are among `images`, and their captions among `captions`: they count as missed.
    `folds` holds the ranks of every query, for paired tests and for looking at what went wrong.
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
    """Of the keys and captions asked about: two evaluations can be paired where it is the same."""
    problems: Mapping[str, int]
    seconds: Mapping[str, float]
    seed: int
    distractor_captions: int = 0
    """Captions that nobody asks about in the gallery of captions, those of protocol `full`."""
    translated_by: str | None = None
    """What put the captions into the model's language, if anything did."""
    unreadable: tuple[Problem, ...] = ()
    """The images that cannot be read, each with the reason."""

    @property
    def images(self) -> int:
        """How many images have captions, and so were asked about."""
        return sum(len(fold.image_to_text) for fold in self.folds)

    @property
    def captions(self) -> int:
        """How many captions were asked about."""
        return sum(len(fold.text_to_image) for fold in self.folds)

    @property
    def text_to_image(self) -> dict[str, float]:
        """R@1, R@5, R@10 and medR of finding a caption's image; of several folds the mean."""
        return mean_of([summary(fold.text_to_image) for fold in self.folds])

    @property
    def image_to_text(self) -> dict[str, float]:
        """R@1, R@5, R@10 and medR of finding any caption of an image; of several folds the mean."""
        return mean_of([summary(fold.image_to_text) for fold in self.folds])

    @property
    def r_sum(self) -> float:
        """Sum of the six recalls."""
        return r_sum(self.text_to_image, self.image_to_text)

    @property
    def mean_recall(self) -> float:
        """Mean of the six recalls."""
        return mean_recall(self.text_to_image, self.image_to_text)

    @property
    def ci95(self) -> dict[str, dict[str, Interval] | Interval]:
        """95 % intervals from resampling images, with their captions; the queries of several folds are pooled."""
        text_to_image, caption_of, image_to_text, image = self.ranks()
        return bootstrap_both(text_to_image, caption_of, image_to_text, image, seed=self.seed)

    def ranks(self) -> tuple[Ranks, Int64Array, Ranks, Int64Array]:
        """Ranks of all captions and the image of each, ranks of all images and which they are, in record order."""
        return (
            np.concatenate([fold.text_to_image for fold in self.folds]),
            np.concatenate([fold.caption_of for fold in self.folds]),
            np.concatenate([fold.image_to_text for fold in self.folds]),
            np.concatenate([fold.image for fold in self.folds]),
        )

    def gain_of(self, other: "Evaluation", *, seed: int = 0) -> dict[str, dict[str, Difference]]:
        """How much higher the recalls of `other` are on the same queries, with paired 95 % intervals."""
        if (self.fingerprint, self.protocol) != (other.fingerprint, other.protocol):
            raise EvaluationError(
                f"{self.model} and {other.model} were not asked the same queries",
                "Evaluate both on the same data, language and protocol.",
            )
        texts, caption_of, images, _ = self.ranks()
        other_texts, _, other_images, _ = other.ranks()
        return {
            "text_to_image": paired_difference(texts, other_texts, caption_of, seed=seed),
            "image_to_text": paired_difference(images, other_images, seed=seed),
        }

    def to_json(self) -> dict[str, Any]:
        """Give the result as JSON values; a median rank that is infinite, because most was missed, is null."""
        only_if = {"distractor_captions": self.distractor_captions, "translated_by": self.translated_by}
        return {
            "model": self.model,
            "data": self.data,
            "lang": self.lang,
            "protocol": self.protocol,
            "stages": list(self.stages),
            "fusion": self.fusion,
            "weight": self.weight,
            "images": self.images,
            "captions": self.captions,
            "distractors": self.distractors,
            **{name: value for name, value in only_if.items() if value},
            "text_to_image": plain(self.text_to_image),
            "image_to_text": plain(self.image_to_text),
            "rSum": plain(self.r_sum),
            "mR": plain(self.mean_recall),
            "ci95": plain(self.ci95),
            "problems": dict(self.problems),
            "unreadable": [{"image": _text(one.place), "reason": _text(one.reason)} for one in self.unreadable],
            "seconds": plain(self.seconds),
            "seed": self.seed,
        }


def _text(words: str) -> str:
    """What any file takes: of the name of an image that is no UTF-8, the rest."""
    return words.encode("utf-8", "replace").decode("utf-8")


def mean_of(summaries: list[dict[str, float]]) -> dict[str, float]:
    """Average several summaries, number by number."""
    return {name: sum(one[name] for one in summaries) / len(summaries) for name in summaries[0]}


def plain(value: Any) -> Any:
    """Round numbers to what they can mean, and turn what JSON does not know into what it does."""
    if isinstance(value, Mapping):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, tuple | list):
        return [plain(inner) for inner in value]
    return round(value, 3) if math.isfinite(value) else None
