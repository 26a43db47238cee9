"""The captioned photos that models are trained on and judged by, if this machine has them."""

import os
from collections import Counter
from pathlib import Path

import pytest

from sightline.datasets import read, read_all, recognise

DATA = os.environ.get("SIGHTLINE_DATA")
pytestmark = pytest.mark.skipif(
    not DATA or not any(Path(DATA).glob("*.tar")), reason="SIGHTLINE_DATA names no folder of shards"
)


@pytest.fixture(scope="module")
def folder():
    return Path(DATA)


@pytest.fixture(scope="module")
def flickr8k(folder):
    return read_all([folder / "flickr8k-*.tar"])


def test_flickr8k_has_its_official_split_and_languages(flickr8k):
    assert Counter(record.split for record in flickr8k) == {"train": 6000, "val": 1000, "test": 1000}
    languages = Counter(language for record in flickr8k for language in record.captions)
    assert set(languages) == {"en", "de", "zh", "pt", "ar", "fr", "cs"}
    assert all(languages[language] == 8000 for language in ("en", "zh", "ar"))
    assert all(7200 < languages[language] < 7600 for language in ("de", "fr", "cs", "pt"))
    assert {len(record.captions_in("en")) for record in flickr8k} == {5}


def test_no_photo_of_flickr8k_is_in_both_train_and_test(flickr8k):
    keys = {split: {record.key for record in flickr8k if record.split == split} for split in ("train", "val", "test")}
    assert not keys["train"] & keys["test"]
    assert not keys["train"] & keys["val"]
    assert not keys["val"] & keys["test"]


def test_coco_has_unequal_numbers_of_captions(folder):
    records = list(read(folder / "coco-train-{000..004}.tar"))
    assert len(records) == 11_000
    assert sum(len(record.captions_in("en")) for record in records) == 25_472
    assert {len(record.captions_in("en")) for record in records} >= {1, 5}
    assert len(list(read(folder / "coco-val.tar", split="val"))) == 1000


def test_distractors_have_no_captions_and_are_in_no_other_shard(folder):
    distractors = list(read(folder / "coco-distractors.tar"))
    assert len(distractors) == 2500
    assert all(not record.captions and record.split is None for record in distractors)
    others = {record.key for record in read_all([folder / "coco-train-*.tar", folder / "coco-val.tar"])}
    assert not others & {record.key for record in distractors}


def test_the_whole_folder_is_one_data_set_whose_pictures_open(folder):
    assert recognise(folder) == "shards"
    first = next(read(folder))
    assert first.image.read().startswith(b"RIFF")
