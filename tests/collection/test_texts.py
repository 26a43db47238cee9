"""Files of texts become collections of texts, a line an item, brought up to date like any other."""

from pathlib import Path

import pytest

from collection.made_up import Instant
from sightline.collection import Collection, index
from sightline.errors import CollectionError


def lines(path: Path, *texts: str) -> Path:
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return path


def resolve_location(at: Path) -> dict[str, str | None]:
    with Collection.open(at) as collection:
        assert collection.kind == "texts"
        assert collection.store.ids().tolist() == collection.catalog.ids()
        return {
            file.path: item.text for item in collection.items(collection.catalog.ids()).values() for file in item.files
        }


def test_every_line_of_a_plain_file_is_an_item(tmp_path: Path, model: Instant) -> None:
    path = lines(tmp_path / "notes.txt", "a dog", "", "  two cats ", "ein Löwe\u2028im Zoo", "a dog")
    report = index(path, model=model)
    assert (report.new, report.encoded, report.duplicates, report.kind) == (4, 3, 1, "texts")
    assert resolve_location(tmp_path / ".sightline-notes") == {
        "notes.txt:1": "a dog",
        "notes.txt:3": "two cats",
        "notes.txt:4": "ein Löwe\u2028im Zoo",
        "notes.txt:5": "a dog",
    }


def test_json_lines_are_texts_or_objects_with_one(tmp_path: Path, model: Instant) -> None:
    path = lines(
        tmp_path / "captions.jsonl", '"a dog"', '{"text": "a cat", "id": "c1"}', '{"caption": "a bird", "id": 7}'
    )
    index(path, model=model, at=tmp_path / "at")
    assert list(resolve_location(tmp_path / "at").values()) == ["a dog", "a cat", "a bird"]
    with Collection.open(tmp_path / "at") as collection:
        assert [(file.line, file.key, file.where) for file in collection.files()] == [
            (1, None, path),
            (2, "c1", path),
            (3, "7", path),
        ]


@pytest.mark.parametrize(
    "line",
    ["{", "[]", "3", "{}", '{"text": 3}', '{"text": " "}', '"\\ud800"', '{"text": "x", "id": []}', "[" * 100_000],
)
def test_a_broken_line_is_listed_and_the_rest_indexed(tmp_path: Path, model: Instant, line: str) -> None:
    path = lines(tmp_path / "c.jsonl", '"a dog"', line, '"a cat"')
    report = index(path, model=model)
    assert (report.new, [problem.path for problem in report.broken]) == (2, [f"{path}:2"])
    assert report.broken[0].reason
    assert index(path, model=model).broken == report.broken


@pytest.mark.parametrize(
    ("line", "says"), [('{"text": 3}', "the text is 3, not a string"), ('{"text": " "}', "the text is empty")]
)
def test_a_text_that_is_empty_or_no_string_is_told_apart(tmp_path: Path, model: Instant, line: str, says: str) -> None:
    report = index(lines(tmp_path / "c.jsonl", '"a dog"', line), model=model)
    assert [problem.reason for problem in report.broken] == [says]


def test_a_line_that_is_not_utf8_spoils_no_other(tmp_path: Path, model: Instant) -> None:
    path = tmp_path / "c.txt"
    path.write_bytes(b"a dog\ncaf\xe9\na cat\n")
    report = index(path, model=model)
    assert (report.new, len(report.broken)) == (2, 1)


def test_an_id_given_twice_is_a_broken_line(tmp_path: Path, model: Instant) -> None:
    path = lines(tmp_path / "c.jsonl", '{"text": "a", "id": 1}', '{"text": "b", "id": "1"}')
    report = index(path, model=model)
    assert (report.new, [problem.path for problem in report.broken]) == (1, [f"{path}:2"])
    assert "line 1" in report.broken[0].reason


def test_only_new_texts_are_encoded(tmp_path: Path, model: Instant) -> None:
    path = lines(tmp_path / "c.txt", "one", "two", "three")
    index(path, model=model)
    model.texts.clear()
    lines(path, "zero", "one", "two", "three")
    report = index(path, model=model)
    assert model.texts == ["zero"]
    assert (report.new, report.changed, report.encoded) == (1, 3, 1)
    lines(path, "two")
    report = index(path, model=model)
    assert (report.encoded, report.deleted) == (0, 3)
    assert resolve_location(tmp_path / ".sightline-c") == {"c.txt:1": "two"}


def test_a_text_with_an_id_is_known_by_it_on_whatever_line(tmp_path: Path, model: Instant) -> None:
    path = lines(tmp_path / "c.jsonl", '{"text": "one", "id": 1}', '{"text": "two", "id": 2}')
    index(path, model=model)
    lines(path, '{"text": "new", "id": 3}', '{"text": "one", "id": 1}', '{"text": "zwei", "id": 2}')
    report = index(path, model=model)
    assert (report.new, report.changed, report.unchanged) == (1, 1, 1)
    assert resolve_location(tmp_path / ".sightline-c") == {"c.jsonl:1": "new", "c.jsonl:2": "one", "c.jsonl:3": "zwei"}


def test_a_file_of_texts_that_is_gone_keeps_its_items(tmp_path: Path, model: Instant) -> None:
    path, at = lines(tmp_path / "c.txt", "one"), tmp_path / "at"
    index(path, model=model, at=at)
    path.unlink()
    report = index(model=model, at=at)
    assert (report.deleted, [problem.path for problem in report.skipped]) == (0, [str(path)])
    assert resolve_location(at) == {"c.txt:1": "one"}
    assert index(path, model=model, at=at, prune=True).deleted == 1


def test_texts_and_images_do_not_mix(tmp_path: Path, photos: Path, model: Instant) -> None:
    path = lines(tmp_path / "c.txt", "one")
    with pytest.raises(CollectionError, match="cannot share a collection"):
        index([path, photos], at=tmp_path / "at", model=model)
    index(photos, at=tmp_path / "at", model=model)
    with pytest.raises(CollectionError, match="texts cannot be added") as caught:
        index(path, at=tmp_path / "at", model=model)
    assert "--at" in caught.value.way_out


def test_texts_longer_than_the_model_reads_are_counted(tmp_path: Path, tiny_bundle: Path) -> None:
    path = lines(tmp_path / "c.txt", "a dog " * 30, "a cat")
    assert index(path, model=tiny_bundle).truncated == 1
