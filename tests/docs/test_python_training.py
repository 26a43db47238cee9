"""docs/python-training.md does what it says: its code is run, block by block."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from docs.pages import followed
from sightline.bundle import Bundle


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What the code of the page leaves behind, in the folder in which it ran."""
    with followed("python-training.md", tmp_path_factory.mktemp("notebook")) as found:
        yield found


def test_runs_are_where_the_page_says(names: dict[str, Any]) -> None:
    assert names["trained"].folder == Path("runs/tiny/best")
    assert [entry["step"] for entry in names["seen"]] == list(range(1, 61))
    assert names["trained"].validation["heads"].keys() == {"embed"}
    assert names["longer"].steps == 80
    assert names["slower"].steps == 40
    assert Path("runs/slower/curves.png").exists()


def test_the_model_learns_and_changes_matter(names: dict[str, Any]) -> None:
    chance = 100 / 72
    assert names["found"].text_to_image["R@1"] > 5 * chance
    assert names["gain"]["differences"]["text_to_image"]["R@1"]["value"] > 0
    assert names["found"].to_json()["data"] == "photos/test.jsonl"
    with Path("ranks.csv").open() as file:
        assert len(list(csv.DictReader(file))) >= 72


def test_the_bundle_is_calibrated_and_searched(names: dict[str, Any]) -> None:
    bundle = Bundle.open("my-bundle")
    assert bundle.relevance is not None
    assert names["hit"].relevance is not None
