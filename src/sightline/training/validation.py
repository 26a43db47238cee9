"""Validation of a run: results, and the score that selects the best checkpoint."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sightline.bundle.encoded import Encoded
from sightline.bundle.model import Ability
from sightline.bundle.tokenizer import Tokenizer
from sightline.datasets import Record
from sightline.evaluation import Evaluation, Languages, NamesEvaluation, evaluate, evaluate_languages, evaluate_names
from sightline.evaluation.evaluator import evaluation_plan
from sightline.evaluation.names import labels_of
from sightline.models.checkpoint import AnyRetriever
from sightline.models.retriever import Retriever, TowerFeatures
from sightline.models.single_stream import SingleStream
from sightline.models.torch_model import TorchModel, to_arrays
from sightline.training.corpus import PrepareReport, room
from sightline.training.modes import image_tower_is_frozen
from sightline.training.overlap import overlap_notes
from sightline.training.recipe import Recipe
from sightline.training.setup import check_validation_records, trained_by, validation_records

MATCHED = 20
"""The number of candidates to rerank when validating a run that trains only a matcher."""

_MANY_PAIRS = 500_000  # more take long enough for a warning

OneSet = Evaluation | Languages | NamesEvaluation


@dataclass(frozen=True, slots=True)
class ValidationResults:
    """The results on several validation sets. The combined numbers are weighted means over the sets."""

    sets: Mapping[str, OneSet]
    weights: Mapping[str, float]

    @property
    def text_to_image(self) -> dict[str, float]:
        """R@1, R@5, R@10 and medR from captions to images, over the sets that have captions."""
        return self._recalls([(name, found.text_to_image) for name, found in self._captioned()])

    @property
    def image_to_text(self) -> dict[str, float]:
        """R@1, R@5, R@10 and medR from images to any of their captions, over the sets that have captions."""
        return self._recalls([(name, found.image_to_text) for name, found in self._captioned()])

    @property
    def r_sum(self) -> float:
        """Sum of the six recalls; for names, six times their top-1 accuracy."""
        return self._mean([(name, r_sum_of(found)) for name, found in self.sets.items()])

    @property
    def r_at_1(self) -> float:
        """Text-to-image R@1; for names, their top-1 accuracy."""
        return self._mean([(name, r_at_1_of(found)) for name, found in self.sets.items()])

    def _captioned(self) -> list[tuple[str, Evaluation | Languages]]:
        return [(name, found) for name, found in self.sets.items() if not isinstance(found, NamesEvaluation)]

    def _recalls(self, found: Sequence[tuple[str, Mapping[str, float]]]) -> dict[str, float]:
        keys = found[0][1] if found else {}
        return {key: self._mean([(name, one[key]) for name, one in found]) for key in keys}

    def _mean(self, found: Sequence[tuple[str, float]]) -> float:
        total = sum(self.weights[name] for name, _ in found)
        return sum(self.weights[name] * value for name, value in found) / total if total else 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the means, under the same keys as a single result, and the full result of every set."""
        return {
            "text_to_image": self.text_to_image,
            "image_to_text": self.image_to_text,
            "rSum": self.r_sum,
            "weights": dict(self.weights),
            "sets": {name: one.to_json() for name, one in self.sets.items()},
        }


Validated = Evaluation | Languages | ValidationResults


def r_sum_of(found: Validated | NamesEvaluation) -> float:
    """Return the sum of the six recalls of a result; for names, six times their top-1 accuracy."""
    return 6 * found.top1 if isinstance(found, NamesEvaluation) else found.r_sum


def r_at_1_of(found: Validated | NamesEvaluation) -> float:
    """Return text-to-image R@1; for names, their top-1 accuracy."""
    if isinstance(found, NamesEvaluation):
        return found.top1
    return found.r_at_1 if isinstance(found, ValidationResults) else found.text_to_image["R@1"]


class Validation:
    """Evaluates the model on the validation sets of a recipe, if it has any.

    If the model cannot be validated as the recipe says, the constructor raises an error, not the first validation.
    on_prepare: called with the progress of every validation, which can take a long time.
    """

    def __init__(
        self,
        recipe: Recipe,
        model: AnyRetriever,
        tokenizer: Tokenizer,
        device: torch.device,
        on_prepare: PrepareReport | None = None,
    ) -> None:
        self._on_prepare = on_prepare
        self._kept = KeptFeatures(device) if image_tower_is_frozen(model) else None
        self._recipe, self._model, self._tokenizer, self._device = recipe, model, tokenizer, device
        self.sets = {name: records for name, records in validation_records(recipe).items() if records}
        self._weights = {one.name: one.weight for one in recipe.data.validation_sets}
        self._names = {one.name for one in recipe.data.validation_sets if one.kind == "names"}
        asked = recipe.validation
        self._stages: dict[str, Any] = {
            "late": asked.late,
            "rerank": asked.rerank,
            "fusion": asked.fusion,
            "weight": asked.weight,
        }
        self._trained = trained_by(recipe)
        if self._trained and "embed" not in self._trained and not asked.rerank and not asked.late:
            self._stages["rerank" if "match" in self._trained else "late"] = self._rescored(model)
        if self.sets:
            evaluation_plan(self._runnable(model), **self._stages)
        for name, records in self.sets.items():
            if name in self._names:
                labels_of(records)
            else:
                check_validation_records(recipe, records, model.preprocess)

    def notes(self, training: Iterable[Record]) -> list[str]:
        """Return warnings about the run: validation images among the training images, and embeddings that get worse."""
        found = overlap_notes(training, self.sets)
        if self._forgets_embeddings():
            found.append(
                "losses: no loss trains the embeddings, but layers that compute them are trained, "
                "so the embeddings may get worse. Add a loss for them, such as contrastive"
                + ("." if "transformer" in self._model.parts() else ", or freeze the encoders.")
            )
        pairs = sum(len(some) * _size(some) for some in self.sets.values())
        if pairs > _MANY_PAIRS and self._stages["rerank"] >= max(map(_size, self.sets.values()), default=0):
            found.append(
                f"validation: {pairs:,} pairs are matched each time, which can take long. "
                "Set a limit for the data in data.val, or validation.rerank."
            )
        return found

    def evaluate(self) -> Validated | None:
        """Evaluate on every set, in each language of the run; None without validation data."""
        return self._evaluate_sets(self._model, self._stages, self.sets)

    def evaluate_heads(self, model: Retriever, known: Validated | None = None) -> dict[str, Any]:
        """Evaluate each trained ability of a checkpoint by itself; returns the recalls by ability, as in the log.

        Late interaction and matching rescore the embeddings' top 20, or everything if the embeddings are not trained,
        or are forgotten during this run.
        known: the result of `evaluate` for these weights, if available.
        """
        most = self._rescored(model)
        asked = {"embed": (0, 0), "fragments": (most, 0), "match": (0, most)}
        heads: dict[str, Any] = {}
        for ability in sorted(model.abilities):
            stages = {**self._stages, "late": asked[ability][0], "rerank": asked[ability][1]}
            sets = {name: some for name, some in self.sets.items() if not stages["late"] or name not in self._names}
            is_known = known is not None and stages == self._stages
            found = known if is_known else self._evaluate_sets(model, stages, sets)
            if found is not None:
                heads[ability] = log_entry(found)
        return heads

    def _rescored(self, model: Retriever) -> int:
        """Return how many candidates late interaction or matching rescore when they are measured by themselves."""
        if "embed" in model.abilities and not self._forgets_embeddings():
            return MATCHED
        return max(map(_size, self.sets.values()), default=0)

    def _forgets_embeddings(self) -> bool:
        """Return whether the model has embeddings that get worse: no loss trains them, but layers below them change."""
        if "embed" not in self._model.abilities or "embed" in self._trained:
            return False
        heads = {"image_reader", "text_codes", "image_codes"}
        heads |= {"image_states"} if isinstance(self._model, SingleStream) else set()
        below = [one for name, part in self._model.parts().items() if name != "matcher" for one in part.parameters()]
        below += [one for name, one in self._model.named_parameters() if name.partition(".")[0] in heads]
        return any(parameter.requires_grad for parameter in below)

    def _evaluate_sets(
        self, model: Retriever, stages: Mapping[str, Any], sets: Mapping[str, list[Record]]
    ) -> Validated | None:
        found = {name: self._evaluate(name, records, model, stages) for name, records in sets.items()}
        only = next(iter(found.values()), None)
        if len(found) > 1 or isinstance(only, NamesEvaluation):
            return ValidationResults(found, self._weights)
        return only

    def _evaluate(self, name: str, records: list[Record], model: Retriever, stages: Mapping[str, Any]) -> OneSet:
        lang, runnable = self._recipe.data.lang, self._runnable(model)
        options: dict[str, Any] = {
            "data": name,
            **{name: value for name, value in stages.items() if name != "late"},
            "batch_size": 256 if self._device.type == "cuda" else 32,
            "progress": self._report,
        }
        if name in self._names:
            return evaluate_names(runnable, records, **options)
        options["late"] = stages["late"]
        if isinstance(lang, str):
            return evaluate(runnable, records, lang=lang, **options)
        return evaluate_languages(runnable, records, lang, **options)

    def _report(self, part: str, done: int, total: int) -> None:
        if self._on_prepare is not None:
            self._on_prepare(f"validating ({part.replace('_', ' ')})", done, total)

    def score(self, found: Validated) -> float:
        """Return the score by which checkpoints are compared; higher is better."""
        return r_sum_of(found) if self._recipe.validation.metric == "rSum" else r_at_1_of(found)

    def _runnable(self, model: Retriever) -> TorchModel:
        """Return the model with its current weights, as a new object, because a `TorchModel` caches their hash."""
        return _Ranked(model.eval(), self._tokenizer, self._recipe.name, self._kept)


class KeptFeatures:
    """A cache of a frozen image tower's outputs by batch, because every validation encodes the same images.

    It holds as many as fit in 4 GiB, or in half of a GPU's free memory.
    """

    LIMIT = 4 << 30

    def __init__(self, device: torch.device) -> None:
        self._features: dict[bytes, TowerFeatures] = {}
        self._free = room(device, self.LIMIT)

    def of(self, model: TorchModel, pixels: npt.NDArray[np.float32]) -> TowerFeatures:
        """Return the features of a batch of normalised pixels."""
        key = hashlib.sha256(pixels.tobytes()).digest()
        if key in self._features:
            return self._features[key]
        features = model.retriever.image_features(model.tensor(pixels))
        size = sum(part.numel() * part.itemsize for part in features if part is not None)
        if size <= self._free:
            self._free -= size
            self._features[key] = features
        return features


class _Ranked(TorchModel):
    """A model whose embeddings rank candidates even if untrained, so that a matcher trained alone can rescore them.

    kept: the outputs of its image tower, if that is frozen.
    """

    def __init__(self, retriever: Retriever, tokenizer: Tokenizer, name: str, kept: KeptFeatures | None) -> None:
        super().__init__(retriever, tokenizer, name)
        self._kept = kept

    @torch.inference_mode()
    def encode_images(self, pixels: npt.NDArray[np.float32]) -> Encoded:
        """Encode images, running a frozen image tower only once for each batch."""
        if self._kept is None:
            return super().encode_images(pixels)
        return to_arrays(self.retriever.encode_images(self._kept.of(self, pixels)))

    @property
    def abilities(self) -> frozenset[Ability]:
        """The trained abilities, and `embed`."""
        return super().abilities | {"embed"}


def _size(records: Sequence[Record]) -> int:
    """Return the number of images or captions, whichever is larger."""
    return max(len(records), sum(len(captions) for record in records for captions in record.captions.values()))


def log_entry(found: Validated | NamesEvaluation) -> dict[str, Any]:
    """Return the log entry of a validation: the recalls and, for several sets, those of each set."""
    if isinstance(found, NamesEvaluation):
        return found.names
    entry: dict[str, Any] = {"t2i": found.text_to_image, "i2t": found.image_to_text, "rSum": found.r_sum}
    if isinstance(found, ValidationResults):
        entry["sets"] = {name: log_entry(one) for name, one in found.sets.items()}
    return entry
