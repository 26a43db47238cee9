"""Canonical names of splits: train, val and test."""

import re

_ALIASES = {
    "train": "train",
    "training": "train",
    "restval": "train",  # Karpathy's name for the part of COCO's val that everyone trains on
    "val": "val",
    "valid": "val",
    "validation": "val",
    "dev": "val",
    "test": "test",
    "testing": "test",
}
SPLITS = frozenset(_ALIASES.values())
"""The canonical names."""
_WORDS = re.compile(r"[A-Za-z]+")


def canonical_split(name: str) -> str:
    """Map the spellings of `train`, `val` and `test` to these names; keep any other name (`test_2016_flickr`)."""
    return _ALIASES.get(name.strip().lower(), name.strip())


def split_in_name(file_name: str) -> str | None:
    """Return the split in a file name: `train` in `coco-train-004.tar` and `captions_train2014.json`."""
    words = (_ALIASES.get(word.lower()) for word in _WORDS.findall(file_name))
    return next((split for split in words if split), None)
