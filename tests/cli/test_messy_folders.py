"""The command in a photographer's folder: several roots, files of other kinds, and what is typed in a hurry."""

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import sightline
from collection.made_up import picture, put
from sightline import cli
from sightline.cli.formatting import report_lines
from sightline.collection import FileProblem, Report
from sightline.media import raw, video
from sightline.packages import install_extra


def run(*arguments: str | Path) -> Result:
    done = CliRunner().invoke(cli.app, [str(argument) for argument in arguments])
    assert done.exit_code == 0 or not done.exception or isinstance(done.exception, SystemExit), done.exception
    return done


@pytest.fixture
def photos(tmp_path: Path, calibrated: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two folders of pictures, the first indexed and the current one."""
    for number in range(3):
        put(tmp_path / "First" / f"{number}.png", picture(number))
        put(tmp_path / "Second" / "beach" / f"{number}.png", picture(10 + number))
    assert run("index", tmp_path / "First", "--model", calibrated).exit_code == 0
    monkeypatch.chdir(tmp_path / "First")
    return tmp_path / "First"


def test_at_means_the_same_collection_to_index_as_to_search(photos: Path) -> None:
    assert run("index", "../Second", "--at", ".").stdout.startswith("3 new;")
    assert sorted(path.name for path in photos.iterdir()) == [".sightline", "0.png", "1.png", "2.png"]
    with sightline.open(photos) as collection:
        assert len(collection) == 6
    found = json.loads(run("search", "a dog", "--at", ".", "--where", "root = 'Second'", "--json").stdout)
    assert {hit["path"] for hit in found["hits"]} == {f"beach/{number}.png" for number in range(3)}


def test_a_new_collection_is_never_written_among_the_pictures(tmp_path: Path, calibrated: Path) -> None:
    put(tmp_path / "photos" / "a.png", picture(1))
    run("index", tmp_path / "photos", "--at", tmp_path / "photos", "--model", calibrated)
    assert sorted(path.name for path in (tmp_path / "photos").iterdir()) == [".sightline", "a.png"]


def test_bare_index_updates_the_collection_around(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(photos / "sub" / "new.png", picture(20))
    monkeypatch.chdir(photos / "sub")
    assert run("index").stdout.startswith("1 new, 3 unchanged;")
    assert not (photos / "sub" / ".sightline").exists()


def test_a_run_with_nothing_to_do_tells_no_speed(photos: Path) -> None:
    done = run("index")
    assert done.stdout.startswith("3 unchanged; ")
    assert "/s" not in done.output


def test_what_is_not_indexed_is_counted_and_ignored_folders_are_not(
    photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raw, "is_installed", lambda: False)
    monkeypatch.setattr(video, "is_installed", lambda: False)
    for name in ("a.CR2", "b.nef", "c.nef", "film.mp4", "@eaDir/d.mp4", "@eaDir/thumb.jpg"):
        put(photos / name, b"not read")
    lines = run("index").stdout.splitlines()
    assert [line for line in lines if line.startswith("Not indexed")] == [
        f"Not indexed: 3 RAW photos (.cr2, .nef). To index them: {install_extra('raw')}",
        f"Not indexed: 1 video (.mp4). To index them: {install_extra('video')}",
    ]
    assert "thumb.jpg" not in "".join(lines)


def test_files_with_the_same_problem_share_a_line() -> None:
    reason = f"is a HEIC picture, which needs another package: {install_extra('heic')}"
    report = Report(Path("here"), "images", broken=[FileProblem(f"{n}.heic", reason) for n in range(40)])
    assert [line for line in report_lines(report) if "HEIC" in line] == [f"  0.heic and 39 more: {reason}"]


def test_a_filter_alone_lists_what_matches(photos: Path) -> None:
    done = run("search", "--where", "name != '1.png'", "-k", "5")
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["2.png", "0.png"]
    assert json.loads(run("search", "--where", "name = '1.png'", "--json").stdout)["items"][0]["path"] == "1.png"
    assert (
        run("search", "--where", "name = '1.png'", "--paths", "-0").stdout_bytes
        == os.fsencode(photos / "1.png") + b"\0"
    )
    assert "nothing passes the filter" in run("search", "--where", "width > 9999").stderr


def test_phrases_of_a_query_become_filters_unless_they_are_meant_literally(photos: Path) -> None:
    put(photos / "Norway" / "IMG_0080.png", picture(80))
    run("index")
    done = run("search", "a dog in Norway", "--paths")
    assert done.stdout.splitlines() == [str(photos / "Norway" / "IMG_0080.png")]
    assert "'in Norway' (Norway)" in done.stderr
    assert run("search", "img_0080", "--paths").stdout.splitlines() == [str(photos / "Norway" / "IMG_0080.png")]
    literal = run("search", "a dog in Norway", "--paths", "--literal", "--duplicates", "show")
    assert len(literal.stdout.splitlines()) == 4
    assert "Filtered by" not in literal.stderr


def test_results_go_on_where_the_page_before_ended(photos: Path) -> None:
    def paths(*options: str) -> list[tuple[int, str]]:
        found = json.loads(run("search", "a dog", "--json", "--duplicates", "show", *options).stdout)
        return [(hit["rank"], hit["path"]) for hit in found["hits"]]

    every = paths("-k", "3")
    assert paths("-k", "2") + paths("-k", "2", "--start", "2") == every
    assert paths("--start", "3") == []


def test_explain_shows_each_word_in_the_terminal(photos: Path, calibrated: Path) -> None:
    done = run("explain", "a red dog", photos / "1.png", "--model", calibrated)
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["a", "red", "dog"]
    places = ("centre", "left", "right")
    assert all(line.endswith(places) for line in done.stdout.splitlines())


def test_a_misspelt_command_is_put_right_once() -> None:
    done = CliRunner().invoke(cli.app, ["serch"])
    assert done.output.count("Did you mean") == 1
    assert "search" in done.output


@pytest.mark.parametrize(
    ("command", "says"),
    [("search", "A description of what"), ("index", "Folders of images"), ("export", "Folder of a")],
)
def test_arguments_have_help(command: str, says: str) -> None:
    assert says in CliRunner().invoke(cli.app, [command, "--help"], env={"COLUMNS": "200"}).output
