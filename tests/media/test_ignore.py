"""What is left out of a folder: folders of other programs, and what `.sightlineignore` says, as git reads it."""

from pathlib import Path

import pytest

from sightline.media import find_images
from sightline.media.ignore import IGNORE_FILE, IgnoreRules, parse_rules


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def names(folder: Path) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in find_images(folder, ignore=IgnoreRules.default(folder))]


def test_folders_of_other_programs_are_left_out(tmp_path: Path) -> None:
    hidden = ("@eaDir", "Thumbs", "thumbnails", ".thumbnails", "#recycle", "$RECYCLE.BIN", "__MACOSX")
    touch(tmp_path, "a.jpg", "trip/b.jpg", *(f"trip/{name}/x.jpg" for name in hidden))
    assert names(tmp_path) == ["a.jpg", "trip/b.jpg"]
    (tmp_path / IGNORE_FILE).write_text("!Thumbs/\n")
    assert names(tmp_path) == ["a.jpg", "trip/Thumbs/x.jpg", "trip/b.jpg"]


def test_rules_below_win_over_those_above(tmp_path: Path) -> None:
    touch(tmp_path, "a.png", "b.jpg", "in/a.png", "in/b.jpg", "in/deep/b.jpg")
    (tmp_path / IGNORE_FILE).write_text("# screenshots\n*.png\n")
    (tmp_path / "in" / IGNORE_FILE).write_text("!a.png\n/b.jpg\n")
    assert names(tmp_path) == ["b.jpg", "in/a.png", "in/deep/b.jpg"]


RULES = [
    ("*.jpg", "a/b.jpg", True),
    ("/*.jpg", "a/b.jpg", False),
    ("a/*.jpg", "a/b.jpg", True),
    ("a/*.jpg", "x/a/b.jpg", False),
    ("**/b.jpg", "b.jpg", True),
    ("**/b.jpg", "x/y/b.jpg", True),
    ("a/**", "a/x/y.jpg", True),
    ("a/**/z.jpg", "a/z.jpg", True),
    ("a/**/z.jpg", "a/b/c/z.jpg", True),
    ("IMG_?.jpg", "IMG_1.jpg", True),
    ("IMG_?.jpg", "IMG_12.jpg", False),
    ("IMG_[0-3].jpg", "IMG_2.jpg", True),
    ("IMG_[!0-3].jpg", "IMG_2.jpg", False),
    ("\\#1.jpg", "#1.jpg", True),
    ("\\!1.jpg", "!1.jpg", True),
    ("a.jpg   ", "a.jpg", True),
    ("a+b.jpg", "a+b.jpg", True),
    ("a+b.jpg", "aab.jpg", False),
    ("raw/", "raw", False),  # a file of that name
    ("[", "[", True),
]


@pytest.mark.parametrize(("rule", "path", "ignored"), RULES)
def test_a_rule_means_what_it_means_to_git(rule: str, path: str, ignored: bool) -> None:
    rules = IgnoreRules(tuple(("/root", one) for one in parse_rules(rule)))
    assert rules.ignores(f"/root/{path}", is_folder=False) is ignored
    pathspec = pytest.importorskip("pathspec")
    if rule != "[":
        assert pathspec.GitIgnoreSpec.from_lines([rule]).match_file(path) is ignored


def test_raw_files_and_videos_are_named_to_the_caller(tmp_path: Path) -> None:
    touch(tmp_path, "a.jpg", "b.CR2", "c.mp4", "@eaDir/d.mp4", "notes.txt")
    found: list[str] = []
    images = list(
        find_images(tmp_path, ignore=IgnoreRules.default(tmp_path), other=lambda path: found.append(path.name))
    )
    assert ([path.name for path in images], found) == (["a.jpg"], ["b.CR2", "c.mp4"])
