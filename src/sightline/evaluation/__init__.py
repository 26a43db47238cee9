"""Evaluate retrieval: recalls, ranks, confidence intervals and the usual protocols, with NumPy and without torch."""

from sightline.evaluation.evaluator import evaluate as evaluate
from sightline.evaluation.languages import Languages as Languages
from sightline.evaluation.languages import evaluate_languages as evaluate_languages
from sightline.evaluation.names import NamesEvaluation as NamesEvaluation
from sightline.evaluation.names import evaluate_names as evaluate_names
from sightline.evaluation.ranking import ranks_from_embeddings as ranks_from_embeddings
from sightline.evaluation.report import table as table
from sightline.evaluation.result import Evaluation as Evaluation
from sightline.evaluation.test_set import command_translator as command_translator
