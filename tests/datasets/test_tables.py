"""Tables of images and captions: open_clip's CSV, Hugging Face's metadata, rows in any order."""

import json

import pytest

from sightline.datasets import read_all
from sightline.errors import DataError
from sightline.media import ImageFile


def table(records):
    return {record.key: (record.captions.get("en", ()), record.split) for record in records}


def test_the_csv_of_open_clip_is_read(tmp_path):
    path = tmp_path / "train.csv"
    path.write_text("filepath\ttitle\nimages/a.jpg\ta dog, wet\nimages/b.jpg\ttwo boats\n")
    records = read_all(path)
    assert table(records) == {"a": (("a dog, wet",), None), "b": (("two boats",), None)}
    assert records[0].image == ImageFile(tmp_path / "images" / "a.jpg")


@pytest.mark.parametrize("header", ["title,filepath", "caption,image"])
def test_columns_are_found_by_their_names(tmp_path, header):
    path = tmp_path / "t.csv"
    path.write_text(f"{header}\na dog,a.jpg\n")
    assert table(read_all(path)) == {"a": (("a dog",), None)}


def test_the_captions_of_an_image_need_not_be_adjacent(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("image,caption\na.jpg,a dog\nb.jpg,a boat\na.jpg,a wet dog\n")
    assert table(read_all(path)) == {"a": (("a dog", "a wet dog"), None), "b": (("a boat",), None)}


def test_a_column_split_names_the_split_of_an_image(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("image,caption,Split\na.jpg,a dog,train\nb.jpg,a boat,dev\na.jpg,a wet dog,train\nc.jpg,a hat,\n")
    assert table(read_all(path)) == {
        "a": (("a dog", "a wet dog"), "train"),
        "b": (("a boat",), "val"),
        "c": (("a hat",), None),
    }
    assert [record.key for record in read_all(path, split="train")] == ["a"]


def test_the_last_column_is_the_caption_unless_it_is_the_split(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("image,english,split\na.jpg,a dog,test\n")
    assert table(read_all(path)) == {"a": (("a dog",), "test")}


def test_an_image_in_two_splits_is_reported_by_its_line(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("image,caption,split\na.jpg,a dog,train\na.jpg,a wet dog,test\n")
    with pytest.raises(DataError, match=r"t\.csv:3: the split is 'test', but an earlier line has 'train'"):
        read_all(path)


def test_images_of_the_same_name_in_two_folders_stay_apart(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("image,caption\nx/1.jpg,a dog\ny/1.jpg,a boat\n")
    assert list(table(read_all(path))) == ["x/1.jpg", "y/1.jpg"]


def test_a_folder_of_hugging_face_has_captions_by_split(tmp_path):
    for split, caption in (("train", "a dog"), ("validation", "a boat")):
        (tmp_path / split).mkdir()
        line = json.dumps({"file_name": f"{split}.png", "text": caption, "license": 3})
        (tmp_path / split / "metadata.jsonl").write_text(line + "\n")
    records = read_all(tmp_path)
    assert table(records) == {"train.png": (("a dog",), "train"), "validation.png": (("a boat",), "val")}
    assert records[0].image == ImageFile(tmp_path / "train" / "train.png")
    assert len(read_all(tmp_path, split="val")) == 1


def test_metadata_may_be_csv_and_in_the_folder_itself(tmp_path):
    (tmp_path / "metadata.csv").write_text("file_name,text\na.png,a dog\n")
    assert table(read_all(tmp_path)) == {"a": (("a dog",), None)}
