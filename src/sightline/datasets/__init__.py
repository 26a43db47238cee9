"""Captioned images: records, readers for the formats they come in, and batches to train on."""

from sightline.datasets.formats import recognise
from sightline.datasets.reading import read, read_all
from sightline.datasets.record import DEFAULT_LANGUAGE, Problem, Record
from sightline.datasets.sampling import Batch, Pair, Sampler, all_captions, one_caption, shuffled_pairs

__all__ = [
    "DEFAULT_LANGUAGE",
    "Batch",
    "Pair",
    "Problem",
    "Record",
    "Sampler",
    "all_captions",
    "one_caption",
    "read",
    "read_all",
    "recognise",
    "shuffled_pairs",
]
