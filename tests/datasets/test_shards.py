import io
import tarfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sightline.datasets import read
from sightline.errors import DataError
from sightline.media import ImageBytes, ImageSlice

DOG = {"captions": {"en": ["a dog runs", " a wet dog "], "de": ["ein Hund"]}}
BOAT = {"captions": {"en": ["two boats"]}}


def test_records_come_in_order_with_their_captions_and_a_slice_of_the_archive(tmp_path, write_shard):
    path = write_shard(
        tmp_path / "sea-train-000.tar", [("a.webp", b"DOG"), ("a.json", DOG), ("b.jpg", b"BOATS"), ("b.json", BOAT)]
    )
    first, second = read(path)
    assert (first.key, first.split) == ("a", "train")
    assert first.captions == {"en": ("a dog runs", "a wet dog"), "de": ("ein Hund",)}
    assert isinstance(second.image, ImageSlice)
    assert second.image.name == f"{path}:b.jpg"
    assert (first.image.read(), second.image.read()) == (b"DOG", b"BOATS")


@pytest.mark.parametrize("name", ["a.tar.gz", "a.tgz"])
def test_a_compressed_shard_gives_the_bytes_themselves(tmp_path, write_shard, name):
    path = write_shard(tmp_path / name, [("a.webp", b"DOG"), ("a.json", DOG)])
    (record,) = read(path)
    assert isinstance(record.image, ImageBytes)
    assert (record.image.name, record.image.read()) == (f"{path}:a.webp", b"DOG")


def test_the_key_ends_at_the_first_dot_of_the_base_name(tmp_path, write_shard):
    members = [("./v1.0/a.seg.png", b"-"), ("./v1.0/a.jpg", b"A"), ("./v1.0/a.json", BOAT), ("v1.0/._a.jpg", b"junk")]
    (record,) = read(write_shard(tmp_path / "x.tar", [*members, ("README", b"hello"), ("b.npy", b"0")]))
    assert record.key == "v1.0/a"
    assert record.image.read() == b"A"


def test_img2dataset_shards_have_their_caption_in_a_text_file(tmp_path, write_shard):
    fields = {"caption": "a dog", "status": "success", "url": "https://example.org/dog.jpg", "error_message": None}
    members = [("000.jpg", b"A"), ("000.txt", "a dog\n"), ("000.json", fields)]
    members += [("001.json", {"caption": "only here", "status": "success"}), ("001.jpg", b"B")]
    members += [("002.jpg", b"C"), ("002.json", {"caption": None, "status": "success"})]
    members += [("003.jpg", b"D"), ("003.json", {"status": "success"}), ("004.jpg", b"E"), ("004.txt", "just text")]
    records = list(read(write_shard(tmp_path / "00000.tar", members)))
    assert [record.captions.get("en") for record in records] == [
        ("a dog",),
        ("only here",),
        None,
        None,
        ("just text",),
    ]
    assert records[0].split is None


def test_a_download_that_failed_is_told_with_its_status(tmp_path, write_shard, broken_at):
    failed = {"caption": "gone", "status": "failed_to_download", "url": "https://example.org"}
    path = write_shard(tmp_path / "00000.tar", [("000.json", failed), ("001.jpg", b"B"), ("001.txt", "a boat")])
    (record,) = broken_at(path, f"{path}:000.json", "status: 'failed_to_download'")
    assert record.key == "001"


def test_distractors_have_no_captions_and_no_split(tmp_path, write_shard):
    members = [("a.webp", b"A"), ("a.json", {"captions": {}}), ("b.webp", b"B"), ("c.jpg", b"C")]
    members += [("c.json", {"captions": {"en": []}})]
    records = list(read(write_shard(tmp_path / "coco-distractors.tar", members)))
    assert [(record.key, record.captions, record.split) for record in records] == [
        ("a", {}, None),
        ("b", {}, None),
        ("c", {}, None),
    ]


@pytest.mark.parametrize(
    ("contents", "reason"),
    [
        ("{", "not JSON"),
        ("[1]", "not an object"),
        (b"\xff\xfe{}", "not UTF-8"),
        ("[" * 100_000, "not JSON"),
        ({"text": "a dog"}, "neither 'captions' nor 'caption' (fields: text)"),
        ({"captions": 7}, "captions in 'en' is 7"),
        ({"captions": {"en": [None]}}, "caption 1 is missing"),
        ({"captions": {"": ["a dog"]}}, "'captions' has an empty language name"),
        ('{"captions": ["half \\ud83d"]}', "surrogate"),
    ],
)
def test_broken_json_is_told_with_its_place(tmp_path, write_shard, broken_at, contents, reason):
    path = write_shard(tmp_path / "x.tar", [("a.webp", b"A"), ("a.json", contents), ("b.webp", b"B"), ("b.json", BOAT)])
    assert [record.key for record in broken_at(path, f"{path}:a.json", reason)] == ["b"]


def test_an_empty_caption_is_told_and_dropped_and_its_record_stays(tmp_path, write_shard, broken_at):
    path = write_shard(tmp_path / "x.tar", [("a.webp", b"A"), ("a.json", {"captions": {"en": ["a dog", " \n"]}})])
    (record,) = broken_at(path, f"{path}:a.json", "caption 2 is empty")
    assert record.captions_in("en") == ("a dog",)


@pytest.mark.parametrize(
    ("members", "place", "reason"),
    [
        ([("a.json", BOAT)], "a.json", "no image with this key"),
        ([("a.jpg", b"A"), ("a.png", b"A"), ("a.json", BOAT)], "a.json", "more than one image"),
        ([("a.jpg", b"A"), ("a.json", BOAT), ("a.json", DOG)], "a.json", "occurs twice"),
    ],
)
def test_members_that_do_not_make_one_record_are_told(tmp_path, write_shard, broken_at, members, place, reason):
    path = write_shard(tmp_path / "x.tar", [*members, ("z.jpg", b"Z")])
    assert [record.key for record in broken_at(path, f"{path}:{place}", reason)] == ["z"]


def test_a_link_is_not_a_picture(tmp_path, broken_at):
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w") as tar:
        link = tarfile.TarInfo("a.jpg")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
        member = tarfile.TarInfo("b.jpg")
        member.size = 1
        tar.addfile(member, io.BytesIO(b"B"))
    assert [record.key for record in broken_at(path, f"{path}:a", "link")] == ["b"]


def test_a_member_name_that_is_not_utf8_is_told_and_never_becomes_a_key(tmp_path, write_shard, broken_at):
    path = write_shard(tmp_path / "x.tar", [("XX.jpg", b"A"), ("b.jpg", b"B")])
    data = path.read_bytes()
    header = bytearray(data[:512])
    header[:2] = b"\xff\xfe"
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    path.write_bytes(bytes(header) + data[512:])
    assert [record.key for record in broken_at(path, f"{path}:\\udcff\\udcfe", "not UTF-8")] == ["b"]


def test_what_the_callback_raises_is_not_taken_for_a_damaged_archive(tmp_path, write_shard):
    def full_disk(problem):
        raise OSError("no space left")

    path = write_shard(tmp_path / "x.tar", [("a.json", BOAT), ("b.jpg", b"B"), ("b.json", BOAT)])
    with pytest.raises(OSError, match="no space left"):
        list(read(path, on_problem=full_disk))


# Each record is four blocks of 512 bytes: header, picture, header, captions.
@pytest.mark.parametrize("cut", [100, 512, 600, 1024, 1024 + 9, 3 * 512, 3 * 512 + 4, 4 * 512, 4 * 512 + 100])
def test_an_archive_cut_off_anywhere_gives_whole_records_and_a_problem(tmp_path, write_shard, broken_at, cut):
    members = [member for key in "abc" for member in ((f"{key}.jpg", b"A" * 300), (f"{key}.json", BOAT))]
    path = write_shard(tmp_path / "x.tar", members)
    path.write_bytes(path.read_bytes()[: 8 * 512 + cut])
    records = broken_at(path, str(path), "cut off after")
    assert [record.key for record in records] in (["a"], ["a", "b"])
    assert all(record.captions == {"en": ("two boats",)} and len(record.image.read()) == 300 for record in records)


def test_a_damaged_header_does_not_pass_for_the_end(tmp_path, write_shard, broken_at):
    path = write_shard(tmp_path / "x.tar", [(f"{key}.jpg", b"picture") for key in "abcd"])
    data = bytearray(path.read_bytes())
    data[4 * 512 : 4 * 512 + 20] = b"?" * 20
    path.write_bytes(data)
    assert [record.key for record in broken_at(path, str(path), "cut off after 'b.jpg': bad checksum")] == ["a"]


@pytest.mark.parametrize("keep", [0.5, 0.9])
def test_a_compressed_archive_that_is_cut_off_is_told(tmp_path, write_shard, keep):
    path = write_shard(tmp_path / "x.tar.gz", [(f"{n}.jpg", bytes(range(256)) * n) for n in range(1, 40)])
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(DataError, match="damaged or cut off"):
        list(read(path))


@pytest.mark.parametrize("contents", [b"", b"this is not an archive"])
def test_a_file_that_is_no_archive_is_told_by_name(tmp_path, contents):
    path = tmp_path / "x.tar"
    path.write_bytes(contents)
    with pytest.raises(DataError, match=r"x\.tar: the archive is damaged"):
        list(read(path))


@settings(max_examples=40, deadline=None)
@given(
    captions=st.lists(
        st.dictionaries(
            st.sampled_from(["en", "de", "zh", "ar"]),
            st.lists(st.text().map(str.strip).filter(bool), min_size=1, max_size=3).map(tuple),
            max_size=3,
        ),
        min_size=1,
        max_size=4,
    ),
    suffix=st.sampled_from([".tar", ".tar.gz"]),
)
def test_captions_in_any_script_come_back_as_written(tmp_path_factory, write_shard, captions, suffix):
    members = []
    for number, table in enumerate(captions):
        members += [(f"{number}.webp", b"%d" % number), (f"{number}.json", {"captions": table})]
    records = list(read(write_shard(tmp_path_factory.mktemp("shards") / f"x{suffix}", members)))
    assert [record.captions for record in records] == captions
    assert [record.image.read() for record in records] == [b"%d" % number for number in range(len(captions))]
