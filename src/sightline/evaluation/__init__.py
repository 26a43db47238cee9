"""How good a model is at finding: recalls, ranks, intervals, and the protocols of the field. Numpy only, no torch.

The names below load what they need when they are first used, so that importing this package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sightline.evaluation.evaluator import evaluate
    from sightline.evaluation.languages import Languages, evaluate_languages
    from sightline.evaluation.metrics import (
        image_to_text_ranks,
        mean_recall,
        median_rank,
        r_sum,
        recall,
        summary,
        text_to_image_ranks,
    )
    from sightline.evaluation.names import NamesEvaluation, evaluate_names
    from sightline.evaluation.protocols import PROTOCOLS, Protocol
    from sightline.evaluation.ranking import ranks_from_embeddings, top_k_from_embeddings
    from sightline.evaluation.report import compare, table
    from sightline.evaluation.resampling import Difference, bootstrap, paired_difference
    from sightline.evaluation.result import Evaluation
    from sightline.evaluation.translation import Translator, command_translator

__all__ = [
    "PROTOCOLS",
    "Difference",
    "Evaluation",
    "Languages",
    "NamesEvaluation",
    "Protocol",
    "Translator",
    "bootstrap",
    "command_translator",
    "compare",
    "evaluate",
    "evaluate_languages",
    "evaluate_names",
    "image_to_text_ranks",
    "mean_recall",
    "median_rank",
    "paired_difference",
    "r_sum",
    "ranks_from_embeddings",
    "recall",
    "summary",
    "table",
    "text_to_image_ranks",
    "top_k_from_embeddings",
]

_MODULE_OF = {
    "PROTOCOLS": "protocols",
    "Difference": "resampling",
    "Evaluation": "result",
    "Languages": "languages",
    "NamesEvaluation": "names",
    "Protocol": "protocols",
    "Translator": "translation",
    "bootstrap": "resampling",
    "command_translator": "translation",
    "compare": "report",
    "evaluate": "evaluator",
    "evaluate_languages": "languages",
    "evaluate_names": "names",
    "paired_difference": "resampling",
    "ranks_from_embeddings": "ranking",
    "table": "report",
    "top_k_from_embeddings": "ranking",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF.get(name, 'metrics')}"), name)


def __dir__() -> list[str]:
    return __all__
