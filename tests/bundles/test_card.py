"""A model card says what the bundle says."""

from pathlib import Path

from benchmarks.provenance import ROOT
from bundles.card import card


def test_the_model_card_is_up_to_date() -> None:
    folder = ROOT / "bundles" / "default"
    words = (ROOT / "recipes" / "default.card.md").read_text(encoding="utf-8")
    assert (folder / "README.md").read_text(encoding="utf-8") == card(folder, words), "run `make card`"


def test_the_model_card_says_what_the_fast_image_graph_learned_from() -> None:
    text = card(ROOT / "bundles" / "default", "# A model\n")
    section = text.partition("### The fast image graph\n")[2].partition("\n### ")[0]
    for said in ("DINOv2", "**sources**", "bundles/photos.toml"):
        assert said in section


def test_a_card_says_what_is_not_known(tiny_bundle: Path) -> None:
    text = card(tiny_bundle, "# A small model\n\nIt is for tests.\n")
    for said in ("It is for tests.", "Not measured yet", "not calibrated", "Not recorded", "| languages | en |"):
        assert said in text


def test_a_card_names_the_fast_image_graph(quick_bundle: Path) -> None:
    text = card(quick_bundle, "# A small model\n\nIt is for tests.\n")
    assert "16 x 16 pixels (squash), by `image-fast.onnx`" in text
    assert "With the fast image graph" in text


def test_a_card_names_the_languages_of_an_add_on(german_bundle: Path) -> None:
    text = card(german_bundle, "# A small model\n\nIt is for tests.\n")
    for said in ("| languages | en, de |", "languages/text.onnx", "### In other languages\n\nNot measured yet"):
        assert said in text
