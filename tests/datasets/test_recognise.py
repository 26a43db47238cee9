import json

import pytest

from sightline.datasets import read, recognise
from sightline.errors import DataError

LONG = [{"id": number, "url": "https://example.org/" + "x" * 500} for number in range(400)]

FILES = {
    "shards": {"a.tar": b"", "b.tar.gz": b"", "c.tgz": b"", "D.TAR": b""},
    "jsonl": {
        "a.jsonl": b"",
        "b.ndjson": b"",
        "c.json": b'{"image": "a.jpg", "caption": "say \\"sentences\\": now"}\n{"image": "b.jpg", "caption": "b"}\n',
    },
    "karpathy": {
        "dataset_flickr30k.json": b'{"images": [{"sentids": [0], "imgid": 0, "sentences": [{"raw": "a"}]}]}',
        "k.json": json.dumps({"images": LONG, "x": {"filename": "a.jpg"}}).encode(),
    },
    "coco": {
        "captions_val2014.json": b'{"info": {}, "images": [{"license": 3, "file_name": "COCO_1.jpg", "id": 1}]}',
        "c.json": json.dumps({"images": LONG, "annotations": [{"caption": "\\"}]}).encode(),
        "d.json": json.dumps({"annotations": [{"caption": 'a sign says "sentences":'}], "images": LONG}).encode(),
    },
    "flickr": {
        "Flickr8k.token.txt": b"a.jpg#0\tA dog .\n",
        "results_20130124.token": b"\xef\xbb\xbfa.jpg#0\tA dog .\n",
        "results.csv": b"image_name| comment_number| comment\n",
        "captions.txt": b"image,caption\na.jpg,A dog .\n",
    },
}


@pytest.mark.parametrize(
    ("wanted", "name", "contents"), [(wanted, name, data) for wanted in FILES for name, data in FILES[wanted].items()]
)
def test_a_file_is_recognised_by_its_name_and_contents(tmp_path, wanted, name, contents):
    (tmp_path / name).write_bytes(contents)
    assert recognise(tmp_path / name) == wanted


def test_a_folder_is_recognised_by_what_it_holds(tmp_path):
    (tmp_path / "deep" / "down").mkdir(parents=True)
    (tmp_path / "deep" / "down" / "a.jpg").touch()
    assert recognise(tmp_path) == "folder"
    (tmp_path / "data.jsonl").write_text("")
    assert recognise(tmp_path) == "jsonl"
    (tmp_path / "train.en").touch()
    (tmp_path / "train_images.txt").touch()
    assert recognise(tmp_path) == "multi30k"
    (tmp_path / "a.tar").touch()
    assert recognise(tmp_path) == "shards"


def test_a_folder_with_several_annotation_files_asks_which(tmp_path):
    for name in ("captions_train2014.json", "captions_val2014.json"):
        (tmp_path / name).touch()
    with pytest.raises(DataError, match=r"captions_train2014\.json, captions_val2014\.json"):
        recognise(tmp_path)


def test_the_folder_of_flickr8k_texts_means_its_captions(tmp_path):
    for name in ("Flickr8k.token.txt", "Flickr8k.lemma.token.txt"):
        (tmp_path / name).write_text("a.jpg#0\tA dog .\n")
    (tmp_path / "ExpertAnnotations.txt").write_text("a.jpg\tb.jpg#2\t1\t1\t1\n")
    assert recognise(tmp_path) == "flickr"


@pytest.mark.parametrize("name", ["notes.txt", "data.json", "photo.jpg", "binary.csv", "empty.json"])
def test_an_unknown_format_is_refused_with_the_known_ones(tmp_path, name):
    contents = {"binary.csv": b"\xff\xfe\x00", "empty.json": b""}.get(name, b'{"hello": "world"}')
    (tmp_path / name).write_bytes(contents)
    with pytest.raises(DataError, match=r"(?s)not a data set in a known format.*WebDataset"):
        read(tmp_path / name)


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(DataError, match="not a data set"):
        recognise(tmp_path)


def test_a_mixture_of_formats_is_no_format(tmp_path):
    (tmp_path / "data.tar").touch()
    (tmp_path / "data.jsonl").touch()
    with pytest.raises(DataError, match="different formats: jsonl, shards"):
        recognise(tmp_path / "data.*")
