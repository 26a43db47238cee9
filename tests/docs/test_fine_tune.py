"""docs/fine-tune.md does what it says: its commands and its code are taken from the page and run, in order."""

import io
import json
import math
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import torch

from docs.commands import ROOT, blocks, lines, recipe_of, run_shell
from models import published
from sightline.cli import progress
from sightline.datasets import read_all
from sightline.models import DualStreamConfig
from sightline.training.setup import make_losses

PAGE = (ROOT / "docs" / "fine-tune.md").read_text(encoding="utf-8")
ON_CPU, ON_GPU = PAGE.split("## For real, on a GPU\n")


@contextmanager
def interrupted() -> Iterator[progress.TrainingShown]:
    """What a run shows, from which the third step is interrupted."""

    def report(entry: dict[str, Any]) -> None:
        if entry["step"] == 3:
            raise KeyboardInterrupt

    yield progress.TrainingShown(report, prepare=lambda *_: None)


def run_python(code: str) -> str:
    with redirect_stdout(io.StringIO()) as told:
        exec(compile(code, "fine-tune.md", "exec"), {})
    return told.getvalue()


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Do the CPU part in a fresh folder, with Ctrl-C pressed in the first run; what each block showed, by its text."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a model this small only waits for its other threads
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("newcomer"))
        shown: dict[str, str] = {}
        for block in blocks(ON_CPU, "sh", "python", "toml"):
            if block.language == "toml":
                Path(block.name).write_text(block.text)
            elif block.language == "python":
                shown[block.text] = run_python(block.text)
            else:
                for line in block.text.splitlines():
                    shown[line] = _follow(line, patch)
        yield shown
    torch.set_num_threads(threads)


def _follow(line: str, patch: pytest.MonkeyPatch) -> str:
    """The first run is interrupted, so there is no log to look through before it is resumed."""
    if line == "sightline train tiny.toml":
        with patch.context() as during:
            during.setattr(progress, "training", interrupted)
            return run_shell(line, exit_code=130)
    return "" if line.startswith("grep") else run_shell(line)


def test_the_page_has_its_parts(told: dict[str, str]) -> None:
    assert [line.split()[1] for line in told if line.startswith("sightline")] == [
        "train",
        "train",
        "eval",
        "export",
        "eval",
    ]
    assert len(read_all("photos/train.jsonl")) == 720
    assert len(read_all("photos/val.jsonl")) == len(read_all("photos/test.jsonl")) == 72


def test_an_interrupted_run_says_how_to_go_on_as_the_page_does(told: dict[str, str]) -> None:
    said = told["sightline train tiny.toml"]
    assert "To continue: sightline train tiny.toml --out runs/tiny --resume" in said
    assert "has nothing saved yet" in said


def test_the_tiny_model_learns(told: dict[str, str]) -> None:
    assert "val R@1" in told["sightline train tiny.toml --resume"]
    chance = 100 / 72
    found = json.loads(Path("my-bundle-test.json").read_text())
    for way in ("text_to_image", "image_to_text"):
        assert found[way]["R@1"] > 40 * chance
    assert found["model"] == "my-bundle"


def test_the_log_is_as_the_page_reads_it(told: dict[str, str]) -> None:
    (look,) = (line for line in told if line.startswith("grep"))
    looks = [json.loads(line) for line in run_shell(look).splitlines()]
    assert [entry["step"] for entry in looks] == [50, 100, 150, 200]
    assert all(entry["val"]["t2i"]["R@1"] > 0 for entry in looks)
    first = json.loads(Path("runs/tiny/log.jsonl").read_text().splitlines()[0])
    assert first["loss"]["embed"] == pytest.approx(math.log(48), rel=0.25)
    for name in ("best", "last", "recipe.json", "log.jsonl"):
        assert (Path("runs/tiny") / name).exists(), name


def test_the_bundle_answers_from_python_with_probabilities(told: dict[str, str]) -> None:
    (shown,) = (out for code, out in told.items() if "sl.load" in code)
    first, *others = (line.split() for line in shown.splitlines())
    assert first[1] == "11-red-square-top-left.png"
    assert 0.5 < float(first[0]) <= 1
    assert all(0 <= float(other[0]) < float(first[0]) for other in others)


def test_the_bundle_has_eight_bits_and_a_calibration(told: dict[str, str]) -> None:
    spec = json.loads(Path("my-bundle/sightline.json").read_text())
    assert spec["precision"] == "int8"
    assert spec["relevance"]["weights"]["cosine"] != 0


def test_the_two_lines_shown_are_read_as_captions(tmp_path: Path) -> None:
    (shown,) = blocks(PAGE, "json")
    (tmp_path / "captions.jsonl").write_text(shown.text)
    records = read_all(tmp_path)
    assert [len(record.captions_in("en")) for record in records] == [2, 1]


def test_the_commands_for_a_gpu_run_on_the_pictures_of_the_page(
    told: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the same folder, one after another; the towers on the hub are narrow, the runs short, and the pictures few.

    Exporting so many layers takes a minute: the checkpoint is evaluated in place of its bundle.
    """
    published.deep_clip(published.in_hub(tmp_path, "openai/clip-vit-base-patch16", monkeypatch))
    published.deep_bert(published.in_hub(tmp_path, "thenlper/gte-small", monkeypatch))
    Path("recipes").symlink_to(ROOT / "recipes")
    for name in ("val", "test"):
        few = Path(f"photos/{name}.jsonl").read_text().splitlines(keepends=True)[:24]
        Path(f"photos/few-{name}.jsonl").write_text("".join(few))
    short = " --set schedule.steps=1 --set data.limit=32 --set data.batch_size=16"
    embed, match, export, *evals = (line for line in lines(ON_GPU) if line.startswith("sightline"))
    for line in (embed, match):
        run_shell(line.replace("photos/val", "photos/few-val") + short)
    _, _, checkpoint, *options = shlex.split(export)
    assert options == ["--out", "my-bundle", "--quantize", "int8", "--calibrate", "photos/val.jsonl"]
    evals = [line.replace("my-bundle", checkpoint).replace("photos/test", "photos/few-test") for line in evals]
    plain, reranked = map(run_shell, evals)
    assert "match@20" in reranked
    assert "match@20" not in plain
    logged = json.loads(Path("runs/mine/log.jsonl").read_text().splitlines()[-1])
    assert "alone" in logged["loss"]
    assert "beside" not in logged["loss"]


def test_the_commands_for_a_gpu_need_no_variable_and_encode_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SIGHTLINE_DATA", raising=False)
    monkeypatch.delenv("SIGHTLINE_PRETRAINED", raising=False)
    embed, match = (recipe_of(line) for line in lines(ON_GPU)[:2])
    assert isinstance(embed.model_config(), DualStreamConfig)
    for recipe in (embed, match):
        assert make_losses(recipe)
        assert recipe.optimizer.chunk
        assert recipe.data.train == ("photos/train.jsonl",)
        assert recipe.data.batch_size < 720, "the page has 720 pictures to train on"


def test_every_message_that_the_page_explains_is_one_that_sightline_gives() -> None:
    source = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    messages = re.findall(r"^\| `(.+?)` \|", PAGE, re.MULTILINE)
    assert len(messages) > 10
    for message in messages:
        assert message in source, message
