"""Searching in another language: the add-on's text graph reads the query, and English stays as it was."""

import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import sightline
from sightline.bundle import Bundle, Tokenizer
from sightline.bundle.add_languages import add_languages
from sightline.collection import Collection
from sightline.errors import OptionError
from sightline.retrieval.language import in_language, language_of

COLOURS = ("red", "green", "blue", "white")


@pytest.fixture(scope="module")
def at(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few images, indexed before there was an add-on."""
    folder = tmp_path_factory.mktemp("images")
    for place, colour in enumerate(COLOURS):
        noise = np.random.default_rng(place).integers(0, 80, (24, 24, 3), dtype=np.uint8)
        image, exif = Image.blend(Image.new("RGB", (24, 24), colour), Image.fromarray(noise), 0.4), Image.Exif()
        exif.get_ifd(0x8769)[0x9003] = "2023:08:01 10:00:00"
        image.save(folder / f"{colour}.jpg", exif=exif)
    return sightline.index(folder, model=tiny_bundle).at


@pytest.fixture
def collection(at: Path, german_bundle: Path) -> Iterator[Collection]:
    with sightline.open(at, model=german_bundle) as opened:
        yield opened


def test_a_query_in_another_language_is_recognised_and_read_by_the_add_on(collection: Collection) -> None:
    found = collection.search("Hund am Strand")
    assert found.lang == "de"
    assert found.to_json()["lang"] == "de"
    german = Bundle.open(collection.model.folder or "").for_language("de")
    expected = german.encode_texts(["Hund am Strand"]).embedding[0]
    plain = collection.search("Hund am Strand", rerank=0, duplicates="show")
    vectors = collection.store.fetch(np.array([hit.id for hit in plain]), "embedding").values[:, 0]
    np.testing.assert_allclose([hit.score for hit in plain], vectors @ expected, atol=2e-3)


def test_english_gives_the_same_numbers_as_before(collection: Collection, at: Path, tiny_bundle: Path) -> None:
    after = collection.search("a dog on the beach")
    with sightline.open(at, model=tiny_bundle) as plain:
        before = plain.search("a dog on the beach")
    assert after.lang == before.lang == "en"
    assert [(hit.id, hit.score) for hit in after] == [(hit.id, hit.score) for hit in before]


@pytest.mark.parametrize(
    ("typed", "plain"),
    [
        ("ａ ｄｏｇ ｏｎ ｔｈｅ ｂｅａｃｈ", "a dog on the beach"),
        ("Ｈｕｎｄ ａｍ Ｓｔｒａｎｄ", "Hund am Strand"),
        ("ﬂying ﬁsh", "flying fish"),
    ],
)
def test_full_width_letters_and_ligatures_find_what_plain_letters_find(
    collection: Collection, typed: str, plain: str
) -> None:
    expected = collection.search(plain, not_="fish")
    found = collection.search(typed, not_="ﬁsh")
    (together,) = collection.search_together([typed])
    assert str(found.query) == str(together.query) == typed
    assert found.hits == expected.hits
    assert together.hits == collection.search_together([plain])[0].hits
    assert found.lang == together.lang == expected.lang == language_of(typed, collection.model)
    assert (found.notice, found.did_you_mean) == (expected.notice, expected.did_you_mean)


def test_names_and_dates_in_full_width_letters_are_understood(collection: Collection) -> None:
    found = collection.understand("ａ ｄｏｇ ２０２３－０８－０１", lang="en")
    assert found == collection.understand("a dog 2023-08-01", lang="en")
    assert len(found.phrases) == 1


def test_the_language_can_be_said(collection: Collection) -> None:
    assert collection.search("Hund am Strand", lang="en").lang == "en"
    assert collection.search("ball", lang="de").lang == "de"
    assert collection.search("ball").lang == "en"


def test_a_language_that_the_model_lacks_is_refused(collection: Collection) -> None:
    with pytest.raises(OptionError, match="lang cannot be 'fr': tiny reads en, de"):
        collection.search("un chien", lang="fr")


def test_many_at_once_may_mix_languages(collection: Collection) -> None:
    texts = ["Hund am Strand", "a dog on the beach", "ein Kind mit Ball am Strand"]
    together = collection.search_together(texts)
    alone = [collection.search(text, rerank=0) for text in texts]
    assert [result.lang for result in together] == ["de", "en", "de"]
    for one, other in zip(together, alone, strict=True):
        assert [(hit.id, hit.score) for hit in one] == [(hit.id, hit.score) for hit in other]


def test_words_of_another_language_are_not_called_unknown_english(collection: Collection) -> None:
    assert collection.search("Strandkorb am Meer").notice is None


def test_words_that_the_add_on_does_not_know_are_told(
    at: Path, tiny_bundle: Path, german_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tokenizer, "is_word", lambda *_: False)  # the tiny one has no parts of words
    folder = Path(shutil.copytree(tiny_bundle, tmp_path / "german"))
    files, words = (german_text / "text.onnx", german_text / "tokenizer.json"), ["ein", "hund", "am", "strand"]
    add_languages(folder, *files, ["de"], max_length=12, words={"de": words})
    with sightline.open(at, model=folder) as collection:
        assert collection.search("ein Hund", lang="de").notice is None
        assert collection.search("ein Hnud", lang="de").did_you_mean == "ein hund"
        notice = collection.search("Zwiebelturm", lang="de").notice
        reads = "it reads English and German"
        assert notice == f"The model was not trained on “zwiebelturm” ({reads}); results may be arbitrary."


def test_forms_of_words_in_an_inflected_language_are_not_called_unknown(
    at: Path, tiny_bundle: Path, german_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tokenizer, "is_word", lambda *_: False)
    folder = Path(shutil.copytree(tiny_bundle, tmp_path / "russian"))
    files = (german_text / "text.onnx", german_text / "tokenizer.json")
    add_languages(folder, *files, ["ru"], max_length=12, words={"ru": ["собака", "пляж"]})
    with sightline.open(at, model=folder) as collection:
        for found in (collection.search("собаками"), *collection.search_together(["собаками"])):
            assert (found.lang, found.notice, found.did_you_mean) == ("ru", None, None)


def test_phrases_are_read_in_english_only(collection: Collection) -> None:
    english = collection.understand("a dog on the beach in August 2023")
    assert (english.words, english.lang) == ("a dog on the beach", "en")
    german = collection.understand("ein Hund am Strand in August 2023")
    assert (german.words, german.phrases, german.lang) == ("ein Hund am Strand in August 2023", (), "de")
    dated = collection.understand("ein Hund am Strand 2023-08-01")
    assert (dated.words, dated.lang) == ("ein Hund am Strand", "de")
    assert len(collection.understand("ein Hund in August 2023", lang="en").phrases) == 1
    assert collection.understand("2023-08-01").lang is None


@pytest.mark.parametrize("text", ["ein Hund", "ein Hund 2023-08-01", '"Hund"'])
def test_a_language_that_the_model_does_not_read_is_refused(collection: Collection, text: str) -> None:
    with pytest.raises(OptionError, match="lang cannot be 'xx': tiny reads en, de"):
        collection.understand(text, lang="xx")
    assert collection.understand(text, lang="de").lang in ("de", None)


def test_an_image_alone_has_no_language(collection: Collection) -> None:
    assert collection.search(image=Image.new("RGB", (9, 9), "red")).lang is None


def test_a_model_of_many_languages_is_asked_as_it_is(bundle: Bundle) -> None:
    spec = dataclasses.replace(bundle.spec, text=dataclasses.replace(bundle.spec.text, languages=("mul",)))
    many = Bundle(bundle.folder, spec)
    assert language_of("Hund am Strand", many) is None
    assert in_language(many, "de", "Hund")[1] == "de"


def test_explaining_reads_the_words_of_the_language(german_bundle: Path) -> None:
    image = Image.new("RGB", (40, 30), "red")
    known = sightline.explain("Hund", image, model=german_bundle, lang="de")
    as_english = sightline.explain("Hund", image, model=german_bundle, lang="en")
    assert known.words[0].word == "Hund"
    assert sightline.explain("Ｈｕｎｄ", image, model=german_bundle, lang="de").to_json() == known.to_json()
    assert not np.allclose(known.words[0].grid, as_english.words[0].grid)
