"""docs/languages.md and docs/pre-training.md do what they say."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from docs.pages import DOCS, FENCE, followed
from sightline.datasets import read_all

CHANCE = 100 * (1 + 5 + 10) / 3 / 72
"""The mR of guessing among 72 pictures."""


@pytest.fixture(scope="module")
def languages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The results that the page's commands leave, by the names of their files."""
    with followed("languages.md", tmp_path_factory.mktemp("newcomer")):
        yield {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in Path().glob("*.json")}


def test_both_languages_are_learned_and_reported(languages: dict[str, Any]) -> None:
    both = languages["both"]
    assert both["mR_by_language"].keys() == {"en", "de"}
    assert min(both["mR_by_language"].values()) > 2.5 * CHANCE
    assert both["languages"]["de"]["captions"] == 72


def test_an_english_model_is_asked_in_german_through_the_dictionary(languages: dict[str, Any]) -> None:
    assert languages["translated"]["translated_by"] == "python -X utf8 translate.py {lang} en"
    assert languages["translated"]["mR"] > 2 * languages["german"]["mR"]


def test_the_full_gallery_has_the_pictures_and_captions_of_all_splits(languages: dict[str, Any]) -> None:
    full = languages["full"]
    assert (full["images"], full["distractors"], full["distractor_captions"]) == (72, 288, 576)
    assert full["mR"] < languages["both"]["mR_by_language"]["en"]


def test_the_two_lines_shown_are_read_as_captions(tmp_path: Path) -> None:
    page = (DOCS / "languages.md").read_text(encoding="utf-8")
    (shown,) = (block[2] for block in FENCE.finditer(page) if block[1] == "json")
    (tmp_path / "captions.jsonl").write_text(shown, encoding="utf-8")
    assert [sorted(record.captions) for record in read_all(tmp_path)] == [["de", "en"], ["en"]]


def test_what_is_pretrained_is_fine_tuned(tmp_path: Path) -> None:
    with followed("pre-training.md", tmp_path):
        lines = Path("runs/before/log.jsonl").read_text().splitlines()
        assert {name for line in lines for name in json.loads(line)["loss"]} == {"cmr", "vmlm", "smrfr", "smrc"}
        found = json.loads(Path("after.json").read_text())
    assert found["mR"] > 2.5 * CHANCE
