"""Pictures are found wherever they lie, once each, in a stable order, past what cannot be read."""

import inspect
import logging
import os
import sys
from itertools import islice
from pathlib import Path

import pytest

from sightline.errors import MediaError
from sightline.media import IMAGE_SUFFIXES, find_images

ODD_NAMES = [
    "снимок.jpg",
    "写真.png",
    "new\nline.gif",
    "quo'te\".webp",
    "emoji 🐕.jpeg",
    "UPPER.JPG",
    "a.b.c.heic",
    "-rf.tif",
]


def touch(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def names(folder: Path) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in find_images(folder)]


def test_pictures_are_found_at_every_depth_in_sorted_order(tmp_path: Path) -> None:
    for name in ("b/2.jpg", "b/1.jpg", "a.png", "b.png", "b/c/d/e.gif", "z.webp", "b-1/x.jpg", "B/y.jpg"):
        touch(tmp_path / name)
    found = list(find_images(tmp_path))
    assert len(found) == 8
    assert found == sorted(found)


def test_only_pictures_are_found(tmp_path: Path) -> None:
    for name in ("notes.txt", "film.mp4", "jpg", "picture.jpg.part", "real.jpg"):
        touch(tmp_path / name)
    (tmp_path / "folder.jpg").mkdir()
    assert names(tmp_path) == ["real.jpg"]


def test_hidden_files_and_folders_are_left_out(tmp_path: Path) -> None:
    for name in (".hidden.jpg", "._seen.jpg", ".sightline/thumb.jpg", "album/.cache/x.jpg", "album/seen.jpg"):
        touch(tmp_path / name)
    assert names(tmp_path) == ["album/seen.jpg"]


def test_a_hidden_folder_that_is_asked_for_is_searched(tmp_path: Path) -> None:
    touch(tmp_path / ".photos" / "a.jpg")
    assert names(tmp_path / ".photos") == ["a.jpg"]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_names_of_any_script_and_punctuation_are_found(tmp_path: Path, name: str) -> None:
    touch(tmp_path / "dir\nwith 'odd' näme" / name)
    assert [path.name for path in find_images(tmp_path)] == [name]


@pytest.mark.skipif(os.name == "nt", reason="names are bytes on POSIX only")
def test_names_that_are_no_utf8_are_found(tmp_path: Path) -> None:
    touch(Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.jpg")))
    assert [os.fsencode(path.name) for path in find_images(tmp_path)] == [b"caf\xe9.jpg"]


def test_suffixes_are_lower_case_and_matched_in_any_case(tmp_path: Path) -> None:
    assert all(suffix == suffix.lower() and suffix.startswith(".") for suffix in IMAGE_SUFFIXES)
    touch(tmp_path / "IMG_0001.HeIc")
    assert names(tmp_path) == ["IMG_0001.HeIc"]


def test_loops_of_links_end_and_no_folder_is_listed_twice(tmp_path: Path) -> None:
    touch(tmp_path / "a" / "1.jpg")
    (tmp_path / "a" / "up").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "a" / "self").symlink_to(tmp_path / "a", target_is_directory=True)
    (tmp_path / "b").symlink_to(tmp_path / "a", target_is_directory=True)
    assert list(islice(find_images(tmp_path), 10)) == [tmp_path / "a" / "1.jpg"]


def test_links_to_folders_and_files_elsewhere_are_followed(tmp_path: Path) -> None:
    picture = touch(tmp_path / "elsewhere" / "1.jpg")
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "album").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    (inside / "linked.jpg").symlink_to(picture)
    assert names(inside) == ["album/1.jpg", "linked.jpg"]


def test_a_link_to_nothing_is_reported_and_the_search_goes_on(tmp_path: Path) -> None:
    (tmp_path / "broken.jpg").symlink_to(tmp_path / "gone.jpg")
    (tmp_path / "knot.jpg").symlink_to(tmp_path / "knot.jpg")
    touch(tmp_path / "z.jpg")
    problems: list[MediaError] = []
    assert [path.name for path in find_images(tmp_path, problems.append)] == ["z.jpg"]
    assert {Path(problem.name).name for problem in problems} == {"broken.jpg", "knot.jpg"}


def deny(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Make one folder unreadable, for the superuser too."""
    scandir = os.scandir

    def guarded(path: Path) -> object:
        if Path(path) == folder:
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", guarded)


def test_an_unreadable_folder_is_reported_and_the_search_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a/1.jpg", "locked/2.jpg", "z/3.jpg"):
        touch(tmp_path / name)
    deny(monkeypatch, tmp_path / "locked")
    problems: list[MediaError] = []
    found = [path.name for path in find_images(tmp_path, problems.append)]
    assert found == ["1.jpg", "3.jpg"]
    assert [problem.name for problem in problems] == [str(tmp_path / "locked")]
    assert "Permission denied" in problems[0].reason
    assert problems[0].way_out


def test_problems_that_nobody_asked_for_are_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    touch(tmp_path / "locked" / "2.jpg")
    deny(monkeypatch, tmp_path / "locked")
    with caplog.at_level(logging.WARNING):
        assert list(find_images(tmp_path)) == []
    assert str(tmp_path / "locked") in caplog.text


@pytest.mark.parametrize("name", ["nowhere", "file.jpg"])
def test_a_folder_that_is_not_there_is_an_error_at_once(tmp_path: Path, name: str) -> None:
    touch(tmp_path / "file.jpg")
    with pytest.raises(MediaError, match=name) as caught:
        find_images(tmp_path / name)
    assert caught.value.way_out


def test_folders_nested_deeper_than_python_recurses_are_searched(tmp_path: Path) -> None:
    depth, limit = 150, sys.getrecursionlimit()
    touch(tmp_path.joinpath(*["d"] * depth, "deep.jpg"))
    sys.setrecursionlimit(len(inspect.stack()) + 100)
    try:
        found = list(find_images(tmp_path))
    finally:
        sys.setrecursionlimit(limit)
    assert [len(path.relative_to(tmp_path).parts) for path in found] == [depth + 1]
