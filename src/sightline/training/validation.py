"""The validation data of a run: how the model does on it, and which number tells the best checkpoint."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from sightline.bundle.tokenizer import Tokenizer
from sightline.datasets import Record
from sightline.evaluation import Evaluation, Languages, evaluate, evaluate_languages
from sightline.evaluation.plan import Plan
from sightline.models.retriever import Retriever
from sightline.models.torch_model import TorchModel
from sightline.training.recipe import Recipe
from sightline.training.setup import check_validation_records, validation_records


@dataclass(frozen=True, slots=True)
class ValidationResults:
    """The results on several validation sets. All numbers of the whole are means over the sets by their weights."""

    sets: Mapping[str, Evaluation | Languages]
    weights: Mapping[str, float]

    @property
    def text_to_image(self) -> dict[str, float]:
        """R@1, R@5, R@10 and medR of finding a caption's image."""
        return self._means(lambda found: found.text_to_image)

    @property
    def image_to_text(self) -> dict[str, float]:
        """R@1, R@5, R@10 and medR of finding any caption of an image."""
        return self._means(lambda found: found.image_to_text)

    @property
    def r_sum(self) -> float:
        """Sum of the six recalls."""
        return self._means(lambda found: {"rSum": found.r_sum})["rSum"]

    def _means(self, numbers: Callable[[Evaluation | Languages], Mapping[str, float]]) -> dict[str, float]:
        total = sum(self.weights.values())
        found = {name: numbers(one) for name, one in self.sets.items()}
        names = next(iter(found.values()))
        return {key: sum(self.weights[name] * one[key] for name, one in found.items()) / total for key in names}

    def to_json(self) -> dict[str, Any]:
        """Return the means under the names of a single result, and every result whole."""
        return {
            "text_to_image": self.text_to_image,
            "image_to_text": self.image_to_text,
            "rSum": self.r_sum,
            "weights": dict(self.weights),
            "sets": {name: one.to_json() for name, one in self.sets.items()},
        }


Validated = Evaluation | Languages | ValidationResults


class Validation:
    """Evaluates the model on the validation sets of a recipe; on nothing, where it names none.

    Refuses, when it is made, what the model cannot do: now, not after hours of training.
    """

    def __init__(self, recipe: Recipe, model: Retriever, tokenizer: Tokenizer, device: torch.device) -> None:
        self._recipe, self._model, self._tokenizer, self._device = recipe, model, tokenizer, device
        self._sets = {name: records for name, records in validation_records(recipe).items() if records}
        self._weights = {one.name: one.weight for one in recipe.data.validation_sets}
        asked = recipe.validation
        self._plan = Plan(asked.late or None, asked.rerank or None, asked.fusion, asked.weight)
        if self._sets:
            self._plan.check(self._runnable())
        for records in self._sets.values():
            check_validation_records(recipe, records, model.preprocess)

    def evaluate(self) -> Validated | None:
        """Evaluate on every set, in the language of the run or in each of several; None without data."""
        found = {name: self._evaluate(name, records) for name, records in self._sets.items()}
        if len(found) > 1:
            return ValidationResults(found, self._weights)
        return next(iter(found.values()), None)

    def _evaluate(self, name: str, records: list[Record]) -> Evaluation | Languages:
        plan, lang = self._plan, self._recipe.data.lang
        options: dict[str, Any] = {
            "data": name,
            "late": plan.late,
            "rerank": plan.rerank,
            "fusion": plan.fusion,
            "weight": plan.weight,
            "batch_size": 256 if self._device.type == "cuda" else 32,
        }
        if isinstance(lang, str):
            return evaluate(self._runnable(), records, lang=lang, **options)
        return evaluate_languages(self._runnable(), records, lang, **options)

    def score(self, found: Validated) -> float:
        """Return the number by which checkpoints are compared; the higher, the better."""
        return found.r_sum if self._recipe.validation.metric == "rSum" else found.text_to_image["R@1"]

    def _runnable(self) -> TorchModel:
        """The model with its weights of now: anew each time, for it remembers what tells them from others."""
        return TorchModel(self._model.eval(), self._tokenizer, self._recipe.name)


def log_entry(found: Validated) -> dict[str, Any]:
    """Return what the log says of a validation: the recalls, and of several sets those of each."""
    entry: dict[str, Any] = {"t2i": found.text_to_image, "i2t": found.image_to_text, "rSum": found.r_sum}
    if isinstance(found, ValidationResults):
        entry["sets"] = {name: log_entry(one) for name, one in found.sets.items()}
    return entry
