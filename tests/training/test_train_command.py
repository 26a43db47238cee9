"""`sightline train`, from a recipe to a bundle that is evaluated: what it leaves, what it says, what it refuses."""

import io
import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import sightline
import tiny
from sightline.cli import app, progress
from sightline.cli.progress import Latest, Pace
from sightline.errors import RecipeError, SightlineError
from sightline.training import trainer
from training import processes

RECIPE = """
name = "cards"

[model]
kind = "dual_stream"
embedding_dim = 32
fragment_dim = 16
pool_to = 0
preprocess = { size = 32, resize = "squash", mean = [0.5, 0.5, 0.5], std = [0.25, 0.25, 0.25] }
text_input = { max_length = 12 }
image = { config = { model_type = "vit", hidden_size = 16, intermediate_size = 32, num_hidden_layers = 1,
  num_attention_heads = 4, image_size = 32, patch_size = 8 } }
text = { config = { model_type = "bert", hidden_size = 16, intermediate_size = 32, num_hidden_layers = 1,
  num_attention_heads = 4, vocab_size = 200, max_position_embeddings = 32 } }

[data]
train = ["${CARDS}"]
val = ["${CARDS}"]
batch_size = 8

[losses.embed]
loss = "contrastive"

[losses.match]
loss = "matching"

[schedule]
steps = 4

[optimizer]
lr = 1e-3
"""


@pytest.fixture
def place(few: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with a recipe; CARDS names the pictures."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CARDS", str(few))
    (tmp_path / "cards.toml").write_text(RECIPE.replace("\n  num", " num"))
    return tmp_path


def sightline_(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def steps_logged(run: Path) -> list[int]:
    return [json.loads(line)["step"] for line in (run / "log.jsonl").read_text().splitlines()]


def test_from_a_recipe_to_an_evaluated_bundle(
    place: Path, few: Path, shapes_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny.copy_graphs(shapes_run / "bundle", monkeypatch)
    (last,) = sightline_("train", "cards.toml", "--set", "validation.every=2").splitlines()
    assert last.startswith("runs/cards/best: val R@1 ")
    assert last.endswith("Next: sightline export runs/cards/best --out runs/cards/bundle")
    validation = json.loads((place / "runs/cards/best/validation.json").read_text())
    assert f"{validation['text_to_image']['R@1']:.1f} text to image" in last
    assert f"rSum {validation['rSum']:.1f}, at step {validation['step']}." in last
    assert steps_logged(place / "runs/cards") == [1, 2, 3, 4]

    assert "embed, match" in sightline_(*last.split("Next: sightline ")[1].split())
    shown = sightline_("eval", "runs/cards/bundle", str(few), "--rerank", "5", "--json", "result.json")
    assert "text to image" in shown
    result = json.loads((place / "result.json").read_text())
    assert result["stages"] == ["embed", "match@5"]
    assert result["images"] == 24


def train_and_listen(folder: Path) -> None:
    result = CliRunner().invoke(app, ["train", str(folder / "cards.toml"), "--out", str(folder / "run")])
    (folder / f"{os.environ['RANK']}.txt").write_text(f"{result.exit_code}\n{result.output}")


def test_of_two_processes_that_train_together_one_speaks(place: Path) -> None:
    processes.together(train_and_listen, place)
    leading, other = ((place / f"{rank}.txt").read_text().splitlines() for rank in (0, 1))
    assert leading[0] == other[0] == "0"
    assert "Next: sightline export" in "".join(leading)
    assert other[1:] == []


def test_resume_goes_on_with_a_run_and_set_and_out_are_heard(place: Path) -> None:
    sightline_("train", "cards.toml", "--out", "here", "--set", "name=other", "--set", "data.val=[]")
    assert steps_logged(place / "here") == [1, 2, 3, 4]
    assert json.loads((place / "here/recipe.json").read_text())["name"] == "other"
    said = sightline_("train", "cards.toml", "--out", "here", "--set", "name=other", "--set", "data.val=[]", "--resume")
    assert "here/best: after 4 steps, without validation data" in said
    assert not (place / "runs").exists()


def test_resume_says_if_there_is_nothing_to_resume_and_starts_a_new_run(place: Path) -> None:
    arguments = ["train", "cards.toml", "--set", "schedule.steps=2", "--out", "here", "--resume"]
    notice = "sightline: nothing to resume in here: starting a new run"
    first, second = (CliRunner().invoke(app, arguments, catch_exceptions=False) for _ in range(2))
    assert first.stderr.splitlines()[0] == notice
    assert steps_logged(place / "here") == [1, 2]
    assert "nothing to resume" not in second.output


def test_a_run_is_not_overwritten_and_not_resumed_by_another_recipe(place: Path) -> None:
    sightline_("train", "cards.toml", "--set", "schedule.steps=1")
    for more, error, said in (
        (["--set", "schedule.steps=1"], SightlineError, "already contains a run"),
        (["--resume", "--set", "optimizer.lr=1"], RecipeError, "optimizer.lr: 0.001, now 1.0"),
    ):
        result = CliRunner().invoke(app, ["train", "cards.toml", *more])
        assert isinstance(result.exception, error)
        assert said in str(result.exception)


def test_a_finished_run_is_extended_by_more_steps(place: Path) -> None:
    sightline_("train", "cards.toml", "--set", "schedule.steps=2")
    sightline_("train", "cards.toml", "--resume", "--set", "schedule.steps=5", "--checkpoint-every", "2m")
    assert steps_logged(place / "runs/cards") == [1, 2, 3, 4, 5]
    assert json.loads((place / "runs/cards/recipe.json").read_text())["schedule"]["steps"] == 5
    assert json.loads((place / "runs/cards/provenance.json").read_text())["steps"] == 5
    result = CliRunner().invoke(app, ["train", "cards.toml", "--resume"])
    assert "schedule: 4 steps, but runs/cards has already taken 5" in str(result.exception)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_step_and_says_what_is_saved_and_how_to_go_on(
    number: signal.Signals, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = trainer._Run._step

    def interrupted(run: Any, index: int, *arguments: Any) -> Any:
        if index == 2:
            os.kill(os.getpid(), number)
        return step(run, index, *arguments)

    usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
    before = signal.signal(number, usual)  # a library that another test used may have a handler of its own, as Ray has
    try:
        with monkeypatch.context() as patched:
            patched.setattr(trainer._Run, "_step", interrupted)
            result = CliRunner().invoke(app, ["train", "cards.toml", "--set", "name=a b"])
        assert signal.getsignal(number) is usual
    finally:
        signal.signal(number, before)
    assert result.exit_code == 128 + number
    assert "interrupted; runs/a b was last saved after step 3" in result.output
    again = "sightline train cards.toml --set 'name=a b' --out 'runs/a b' --resume"
    assert f"To continue: {again}" in result.output
    sightline_(*shlex.split(again)[1:])
    assert steps_logged(place / "runs/a b") == [1, 2, 3, 4]


def test_a_second_ctrl_c_ends_in_the_middle_of_a_step(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = trainer._Run._step

    def interrupted(run: Any, number: int, *arguments: Any) -> Any:
        for _ in range(2 if number == 2 else 0):
            os.kill(os.getpid(), signal.SIGINT)
        return step(run, number, *arguments)

    monkeypatch.setattr(trainer._Run, "_step", interrupted)
    result = CliRunner().invoke(app, ["train", "cards.toml"])
    assert result.exit_code == 130
    assert "interrupted; runs/cards has nothing saved yet" in result.output


def test_ctrl_c_before_anything_is_saved_says_so(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(trainer, "train", interrupted)
    result = CliRunner().invoke(app, ["train", "cards.toml"])
    assert "interrupted; runs/cards has nothing saved yet" in result.output


def test_without_torch_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "cards.toml").touch()
    script = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ImportError("No module named 'torch'")
sys.meta_path.insert(0, Block())
sys.argv = ["sightline", "train", "cards.toml"]
from sightline.cli import main
main()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("sightline: training needs torch: No module named 'torch'")
    assert done.stderr.rstrip().endswith("pip install 'sightline-search[train]'")


def test_train_is_a_verb_that_is_loaded_when_it_is_asked_for() -> None:
    assert callable(sightline.train)
    assert "train" in sightline.__all__
    script = "import sys, sightline; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0


def entry(step: int, val: float | None = None, **loss: float) -> dict[str, Any]:
    told: dict[str, Any] = {"step": step, "steps": 200, "loss": loss, "seconds": 2.0 * step}
    return told if val is None else told | {"val": {"t2i": {"R@1": val}, "i2t": {"R@1": val + 1}, "rSum": 0}}


def test_without_a_terminal_some_plain_lines_tell_of_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.training() as report:
        for step in range(1, 201):
            losses = {"match": 0.5} if step % 3 == 0 else {"embed": step / 100}
            report(entry(step, 40.0 if step == 55 else None, **losses))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "step 1/200  embed 0.0100  6:38 left"
    assert len(lines) == 22  # the first, every tenth, and the one with news
    assert "step 55/200  embed 0.5500  match 0.5000  val R@1 40.0 / 41.0  4:50 left" in lines
    assert lines[-1] == "step 200/200  embed 2.0000  match 0.5000  val R@1 40.0 / 41.0  0:00 left"


def test_an_objective_that_has_ended_is_no_longer_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.training() as report:
        for step in range(1, 201):
            report(entry(step, **({"first": 1.0} if step <= 20 else {"then": 2.0})))
    lines = capsys.readouterr().err.splitlines()
    assert "step 30/200  first 1.0000  then 2.0000" in lines[3]
    assert lines[-1].startswith("step 200/200  then 2.0000  ")


def test_what_takes_long_before_the_first_step_is_told_every_half_minute(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = iter(range(0, 1000, 10))
    monkeypatch.setattr(progress, "Pace", lambda: Pace(clock=lambda: float(next(seconds))))
    with progress.training() as report:
        for done in range(10, 61, 10):
            report.prepare("encoding images", done, 60)
    lines = capsys.readouterr().err.splitlines()
    assert lines
    assert all(line.startswith("encoding images: ") and line.endswith(" left") for line in lines)
    assert len(lines) < 5
    assert not any("60/60" in line for line in lines)


def test_short_validations_are_not_told_however_many_there_are(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(progress, "Pace", lambda: Pace(clock=lambda: now))
    with progress.training() as report:
        for validation in range(3):
            for done in (256, 512, 1000):
                now = 600.0 * validation + done / 100
                report.prepare("validating (match)", done, 1000)
        assert not capsys.readouterr().err
        now += 600
        report.prepare("validating (match)", 256, 5000)
        now += 40
        report.prepare("validating (match)", 512, 5000)
    assert capsys.readouterr().err.startswith("validating (match): 512/5000  ")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """What a user sees who looks on; no fixture, for pytest takes stderr back before a test begins."""
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    return shown


def test_on_a_terminal_a_bar_shows_loss_recall_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = on_a_terminal(monkeypatch)
    with progress.training() as report:
        report(entry(50, 12.5, embed=1.25))
        report(entry(51, embed=1.5))
    shown = screen.getvalue()
    assert "51/200" in shown
    assert "embed 1.5000  val R@1 12.5 / 13.5" in shown
    assert "left" in shown


def test_on_a_terminal_the_bar_shows_what_comes_before_the_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = on_a_terminal(monkeypatch)
    with progress.training() as report:
        report.prepare("encoding images", 7, 9)
    shown = screen.getvalue()
    assert "7/9" in shown
    assert "encoding images 0:00 left" in shown


def test_evaluation_shows_a_bar_only_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    with progress.evaluating() as report:
        assert report is None
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    with progress.evaluating() as report:
        assert report is not None
        report("encode_images", 3, 9)
        report("encode_images", 9, 9)
    assert "encode images" in screen.getvalue()


def test_time_left_counts_from_where_a_resumed_run_went_on() -> None:
    latest = Latest()
    latest.hear({"step": 151, "steps": 200, "loss": {}, "seconds": 10.0})
    latest.hear({"step": 152, "steps": 200, "loss": {}, "seconds": 150.0})
    assert latest.time_left == "1:00:00"
