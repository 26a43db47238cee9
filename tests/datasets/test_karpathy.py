import json

import pytest

from sightline.datasets import read
from sightline.errors import DataError
from sightline.media import ImageFile


def entry(name, split, *sentences, **more):
    return {"filename": name, "split": split, "sentences": [{"raw": text} for text in sentences], **more}


def write(folder, *entries):
    path = folder / "dataset_coco.json"
    path.write_text(json.dumps({"images": entries, "dataset": "coco"}))
    return path


def touch(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def test_records_come_in_order_and_restval_is_trained_on(tmp_path):
    entries = [entry("a.jpg", "restval", "one", "two"), entry("b.jpg", "test", " three "), entry("c.jpg", "val")]
    records = list(read(write(tmp_path, *entries)))
    assert [(record.key, record.captions, record.split) for record in records] == [
        ("a", {"en": ("one", "two")}, "train"),
        ("b", {"en": ("three",)}, "test"),
        ("c", {}, "val"),
    ]


@pytest.mark.parametrize("below", ["val2014/b.jpg", "b.jpg", "images/val2014/b.jpg", "images/b.jpg"])
def test_pictures_are_found_beside_the_file_or_in_the_folder_it_names(tmp_path, below):
    picture = touch(tmp_path / below)
    # The first picture is nowhere: that must not settle where the others are.
    entries = [entry(name, "test", "one", filepath="val2014") for name in ("a.jpg", "b.jpg")]
    assert list(read(write(tmp_path, *entries)))[1].image == ImageFile(picture)


def test_pictures_in_two_folders_are_each_found_in_theirs(tmp_path):
    pictures = [touch(tmp_path / "coco" / "train2014" / "a.jpg"), touch(tmp_path / "coco" / "b.jpg")]
    entries = [entry("a.jpg", "train", "one", filepath="train2014"), entry("b.jpg", "val", "two", filepath="val2014")]
    records = read(write(tmp_path, *entries), images=tmp_path / "coco")
    assert [record.image for record in records] == [ImageFile(picture) for picture in pictures]


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ("text", "the entry is 'text'"),
        ({"split": "test", "sentences": []}, "'filename' is missing"),
        ({"filename": "a.jpg", "sentences": []}, "'split' is missing"),
        ({"filename": "a.jpg", "split": "test"}, "'sentences' is missing"),
        ({"filename": "a.jpg", "split": "test", "sentences": [{"tokens": []}]}, "caption 1 is missing"),
    ],
)
def test_a_broken_entry_is_told_with_its_number(tmp_path, broken_at, broken, reason):
    path = write(tmp_path, entry("good.jpg", "test", "one"), broken)
    assert [record.key for record in broken_at(path, f"{path}:images[1]", reason)] == ["good"]


def test_a_document_cut_off_is_told_with_its_line(tmp_path):
    path = write(tmp_path, entry("a.jpg", "test", "one"))
    path.write_text(path.read_text()[:-10])
    with pytest.raises(DataError, match=r"dataset_coco\.json:1: not JSON"):
        list(read(path, on_problem=print))


def test_images_that_are_no_list_are_told(tmp_path):
    path = tmp_path / "dataset_x.json"
    path.write_text('{"images": {"filename": "a.jpg"}}')
    with pytest.raises(DataError, match=r"dataset_x\.json: 'images' is .*not a list"):
        list(read(path, on_problem=print))
