"""Captioned images: records, readers for the formats they come in, and batches to train on."""

from sightline.datasets.budget import BudgetSampler
from sightline.datasets.formats import recognise
from sightline.datasets.mixture import Mixture, MixtureBatch, MixtureSource
from sightline.datasets.reader import read, read_all, read_each, read_test
from sightline.datasets.record import DEFAULT_LANGUAGE, Problem, Record, captions_in_any, refuse
from sightline.datasets.sampler import Batch, Sampler, all_captions, neighbours, one_caption, shuffled_pairs

__all__ = [
    "DEFAULT_LANGUAGE",
    "Batch",
    "BudgetSampler",
    "Mixture",
    "MixtureBatch",
    "MixtureSource",
    "Problem",
    "Record",
    "Sampler",
    "all_captions",
    "captions_in_any",
    "neighbours",
    "one_caption",
    "read",
    "read_all",
    "read_each",
    "read_test",
    "recognise",
    "refuse",
    "shuffled_pairs",
]
