"""Searching a collection: what is found, how it is notify, and what a search does not mind."""

import dataclasses
import io
import json
import re
import shutil
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import sightline
from collection.made_up import Instant, picture, put
from sightline.bundle import Bundle, Encoded
from sightline.cli import app
from sightline.collection import Collection, index
from sightline.demo import PICTURES
from sightline.errors import CollectionError, ModelError, OptionError, QueryError, SightlineError
from sightline.evaluation import evaluate
from sightline.retrieval.results import SearchResult


@pytest.fixture
def collection(photos: Path, model: Instant) -> Iterator[Collection]:
    index(photos, model=model)
    with Collection.open(photos, model) as collection:
        yield collection


def paths(result: SearchResult) -> list[str]:
    return [hit.path for hit in result]


def test_a_picture_finds_itself_first(collection: Collection, photos: Path) -> None:
    result = collection.search(image=photos / "beach" / "3.png", k=3)
    assert [hit.rank for hit in result] == [1, 2, 3]
    hit = result[0]
    assert (hit.path, hit.file, hit.root) == ("beach/3.png", photos / "beach" / "3.png", photos)
    assert hit.score == pytest.approx(1, abs=1e-3)
    assert (hit.relevance, hit.stage, hit.text, hit.copies, hit.folded) == (None, "embed", None, (), ())
    assert (hit.width, hit.height) == (12, 9)
    scores = [hit.score for hit in result]
    assert scores == sorted(scores, reverse=True)


def test_an_open_file_is_searched_for_like_its_path(collection: Collection, photos: Path) -> None:
    path = photos / "beach" / "3.png"
    expected = paths(collection.search(image=path, where="id > 0"))
    with path.open("rb") as file:
        for image in (file, file, io.BytesIO(path.read_bytes()), bytearray(path.read_bytes())):
            assert paths(collection.search(image=image, where="id > 0")) == expected


def test_the_json_is_the_published_contract(collection: Collection, photos: Path) -> None:
    result = collection.search("a dog", not_=["snow"], where="id > 0").to_json()
    assert json.loads(json.dumps(result)) == result
    assert result["query"] == "a dog"
    assert (result["not"], result["where"]) == (["snow"], "id > 0")
    assert list(result["took_ms"]) == ["encode", "retrieve", "interact", "match"]
    assert all(spent >= 0 for spent in result["took_ms"].values())
    assert [hit["rank"] for hit in result["hits"]] == list(range(1, 7))
    assert {"rank", "id", "path", "score", "stage"} <= set(result["hits"][0])
    by_image = collection.search(image=photos / "beach" / "1.png").to_json()
    assert by_image["query"] == by_image["image"] == str(photos / "beach" / "1.png")


def test_a_filter_is_obeyed_and_costs_no_results(collection: Collection) -> None:
    assert sorted(paths(collection.search("a dog", where="folder = 'beach'", k=3))) == [
        f"beach/{n}.png" for n in (1, 3, 5)
    ]
    assert not collection.search("a dog", where="width > 5000").hits
    with pytest.raises(QueryError, match="fodler"):
        collection.search("a dog", where="fodler = 'beach'")


def test_copies_are_one_result_under_the_name_that_was_asked_for(photos: Path, model: Instant) -> None:
    put(photos / "album" / "copy.png", picture(2))
    index(photos, model=model)
    with Collection.open(photos, model) as collection:
        result = collection.search(image=photos / "town" / "2.png", k=6)
        assert len(result) == 6
        assert (result[0].path, result[0].copies) == ("album/copy.png", (photos / "town" / "2.png",))
        hit = collection.search("a dog", where="folder = 'town'", k=6).hits
        found = next(one for one in hit if one.copies)
        assert (found.path, found.copies) == ("town/2.png", (photos / "album" / "copy.png",))


def test_pictures_that_look_the_same_are_folded_unless_they_are_to_be_shown(photos: Path, model: Instant) -> None:
    pixels = np.array(Image.open(photos / "town" / "2.png"))
    pixels[5, 5] ^= 1
    Image.fromarray(pixels).save(photos / "town" / "2-again.png")
    index(photos, model=model)
    with Collection.open(photos, model) as collection:
        folded = collection.search(image=photos / "town" / "2.png", k=6)
        assert {folded[0].file, *folded[0].folded} == {photos / "town" / "2.png", photos / "town" / "2-again.png"}
        assert len(folded) == 6
        shown = collection.search(image=photos / "town" / "2.png", k=7, duplicates="show")
        assert {shown[0].path, shown[1].path} == {"town/2.png", "town/2-again.png"}
        assert len(shown) == 7
        with pytest.raises(QueryError, match="must be 'fold' or 'show'"):
            collection.search("a dog", duplicates="hide")  # type: ignore[arg-type]


def test_texts_are_found_by_texts_and_keep_their_place(tmp_path: Path, model: Instant) -> None:
    notes = tmp_path / "notes.jsonl"
    notes.write_text('{"text": "a dog", "id": "d"}\n"two cats"\n"a bird"\n')
    report = index(notes, model=model)
    with Collection.open(report.at, model) as collection:
        hit = collection.search("a dog")[0]
        assert (hit.text, hit.line, hit.key, hit.file, hit.path) == ("a dog", 1, "d", notes, "notes.jsonl:1")
        assert (hit.stage, hit.relevance) == ("embed", None)
        assert collection.search("a dog", where="text like '%cat%'")[0].text == "two cats"


def test_what_was_deleted_meanwhile_is_not_found(collection: Collection, photos: Path, model: Instant) -> None:
    """The reader's vectors are those of before; the catalog is always up to date."""
    (photos / "beach" / "3.png").unlink()
    index(photos, model=model)
    found = collection.search("a dog", k=6)
    assert "beach/3.png" not in paths(found)
    assert len(found) == 5


def test_what_was_added_meanwhile_is_found_after_a_refresh(
    collection: Collection, photos: Path, model: Instant
) -> None:
    put(photos / "new.png", picture(77))
    index(photos, model=model)
    assert "new.png" not in paths(collection.search("a dog"))
    assert collection.refresh()
    assert "new.png" in paths(collection.search("a dog"))


def test_an_empty_collection_finds_nothing(tmp_path: Path, model: Instant) -> None:
    (tmp_path / "photos").mkdir()
    index(tmp_path / "photos", model=model)
    with Collection.open(tmp_path / "photos", model) as collection:
        result = collection.search("a dog", not_="snow")
        assert (result.hits, result.best_relevance) == ((), None)


def test_another_model_is_refused_with_the_way_out(photos: Path, model: Instant) -> None:
    index(photos, model=model)
    with (
        Collection.open(photos, Instant("b" * 64)) as collection,
        pytest.raises(CollectionError, match="indexed with the model instant") as caught,
    ):
        collection.search("a dog")
    assert "--at" in caught.value.way_out


def test_a_model_that_cannot_be_found_is_asked_for(collection: Collection, photos: Path) -> None:
    with Collection.open(photos) as other, pytest.raises(CollectionError, match="not at a known location") as caught:
        other.search("a dog")
    assert "--model" in caught.value.way_out


def test_relevance_that_is_not_known_cannot_be_asked_for(collection: Collection) -> None:
    with pytest.raises(QueryError, match="min_relevance is unavailable"):
        collection.search("a dog", min_relevance=0.5)
    with pytest.raises(QueryError, match="must be between 0 and 1, not 50"):
        collection.search("a dog", min_relevance=50)


def test_threads_may_search_and_refresh_at_once(photos: Path, model: Instant) -> None:
    index(photos, model=model)
    with Collection.open(photos, model) as collection:
        pictures = sorted(photos.rglob("*.png"))
        expected = {path: paths(collection.search(image=path)) for path in pictures}
        stop = threading.Event()

        def refresh() -> None:
            while not stop.is_set():
                collection.refresh()

        def search(number: int) -> bool:
            path = pictures[number % len(pictures)]
            return paths(collection.search(image=path, where="id > 0" if number % 3 else None)) == expected[path]

        refreshing = threading.Thread(target=refresh)
        refreshing.start()
        try:
            with ThreadPoolExecutor(6) as pool:
                assert all(pool.map(search, range(120)))
        finally:
            stop.set()
            refreshing.join()


def test_a_refresh_waits_for_searches_that_have_begun(photos: Path, model: Instant) -> None:
    """It closes the files that they read."""
    index(photos, model=model)
    begun, go_on = threading.Event(), threading.Event()
    encode = model.encode_texts

    def slowly(texts: Sequence[str]) -> Encoded:
        begun.set()
        assert go_on.wait(10)
        return encode(texts)

    model.encode_texts = slowly  # type: ignore[method-assign]
    with Collection.open(photos, model) as collection, ThreadPoolExecutor(2) as pool:
        search = pool.submit(collection.search, "a dog")
        assert begun.wait(10)
        put(photos / "new.png", picture(50))
        index(photos, model=Instant())
        refresh = pool.submit(collection.refresh)
        with pytest.raises(TimeoutError):
            refresh.result(0.2)
        go_on.set()
        assert refresh.result(10)
        assert len(search.result(10)) == 6
        assert len(collection.search("a dog")) == 7


def test_threads_may_search_while_another_process_indexes(photos: Path, model: Instant) -> None:
    """Every picture that a search names was there when it began or is there now, and none is named twice."""
    index(photos, model=model)
    with Collection.open(photos, model) as collection, ThreadPoolExecutor(3) as pool:
        for round in range(5):
            put(photos / f"new-{round}.png", picture(100 + round))
            (photos / f"new-{round - 1}.png").unlink(missing_ok=True)
            searches = [pool.submit(collection.search, "a dog", k=20) for _ in range(6)]
            index(photos, model=Instant())
            collection.refresh()
            for search in searches:
                found = paths(search.result())
                assert len(found) == len(set(found))
                assert 6 <= len(found) <= 8
        assert sorted(paths(collection.search("a dog"))) == sorted(file.path for file in collection.files())


# With a real bundle, though a tiny one


@pytest.fixture
def indexed(photos: Path, calibrated: Path) -> Path:
    index(photos, model=calibrated)
    return photos


def test_the_model_is_found_where_it_was(indexed: Path, calibrated: Path) -> None:
    with sightline.open(indexed) as collection:
        result = collection.search("a red ball", k=4)
        assert isinstance(collection.model, Bundle)
        assert collection.model.folder == calibrated
    assert [hit.stage for hit in result] == ["match"] * 4
    chances = [hit.relevance for hit in result]
    assert chances == sorted(chances, reverse=True)  # type: ignore[type-var]
    assert result.took_ms["match"] > 0
    assert result.best_relevance == chances[0]


def test_a_model_that_moved_is_found_again_once_it_is_said_where(
    photos: Path, calibrated: Path, tmp_path: Path
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    shutil.copytree(calibrated, here)
    index(photos, model=here)
    here.rename(there)
    with sightline.open(photos) as collection, pytest.raises(CollectionError, match="--model"):
        collection.search("a dog")
    with sightline.open(photos, model=there) as collection:
        assert len(collection.search("a dog")) == 6
    index(photos, model=there)
    assert len(sightline.search("a dog", at=photos)) == 6


def test_least_relevance_cuts_the_list_and_says_what_the_best_was(indexed: Path) -> None:
    with sightline.open(indexed) as collection:
        everything = collection.search("a red ball", duplicates="show")
        chances = [hit.relevance or 0 for hit in everything]
        assert len(chances) == 6
        some = collection.search("a red ball", min_relevance=chances[2], duplicates="show")
        assert len(some) == sum(chance >= chances[2] for chance in chances)
        none = collection.search("a red ball", min_relevance=1.0)
    assert none.hits == ()
    assert none.best_relevance == pytest.approx(chances[0])
    assert none.to_json()["best_relevance"] == pytest.approx(chances[0], abs=1e-4)


def test_stages_can_be_chosen(indexed: Path) -> None:
    with sightline.open(indexed) as collection:
        for options, stages in (
            ({"rerank": 0}, ["embed"] * 6),
            ({"rerank": 2}, ["match"] * 2 + ["embed"] * 4),
            ({"rerank": 0, "late": 3}, ["late"] * 3 + ["embed"] * 3),
            ({"rerank": 2, "late": 4}, ["match"] * 2 + ["late"] * 2 + ["embed"] * 2),
        ):
            found = collection.search("a red ball", duplicates="show", **options)  # type: ignore[arg-type]
            assert [hit.stage for hit in found] == stages


def test_texts_are_found_by_a_picture_and_matched_with_it(tmp_path: Path, indexed: Path, calibrated: Path) -> None:
    captions = tmp_path / "captions.txt"
    captions.write_text("a red ball\ntwo dogs on the grass\na cat\n")
    report = index(captions, model=calibrated)
    with sightline.open(report.at) as collection:
        result = collection.search(image=next(indexed.rglob("*.png")))
        assert [hit.stage for hit in result] == ["match"] * 3
        assert result[0].relevance is not None
        assert collection.search("a cat")[0].text == "a cat"


def test_a_query_that_is_too_long_says_so(indexed: Path) -> None:
    with sightline.open(indexed) as collection:
        assert collection.search("a dog " * 40).truncated
        assert not collection.search("a dog").truncated


@pytest.mark.parametrize("options", [{}, {"k": 2}, {"duplicates": "show"}, {"min_relevance": 0.3}])
def test_texts_searched_for_together_find_what_each_finds_alone(indexed: Path, options: dict[str, Any]) -> None:
    texts = ["a dog", "two large birds above the blue water", "snow", "dog a", "word " * 50]
    with sightline.open(indexed) as collection:
        together = collection.search_together(texts, **options)
        alone = [collection.search(text, rerank=0, **options) for text in texts]
        for one, other in zip(together, alone, strict=True):
            assert (one.query, one.truncated) == (other.query, other.truncated)
            assert one.best_relevance == pytest.approx(other.best_relevance, abs=1e-5)
            assert [dataclasses.replace(hit, score=0, relevance=0) for hit in one] == [
                dataclasses.replace(hit, score=0, relevance=0) for hit in other
            ]
            assert [hit.score for hit in one] == pytest.approx([hit.score for hit in other], abs=1e-6)
        assert list(together[0].took_ms) == ["encode", "retrieve", "interact", "match"]
        assert together[0].to_json()["hits"] == [hit.to_json() for hit in together[0]]
        assert collection.search_together([]) == []


def test_texts_searched_for_together_are_found_by_texts_and_another_model_is_refused(
    tmp_path: Path, model: Instant
) -> None:
    notes = tmp_path / "notes.jsonl"
    notes.write_text('"a dog"\n"two cats"\n"snow"\n')
    with Collection.open(index(notes, model=model).at, model) as collection:
        (found,) = collection.search_together(["snow"], k=1)
        assert (found[0].text, found[0].relevance) == ("snow", None)
        with pytest.raises(CollectionError):
            collection.search_together(["snow"], model=Instant(sha256="1" * 64))


def test_what_was_deleted_meanwhile_is_not_found_together_either(
    collection: Collection, photos: Path, model: Instant
) -> None:
    before = collection.search_together(["a dog"], k=9)[0]
    (photos / before[0].path).unlink()
    index(photos, model=model)
    after = collection.search_together(["a dog"], k=9)[0]
    assert paths(after) == paths(before)[1:]


def test_an_ability_that_the_model_lacks_is_named(collection: Collection) -> None:
    with pytest.raises(ModelError, match="has no matcher"):
        collection.search("a dog", rerank=5)


# With the bundled model


@pytest.fixture(scope="module")
def bundled() -> Bundle:
    try:
        model = sightline.load()
    except ModelError:
        pytest.skip("this checkout has no bundled model")
    assert isinstance(model, Bundle)
    return model


def test_resized_and_recompressed_copies_are_folded_and_other_pictures_are_not(bundled: Bundle, tmp_path: Path) -> None:
    originals = sorted((Path(sightline.__file__).parent / "demo" / "pictures").glob("*.jpg"))[:3]
    if not originals:
        pytest.skip("there are no pictures of the demo")
    for path in originals:
        picture = Image.open(path).convert("RGB")
        shutil.copy(path, tmp_path)
        picture.save(tmp_path / f"{path.stem}-small.png" if path is originals[0] else tmp_path / f"{path.stem}.webp")
    first = Image.open(originals[0]).convert("RGB")
    first.resize((first.width // 2, first.height // 2)).save(tmp_path / "half.jpg", quality=80)
    first.save(tmp_path / "rough.jpg", quality=40)
    assert index(tmp_path, model=bundled).new == 8
    with Collection.open(tmp_path, bundled) as collection:
        result = collection.search(image=originals[0], k=8)
        assert len(result) == 3
        assert len(result[0].folded) == 3
        assert {len(hit.folded) for hit in result.hits[1:]} == {1}
        assert len(collection.search(image=originals[0], k=8, duplicates="show")) == 8


def test_a_query_of_filler_words_has_no_relevance(bundled: Bundle, tmp_path: Path) -> None:
    for name in ("dog", "coffee", "horses"):
        shutil.copy(PICTURES / f"{name}.jpg", tmp_path)
    index(tmp_path, model=bundled)
    with Collection.open(tmp_path, bundled) as collection:
        for text in ("the", "in ", "!!!"):
            together, usual = collection.search_together([text, "a dog"])
            for found in (collection.search(text), together):
                assert len(found) == 3
                assert found.notice
                assert {hit.relevance for hit in found} == {found.best_relevance} == {found.line} == {None}
            assert usual.best_relevance == usual[0].relevance == pytest.approx(1, abs=0.1)
            assert not collection.search(text, min_relevance=0.01)
            assert not collection.search_together([text, "a dog"], min_relevance=0.01)[0]
            told = CliRunner().invoke(app, ["search", text, "--at", str(tmp_path), "--min-relevance", "0.5"])
            assert "Nothing found with a relevance of at least 50%." in told.output


def test_a_picture_in_a_query_is_enough_to_state_relevance(bundled: Bundle, tmp_path: Path) -> None:
    for name in ("dog", "coffee"):
        shutil.copy(PICTURES / f"{name}.jpg", tmp_path)
    index(tmp_path, model=bundled)
    with Collection.open(tmp_path, bundled) as collection:
        both = collection.search("the", image=PICTURES / "dog.jpg")
        assert both.notice is None
        assert both.has_content
        assert Path(both[0].path).stem == "dog"
        assert collection.search("a brwon dog", image=PICTURES / "dog.jpg").did_you_mean == "a brown dog"
        assert collection.search("the", image=PICTURES / "dog.jpg", image_weight=0).notice


# With real photos


def test_a_dog_but_not_snow_finds_dogs_without_snow(bundled: Bundle, data: Path, tmp_path: Path) -> None:
    from sightline.datasets import read_all

    kinds: dict[tuple[bool, bool], int] = {}
    for record in read_all([str(data / "flickr8k-test.tar")]):
        told = " ".join(record.captions["en"]).lower()
        dog, snow = told.count("dog") >= 4, told.count("snow") >= 3
        if ("dog" in told) == dog and ("snow" in told) == snow:
            kinds[dog, snow] = kinds.get((dog, snow), 0) + 1
            if kinds[dog, snow] <= 6:
                name = f"{'dog' if dog else 'none'}-{'snow' if snow else 'none'}-{record.key}.webp"
                (tmp_path / name).write_bytes(record.image.read())
    index(tmp_path, model=bundled)
    with Collection.open(tmp_path, bundled) as collection:
        for rerank in (0, 20):
            found = [hit.path for hit in collection.search("a dog", not_="snow", k=6, rerank=rerank)]
            assert sum(path.startswith("dog-none") for path in found[:5]) >= 4
            assert found[0].startswith("dog-none")
            plain = [hit.path for hit in collection.search("a dog", k=12, rerank=rerank)]
            assert sum(path.startswith("dog-") for path in plain) >= 11


def check_recalls(model: Bundle, folder: Path, records: list, tolerance: float, **stages: int) -> None:  # type: ignore[type-arg]
    """Search for every caption and compare recalls with those of an evaluation with the same stages, in points."""
    folder.mkdir()
    for record in records:
        (folder / f"{record.key}.webp").write_bytes(record.image.read())
    assert index(folder, model=model).encoded == len(records)
    expected = evaluate(model, records, **stages).text_to_image  # type: ignore[arg-type]
    found = {1: 0, 5: 0, 10: 0}
    captions = [(record.key, caption) for record in records for caption in record.captions["en"]]
    with Collection.open(folder, model) as collection:
        for key, caption in captions:
            result = collection.search(caption, k=10, duplicates="show", **{"rerank": 0, **stages})  # type: ignore[arg-type]
            names = [Path(hit.path).stem for hit in result]
            for k in found:
                found[k] += key in names[:k]
    for k, count in found.items():
        assert 100 * count / len(captions) == pytest.approx(expected[f"R@{k}"], abs=tolerance), (k, found, expected)


@pytest.mark.parametrize("stages", [{}, {"late": 50, "rerank": 20}], ids=str)
def test_recalls_on_photos_are_those_of_an_evaluation(
    tiny_bundle: Path, data: Path, tmp_path: Path, stages: dict[str, int]
) -> None:
    """Stored vectors are rounded, and an evaluation counts ties against the model: ranks that hang by a thread move.

    The tiny model tells pictures apart so poorly that many do; a caption in 200 may fall on the other side.
    """
    from sightline.datasets import read_all

    records = read_all([str(data / "flickr8k-test.tar")])[:100]
    check_recalls(Bundle.open(tiny_bundle), tmp_path / "photos", records, tolerance=0.61, **stages)


@pytest.mark.parametrize(
    "options",
    [{"k": 10**30}, {"k": 10**12}, {"rerank": 10**12}, {"late": 10**12}, {"late": 9, "late_fragments": 10**30}],
)
def test_more_results_than_there_are_items_cost_nothing(indexed: Path, options: dict[str, int]) -> None:
    with Collection.open(indexed) as collection:
        assert paths(collection.search("a dog", **options)) == paths(collection.search("a dog", k=len(collection)))
        assert not collection.search("a dog", start=10**12)
        (together,) = collection.search_together(["a dog"], k=10**12)
        assert len(together) == len(collection.search("a dog", k=len(collection)))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"text": 5}, "text must be a string, not 5"),
        ({"text": b"a dog"}, "text must be a string, not b'a dog'"),
        ({"where": 5}, "where must be a string, not 5"),
        ({"not_": ["snow", 5]}, "not_ must be a string or several, not 5"),
        ({"not_": 5}, "not_ must be a string or several, not 5"),
        ({"not_": None}, "not_ must be a string or several, not None"),
        ({"k": "5"}, "k must be a whole number, not '5'"),
        ({"k": 2.5}, "k must be a whole number, not 2.5"),
        ({"k": None}, "k must be a whole number, not None"),
        ({"rerank": 2.5}, "rerank must be a whole number, not 2.5"),
        ({"late": "some"}, "late must be a whole number or 'all', not 'some'"),
        ({"min_relevance": "high"}, "min_relevance must be a number, not 'high'"),
        ({"weight": "x"}, "weight must be a number, not 'x'"),
        ({"budget_ms": "x"}, "budget_ms must be a number, not 'x'"),
        ({"weight": 10**400}, "weight is too large"),
        ({"min_relevance": 10**400}, "min_relevance is too large"),
    ],
)
def test_values_of_the_wrong_type_are_named(collection: Collection, options: dict[str, Any], says: str) -> None:
    with pytest.raises(OptionError, match=f"^{re.escape(says)}"):
        collection.search(**{"text": "a dog", **options})
    assert len(collection.search("a dog", k=np.int64(2), min_relevance=None)) == 2


def test_a_closed_collection_says_so(collection: Collection) -> None:
    collection.close()
    for call in (lambda: collection.search("a dog"), lambda: len(collection), collection.files):
        with pytest.raises(SightlineError, match="was closed"):
            call()


def test_a_closed_collection_can_be_shown(collection: Collection, photos: Path) -> None:
    collection.close()
    assert repr(collection) == f"Collection({str(photos / '.sightline')!r}: closed)"


def test_one_text_is_not_taken_for_several(tiny_bundle: Path, collection: Collection) -> None:
    with pytest.raises(ModelError, match="'a dog' is one text, not a list of texts"):
        sightline.load(tiny_bundle).encode_texts("a dog")
    for wrong in ("a dog", b"a dog", 5, None):
        with pytest.raises(OptionError, match=re.escape(f"texts must be several texts, not {wrong!r}")):
            collection.search_together(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"k": -1}, "k must be at least 0, not -1"),
        ({"start": -5}, "start must be at least 0, not -5"),
        ({"k": "5"}, "k must be a whole number, not '5'"),
    ],
)
def test_a_number_of_items_to_browse_makes_sense(collection: Collection, options: dict[str, Any], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        collection.browse(**options)
    assert collection.browse(k=0) == collection.browse(start=6) == []
    assert len(collection.browse(k=np.int64(2))) == 2


def test_a_search_takes_an_open_model_not_its_name(collection: Collection, calibrated: Path) -> None:
    for name in (calibrated, str(calibrated)):
        with pytest.raises(OptionError, match="model must be an open model, not "):
            collection.search("a dog", model=name)  # type: ignore[arg-type]
        with pytest.raises(OptionError, match="model must be an open model, not "):
            collection.search_together(["a dog"], model=name)  # type: ignore[arg-type]


def test_a_filter_and_a_text_are_strings(collection: Collection) -> None:
    for call in (collection.browse, collection.timeline, lambda where: collection.items([1], where)):
        with pytest.raises(OptionError, match="where must be a string, not 5"):
            call(5)
    with pytest.raises(OptionError, match="text must be a string, not 5"):
        collection.understand(5)  # type: ignore[arg-type]


def test_a_name_with_a_null_byte_is_no_collection() -> None:
    with pytest.raises(CollectionError, match="has a null byte"):
        sightline.open("photos\0")


def test_what_is_not_a_text_is_named(tiny_bundle: Path) -> None:
    with pytest.raises(ModelError, match="None is not a text"):
        sightline.load(tiny_bundle).encode_texts(["a dog", None])  # type: ignore[list-item]
