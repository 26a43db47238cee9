import pytest

from sightline.datasets import read
from sightline.media import ImageFile

TOKEN = "a.jpg#0\tA dog runs .\na.jpg#1\tA wet dog\tand more .\nb.jpg#0\tTwo boats .\nc.jpg#0\t小狗 .\n"


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


def table(records):
    return [(record.key, record.captions["en"], record.split) for record in records]


def test_token_files_are_read_with_the_split_lists_beside_them(tmp_path):
    path = write(tmp_path / "Flickr8k.token.txt", TOKEN)
    write(tmp_path / "Flickr_8k.trainImages.txt", "a.jpg\n")
    write(tmp_path / "Flickr_8k.devImages.txt", "b.jpg\n")
    write(tmp_path / "Flickr_8k.testImages.txt", "\n")
    assert table(read(path)) == [
        ("a", ("A dog runs .", "A wet dog\tand more ."), "train"),
        ("b", ("Two boats .",), "val"),
        ("c", ("小狗 .",), None),
    ]


def test_split_lists_may_leave_out_the_suffix(tmp_path):
    path = write(tmp_path / "results_20130124.token", TOKEN)
    for split, name in [("train", "a"), ("val", "b"), ("test", "c")]:
        write(tmp_path / f"{split}.txt", f"{name}\n")
    assert [record.split for record in read(path)] == ["train", "val", "test"]
    assert [record.key for record in read(path, split="test")] == ["c"]


def test_a_picture_in_two_split_lists_is_a_problem(tmp_path, broken_at):
    path = write(tmp_path / "results_20130124.token", TOKEN)
    write(tmp_path / "test.txt", "b\na\n")
    write(tmp_path / "train.txt", "c\na\n")
    broken_at(path, f"{tmp_path / 'train.txt'}:2", "'a' is also in split 'test'")


def test_the_spelling_with_bars_is_read_and_its_known_broken_line_told(tmp_path, broken_at):
    text = "image_name| comment_number| comment\na.jpg| 0| A dog | runs .\na.jpg| 1   A wet dog .\nb.jpg| 0| Boats .\n"
    path = write(tmp_path / "results.csv", text)
    records = broken_at(path, f"{path}:3", "name.jpg| number| caption")
    assert table(records) == [("a", ("A dog | runs .",), None), ("b", ("Boats .",), None)]


@pytest.mark.parametrize(
    "header", ["image,caption", "image_name,comment_number,comment", "\ufefffilename,text", "path,number,said"]
)
def test_the_spelling_with_commas_is_read(tmp_path, broken_at, header):
    number = "0," if "number" in header else ""
    text = f'{header}\na.jpg,{number}"A dog, wet ."\nb.jpg,{number}Two, three .\nc.jpg,{number}A cat .\n'
    path = write(tmp_path / "captions.txt", text)
    records = broken_at(path, f"{path}:3", "columns, but the header has")
    assert table(records) == [("a", ("A dog, wet .",), None), ("c", ("A cat .",), None)]


@pytest.mark.parametrize(
    ("line", "reason"),
    [(b"no tab here", "not of the form"), (b"x.jpg#0\tcaf\xe9", "not UTF-8"), (b"b.jpg#1\t  ", "caption 1 is empty")],
)
def test_a_broken_line_is_told_with_its_number(tmp_path, broken_at, line, reason):
    path = tmp_path / "x.token"
    path.write_bytes(b"a.jpg#0\tA dog .\nb.jpg#0\tA boat .\n" + line + b"\nc.jpg#0\tA cat .\n")
    assert [record.key for record in broken_at(path, f"{path}:3", reason)] == ["a", "b", "c"]


@pytest.mark.parametrize("below", ["text/a.jpg", "text/flickr30k-images/a.jpg", "Flicker8k_Dataset/a.jpg"])
def test_pictures_are_found_where_the_archives_unpack_to(tmp_path, below):
    path = write(tmp_path / "text" / "Flickr8k.token.txt", TOKEN)
    picture = write(tmp_path / below, "")
    assert next(read(path)).image == ImageFile(picture)


def test_a_name_with_a_strange_end_stays_apart_from_the_picture_it_resembles(tmp_path):
    path = write(tmp_path / "Flickr8k.token.txt", "2258277193_58.jpg#0\tOne .\n2258277193_58.jpg.1#0\tTwo .\n")
    assert [record.key for record in read(path)] == ["2258277193_58", "2258277193_58.jpg.1"]
