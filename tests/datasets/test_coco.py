import json

import pytest

from sightline.datasets import read
from sightline.errors import DataError
from sightline.media import ImageFile


def write(path, images, annotations):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"info": {}, "images": images, "licenses": [], "annotations": annotations}))
    return path


def image(identity):
    return {"id": identity, "file_name": f"COCO_val2014_{identity:012d}.jpg"}


def said(identity, text):
    return {"image_id": identity, "id": 1, "caption": text}


def test_captions_are_gathered_by_picture_whatever_their_order_and_number(tmp_path):
    annotations = [said(2, "b one"), said(1, "a one"), said(2, "b two\n")]
    path = write(tmp_path / "captions_val2014.json", [image(1), image(2), image(3)], annotations)
    records = list(read(path))
    assert [record.captions for record in records] == [{"en": ("a one",)}, {"en": ("b one", "b two")}, {}]
    assert [record.key for record in records] == [f"COCO_val2014_00000000000{number}" for number in (1, 2, 3)]
    assert {record.split for record in records} == {"val"}


@pytest.mark.parametrize("below", [".", "images", "..", "../val2014", "val2014", "../images/val2014", "images/val2014"])
def test_pictures_are_found_where_coco_unpacks_to(tmp_path, below):
    path = write(tmp_path / "annotations" / "captions_val2014.json", [image(1)], [said(1, "a dog")])
    folder = path.parent / below
    folder.mkdir(parents=True, exist_ok=True)
    (folder / image(1)["file_name"]).touch()
    (record,) = read(path)
    assert record.image.path.exists()


def test_pictures_are_found_in_the_folder_the_user_names_or_below_it(tmp_path):
    path = write(tmp_path / "captions_val2014.json", [image(1)], [said(1, "a dog")])
    below = tmp_path / "coco" / "val2014"
    below.mkdir(parents=True)
    assert [record.image for record in read(path, images=below)] == [ImageFile(below / image(1)["file_name"])]
    (below / image(1)["file_name"]).touch()
    assert [record.image for record in read(path, images=below.parent)] == [ImageFile(below / image(1)["file_name"])]


@pytest.mark.parametrize(
    ("images", "annotations", "place", "reason"),
    [
        ([{"id": 1}], [], "images[1]", "'file_name' is missing"),
        ([{"file_name": "a.jpg"}], [], "images[1]", "'id' is missing"),
        ([], [{"image_id": 7, "bbox": []}], "annotations[1]", "file of object boxes"),
        ([], [{"image_id": [7], "caption": "a dog"}], "annotations[1]", "'image_id' is [7]"),
        ([], [said(8, "a dog")], "annotations", "captions for image 8, which is not among the images"),
        ([], [said(7, " ")], "images[0]", "caption 2 is empty"),
    ],
)
def test_a_broken_entry_is_told_with_its_number(tmp_path, broken_at, images, annotations, place, reason):
    path = write(tmp_path / "captions.json", [image(7), *images], [said(7, "a boat"), *annotations])
    (record,) = broken_at(path, f"{path}:{place}", reason)
    assert record.captions == {"en": ("a boat",)}


def test_a_document_without_annotations_is_told(tmp_path):
    path = tmp_path / "image_info_test2014.json"
    path.write_text(json.dumps({"images": [image(1)]}))
    with pytest.raises(DataError, match=r"image_info_test2014\.json: 'annotations' is missing"):
        list(read(path))
