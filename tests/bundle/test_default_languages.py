"""The languages of the model that ships, on the pictures of the demo."""

import shutil
from pathlib import Path

import pytest

import sightline
from sightline import demo
from sightline.bundle.languages import FOLDER
from sightline.collection import Collection

PICTURES = ("dog", "kitten-in-a-box", "officer", "eiffel-tower", "coffee", "horses")
QUERIES = {
    "Hund": ("de", "dog"),
    "eine Katze in einer Kiste": ("de", "kitten-in-a-box"),
    "un chat dans une boîte": ("fr", "kitten-in-a-box"),
    "un perro negro": ("es", "dog"),
    "una tazza di caffè": ("it", "coffee"),
    "uma mulher de uniforme": ("pt", "officer"),
    "konie na łące": ("pl", "horses"),
    "žena v uniformě": ("cs", "officer"),
    "собака": ("ru", "dog"),
    "hästar på en äng": ("sv", "horses"),
    "箱の中の猫": ("ja", "kitten-in-a-box"),
    "一杯咖啡": ("zh", "coffee"),
    "كلب أسود": ("ar", "dog"),
    "a dog": ("en", "dog"),
}


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory, default_bundle: Path) -> Collection:
    if not (default_bundle / FOLDER).is_dir():
        pytest.skip("the bundled model has no languages beside its own")
    folder = tmp_path_factory.mktemp("pictures")
    for name in PICTURES:
        shutil.copy(demo.PICTURES / f"{name}.jpg", folder)
    sightline.index(folder)
    return sightline.open(folder)


@pytest.mark.parametrize("text", QUERIES)
def test_a_query_in_any_language_finds_what_it_means(collection: Collection, text: str) -> None:
    lang, name = QUERIES[text]
    found = collection.search(text, k=1)
    assert found.lang == lang
    assert Path(found.hits[0].path).stem == name
    assert found.hits[0].relevance is not None
