"""A folder with everything that ever went wrong with pictures is indexed to its end, and the report says so."""

import os
import struct
import threading
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from collection.made_up import Instant, contents, picture, put
from media.sample_pictures import encoded, photo, png_header
from sightline.bundle import Encoded
from sightline.collection import Collection, IndexingInterrupted, index
from sightline.collection.indexing.writer import EncodedBatch, Writer
from sightline.media import ImageFile

NAMES = [
    "снимок.png",
    "写真.png",
    "صورة.png",
    "תמונה.png",
    "ภาพ.png",
    "फ़ोटो.png",
    "사진.png",
    "e\u0301.png",
    "é.png",
    "🐕‍🦺.png",
    "new\nline.png",
    "quo'te\".png",
    "100% _like_.png",
    "-rf.png",
    "tab\tand\\backslash.png",
    "; DROP TABLE files; --.png",
    "a" * 200 + ".png",
]


def bomb() -> bytes:
    """A PNG of a few bytes that claims 40,000 x 40,000 pixels."""
    return png_header(40_000, 40_000) + picture(0)[33:]


def fill(folder: Path) -> int:
    """Put everything there; give how many of the files are sound."""
    whole = encoded(photo(200, 150), "JPEG", quality=90)
    for size in range(0, len(whole), 1024):
        put(folder / "cut" / f"{size}.jpg", whole[:size])
    put(folder / "zeros.jpg", bytes(4096))
    put(folder / "half zeros.jpg", whole[:2048] + bytes(len(whole) - 2048))
    put(folder / "text.png", b"this is no picture")
    put(folder / "page.jpg", b"<!doctype html><title>404</title>")
    put(folder / "bomb.png", bomb())
    put(folder / "bomb.gif", b"GIF89a" + struct.pack("<HH", 40_000, 40_000) + bytes(64))
    put(folder / "film.heic", b"\0\0\0\x18ftypheic" + bytes(64))
    put(folder / "disguised.gif", whole)
    for number, name in enumerate(NAMES):
        put(folder / "names" / name, picture(100 + number))
    raw = Path(os.fsdecode(os.fsencode(folder) + b"/names/caf\xe9 \xff.png"))
    put(raw, picture(200))
    (folder / "loop").symlink_to(folder)
    (folder / "names" / "self.png").symlink_to(folder / "names" / "self.png")
    (folder / "nowhere.png").symlink_to(folder / "gone")
    (folder / "folder.png").mkdir()
    os.mkfifo(folder / "pipe.png")
    return len(NAMES) + 2


def test_a_hostile_folder_is_indexed_to_its_end(tmp_path: Path, model: Instant) -> None:
    sound = fill(tmp_path / "photos")
    report = index(tmp_path / "photos", model=model)
    broken = {Path(problem.path).name: problem.reason for problem in report.broken}
    assert report.new == sound
    assert "too many pixels" in broken["bomb.png"]
    assert "GIF" in broken["bomb.gif"]
    assert "empty" in broken["0.jpg"]
    assert "truncated" in broken["1024.jpg"]
    assert "HTML" in broken["page.jpg"]
    assert {Path(problem.path).name for problem in report.skipped} == {"self.png", "nowhere.png"}
    found = contents(tmp_path / "photos" / ".sightline")
    assert {f"names/{name}" for name in NAMES} <= found.keys()
    assert "names/caf\ufffd \ufffd.png" in found
    again = index(tmp_path / "photos", model=model)
    assert (again.unchanged, again.deleted, len(again.broken)) == (sound, 0, len(report.broken))
    assert again.read <= 1  # the HEIC, where nothing is installed that opens it


def test_files_with_odd_names_can_be_opened_by_what_the_collection_says(tmp_path: Path, model: Instant) -> None:
    fill(tmp_path)
    index(tmp_path, model=model)
    with Collection.open(tmp_path / ".sightline") as collection:
        files = collection.files()
    assert all(file.where.read_bytes() for file in files)
    assert any(os.fsencode(file.where.name) == b"caf\xe9 \xff.png" for file in files)
    assert all(file.path.encode() for file in files)


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read everything")
def test_files_and_folders_without_permission_are_told_of(photos: Path, model: Instant) -> None:
    (photos / "town" / "0.png").chmod(0)
    (photos / "beach").chmod(0)
    try:
        report = index(photos, model=model)
    finally:
        (photos / "beach").chmod(0o755)
    assert [Path(problem.path).name for problem in report.broken] == ["0.png"]
    assert [Path(problem.path).name for problem in report.skipped] == ["beach"]
    assert report.new == 2


def test_files_that_vanish_while_indexing_stop_nothing(tmp_path: Path, model: Instant) -> None:
    for number in range(60):
        put(tmp_path / f"{number:02}.png", picture(number))
    doomed = [tmp_path / f"{number:02}.png" for number in range(40, 60)]

    def vanish(done: int, total: int) -> None:
        if done >= 4:
            while doomed:
                doomed.pop().unlink()

    report = index(tmp_path, model=model, progress=vanish)
    assert report.new + len(report.skipped) == 60
    assert report.new >= 40
    assert report.skipped
    assert not report.broken
    assert index(tmp_path, model=model).unchanged + len(doomed) >= 40


def test_ctrl_c_leaves_a_whole_collection_and_the_next_run_goes_on(
    tmp_path: Path, model: Instant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sightline.collection.indexing.commits._COMMIT_SECONDS", 0.0)
    write = Writer.write

    def slow(writer: Writer, batch: EncodedBatch) -> None:
        time.sleep(0.02)
        write(writer, batch)

    monkeypatch.setattr(Writer, "write", slow)
    for number in range(60):
        put(tmp_path / f"{number:02}.png", picture(number))

    def interrupt(done: int, total: int) -> None:
        if done >= 30:
            raise KeyboardInterrupt

    threads = set(threading.enumerate())
    with pytest.raises(IndexingInterrupted) as caught:
        index(tmp_path, model=model, progress=interrupt)
    report = caught.value.report
    assert 0 < report.new < 60
    assert report.seconds > 0
    assert len(contents(tmp_path / ".sightline")) == report.new
    for thread in set(threading.enumerate()) - threads:  # those that read end with the image they have
        thread.join(timeout=10)
    assert not set(threading.enumerate()) - threads
    encoded = model.encoded
    rest = index(tmp_path, model=model)
    assert (rest.new, rest.unchanged) == (60 - report.new, report.new)
    assert model.encoded - encoded == 60 - report.new


def test_an_error_of_the_model_leaves_a_whole_collection(photos: Path, model: Instant) -> None:
    class Failing(Instant):
        def encode_images(self, pixels: object) -> object:  # type: ignore[override]
            if self.encoded >= 4:
                raise RuntimeError("out of memory")
            return super().encode_images(pixels)  # type: ignore[arg-type]

    for number in range(10, 40):
        put(photos / f"{number}.png", picture(number))
    with pytest.raises(RuntimeError, match="out of memory"):
        index(photos, model=Failing())
    contents(photos / ".sightline")
    assert index(photos, model=model).new > 0
    assert len(contents(photos / ".sightline")) == 36


def test_only_a_few_pictures_are_read_ahead_of_a_slow_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So memory stays the same, however many pictures there are."""
    reads: list[Path] = []
    read = ImageFile.read

    def noted(source: ImageFile) -> bytes:
        reads.append(source.path)
        return read(source)

    class Slow(Instant):
        ahead = 0

        def encode_images(self, pixels: npt.NDArray[np.float32]) -> Encoded:
            time.sleep(0.3 if self.encoded < 20 else 0)
            self.ahead = max(self.ahead, len(reads) - self.encoded)
            return super().encode_images(pixels)

    monkeypatch.setattr(ImageFile, "read", noted)
    for number in range(150):
        put(tmp_path / f"{number}.png", picture(number))
    model = Slow()
    index(tmp_path, model=model)
    assert 10 < model.ahead < 60


@pytest.mark.parametrize("seconds", [2**34, -(2**31), -1])
def test_a_file_may_be_of_any_time(photos: Path, model: Instant, seconds: int) -> None:
    """Nanoseconds beyond the year 2262 need more than 64 bits."""
    odd = photos / "town" / "0.png"
    os.utime(odd, (seconds, seconds))
    if odd.stat().st_mtime != seconds:
        pytest.skip("the file system cannot store this time")
    count = index(photos, model=model).new
    assert index(photos, model=model).unchanged == count
    with Collection.open(photos / ".sightline") as collection:
        assert [item.files[0].where for item in collection.browse()][0 if seconds > 0 else -1] == odd
