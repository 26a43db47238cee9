import pickle
from pathlib import Path

import pytest

from sightline.datasets import Record
from sightline.errors import DataError
from sightline.media import ImageFile


def record(**captions: tuple[str, ...]) -> Record:
    return Record("dog-7", ImageFile(Path("dog.jpg")), captions)


def test_captions_are_found_by_language_however_many_there_are():
    both = record(en=("a dog", "a wet dog"), de=("ein Hund",))
    assert both.captions_in("en") == ("a dog", "a wet dog")
    assert both.captions_in("de") == ("ein Hund",)


def test_a_missing_language_names_the_record_the_language_and_those_there_are():
    with pytest.raises(DataError, match=r"'dog-7' \(dog\.jpg\).*'cs'.*has de, en"):
        record(en=("a dog",), de=("ein Hund",)).captions_in("cs")


def test_a_distractor_has_no_captions_in_any_language():
    with pytest.raises(DataError, match="no captions at all"):
        record().captions_in("en")


def test_a_record_travels_to_another_process():
    there = record(en=("a dog",))
    assert pickle.loads(pickle.dumps(there)) == there
