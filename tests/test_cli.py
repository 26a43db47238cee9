"""The command as a user meets it: what it prints, what it writes, and what it says of bad input."""

import json
import random
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from PIL import Image
from typer.testing import CliRunner, Result

import tiny
from sightline import cli
from sightline.__main__ import main
from sightline.bundle import Bundle
from sightline.errors import BundleError, SightlineError
from sightline.models import checkpoint


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


@pytest.fixture
def captions(tmp_path: Path) -> Path:
    """Twelve pictures with one, two or three captions each, the last too long for the tiny model."""
    chance = random.Random(0)
    path = tmp_path / "captions.jsonl"
    with path.open("w") as file:
        for number in range(12):
            Image.new("RGB", (40, 30), tuple(chance.randrange(256) for _ in range(3))).save(tmp_path / f"{number}.png")
            texts = [" ".join(chance.choices(tiny.WORDS[4:], k=5)) for _ in range(1 + number % 3)]
            if number == 11:
                texts[0] = "a dog " * 30
            file.write(json.dumps({"image": f"{number}.png", "captions": texts}) + "\n")
    return path


def test_a_bundle_is_evaluated_to_a_table_and_to_json(tiny_bundle: Path, captions: Path, tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    done = run("eval", tiny_bundle, captions, "--rerank", "5", "--fusion", "add", "--weight", "0.3", "--json", out)
    assert done.exit_code == 0, done.output
    assert "tiny" in done.output
    found = json.loads(out.read_text())
    assert found["stages"] == ["embed", "match@5"]
    assert (found["images"], found["captions"], found["protocol"], found["lang"]) == (12, 24, "karpathy", "en")
    assert (found["fusion"], found["weight"]) == ("add", 0.3)
    for way in ("text_to_image", "image_to_text"):
        recalls = [found[way][f"R@{k}"] for k in (1, 5, 10)]
        assert 0 <= recalls[0] <= recalls[1] <= recalls[2] <= 100
    total = sum(found[way][f"R@{k}"] for way in ("text_to_image", "image_to_text") for k in (1, 5, 10))
    assert found["rSum"] == pytest.approx(total, abs=0.01)
    assert found["problems"]["captions_truncated"] == 1
    assert set(found["seconds"]) == {"encode_images", "encode_texts", "rank", "late", "match"}


@pytest.mark.parametrize("command", ["serve", "status"])
def test_a_folder_without_its_option_is_told_the_option(command: str) -> None:
    refused = run(command, "photos")
    assert refused.exit_code == 2
    assert "unexpected extra argument (photos). Specify" in refused.output


def test_a_bundle_names_the_images_of_class_folders(tiny_bundle: Path, tmp_path: Path) -> None:
    for number, name in enumerate(["dog", "cat", "ball", "dog"]):
        (tmp_path / "set" / name).mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 30), (60 * number, 0, 0)).save(tmp_path / "set" / name / f"{number}.png")
    out = tmp_path / "result.json"
    done = run("eval", tiny_bundle, tmp_path / "set", "--names", "--rerank", "2", "--json", out)
    assert done.exit_code == 0, done.output
    assert "3 labels" in done.output
    found = json.loads(out.read_text())
    assert found["names"]["labels"] == 3
    assert found["names"]["top5"] == 100
    assert found["stages"] == ["embed", "match@2"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--names --late 3", "--late cannot be combined with --names\nLeave it out."),
        ("--names --with fast", "--with cannot be combined with --names\nLeave it out."),
        ("--names --seed 3", "--seed cannot be combined with --names\nLeave it out."),
        ("--names --skip-missing-language", "--skip-missing-language cannot be combined with --names\nLeave it out."),
        ("--names --lang de", "--lang cannot be combined with --names\nLeave it out."),
        ("--names --distractors more", "--distractors cannot be combined with --names\nLeave it out."),
        ("--lang en,de --ranks r.csv", "--ranks has no effect with several languages\nLeave it out."),
        ("--weight 0", "--weight has no effect without reranking\nSet --rerank, or leave it out."),
    ],
)
def test_an_option_that_does_not_apply_is_refused_as_it_was_written(options: str, message: str) -> None:
    refused = run("eval", "default", "data.jsonl", *options.split())
    assert isinstance(refused.exception, SightlineError), refused.output
    assert str(refused.exception).startswith(message)


@pytest.mark.usefixtures("traced")
def test_a_checkpoint_and_its_bundle_score_alike(captions: Path, tmp_path: Path) -> None:
    checkpoint.save(tiny.retriever(tiny.DUAL), tiny.tokenizer(), tmp_path / "checkpoint")
    exported = run("export", tmp_path / "checkpoint", "--out", tmp_path / "bundle", "--name", "mine")
    assert exported.exit_code == 0, exported.output
    assert "mine, embed, fragments, match, float32" in exported.output
    results = []
    for model in ("checkpoint", "bundle"):
        done = run("eval", tmp_path / model, captions, "--late", "8", "--rerank", "4", "--json", tmp_path / "r.json")
        assert done.exit_code == 0, done.output
        results.append(json.loads((tmp_path / "r.json").read_text()))
    for key in ("text_to_image", "image_to_text", "rSum", "mR", "ci95", "problems"):
        assert results[0][key] == results[1][key], key


def test_two_models_are_evaluated_as_one(tiny_bundle: Path, captions: Path, tmp_path: Path) -> None:
    checkpoint.save(tiny.retriever(tiny.DUAL, seed=1), tiny.tokenizer(), tmp_path / "other")
    out = tmp_path / "r.json"
    done = run("eval", tiny_bundle, captions, "--with", tmp_path / "other", "--json", out)
    assert done.exit_code == 0, done.output
    assert json.loads(out.read_text())["model"] == "tiny + other"


@pytest.mark.parametrize("place", ["photos", "photos/dog.png", "checkpoint"])
def test_what_is_no_bundle_is_never_replaced_by_one(place: str, tmp_path: Path) -> None:
    """Such as a folder of photos, or the checkpoint itself."""
    checkpoint.save(tiny.retriever(tiny.DUAL), tiny.tokenizer(), tmp_path / "checkpoint")
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (4, 3)).save(tmp_path / "photos" / "dog.png")
    before = sorted(tmp_path.rglob("*"))
    done = run("export", tmp_path / "checkpoint", "--out", tmp_path / place)
    assert isinstance(done.exception, BundleError), done.output
    assert "not a bundle" in str(done.exception)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.usefixtures("traced")
def test_an_export_says_that_it_replaces_a_bundle_and_names_it_once(tmp_path: Path) -> None:
    checkpoint.save(tiny.retriever(tiny.DUAL), tiny.tokenizer(), tmp_path / "checkpoint")
    command, out = ("export", tmp_path / "checkpoint", "--out", tmp_path / "mine"), tmp_path / "mine"
    first, second, named = run(*command), run(*command), run(*command, "--name", "yours")
    assert first.stderr == ""
    replaces = f"sightline: {out} has a bundle, which is replaced when the new one is complete\n"
    assert second.stderr == named.stderr == replaces
    assert first.stdout == second.stdout
    assert first.stdout.startswith(f"{out}: embed, fragments, match, float32, ")
    assert named.stdout.startswith(f"{out}: yours, embed, fragments, match, float32, ")
    assert Bundle.open(out).name == "yours"


@pytest.mark.usefixtures("traced")
def test_an_export_says_that_it_deletes_the_language_add_on_of_the_bundle_that_it_replaces(
    german_bundle: Path, tmp_path: Path
) -> None:
    checkpoint.save(tiny.retriever(tiny.DUAL), tiny.tokenizer(), tmp_path / "checkpoint")
    out = shutil.copytree(german_bundle, tmp_path / "mine")
    done = run("export", tmp_path / "checkpoint", "--out", out)
    assert "its language add-on is deleted with it" in done.stderr
    assert not (out / "languages").exists()


@pytest.mark.usefixtures("traced")
def test_quantised_weights_make_an_int8_bundle(tmp_path: Path) -> None:
    checkpoint.save(tiny.retriever(tiny.DUAL), tiny.tokenizer(), tmp_path / "checkpoint")
    done = run("export", tmp_path / "checkpoint", "--out", tmp_path / "small", "--quantize", "int8")
    assert done.exit_code == 0, done.output
    assert Bundle.open(tmp_path / "small").spec.precision == "int8"


def test_an_image_that_does_not_open_is_counted_not_dropped(tiny_bundle: Path, captions: Path, tmp_path: Path) -> None:
    (tmp_path / "3.png").write_bytes(b"not a picture")
    done = run("eval", tiny_bundle, captions, "--json", tmp_path / "r.json")
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "r.json").read_text())
    assert found["problems"]["images_unreadable"] == 1
    assert (found["images"], found["captions"]) == (12, 24)
    assert "unreadable" in done.output


@pytest.mark.parametrize("lang", ["en", "en,xx"])
def test_images_that_do_not_open_are_named(lang: str, tiny_bundle: Path, captions: Path, tmp_path: Path) -> None:
    lines = [json.loads(line) for line in captions.read_text().splitlines()]
    with captions.open("w") as file:
        for line in lines:
            file.write(json.dumps({**line, "captions": dict.fromkeys(["en", "xx"], line["captions"])}) + "\n")
    (tmp_path / "3.png").write_bytes(b"not a picture")
    (tmp_path / "4.png").unlink()
    done = run("eval", tiny_bundle, captions, "--lang", lang, "--json", tmp_path / "r.json")
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "r.json").read_text())
    named = (found["languages"]["xx"] if "," in lang else found)["unreadable"]
    assert [one["image"] for one in named] == [str(tmp_path / "3.png"), str(tmp_path / "4.png")]
    told = [f"  {one['image']}: {one['reason']}" for one in named]
    assert done.stderr.splitlines() == ["Cannot be read:", *told]


def test_of_many_images_that_do_not_open_the_first_few_are_named(
    tiny_bundle: Path, captions: Path, tmp_path: Path
) -> None:
    lines = [json.dumps({"image": f"gone-{number:02}.png", "captions": ["a dog"]}) for number in range(25)]
    captions.write_text(captions.read_text() + "\n".join(lines) + "\n")
    done = run("eval", tiny_bundle, captions, "--json", tmp_path / "r.json")
    assert done.exit_code == 0, done.output
    first, *told, last = done.stderr.splitlines()
    assert (first, last) == ("Cannot be read:", "  … and 5 more")
    assert [f"gone-{number:02}.png" in line for number, line in enumerate(told)] == [True] * 20
    assert len(json.loads((tmp_path / "r.json").read_text())["unreadable"]) == 25


def test_distractors_enlarge_the_gallery(tiny_bundle: Path, captions: Path, tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    for number in range(5):
        Image.new("RGB", (20, 20), (number * 50, 10, 200)).save(tmp_path / "more" / f"{number}.png")
    arguments = ("eval", tiny_bundle, captions, "--distractors", tmp_path / "more", "--json", tmp_path / "r.json")
    assert run(*arguments).exit_code == 0
    assert json.loads((tmp_path / "r.json").read_text())["distractors"] == 5


def test_only_the_test_split_counts_where_there_is_one(tiny_bundle: Path, captions: Path, tmp_path: Path) -> None:
    lines = [json.loads(line) for line in captions.read_text().splitlines()]
    for number, line in enumerate(lines):
        line["split"] = "test" if number < 4 else "train"
    captions.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for extra, images in (((), 4), (("--split", "train"), 8)):
        done = run("eval", tiny_bundle, captions, *extra, "--json", tmp_path / "r.json")
        assert done.exit_code == 0, done.output
        assert json.loads((tmp_path / "r.json").read_text())["images"] == images


def test_broken_records_stop_a_run_or_are_skipped_as_asked(tiny_bundle: Path, captions: Path) -> None:
    captions.write_text(captions.read_text() + "{broken\n")
    done = run("eval", tiny_bundle, captions)
    assert isinstance(done.exception, SightlineError)
    assert "captions.jsonl:13" in str(done.exception)
    done = run("eval", tiny_bundle, captions, "--skip-broken")
    assert done.exit_code == 0, done.output
    assert "skipped" in done.output
    assert "captions.jsonl:13" in done.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["eval", "{bundle}", "{folder}/nothing.jsonl"], "nothing.jsonl"),
        (["eval", "{folder}/nothing", "{data}"], "no such folder"),
        (["eval", "{folder}", "{data}"], "neither a bundle"),
        (["eval", "{folder}/run", "{data}"], "/run/best"),
        (["export", "{folder}/run", "--out", "{folder}/out"], "/run/best"),
        (["eval", "hf:nobody/nothing", "{data}"], "cannot be loaded from the hub"),
        (["eval", "{bundle}", "{data}", "--lang", "de"], "de"),
        (["eval", "{bundle}", "{data}", "--protocol", "coco-5k"], "5,000"),
        (["eval", "{bundle}", "{data}", "--json", "{folder}/no/where.json"], "does not exist"),
        (["eval", "{bundle}", "{data}", "--json", "{folder}"], "is a folder"),
        (["export", "{folder}", "--out", "{folder}/out"], "not a checkpoint"),
    ],
)
def test_bad_input_gets_a_clear_error(
    arguments: list[str],
    message: str,
    tiny_bundle: Path,
    captions: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    (tmp_path / "run" / "best").mkdir(parents=True)
    (tmp_path / "run" / "best" / "retriever.json").touch()
    places = {"bundle": tiny_bundle, "data": captions, "folder": tmp_path}
    done = run(*(argument.format(**places) for argument in arguments))
    assert isinstance(done.exception, SightlineError), done.output
    assert message in str(done.exception)


def test_a_result_is_written_to_its_file_before_it_is_shown(
    tiny_bundle: Path, captions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever reads the table may be gone, and the disk it goes to full."""
    monkeypatch.setattr("sightline.cli.evaluation_commands.print_table", lambda _: 1 / 0)
    assert isinstance(run("eval", tiny_bundle, captions, "--json", tmp_path / "r.json").exception, ZeroDivisionError)
    assert json.loads((tmp_path / "r.json").read_text())["images"] == 12


def test_an_error_reaches_the_user_as_a_message_and_an_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["sightline", "eval", str(tmp_path / "nothing"), str(tmp_path)])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 1
    shown = capsys.readouterr().err
    assert shown.startswith("sightline: ")
    assert "Traceback" not in shown


def test_an_altered_bundle_is_refused_by_the_command(tiny_bundle: Path, captions: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(tiny_bundle, tmp_path / "copy"))
    (copy / "text.onnx").write_bytes(b"something else")
    done = run("eval", copy, captions)
    assert isinstance(done.exception, SightlineError)
    assert "sha256" in str(done.exception)


def test_a_missing_recipe_is_reported_without_waiting_for_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sightline.training.recipe", None)  # its import would fail
    done = run("train", "nowhere.toml")
    assert str(done.exception) == "nowhere.toml: no such recipe"


def test_the_version_is_shown() -> None:
    assert run("--version").output.startswith("sightline 0.")


@pytest.mark.parametrize("command", ["eval", "compare"])
def test_help_says_which_stages_are_measured_by_default(command: str) -> None:
    said = " ".join(run(command, "--help").output.split())
    assert "Embeddings alone are" in said
    assert "unless --late or --rerank is given; a search uses" in said


def test_ctrl_c_while_modules_are_imported_prints_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupted(ModuleType):
        def __getattr__(self, name: str) -> Any:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "sightline.cli", Interrupted("sightline.cli"))
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 130
    assert capsys.readouterr().err == "sightline: interrupted\n"
