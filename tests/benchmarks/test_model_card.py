"""A model's card says what the bundle says, and what people wrote about it."""

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest

import replication.results_page as report
from benchmarks.pages import model_card, readme
from sightline.bundle.spec import Calibration, Fusion, read_spec, write_spec

WORDS = "# A small model\n\nIt is for tests.\n\n## Not good at\n\nAnything.\n"
RECALLS = {"R@1": 41.24, "R@5": 70.0, "R@10": 81.5, "medR": 2.0}
RESULT: dict[str, Any] = {
    "model": "tiny",
    "data": "flickr8k-test",
    "lang": "en",
    "protocol": "karpathy",
    "stages": ["embed", "match@20"],
    "fusion": "logit_add",
    "weight": 80.0,
    "images": 1000,
    "captions": 5000,
    "distractors": 0,
    "text_to_image": RECALLS,
    "image_to_text": {**RECALLS, "R@1": 52.6},
    "rSum": 398.5,
    "mR": 66.4,
}


@pytest.fixture
def bundle(tiny_bundle: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_bundle, tmp_path / "bundle"))


def test_a_card_has_the_words_the_facts_and_the_numbers(bundle: Path) -> None:
    spec = dataclasses.replace(
        read_spec(bundle),
        results=(RESULT,),
        calibration={"match": Calibration(1.5, -2.25, error=0.0312)},
        fusion=Fusion("logit_add", 80.0),
        provenance={"seed": 7, "recipes": ["one.toml", "two.toml"], "licences": {"model": "Apache-2.0"}},
    )
    write_spec(bundle, spec)
    card = model_card.card(bundle, WORDS)
    assert card.startswith("# A small model\n\n<!-- Written by")
    assert "It is for tests." in card
    for fact in (
        "| `fragments` | a vector for each part of it",
        "| languages | en |",
        "| precision | float32 |",
        "| a vector | 16 numbers; of a fragment 8 |",
        "| a picture | 32 x 32 pixels (squash) |",
        "| a text | up to 12 tokens;",
        "41.2",
        "52.6",
        "398.5",
        "| match | 1.500 | -2.250 | 3.1% |",
        "`logit_add` with a weight of 80.",
        "- **seed**: 7\n- **recipes**: one.toml, two.toml\n- **licences**\n  - **model**: Apache-2.0",
    ):
        assert fact in card


def test_what_is_not_known_is_said_not_left_out(bundle: Path) -> None:
    card = model_card.card(bundle, WORDS)
    assert "Not measured yet" in card
    assert "no calibration" in card
    assert "did not say" in card


def test_the_command_writes_the_card_into_the_bundle_which_stays_whole(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "words.md").write_text(WORDS)
    monkeypatch.setattr("sys.argv", ["model_card.py", str(bundle), "--words", str(tmp_path / "words.md")])
    model_card.main()
    assert (bundle / "README.md").read_text(encoding="utf-8") == model_card.card(bundle, WORDS)
    report_of = read_spec(bundle)
    assert "README.md" not in report_of.files


def test_the_words_of_the_bundled_model_begin_with_a_title() -> None:
    assert (report.ROOT / "recipes" / "default.card.md").read_text(encoding="utf-8").startswith("# ")


def test_the_card_of_the_bundled_model_is_what_its_spec_makes_it() -> None:
    folder = report.ROOT / "bundles" / "default"
    if not (folder / "sightline.json").is_file():
        pytest.skip("this checkout has no bundled model")
    words = (report.ROOT / "recipes" / "default.card.md").read_text(encoding="utf-8")
    assert (folder / "README.md").read_text(encoding="utf-8") == model_card.card(folder, words), "run `make card`"


def test_the_demo_is_put_between_its_marks_and_may_be_put_there_again() -> None:
    page = "before\n<!-- demo -->\nold\n<!-- /demo -->\nafter\n"
    once = readme.filled(page, "line \\1\n\n")
    assert once == "before\n<!-- demo -->\n```\n$ sightline demo\nline \\1\n```\n<!-- /demo -->\nafter\n"
    assert readme.filled(once, "line \\1\n") == once
    with pytest.raises(SystemExit):
        readme.filled("no marks", "line")


def test_the_readme_has_a_place_for_the_demo() -> None:
    assert readme.BETWEEN.search((report.ROOT / "README.md").read_text(encoding="utf-8"))
