import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sightline.datasets import read
from sightline.media import ImageFile


def write(path, *lines):
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines), "utf-8")
    return path


def test_every_way_to_write_captions_is_read(tmp_path):
    path = write(
        tmp_path / "data.jsonl",
        {"image": "a.jpg", "captions": ["one", "two", "three"], "split": "train"},
        {"image": "sub/b.jpg", "captions": {"en": ["one"], "de": ["eins", "zwei"]}, "key": "boats", "split": "dev"},
        "",
        {"image": str(tmp_path / "c.jpg"), "caption": " a sea ", "key": 7},
        {"image": "d.jpg", "captions": []},
        {"image": "e.jpg", "captions": {"fr": "un seul"}, "split": "mine"},
    )
    records = list(read(path))
    assert [(record.key, record.captions, record.split) for record in records] == [
        ("a.jpg", {"en": ("one", "two", "three")}, "train"),
        ("boats", {"en": ("one",), "de": ("eins", "zwei")}, "val"),
        ("7", {"en": ("a sea",)}, None),
        ("d.jpg", {}, None),
        ("e.jpg", {"fr": ("un seul",)}, "mine"),
    ]
    assert [record.image for record in records[:3]] == [
        ImageFile(tmp_path / "a.jpg"),
        ImageFile(tmp_path / "sub" / "b.jpg"),
        ImageFile(tmp_path / "c.jpg"),
    ]


def test_images_are_looked_for_where_the_user_says(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    path = write(tmp_path / "data.jsonl", {"image": "a.jpg", "caption": "a dog"})
    (record,) = read(path, images=tmp_path / "elsewhere")
    assert record.image == ImageFile(tmp_path / "elsewhere" / "a.jpg")


def test_a_line_for_each_caption_makes_one_record(tmp_path):
    path = write(
        tmp_path / "data.jsonl",
        {"image": "a.jpg", "caption": "one"},
        {"image": "a.jpg", "captions": {"de": ["zwei"], "en": ["three"]}},
        {"image": "b.jpg", "caption": "four"},
    )
    assert [record.captions for record in read(path)] == [{"en": ("one", "three"), "de": ("zwei",)}, {"en": ("four",)}]


def test_a_picture_that_comes_back_later_is_a_problem(tmp_path, broken_at):
    lines = [{"image": name, "caption": f"{name} said"} for name in ("a.jpg", "b.jpg", "a.jpg")]
    path = write(tmp_path / "data.jsonl", *lines)
    assert len(broken_at(path, f"{path}:a.jpg", "list each image once")) == 2


def test_one_picture_in_two_splits_is_a_problem(tmp_path, broken_at):
    lines = [{"image": "a.jpg", "caption": "a dog", "split": split} for split in ("train", "test")]
    path = write(tmp_path / "data.jsonl", *lines)
    assert len(broken_at(path, f"{path}:2", "the split is 'test', but the previous line has 'train'")) == 1


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{not json", "not JSON"),
        ('"text"', "not an object"),
        ({"caption": "a dog"}, "'image' is missing"),
        ({"image": "", "caption": "a dog"}, "not a file name"),
        ({"image": "a\0.jpg", "caption": "a dog"}, "not a valid file name"),
        ('{"image": "\\ud83d.jpg", "caption": "a dog"}', "not a valid file name"),
        ({"image": "a.jpg"}, "neither 'captions' nor 'caption'"),
        ({"image": "a.jpg", "captions": {"en": [3]}}, "caption 1 is 3, not text"),
        ({"image": "a.jpg", "caption": "a dog", "split": 3}, "'split' is 3"),
        ({"image": "a.jpg", "caption": "a dog", "key": True}, "'key' is True"),
    ],
)
def test_a_broken_line_is_told_with_its_number(tmp_path, broken_at, line, reason):
    good = {"image": "good.jpg", "caption": "a boat"}
    path = write(tmp_path / "data.jsonl", good, line, {**good, "image": "other.jpg"})
    assert [record.key for record in broken_at(path, f"{path}:2", reason)] == ["good.jpg", "other.jpg"]


def test_a_line_that_is_not_utf8_spoils_no_other(tmp_path, broken_at):
    path = tmp_path / "data.jsonl"
    path.write_bytes(b'{"image": "a.jpg", "caption": "caf\xe9"}\n{"image": "b.jpg", "caption": "tea"}\n')
    assert [record.key for record in broken_at(path, f"{path}:1", "byte 35 is not UTF-8")] == ["b.jpg"]


def test_a_byte_order_mark_and_windows_line_ends_do_not_matter(tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"image": "a.jpg", "caption": "tea"}\r\n\r\n')
    assert [record.captions_in("en") for record in read(path)] == [("tea",)]


def test_a_compressed_file_is_read_as_it_is(tmp_path):
    path = tmp_path / "data.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"image": "a.jpg", "caption": "tea"}\n'))
    assert [record.key for record in read(path)] == ["a.jpg"]


TEXT = st.text().map(str.strip).filter(bool)


@settings(max_examples=50, deadline=None)
@given(
    tables=st.lists(
        st.dictionaries(st.sampled_from(["en", "zh", "ar"]), st.lists(TEXT, min_size=1, max_size=3).map(tuple)),
        min_size=1,
        max_size=4,
    ),
    ascii_only=st.booleans(),
)
def test_captions_in_any_script_come_back_as_written(tmp_path_factory, tables, ascii_only):
    path = tmp_path_factory.mktemp("jsonl") / "data.jsonl"
    lines = [{"image": f"{number}.jpg", "captions": table} for number, table in enumerate(tables)]
    path.write_bytes("".join(json.dumps(line, ensure_ascii=ascii_only) + "\n" for line in lines).encode())
    assert [record.captions for record in read(path)] == tables
