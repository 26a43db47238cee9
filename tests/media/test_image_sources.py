"""Where bytes come from: files, slices of archives, memory; and what is said when they cannot be had."""

import os
import pickle
import stat
import tracemalloc
from pathlib import Path

import pytest

from sightline.errors import MediaError
from sightline.media import ImageBytes, ImageFile, ImageSlice


def test_a_file_gives_its_bytes_and_its_path_as_name(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(b"bytes")
    assert ImageFile(path).read() == b"bytes"
    assert ImageFile(path).name == str(path)


def test_reading_a_file_takes_no_more_memory_than_its_size(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(bytes(1 << 20))
    tracemalloc.start()
    try:
        ImageFile(path).read()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 1.1 * (1 << 20)


def test_a_file_that_grows_is_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(b"1234567")
    shorter = [*path.stat()]
    shorter[stat.ST_SIZE] = 3
    monkeypatch.setattr(os, "fstat", lambda handle: os.stat_result(shorter))
    assert ImageFile(path).read() == b"1234567"


def test_a_slice_gives_only_its_part(tmp_path: Path) -> None:
    archive = tmp_path / "shard.tar"
    archive.write_bytes(b"....picture....")
    part = ImageSlice(archive, "1.jpg", 4, 7)
    assert part.read() == b"picture"
    assert part.name == f"{archive}:1.jpg"


def test_a_slice_beyond_the_end_of_its_archive_says_so(tmp_path: Path) -> None:
    archive = tmp_path / "shard.tar"
    archive.write_bytes(b"12345")
    with pytest.raises(MediaError, match="ends after 2 of 10 bytes"):
        ImageSlice(archive, "1.jpg", 3, 10).read()


@pytest.mark.parametrize("name", ["gone.jpg", "zero\0byte.jpg", "x" * 5000, "."])
def test_a_path_that_cannot_be_read_is_a_media_error(tmp_path: Path, name: str) -> None:
    for source in (ImageFile(tmp_path / name), ImageSlice(tmp_path / name, "1.jpg", 0, 1)):
        with pytest.raises(MediaError) as caught:
            source.read()
        assert caught.value.name == source.name
        assert caught.value.way_out


def test_a_file_too_large_for_any_picture_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "disk image.jpg"
    with path.open("wb") as file:
        os.truncate(file.fileno(), 5 << 30)
    with pytest.raises(MediaError, match="too large for an image"):
        ImageFile(path).read()


def test_sources_travel_to_other_processes() -> None:
    for source in (ImageFile(Path("a.jpg")), ImageSlice(Path("a.tar"), "m", 1, 2), ImageBytes("b", b"data")):
        assert pickle.loads(pickle.dumps(source)) == source


def test_a_picture_in_memory_does_not_spill_its_bytes_into_messages() -> None:
    assert "secret" not in repr(ImageBytes("upload", b"secret"))
