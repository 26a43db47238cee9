"""The validation data of a run: how the model does on it, and which of its numbers tells the best checkpoint."""

from typing import Any

import torch

from sightline.bundle.tokenizer import Tokenizer
from sightline.evaluation import Evaluation, Languages, evaluate, evaluate_languages
from sightline.evaluation.plan import Plan
from sightline.models.retriever import Retriever
from sightline.models.torch_model import TorchModel
from sightline.training.recipe import Recipe
from sightline.training.setup import check_validation_records, validation_records


class Validation:
    """What a recipe asks to be looked at from time to time; nothing, where it names no data.

    Refuses, when it is made, what the model cannot do: now, not after hours of training.
    """

    def __init__(self, recipe: Recipe, model: Retriever, tokenizer: Tokenizer, device: torch.device) -> None:
        self._recipe, self._model, self._tokenizer, self._device = recipe, model, tokenizer, device
        self._records = validation_records(recipe)
        asked = recipe.validation
        self._plan = Plan(asked.late or None, asked.rerank or None, asked.fusion, asked.weight)
        if self._records:
            self._plan.check(self._runnable())
            check_validation_records(recipe, self._records, model.preprocess)

    def evaluate(self) -> Evaluation | Languages | None:
        """Evaluate in the language of the run, or in each of several, of which the means count; None without data."""
        if not self._records:
            return None
        plan, lang = self._plan, self._recipe.data.lang
        options: dict[str, Any] = {
            "data": "val",
            "late": plan.late,
            "rerank": plan.rerank,
            "fusion": plan.fusion,
            "weight": plan.weight,
            "batch_size": 256 if self._device.type == "cuda" else 32,
        }
        if isinstance(lang, str):
            return evaluate(self._runnable(), self._records, lang=lang, **options)
        return evaluate_languages(self._runnable(), self._records, lang, **options)

    def score(self, found: Evaluation | Languages) -> float:
        """Give the number by which checkpoints are compared; the higher, the better."""
        return found.r_sum if self._recipe.validation.metric == "rSum" else found.text_to_image["R@1"]

    def _runnable(self) -> TorchModel:
        """The model with its weights of now: anew each time, for it remembers what tells them from others."""
        return TorchModel(self._model.eval(), self._tokenizer, self._recipe.name)
