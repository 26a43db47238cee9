"""Training with relations: phases, neighbours, what is logged, what is resumed, and what is left in the model."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from kernels.agreeing import assert_graphs_agree
from sightline.bundle import Bundle
from sightline.errors import RecipeError
from sightline.models import Tokens, checkpoint
from sightline.onnx_export.exporter import export
from sightline.training.neighbours import Neighbours
from sightline.training.recipe import Recipe, parse_recipe
from sightline.training.schedule import rate_at, takes_part
from sightline.training.state import saved_tensors
from sightline.training.tables import ScheduleRecipe
from sightline.training.trainer import Trained, train
from training import shapes

STEPS = 10  # two and a half epochs of four batches
PHASES: dict[str, dict[str, Any]] = {
    "first": {"loss": "triplet", "negatives": "mean", "end": 0.2},
    "embed": {"loss": "triplet", "margin": 0.2, "begin": 0.2, "end": 0.4},
    "relation": {"loss": "relation", "heads": 4, "dropout": 0.2, "matches": 3, "begin": 0.4},
}


def recipe(few: Path, **changes: Any) -> dict[str, Any]:
    """Phases as in paper 2, neighbours from the second epoch on, dropout and dropped fragments."""
    settings: dict[str, Any] = {
        "hidden": 16,
        "dropout": 0.1,
        "model": {"fragment_dim": 32, "matcher": "none", "relations": {"heads": 4}},
        "data": {"batch_size": 12, "neighbours": {"begin": 0.3, "clusters": 4, "per_cluster": 4}},
        "losses": PHASES,
        "schedule": {"steps": STEPS, "decay": "drops", "drops": [0.5]},
        "optimizer": {"lr": 1e-3},
    }
    return shapes.recipe(few, **settings | changes)


def parsed(few: Path = Path("train.jsonl"), **changes: Any) -> Recipe:
    return parse_recipe(recipe(few, **changes), "it")


def run(few: Path, out: Path, **options: Any) -> Trained:
    return train(parsed(few), out, **options)


def log(out: Path) -> list[dict[str, Any]]:
    entries = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    return [{key: value for key, value in entry.items() if key != "seconds"} for entry in entries]


@pytest.fixture(scope="module")
def undisturbed(few: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("relations") / "run"
    run(few, out)
    return out


def test_each_phase_has_its_objective_and_relations_tell_their_parts(undisturbed: Path) -> None:
    entries = log(undisturbed)
    assert [list(entry["loss"]) for entry in entries] == [["first"]] * 2 + [["embed"]] * 2 + [["relation"]] * 6
    assert all("parts" not in entry for entry in entries[:4])
    for entry in entries[4:]:
        parts = entry["parts"]["relation"]
        total = parts["enhanced"] + parts["initial"] + parts["crossed"] + 10 * parts["regularisation"]
        assert entry["loss"]["relation"] == pytest.approx(total, rel=1e-5)
    assert [entry["rate"] for entry in entries] == pytest.approx([1e-3] * 5 + [1e-4] * 5)


@pytest.mark.parametrize("stop", [6, 8])
def test_a_run_stopped_within_an_epoch_of_neighbours_or_at_its_end_goes_on_with_the_same_batches(
    few: Path, undisturbed: Path, tmp_path: Path, stop: int
) -> None:
    out = tmp_path / "run"
    run(few, out, stop_after=stop)
    run(few, out, resume=True)
    assert log(out) == log(undisturbed)
    expected, found = (checkpoint.load(folder / "last")[0].state_dict() for folder in (undisturbed, out))
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_clusters_are_found_anew_in_every_epoch_that_has_them(
    few: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Any] = []
    find = Neighbours._clusters

    def noted(self: Neighbours, *given: Any) -> Any:
        found.append(find(self, *given))
        return found[-1]

    monkeypatch.setattr(Neighbours, "_clusters", noted)
    run(few, tmp_path / "run")
    assert len(found) == 2  # of three epochs, the first is drawn as ever
    assert {len(np.unique(clusters)) for clusters in found} == {4}
    saved = saved_tensors(tmp_path / "run" / "last", "neighbours")[""]
    assert saved is not None
    assert np.array_equal(saved.numpy(), found[-1])


def test_a_model_trained_with_relations_has_the_weights_of_one_without_and_no_others(undisturbed: Path) -> None:
    trained, _ = checkpoint.load(undisturbed / "last")
    plain = checkpoint.build(parsed().model_config())
    assert {name: value.shape for name, value in trained.state_dict().items()} == {
        name: value.shape for name, value in plain.state_dict().items()
    }
    assert saved_tensors(undisturbed / "last", "losses/relation.attention.attend.0.query.weight")


@pytest.fixture(scope="module")
def recurrent(few: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with a recurrent text encoder, trained with relations for two steps."""
    text = {"config": {"model_type": "bigru", "vocab_size": 200, "word_dim": 12, "hidden_size": 16}}
    model = {"fragment_dim": 32, "matcher": "none", "relations": {"heads": 4}, "text": text}
    losses = {"relation": PHASES["relation"] | {"begin": 0}}
    asked = parsed(few, model=model, schedule={"steps": 2}, losses=losses)
    return train(asked, tmp_path_factory.mktemp("recurrent") / "run").folder


def test_a_recurrent_encoder_is_trained_with_a_vocabulary_of_the_captions(recurrent: Path) -> None:
    _, tokenizer = checkpoint.load(recurrent)
    assert tokenizer.tokens("a red square") == ["[CLS]", "a", "red", "square", "[SEP]"]


@torch.inference_mode()
def test_its_bundle_gives_what_the_model_gives_and_has_no_weights_of_relations(recurrent: Path, tmp_path: Path) -> None:
    model, tokenizer = checkpoint.load(recurrent)
    export(model, tokenizer, tmp_path / "bundle", name="related")
    bundle = Bundle.open(tmp_path / "bundle")
    assert_graphs_agree(bundle.folder)
    for texts in (["a"], ["a red square on black", "grey", "white ground, one square that is blue"]):
        tokens = tokenizer(texts)
        expected = model.encode_texts(Tokens(torch.from_numpy(tokens.ids), torch.from_numpy(tokens.mask)))
        found = bundle.encode_texts(texts)
        np.testing.assert_allclose(found.embedding, expected.embedding.numpy(), atol=1e-5)
        assert found.fragments is None  # late interaction was not trained
    pixels = np.random.default_rng(0).standard_normal((3, 3, 32, 32)).astype(np.float32)
    seen = bundle.encode_images(pixels)
    np.testing.assert_allclose(seen.embedding, model.encode_images(torch.from_numpy(pixels)).embedding, atol=1e-5)
    assert sorted(bundle.spec.files) == ["image.onnx", "text.onnx", "tokenizer.json"]
    own = {f"retriever.{name}" for name in model.state_dict()}
    for graph in ("image", "text"):
        weights = {tensor.name for tensor in onnx.load(tmp_path / "bundle" / f"{graph}.onnx").graph.initializer}
        named = {name for name in weights if name.startswith("retriever.")}
        assert len(named) > 5
        assert named <= own


def test_the_rate_drops_to_a_tenth_at_each_drop() -> None:
    schedule = ScheduleRecipe(steps=30, decay="drops", drops=(0.5, 25 / 30), warmup=0.1)
    rates = [rate_at(step, 30, schedule) for step in range(30)]
    assert rates == pytest.approx([1 / 3, 2 / 3, 1] + [1.0] * 12 + [0.1] * 10 + [0.01] * 5)


def test_phases_that_meet_leave_no_step_out_and_have_none_in_common() -> None:
    asked = parsed()
    for steps in range(1, 40):
        for step in range(steps):
            assert sum(takes_part(name, step, steps, asked) for name in PHASES) == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"losses": {"a": {"loss": "triplet", "end": 0.5}}}, "no loss is active after the fraction 0.5"),
        ({"losses": {"a": {"loss": "triplet", "begin": 0.5}}}, "no loss is active between the fractions 0.0 and 0.5"),
        ({"losses": {"a": {"loss": "triplet", "begin": 0.5, "end": 0.5}}}, "begin (0.5) must be before end (0.5)"),
        ({"losses": {"a": {"loss": "triplet", "begin": 8000}}}, "losses.a.begin cannot be 8000"),
        ({"losses": {"a": {"loss": "triplet", "end": "late"}}}, "losses.a.end cannot be 'late'"),
        (
            {"losses": {"a": {"loss": "triplet", "weight": 0}, "b": {"loss": "triplet", "begin": 0.1}}},
            "no loss is active between the fractions 0.0 and 0.1",
        ),
        ({"schedule": {"steps": 9, "run": "random"}}, 'begin and end need schedule.run = "together"'),
        ({"schedule": {"steps": 9, "decay": "drops"}}, "needs a list of drops"),
        ({"schedule": {"steps": 9, "drops": [0.5]}}, 'schedule.drops is set, but decay is "linear"'),
        ({"schedule": {"steps": 9, "decay": "drops", "drops": [15]}}, "schedule.drops cannot be 15"),
        ({"data": {"draw": "all", "neighbours": {}}}, 'cannot be combined with draw = "all"'),
        ({"data": {"batch_size": 10, "neighbours": {"per_cluster": 4}}}, "data.batch_size is 10, not a multiple of 4"),
        ({"data": {"batch_size": 12, "neighbours": {"begin": 2.0}}}, "data.neighbours.begin cannot be 2.0"),
    ],
    ids=str,
)
def test_phases_and_neighbours_that_make_no_sense_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(RecipeError) as refused:
        parsed(**changes)
    assert said in str(refused.value)
