"""`sightline index` and `sightline search` as a user meets them: what they print, where, and what they leave alone."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import sightline
from collection.made_up import picture, put
from sightline import cli
from sightline.cli.formatting import hit_lines, nothing_found, printable
from sightline.collection import IndexingInterrupted, Report
from sightline.errors import CollectionError, QueryError, SightlineError
from sightline.retrieval.query import Query
from sightline.retrieval.results import Hit, SearchResult


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def bundle(calibrated: Path) -> Path:
    return calibrated


@pytest.fixture(scope="module")
def photos(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five pictures, one with an odd name, and a broken one, indexed."""
    folder = tmp_path_factory.mktemp("holiday") / "photos"
    for number in range(4):
        put(folder / ("beach" if number % 2 else "town") / f"{number}.png", picture(number))
    put(folder / os.fsdecode(b"new\nline \xff.png"), picture(9))
    put(folder / "broken.jpg", b"not a picture")
    done = run("index", folder, "--model", bundle)
    assert done.exit_code == 0, done.output
    return folder


def test_indexing_tells_what_was_done_what_is_broken_and_what_to_type_next(photos: Path, bundle: Path) -> None:
    done = run("index", photos)
    assert done.exit_code == 0, done.output
    first, *rest = done.stdout.splitlines()
    assert first.startswith("5 unchanged, 1 broken;")
    assert rest[0] == "Cannot be read:"
    assert rest[1].startswith(f"  {photos / 'broken.jpg'}: ")
    assert rest[-1].startswith("Next: sightline search ")
    assert ".sightline" in rest[-1]


def test_indexing_again_uses_the_model_of_the_first_time(photos: Path, bundle: Path) -> None:
    """Not the bundled one, which may not even be there."""
    assert run("index", photos, "--retry").exit_code == 0
    assert run("index", "--at", photos / ".sightline").exit_code == 0


def test_an_interrupted_run_says_that_it_can_go_on(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise IndexingInterrupted(Report(photos / ".sightline", "images", new=3))

    monkeypatch.setattr("sightline.collection.indexing.sync.index", stop)
    done = run("index", photos)
    assert done.exit_code == 130
    assert "3 new" in done.stderr
    assert "run the same command to continue" in done.stderr


def test_a_search_shows_rank_relevance_name_and_size(photos: Path) -> None:
    done = run("search", "a", "red", "ball", "--at", photos, "-k", "3")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["1", "2", "3"]
    assert all("%" in line and "12 x 9" in line and ".png" in line for line in lines)
    assert "\x1b" not in done.stdout


def test_json_is_all_that_stdout_holds(photos: Path) -> None:
    done = run("search", "a red ball", "--at", photos, "--json", "--not", "snow", "--not", "a cat", "-k", "4")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["query"], found["not"]) == ("a red ball", ["snow", "a cat"])
    assert [hit["rank"] for hit in found["hits"]] == [1, 2, 3, 4]
    assert all(0 <= hit["relevance"] <= 1 and hit["stage"] == "match" for hit in found["hits"])


@pytest.mark.parametrize(("option", "end"), [((), b"\n"), (("--null",), b"\0"), (("-0",), b"\0")])
def test_paths_are_exact_to_the_byte(photos: Path, option: tuple[str, ...], end: bytes) -> None:
    done = run("search", "a red ball", "--at", photos, "--paths", "--duplicates", "show", *option)
    assert done.exit_code == 0, done.output
    expected = {os.fsencode(path) + end for path in photos.rglob("*.png")}
    assert len(done.stdout_bytes) == sum(map(len, expected))
    assert all(path in done.stdout_bytes for path in expected)


@pytest.mark.skipif(sys.platform == "darwin", reason="names are always UTF-8")
def test_json_is_valid_unicode_whatever_files_and_folders_are_called(tmp_path: Path, tiny_bundle: Path) -> None:
    folder = tmp_path / os.fsdecode(b"d\xe9j\xe0")
    photo = put(folder / os.fsdecode(b"r\xf6t.png"), picture(1))
    put(folder / os.fsdecode(b"r\xf6t copy.png"), picture(1))
    (folder / os.fsdecode(b"k\xe4putt.jpg")).write_bytes(b"")
    data = folder / "data.jsonl"
    result = tmp_path / "result.json"
    sightline.index(folder, model=tiny_bundle)
    put(folder / "plain.png", picture(2))
    (folder / "broken.png").write_bytes(b"")
    images = [{"image": f"{name}.png", "captions": [name], "label": name} for name in ("plain", "broken")]
    data.write_text("\n".join(map(json.dumps, images)))
    commands = {
        "search": ("search", "a red dog", "--at", folder, "--json"),
        "by image": ("search", "--image", photo, "--at", folder, "--json"),
        "list": ("search", "--where", "width > 1", "--at", folder, "--json"),
        "status": ("status", "--at", folder, "--json"),
        "doctor": ("doctor", "--at", folder, "--json"),
        "explain": ("explain", "dog", photo, "--model", tiny_bundle, "--json"),
        "eval": ("eval", tiny_bundle, data, "--json", result),
        "names": ("eval", tiny_bundle, data, "--names", "--json", result),
    }
    for name, command in commands.items():
        done = run(*command)
        assert done.exit_code == 0 or name == "doctor", (name, done.output, done.exception)
        found = json.loads(result.read_bytes() if command[0] == "eval" else done.stdout_bytes)
        json.dumps(found, ensure_ascii=False).encode()  # raises an error for lone surrogates
        assert name == "explain" or "d\ufffdj\ufffd" in str(found), (name, found)
    with sightline.open(folder) as collection:
        hit = collection.search("a red dog")[0]
    assert hit.root == folder
    assert hit.to_json()["copies"] == [os.fsencode(path).decode("utf-8", "replace") for path in hit.copies]


def test_stages_filters_and_limits_reach_the_search(photos: Path) -> None:
    arguments = ("search", "a red ball", "--at", photos, "--json", "--duplicates", "show")
    stages = [hit["stage"] for hit in json.loads(run(*arguments, "--rerank", "1", "--late", "2").stdout)["hits"]]
    assert stages == ["match", "late", "embed", "embed", "embed"]
    assert {hit["stage"] for hit in json.loads(run(*arguments, "--rerank", "0").stdout)["hits"]} == {"embed"}
    filtered = json.loads(run(*arguments, "--where", "folder = 'beach'").stdout)["hits"]
    assert sorted(hit["path"] for hit in filtered) == ["beach/1.png", "beach/3.png"]
    assert json.loads(run(*arguments, "--budget-ms", "5000").stdout)["hits"]


def test_a_picture_is_asked_for_alone_or_with_words(photos: Path) -> None:
    image = photos / "beach" / "1.png"
    found = json.loads(run("search", "--image", image, "--at", photos, "--json").stdout)
    assert found["hits"][0]["path"] == "beach/1.png"
    assert "relevance" not in found["hits"][0]
    both = run("search", "a dog", "--image", image, "--image-weight", "0.9", "--at", photos, "--json")
    assert json.loads(both.stdout)["image"] == str(image)


def test_a_folder_without_pictures_is_nothing_to_search(tmp_path: Path, bundle: Path) -> None:
    done = run("index", tmp_path, "--model", bundle)
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("no images found;")
    assert "Next:" not in done.stdout


def test_a_small_chance_is_not_rounded_to_none_and_copies_are_told_from_lookalikes() -> None:
    file, other = Path("a.jpg"), Path("b.jpg")
    first = Hit(1, 7, "a.jpg", file, Path(), 0.5, 0.93, "match", copies=(other,), folded=(other, other))
    second = Hit(2, 8, "a.jpg", file, Path(), 0.1, 0.002, "match", copies=(other, other))
    assert hit_lines([first, second]) == ["  1    93%  a.jpg  +1 copy  +2 alike", "  2    <1%  a.jpg  +2 copies"]


def test_results_are_numbered_in_the_order_shown() -> None:
    hits = [Hit(rank, 7, "a.jpg", Path("a.jpg"), Path(), 0.5, 0.9, "match") for rank in (1, 3, 2)]
    assert [line.split()[0] for line in hit_lines(hits)] == ["1", "2", "3"]
    assert [line.split()[0] for line in hit_lines(hits, start=20)] == ["21", "22", "23"]


def test_json_and_paths_cannot_be_combined(photos: Path) -> None:
    done = run("search", "a red ball", "--at", photos, "--json", "--paths")
    assert "--json cannot be combined with --paths" in str(done.exception)


def test_names_are_shown_as_they_are_but_for_what_a_terminal_obeys() -> None:
    family, persian = "\U0001f469\u200d\U0001f467.jpg", "\u0645\u06cc\u200c\u0634\u0648\u062f.jpg"
    assert [printable(name) for name in (family, persian, "cafe\u0301")] == [family, persian, "cafe\u0301"]
    assert printable("a\n\x1b[31m\u202eb\udcff") == "a??[31m?b?"


def test_one_long_name_does_not_push_the_facts_of_all_others_away() -> None:
    hits = [Hit(1, 7, name, Path(name), Path(), 0.5, 0.9, "match", width=8, height=8) for name in ("a.jpg", "b" * 250)]
    assert [len(line) for line in hit_lines(hits)] == [79, 269]


def test_nothing_found_is_said_and_is_no_error(photos: Path) -> None:
    done = run("search", "a red ball", "--at", photos, "--min-relevance", "1")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "Nothing found" in done.stderr
    assert "the best is" in done.stderr
    as_json = run("search", "a red ball", "--at", photos, "--min-relevance", "1", "--json")
    assert json.loads(as_json.stdout)["hits"] == []
    assert json.loads(as_json.stdout)["best_relevance"] < 1
    filtered = run("search", "a red ball", "--at", photos, "--where", "width > 9999")
    assert "the filter" in filtered.stderr


def test_the_filter_is_blamed_for_finding_nothing_unless_the_query_has_only_filler_words() -> None:
    filtered = SearchResult(Query("狗"), (), where="width > 9999", notice="The model reads English.")
    assert nothing_found(filtered, 0.5) == "Nothing found: nothing passes the filter."
    assert "a relevance of at least 50%" in nothing_found(replace(filtered, has_content=False), 0.5)
    assert nothing_found(replace(filtered, has_content=False), None) == "Nothing found: nothing passes the filter."


def test_the_nearest_collection_is_searched(photos: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(photos / "beach")
    done = run("search", "a red ball", "-k", "1", "--where", "folder = 'beach'")
    assert done.exit_code == 0, done.output
    assert "  1.png" in done.stdout or "  3.png" in done.stdout
    monkeypatch.chdir(tmp_path)
    lost = run("search", "a red ball")
    assert isinstance(lost.exception, CollectionError)
    assert "--at" in lost.exception.way_out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["search"], "nothing to search for"),
        (["search", "a dog", "--where", "fodler = 'x'"], "^^^^^^"),
        (
            ["search", "a dog", "--image-weight", "2", "--image", "x.png"],
            "--image-weight must be between 0 and 1, not 2",
        ),
        (["search", "a dog", "--min-relevance", "70"], "--min-relevance must be between 0 and 1, not 70"),
        (["search", "--image", "no-such.png"], "no such file"),
        (["search", "--image", "https://a.b/c.png"], "--image must be a file, not https://a.b/c.png"),
        (["search", "--image", "x.png", "--image", "y.png"], "--image was given several times"),
        (["search", "a dog", "--image-weight", "0.3"], "--image-weight has no effect without both a text and an image"),
        (["search", "--where", "id > 0", "--not", "a dog"], "--not has no effect without words or an image"),
        (["search", "--where", "id > 0", "--min-relevance", "0.5"], "--min-relevance has no effect without words"),
        (["search", "a dog", "--model", "no-such-model"], "no such folder"),
    ],
)
def test_what_cannot_be_done_is_said_clearly(arguments: list[str], message: str, photos: Path) -> None:
    done = run(*arguments, "--at", photos)
    assert isinstance(done.exception, SightlineError), done.output
    assert message in str(done.exception)


def test_an_error_in_a_filter_is_a_query_error(photos: Path) -> None:
    assert isinstance(run("search", "x", "--where", "(", "--at", photos).exception, QueryError)


def test_a_file_or_nothing_is_not_taken_for_a_collection(photos: Path, tmp_path: Path) -> None:
    assert "is a file" in str(run("search", "a dog", "--at", photos / "broken.jpg").exception)
    assert "no such folder" in str(run("search", "a dog", "--at", tmp_path / "nowhere").exception)


def test_a_folder_inside_a_collection_says_which_one(photos: Path, bundle: Path) -> None:
    inside = photos / "beach"
    error = run("search", "a dog", "--at", inside).exception
    assert isinstance(error, CollectionError)
    assert error.way_out == f"The collection of {photos} includes it: --at {photos}"
    done = run("index", inside, "--model", bundle)
    assert f"inside that of {photos}. To update that one instead: sightline index --at {photos} {inside}" in done.stderr
    assert "inside that of" not in run("index", inside).stderr


@pytest.mark.parametrize("command", [[], ["search"], ["index"]])
def test_help_has_a_short_option(command: list[str]) -> None:
    assert run(*command, "-h").stdout == run(*command, "--help").stdout != ""


def test_a_folder_that_is_not_there_is_no_collection(tmp_path: Path) -> None:
    done = run("index", tmp_path / "nowhere")
    assert isinstance(done.exception, CollectionError)
    several = run("index", tmp_path, tmp_path / "x")
    assert "--at" in str(several.exception)


def test_texts_are_shown_as_what_they_say(tmp_path: Path, bundle: Path) -> None:
    captions = tmp_path / "captions.txt"
    captions.write_text("a red ball\na cat\n")
    done = run("index", captions, "--model", bundle)
    assert done.exit_code == 0, done.output
    assert "--image photo.jpg" in done.stdout
    shown = run("search", "a cat", "--at", tmp_path / ".sightline-captions")
    assert shown.stdout.splitlines()[0].split()[:2] == ["1", "captions.txt:2"]
    assert "a cat" in shown.stdout
    listed = run("search", "a cat", "--at", tmp_path / ".sightline-captions", "--paths", "-k", "1")
    assert listed.stdout == f"{captions}:2\n"


def test_a_reader_that_has_seen_enough_ends_the_command_in_peace(photos: Path) -> None:
    command = f"{sys.executable} -m sightline search ball --at '{photos}' --paths | true"
    done = subprocess.run(["bash", "-c", f"{command}; echo ${{PIPESTATUS[0]}}"], capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout.strip() == "0"


def test_searching_for_words_loads_neither_torch_nor_the_image_graph(photos: Path) -> None:
    script = """
import sys
from sightline import cli
from sightline.bundle import Bundle
loaded = []
load = Bundle._load
Bundle._load = lambda self, graph: (loaded.append(graph), load(self, graph))[1]
sys.argv = ["sightline", "search", "a red ball", "--at", sys.argv[1], "--json"]
try:
    cli.main()
except SystemExit:
    pass
heavy = [name for name in ("torch", "transformers", "rich", "faiss", "datasets") if name in sys.modules]
print(loaded, heavy, file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", script, str(photos)], capture_output=True, text=True)
    assert json.loads(done.stdout)["hits"]
    assert done.stderr.strip() == "['text', 'match'] []"
