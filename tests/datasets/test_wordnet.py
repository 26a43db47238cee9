"""Captions for names from the files of WordNet."""

from pathlib import Path

import pytest

from sightline.datasets.wordnet import WordNet
from sightline.errors import DataError

INDEX = """  1 a line of the licence
tench n 1 2 @ #m 1 0 00000100
crane n 2 1 @ 2 1 00000400 00000500
"""
DATA = """  1 a line of the licence
00000100 05 n 02 tench 0 Tinca_tinca 0 002 @ 00000200 n 0000 #m 00000300 n 0000 | freshwater game fish; "a tench"
00000200 05 n 01 cyprinid 0 000 | soft-finned fish
00000300 14 n 01 Tinca 0 000 | a genus
00000400 18 n 01 Crane 0 001 @i 00000300 n 0000 | United States writer
00000500 05 n 01 crane 0 001 @ 00000600 n 0000 | a large wading bird
00000600 05 n 01 animal 0 000 | a living thing
"""


@pytest.fixture
def wordnet(tmp_path: Path) -> WordNet:
    (tmp_path / "index.noun").write_text(INDEX)
    (tmp_path / "data.noun").write_text(DATA)
    return WordNet(tmp_path)


def test_a_name_gets_synonyms_kinds_and_its_gloss(wordnet: WordNet) -> None:
    expected = ["tinca tinca", "tench, a cyprinid", "a tench, a kind of cyprinid", "tench: freshwater game fish"]
    assert wordnet.captions("tench") == expected
    assert wordnet.captions("tenchs")[2] == "tenchs, a cyprinid"


def test_the_first_sense_that_can_be_seen_is_meant(wordnet: WordNet) -> None:
    assert wordnet.captions("crane")[-1] == "crane: a large wading bird"


def test_an_unknown_name_gets_nothing_and_a_missing_folder_is_an_error(wordnet: WordNet, tmp_path: Path) -> None:
    assert wordnet.captions("acura tl 2012") == []
    with pytest.raises(DataError, match="WordNet cannot be read"):
        WordNet(tmp_path / "nowhere")
