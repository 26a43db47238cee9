import pytest

from sightline.datasets import read


def fill(folder, **files):
    for name, text in files.items():
        path = folder / name.replace("__", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return folder


def test_captions_stand_beside_their_pictures(tmp_path):
    folder = fill(
        tmp_path,
        dog__jpg="",
        dog__txt="\ufeffa dog\n\n a wet dog \n",
        dog__de__txt="ein Hund\n",
        cat__PNG="",
        README__txt="hello",
        boat__webp="",
        boat__txt="",
    )
    assert [(record.key, record.captions, record.split) for record in read(folder)] == [
        ("boat.webp", {}, None),
        ("cat.PNG", {}, None),
        ("dog.jpg", {"de": ("ein Hund",), "en": ("a dog", "a wet dog")}, None),
    ]


def test_a_text_belongs_to_the_picture_of_just_its_name_first(tmp_path):
    folder = fill(tmp_path, a__jpg="", a__de__jpg="", a__de__txt="a picture called a.de", a__v2__txt="not a language")
    assert [record.captions for record in read(folder)] == [{"en": ("a picture called a.de",)}, {}]


def test_both_ways_to_name_english_are_joined(tmp_path):
    folder = fill(tmp_path, a__jpg="", a__txt="one", a__en__txt="two")
    assert {caption for record in read(folder) for caption in record.captions_in("en")} == {"one", "two"}


def test_subfolders_named_after_splits_are_splits(tmp_path):
    for below in ("train", "valid", "other/test"):
        fill(tmp_path / below, a__jpg="", a__txt=f"from {below}")
    records = list(read(tmp_path))
    assert [(record.key, record.split) for record in records] == [
        ("other/test/a.jpg", None),
        ("train/a.jpg", "train"),
        ("valid/a.jpg", "val"),
    ]
    assert [record.captions_in("en") for record in records] == [("from other/test",), ("from train",), ("from valid",)]


def test_captions_written_after_a_reading_are_seen_by_the_next(tmp_path):
    fill(tmp_path, a__jpg="")
    assert next(read(tmp_path)).captions == {}
    fill(tmp_path, a__txt="a dog")
    assert next(read(tmp_path)).captions == {"en": ("a dog",)}


def test_a_line_that_is_not_utf8_is_told_and_the_record_stays(tmp_path, broken_at):
    fill(tmp_path, a__jpg="")
    (tmp_path / "a.txt").write_bytes(b"a dog\ncaf\xe9\n")
    (record,) = broken_at(tmp_path, f"{tmp_path / 'a.txt'}:2", "not UTF-8")
    assert record.captions_in("en") == ("a dog",)


@pytest.mark.skipif("os.name == 'nt'")
def test_a_link_that_leads_nowhere_is_told(tmp_path, broken_at):
    fill(tmp_path, a__jpg="")
    (tmp_path / "b.jpg").symlink_to(tmp_path / "gone.jpg")
    assert len(broken_at(tmp_path, str(tmp_path / "b.jpg"), "broken link")) == 1
