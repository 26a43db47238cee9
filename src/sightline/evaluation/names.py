"""Zero-shot classification: how often an image's label ranks first among the labels of a data set."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from sightline.bundle.model import Model
from sightline.datasets import Problem, Record
from sightline.errors import EvaluationError
from sightline.evaluation.encodings import Needs, Progress, SharedImages, encode_images, encode_texts, usual_batch
from sightline.evaluation.evaluator import PARTS, evaluation_plan
from sightline.evaluation.metrics import Ranks, recall, text_to_image_ranks
from sightline.evaluation.pair_scores import match_scores
from sightline.evaluation.ranking import candidates_from_embeddings, ranks_after_stages
from sightline.evaluation.resampling import wilson
from sightline.evaluation.result import plain
from sightline.fusion_names import FusionRule
from sightline.retrieval.costs import Stopwatch
from sightline.unicode_text import as_unicode

PROMPTS = (
    "a photo of a {}.",
    "{}",
    "a picture of a {}",
    "a close-up of a {}",
    "a {}",
    "this is a {}",
    "an image of a {}",
)
"""Prompt templates for a label. Its embedding is the mean over all of them; the matcher reads only the first."""


@dataclass(frozen=True, slots=True)
class NamesEvaluation:
    """Zero-shot classification results of one model on one data set.

    ranks: [images], the rank of each image's own label; infinite for an unreadable image.
    """

    model: str
    data: str
    stages: tuple[str, ...]
    fusion: str | None
    weight: float | None
    labels: tuple[str, ...] = field(repr=False)
    ranks: Ranks = field(repr=False)
    prompts: tuple[str, ...] = PROMPTS
    seconds: Mapping[str, float] = field(default_factory=dict)
    unreadable: tuple[Problem, ...] = ()

    @property
    def top1(self) -> float:
        """The percentage of images whose own label ranks first."""
        return recall(self.ranks, 1)

    @property
    def top5(self) -> float:
        """The percentage of images whose own label is among the top five."""
        return recall(self.ranks, 5)

    @property
    def ci95(self) -> dict[str, tuple[float, float]]:
        """The 95 % confidence intervals of top 1 and top 5 (Wilson 1927)."""
        return {name: wilson(value / 100, len(self.ranks)) for name, value in self.names.items()}

    @property
    def names(self) -> dict[str, float]:
        """The top-1 and top-5 percentages, with the keys of the JSON result."""
        return {"top1": self.top1, "top5": self.top5}

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return {
            "model": as_unicode(self.model),
            "data": as_unicode(self.data),
            "protocol": "names",
            "stages": list(self.stages),
            "fusion": self.fusion,
            "weight": self.weight,
            "images": len(self.ranks),
            "names": {**plain(self.names), "labels": len(self.labels)},
            "ci95": plain(self.ci95),
            "prompts": list(self.prompts),
            "unreadable": [
                {"image": as_unicode(one.place), "reason": as_unicode(one.reason)} for one in self.unreadable
            ],
            "seconds": plain(self.seconds),
        }


def evaluate_names(
    model: Model,
    records: Sequence[Record],
    *,
    data: str = "",
    prompts: Sequence[str] = PROMPTS,
    rerank: int | None = None,
    fusion: FusionRule | None = None,
    weight: float | None = None,
    batch_size: int | None = None,
    progress: Progress | None = None,
    shared: SharedImages | None = None,
) -> NamesEvaluation:
    """Measure how often `model` ranks an image's own label first among all labels of `records`.

    A record's label is its `label` or, if it has none, the name of the folder that the image is in.

    data: the name of the data set in the result.
    prompts: sentences with {} in place of the label.
    rerank: how many of the top labels the matcher rescores, with the first prompt; its logit and the cosine are
        combined by `fusion` and `weight`, by default those of the model.
    shared: the images, if they are already encoded.

    An unreadable image counts as missed and is listed in `unreadable`. Ties count against the model.
    """
    _check_prompts(prompts)
    plan = evaluation_plan(model, rerank=rerank, fusion=fusion, weight=weight)
    of_records = labels_of(records)
    labels = tuple(dict.fromkeys(of_records))
    number = {label: index for index, label in enumerate(labels)}
    right = np.array([number[label] for label in of_records], dtype=np.int64)
    batch = batch_size or usual_batch(model)
    clock, states = Stopwatch(PARTS), Needs(states=bool(plan.rerank))
    unreadable: list[Problem] = []
    with clock("encode_images"):
        sources = [record.image for record in records]
        images, readable = encode_images(model, sources, states, batch, progress, unreadable.append, shared)
    with clock("encode_texts"):
        asked = [[prompt.format(label) for label in labels] for prompt in prompts]
        texts, _ = encode_texts(model, asked[0], states, batch, progress)
        others = (encode_texts(model, some, Needs(), batch, progress)[0].embedding for some in asked[1:])
        total = np.sum([texts.embedding, *others], axis=0)
        vectors = total / np.linalg.norm(total, axis=1, keepdims=True).clip(min=1e-12)
    with clock("rank"):
        found = text_to_image_ranks(images.embedding @ vectors.T, right[readable])
    if plan.rerank:
        with clock("match"):
            pairs = match_scores(model, texts, images, batch, progress).of_images(np.arange(len(images)))
            best = candidates_from_embeddings(images.embedding, vectors, plan.longest)
            for stage in plan.stages({"match": pairs}):
                best = stage.run(best)
            found = ranks_after_stages(best, best.ids == right[readable, None], found)
    ranks = np.full(len(records), np.inf)
    ranks[readable] = found
    return NamesEvaluation(
        model=model.name,
        data=data,
        stages=plan.names,
        fusion=plan.fusion if plan.rerank else None,
        weight=plan.weight if plan.rerank and plan.fusion != "ce" else None,
        labels=labels,
        ranks=ranks,
        prompts=tuple(prompts),
        seconds=clock.seconds,
        unreadable=tuple(unreadable),
    )


def labels_of(records: Sequence[Record]) -> list[str]:
    """Return the label of every record: its `label`, or else the name of its image's folder."""
    found = [record.label or PurePosixPath(record.key).parent.name.replace("_", " ").strip() for record in records]
    lacking = [record.key for record, label in zip(records, found, strict=True) if not label]
    if not records:
        raise EvaluationError("there are no images to classify")
    if lacking or len(set(found)) < 2:
        raise EvaluationError(
            f"{lacking[0]} has no label" if lacking else f"all images have the same label, {found[0]!r}",
            'Use images in folders named after what they show, or shards whose JSON has a "label".',
        )
    return found


def _check_prompts(prompts: Sequence[str]) -> None:
    for prompt in prompts:
        if prompt.count("{}") != 1:
            raise EvaluationError(f"invalid prompt: {prompt!r}", "Put {} once, where the label goes.")
    if not prompts:
        raise EvaluationError("there are no prompts", 'Add at least one, such as "a photo of a {}."')
