"""How good a model is at finding: recalls, ranks, intervals, and the protocols of the field. Numpy only, no torch.

The names below load what they need when they are first used, so that importing this package is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sightline.evaluation.evaluator import evaluate as evaluate
    from sightline.evaluation.languages import Languages as Languages
    from sightline.evaluation.languages import evaluate_languages as evaluate_languages
    from sightline.evaluation.metrics import image_to_text_ranks as image_to_text_ranks
    from sightline.evaluation.metrics import mean_recall as mean_recall
    from sightline.evaluation.metrics import median_rank as median_rank
    from sightline.evaluation.metrics import r_sum as r_sum
    from sightline.evaluation.metrics import recall as recall
    from sightline.evaluation.metrics import summary as summary
    from sightline.evaluation.metrics import text_to_image_ranks as text_to_image_ranks
    from sightline.evaluation.names import NamesEvaluation as NamesEvaluation
    from sightline.evaluation.names import evaluate_names as evaluate_names
    from sightline.evaluation.protocols import PROTOCOLS as PROTOCOLS
    from sightline.evaluation.protocols import Protocol as Protocol
    from sightline.evaluation.ranking import ranks_from_embeddings as ranks_from_embeddings
    from sightline.evaluation.ranking import top_k_from_embeddings as top_k_from_embeddings
    from sightline.evaluation.report import compare as compare
    from sightline.evaluation.report import table as table
    from sightline.evaluation.resampling import Difference as Difference
    from sightline.evaluation.resampling import bootstrap as bootstrap
    from sightline.evaluation.resampling import paired_difference as paired_difference
    from sightline.evaluation.result import Evaluation as Evaluation
    from sightline.evaluation.translation import Translator as Translator
    from sightline.evaluation.translation import command_translator as command_translator

_NAMES = {
    "evaluator": "evaluate",
    "languages": "Languages evaluate_languages",
    "metrics": "image_to_text_ranks mean_recall median_rank r_sum recall summary text_to_image_ranks",
    "names": "NamesEvaluation evaluate_names",
    "protocols": "PROTOCOLS Protocol",
    "ranking": "ranks_from_embeddings top_k_from_embeddings",
    "report": "compare table",
    "resampling": "Difference bootstrap paired_difference",
    "result": "Evaluation",
    "translation": "Translator command_translator",
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_MODULE_OF)
