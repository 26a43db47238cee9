"""The fast image graph of the model that ships."""

import shutil
from pathlib import Path

import pytest

import sightline
from sightline import demo
from sightline.bundle import Bundle

CHOSEN = ("dog.jpg", "cows.jpg", "astronaut.jpg", "mountain-path.jpg", "horses.jpg")


def found(at: Path, text: str) -> list[tuple[str, float, float | None]]:
    """The names, scores and relevances of a search by embeddings."""
    hits = sightline.search(text, at=at, rerank=0).hits
    return [(Path(hit.path).name, hit.score, hit.relevance) for hit in hits]


def test_quick_indexing_finds_what_is_asked_for_and_refining_makes_it_that_of_the_full_graph(
    tmp_path: Path, default_bundle: Path
) -> None:
    if Bundle.open(default_bundle).fast_variant() is None:
        pytest.skip("the bundled model has no fast image graph")
    photos, quick, full = (tmp_path / name for name in ("photos", "quick", "full"))
    photos.mkdir()
    for name in CHOSEN:
        shutil.copy(demo.PICTURES / name, photos)
    assert sightline.index(photos, at=quick, quick=True).to_refine == len(CHOSEN)
    sightline.index(photos, at=full)
    before, expected = found(quick, "a dog"), found(full, "a dog")
    assert before[0][0] == expected[0][0] == "dog.jpg"
    assert before != expected
    assert sightline.index(photos, at=quick, refine=True).refined == len(CHOSEN)
    assert found(quick, "a dog") == expected
