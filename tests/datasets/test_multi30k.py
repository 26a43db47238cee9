import gzip
from pathlib import Path

import pytest

from sightline.datasets import read
from sightline.errors import DataError
from sightline.media import ImageFile


def write(folder, **files):
    for name, lines in files.items():
        path = folder / name.replace("__", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return folder


def test_parallel_files_become_one_record_a_line(tmp_path):
    folder = write(
        tmp_path,
        train__en=["a dog", "two boats"],
        train__de=["ein Hund", "zwei\u2028Boote"],
        train_images__txt=["a.jpg", "b.jpg"],
        val__en=["a cat"],
        val__txt=["c.jpg"],
    )
    records = list(read(folder))
    assert [(record.key, record.captions, record.split) for record in records] == [
        ("a", {"de": ("ein Hund",), "en": ("a dog",)}, "train"),
        ("b", {"de": ("zwei\u2028Boote",), "en": ("two boats",)}, "train"),
        ("c", {"en": ("a cat",)}, "val"),
    ]


def test_numbered_files_hold_several_captions_a_picture_unequal_between_languages(tmp_path):
    files = {f"train__{number}__en": [f"a{number}", f"b{number}"] for number in (1, 2, 10)}
    folder = write(tmp_path, **files, train__1__de=["A", "B"], train_images__txt=["a.jpg", "b.jpg"])
    first, second = read(folder)
    assert first.captions == {"de": ("A",), "en": ("a1", "a2", "a10")}
    assert second.captions_in("en") == ("b1", "b2", "b10")


def test_tests_of_different_years_stay_apart(tmp_path):
    folder = write(
        tmp_path / "raw", test_2016_flickr__en=["a dog"], test_2017_mscoco__en=["a cat"], train__en=["no list for it"]
    )
    write(tmp_path / "image_splits", test_2016_flickr__txt=["a.jpg"], test_2017_mscoco__txt=["b.jpg#123"])
    assert [(record.key, record.split) for record in read(folder)] == [
        ("a", "test_2016_flickr"),
        ("b", "test_2017_mscoco"),
    ]
    with pytest.raises(DataError, match="available: test_2016_flickr, test_2017_mscoco"):
        list(read(folder, split="test"))


def test_compressed_captions_are_read(tmp_path):
    write(tmp_path, train_images__txt=["a.jpg"])
    (tmp_path / "train.cs.gz").write_bytes(gzip.compress("pes běží\n".encode()))
    assert [record.captions for record in read(tmp_path)] == [{"cs": ("pes běží",)}]


def test_files_of_unequal_length_are_refused_with_their_counts(tmp_path):
    folder = write(tmp_path, train__en=["a", "b"], train__de=["A"], train_images__txt=["a.jpg", "b.jpg"])
    with pytest.raises(DataError, match=r"train_images\.txt has 2.*train\.de has 1.*train\.en has 2"):
        list(read(folder, on_problem=print))


def test_an_empty_line_is_told_with_file_and_number(tmp_path, broken_at):
    folder = write(tmp_path, train__en=["a", " "], train__de=["A", "B"], train_images__txt=["a.jpg", "b.jpg"])
    records = broken_at(folder, f"{tmp_path / 'train.en'}:2", "empty")
    assert records[1].captions == {"de": ("B",)}


def test_a_missing_name_in_the_list_is_told_with_its_number(tmp_path, broken_at):
    folder = write(tmp_path, train__en=["a", "b"], train_images__txt=["", "b.jpg"])
    assert [record.key for record in broken_at(folder, f"{tmp_path / 'train_images.txt'}:1", "name")] == ["b"]


def test_pictures_are_found_beside_the_texts(tmp_path):
    folder = write(tmp_path, train__en=["a"], train_images__txt=["a.jpg"])
    write(tmp_path / "flickr30k-images", a__jpg=[])
    assert next(read(folder)).image == ImageFile(tmp_path / "flickr30k-images" / "a.jpg")


def test_no_file_stays_open_when_a_problem_ends_the_reading(tmp_path, monkeypatch):
    folder = write(tmp_path, train__en=["a", " ", "c"], train__de=["A", "B", "C"], train_images__txt=["a.jpg"] * 3)
    opened, original = [], Path.open

    def noted(self, *arguments, **options):
        opened.append(original(self, *arguments, **options))
        return opened[-1]

    monkeypatch.setattr(Path, "open", noted)
    with pytest.raises(DataError) as kept:  # its traceback keeps the frames of the readers alive
        list(read(folder))
    assert "train.en:2" in str(kept.value)
    assert len(opened) == 6
    assert all(file.closed for file in opened)
