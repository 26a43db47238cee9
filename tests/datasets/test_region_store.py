"""A store gives back what was put into it, under the names of pictures, with captions, and says when it is damaged."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from datasets import region_files as files
from sightline.datasets import Problem, Record, read, read_all, recognise
from sightline.datasets.record import BrokenRecordError
from sightline.datasets.regions import Found, Keep, RegionStore, Written, names_in, read_regions, write_regions
from sightline.datasets.regions.names import Names
from sightline.errors import DataError, MediaError
from sightline.media import ImageFile, RegionConfig, to_input

FOUND = [Found(one.name, one.features, one.corners) for one in files.pictures()]


def record(key: str, caption: str = "a dog", split: str | None = None) -> Record:
    return Record(key, ImageFile(Path(key)), {"en": (caption,)}, split)


def stored(folder: Path, found: Sequence[Found] = FOUND, **options: object) -> Written:
    return write_regions(found, folder, **options)  # type: ignore[arg-type]


def test_what_was_stored_is_read_back_to_the_last_bit(tmp_path: Path) -> None:
    assert stored(tmp_path / "store").spec.regions == 8
    assert recognise(tmp_path / "store") == "regions"
    records = read_all(tmp_path / "store")
    assert [one.key for one in records] == ["1", "2", "3"]
    for one, found in zip(records, FOUND, strict=True):
        rows = to_input(one.image, RegionConfig(files.DIM, 6))
        assert found.boxes is not None
        sides = found.boxes[:, 2:] - found.boxes[:, :2]
        np.testing.assert_array_equal(rows, np.concatenate([found.features, found.boxes, sides], axis=1))
        area = to_input(one.image, RegionConfig(files.DIM, 7))[:, -1]
        np.testing.assert_allclose(area, sides.prod(axis=1), rtol=1e-6)


def test_a_store_maps_its_features_and_does_not_load_them(tmp_path: Path) -> None:
    stored(tmp_path / "store")
    store = RegionStore.open(tmp_path / "store")
    assert isinstance(store.features, np.memmap)
    assert isinstance(store.boxes, np.memmap)
    np.testing.assert_array_equal(store.features, np.concatenate([one.features for one in FOUND]))


def test_half_precision_stays_half(tmp_path: Path) -> None:
    path = files.uniter_msgpack(tmp_path, files.pictures())
    spec = stored(tmp_path / "store", list(read_regions(path))).spec
    assert spec.dtype == "float16"
    (first, *_) = read(tmp_path / "store")
    wanted = files.pictures()[0].features.astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(to_input(first.image, RegionConfig(files.DIM, 0)), wanted)


def test_features_without_boxes_are_for_models_without_boxes(tmp_path: Path) -> None:
    stored(tmp_path / "store", [replace(one, boxes=None) for one in FOUND])
    (first, *_) = read(tmp_path / "store")
    assert to_input(first.image, RegionConfig(files.DIM, 0)).shape == (3, files.DIM)
    with pytest.raises(MediaError, match="without boxes") as caught:
        to_input(first.image, RegionConfig(files.DIM, 6))
    assert "box_dim = 0" in caught.value.way_out
    with pytest.raises(MediaError, match="has 5 numbers per region, but the model expects 2048"):
        to_input(first.image, RegionConfig())


def test_captions_of_the_features_themselves_are_kept(tmp_path: Path) -> None:
    found = [replace(FOUND[0], captions={"en": ("a dog", "ein „Hund“")}, split="test"), FOUND[1]]
    assert stored(tmp_path / "store", found).captioned == 1
    first, second = read(tmp_path / "store")
    assert (first.captions, first.split) == ({"en": ("a dog", "ein „Hund“")}, "test")
    assert (second.captions, second.split) == ({}, None)


def test_captions_are_lent_by_records_of_the_same_names_and_those_without_regions_are_told(tmp_path: Path) -> None:
    lenders = [record("COCO_val2014_000000000003", "three", "test"), record("1.jpg", "one"), record("7", "seven")]
    written = stored(tmp_path / "store", captions=lenders)
    assert [one.key for one in written.lacking] == ["7"]
    assert written.captioned == 2
    one, _, three = read(tmp_path / "store")
    assert one.captions_in("en") == ("one",)
    assert (three.captions_in("en"), three.split) == (("three",), "test")


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("9", "COCO_train2014_000000000009"),
        ("coco_train2014_000000000009", "COCO_train2014_000000000009"),
        ("beach", "beach"),
        ("photos/beach.jpg", "beach"),
        ("12", None),  # of two pictures
        ("nowhere", None),
        ("1001773457_577c3a7d70", None),  # 70 is a part of its last word, not its number
        ("sea-70", None),
    ],
)
def test_a_picture_is_found_by_its_name_or_by_its_number_alone(name: str, key: str | None) -> None:
    keys = ("COCO_train2014_000000000009", "beach", "a-12", "b-12", "1056338697_4f7d7ce70")
    found = Names([record(one) for one in keys]).find(name)
    assert (found.key if found else None) == key


def test_the_surest_regions_are_kept_in_their_order(tmp_path: Path) -> None:
    picture = files.pictures((6,))[0]
    sure = np.array([0.1, 0.9, 0.3, 0.05, 0.8, 0.15])
    found = Found("1", picture.features, picture.corners, sure)
    assert Keep(0.2, 1, 100)(found).confidence == pytest.approx([0.9, 0.3, 0.8])
    assert Keep(0.2, 5, 100)(found).confidence == pytest.approx([0.1, 0.9, 0.3, 0.8, 0.15])
    kept = Keep(0.2, 1, 2)(found)
    np.testing.assert_array_equal(kept.features, picture.features[[1, 4]])
    np.testing.assert_array_equal(kept.boxes, picture.corners[[1, 4]])
    assert len(Keep(0.2, 1, 2)(replace(found, confidence=None)).features) == 2
    with pytest.raises(DataError, match="from 5 to 2 regions"):
        Keep(0.2, 5, 2)


@pytest.mark.parametrize(
    ("odd", "reason"),
    [
        (replace(FOUND[0], name="9", features=np.ones((3, 4), "f4")), "have 4 numbers in float32"),
        (replace(FOUND[0], name="9", features=FOUND[0].features.astype(np.float16)), "in float16, with boxes, but"),
        (replace(FOUND[0], name="9", boxes=None), "without boxes, but earlier ones"),
        (FOUND[1], "twice"),
        (replace(FOUND[0], name="a\0b"), "not a valid file name"),
    ],
)
def test_a_picture_unlike_the_others_is_reported_and_left_out(odd: Found, reason: str, tmp_path: Path) -> None:
    problems: list[Problem] = []
    written = stored(tmp_path / "store", [*FOUND, odd], on_problem=problems.append)
    assert written.spec.images == 3
    assert len(list(read(tmp_path / "store"))) == 3
    (problem,) = problems
    assert reason in problem.reason
    assert problem.place.endswith(f"store, picture {odd.name}")
    with pytest.raises(DataError, match=str(tmp_path)):
        stored(tmp_path / "strict", [*FOUND, odd])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]


@pytest.mark.parametrize(
    "broken",
    [
        {"features": np.ones(3)},
        {"features": np.ones((0, 3))},
        {"features": np.full((1, 3), np.nan)},
        {"features": np.ones((2, 3)), "boxes": np.ones((1, 4))},
        {"features": np.ones((2, 3)), "boxes": np.full((2, 4), np.inf)},
        {"features": np.ones((2, 3)), "confidence": np.ones(3)},
    ],
)
def test_regions_that_are_none_are_refused(broken: dict[str, np.ndarray]) -> None:
    with pytest.raises(BrokenRecordError):
        Found("1", **broken)


def test_nothing_is_overwritten_and_nothing_is_no_store(tmp_path: Path) -> None:
    stored(tmp_path / "store")
    with pytest.raises(DataError, match="already exists"):
        stored(tmp_path / "store")
    with pytest.raises(DataError, match="there are no regions to write"):
        stored(tmp_path / "empty", [])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]


def test_a_broken_line_of_a_store_costs_only_its_picture(tmp_path: Path) -> None:
    stored(tmp_path / "store")
    path = tmp_path / "store" / "images.jsonl"
    lines = path.read_text().splitlines()
    fields = json.loads(lines[1])
    path.write_text("\n".join([lines[0], json.dumps({**fields, "regions": [7, 2]}), lines[2]]))
    problems: list[Problem] = []
    assert [one.key for one in read(tmp_path / "store", on_problem=problems.append)] == ["1", "3"]
    assert [(one.place, "'regions' is [7, 2]" in one.reason) for one in problems] == [(f"{path}:2", True)]


def test_a_store_that_was_cut_short_is_refused(tmp_path: Path) -> None:
    stored(tmp_path / "store")
    records = read_all(tmp_path / "store")
    features = tmp_path / "store" / "features.bin"
    features.write_bytes(features.read_bytes()[:-1])
    with pytest.raises(DataError, match="159 bytes instead of 160"):
        read_all(tmp_path / "store")
    with pytest.raises(MediaError, match="cannot be opened"):
        records[0].image.read()


def test_a_store_made_anew_is_not_mistaken_for_the_one_before(tmp_path: Path) -> None:
    stored(tmp_path / "store")
    (before, *_) = read_all(tmp_path / "store")
    first = before.image.read()
    (tmp_path / "store").rename(tmp_path / "old")
    stored(tmp_path / "store", [replace(one, features=one.features + 1) for one in FOUND])
    assert before.image.read() != first


def cut_off(found: Sequence[Found], after: int) -> Iterator[Found]:
    """Give some pictures, and then what the user gives: Control-C."""
    yield from found[:after]
    raise KeyboardInterrupt


@pytest.mark.parametrize("after", [1, 2])
@pytest.mark.parametrize("lost", [0, 1, 5])
def test_a_store_that_was_cut_off_goes_on_and_ends_as_if_it_had_not(tmp_path: Path, after: int, lost: int) -> None:
    """Even where a file lacks its last bytes, as after a crash."""
    captions = [record(one.name) for one in FOUND]
    stored(tmp_path / "whole", captions=captions)
    out, building = tmp_path / "store", tmp_path / "store.building"
    with pytest.raises(KeyboardInterrupt):
        stored(out, cut_off(FOUND, after), captions=captions, made_of="it")  # type: ignore[arg-type]
    assert not out.exists()
    features = building / "features.bin"
    features.write_bytes(features.read_bytes()[: features.stat().st_size - lost])
    with (building / "images.jsonl").open("a") as lines:
        lines.write('{"image": "ha')
    there = names_in(out, "it")
    assert there == {one.name for one in FOUND[: after - (lost > 0)]}
    told: list[int] = []
    written = stored(out, [one for one in FOUND if one.name not in there], captions=captions, made_of="it",
                     progress=told.append)  # fmt: skip
    assert told == list(range(1, len(FOUND) - len(there) + 1))
    assert (written.captioned, written.lacking) == (len(FOUND), ())
    for path in (tmp_path / "whole").iterdir():
        assert (out / path.name).read_bytes() == path.read_bytes(), path.name
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store", "whole"]


def test_pictures_of_an_earlier_part_are_passed_over_once(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        stored(tmp_path / "store", cut_off(FOUND, 2), made_of="it")  # type: ignore[arg-type]
    problems: list[Problem] = []
    written = stored(tmp_path / "store", [*FOUND, FOUND[0]], made_of="it", on_problem=problems.append)
    assert written.spec.images == len(FOUND)
    assert [problem.reason for problem in problems] == ["is listed twice"]


def test_a_store_that_was_begun_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        stored(tmp_path / "store", cut_off(FOUND, 1), made_of="one")  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"was started with different arguments: one\n.*delete it"):
        stored(tmp_path / "store", made_of="other")
    assert stored(tmp_path / "store", made_of="one").spec.images == len(FOUND)


def test_a_box_that_ends_before_it_begins_is_refused() -> None:
    assert FOUND[0].boxes is not None
    with pytest.raises(BrokenRecordError, match="left, top, right, bottom"):
        replace(FOUND[0], boxes=FOUND[0].boxes[:, ::-1])


@pytest.mark.parametrize("confidence", [-0.1, 5.0])
def test_a_confidence_that_is_no_probability_is_refused(confidence: float) -> None:
    with pytest.raises(DataError, match="from 0 to 1"):
        Keep(confidence)
