"""Pre-training as in paper 4, from a recipe: tasks drawn by weight, batches by tokens, then fine-tuning; languages."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from sightline.datasets import read_all
from sightline.errors import ModelError, RecipeError
from sightline.evaluation import Languages, evaluate
from sightline.models import checkpoint
from sightline.models.torch_model import TorchModel
from sightline.training.recipe import parse_recipe
from sightline.training.trainer import train
from training import shapes

TASKS = {
    "cmr": {"loss": "contrastive", "weight": 16},
    "vmlm": {"loss": "masked_words", "weight": 8},
    "smrfr": {"loss": "masked_fragments", "weight": 4},
    "smrc": {"loss": "masked_fragments", "target": "classes", "classes": 16, "weight": 4},
}
FROZEN = {"lr": 3e-3, "rates": {"image": 0.0}}
GERMAN = {"red": "rotes", "green": "grünes", "blue": "blaues", "square": "Quadrat", "on": "auf", "a": "ein"}


def recipe(pictures: Path, val: Path | None = None, **changes: Any) -> dict[str, Any]:
    """A model with a reader over a frozen tower of one layer, small enough to learn in seconds."""
    data = shapes.recipe(pictures, val, hidden=32, optimizer=FROZEN, **changes)
    model = data["model"]
    model |= {"matcher": "none", "text_pooling": "first"}
    for encoder in ("image", "text"):
        model[encoder]["config"] |= {"num_hidden_layers": 1}
    model["image_reader"] = {"config": {**model["text"]["config"], "vocab_size": 2}}
    return data


def log(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]


def losses(out: Path, name: str) -> list[float]:
    return [entry["loss"][name] for entry in log(out) if name in entry["loss"]]


@pytest.fixture(scope="module")
def cards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shapes.write(tmp_path_factory.mktemp("cards") / "pictures", shapes.cards(seed=0, copies=6))


@pytest.fixture(scope="module")
def pretrained(cards: Path) -> Path:
    """A run of all four tasks, one drawn each step, in batches of about thirty pairs."""
    schedule = {"steps": 140, "run": "random", "warmup": 0.1}
    data = recipe(cards, data={"draw": "pairs", "batch_tokens": 800}, losses=TASKS, schedule=schedule)
    return train(parse_recipe(data, "pretrain"), cards.parent / "pretrain").folder.parent


def test_every_task_is_drawn_in_its_proportion_and_learns(pretrained: Path) -> None:
    counts = {name: len(losses(pretrained, name)) for name in TASKS}
    assert sum(counts.values()) == 140
    for name, terms in TASKS.items():
        assert counts[name] == pytest.approx(140 * terms["weight"] / 32, rel=0.5)  # type: ignore[operator]
        found = losses(pretrained, name)
        few = max(3, len(found) // 6)
        assert sum(found[-few:]) < 0.85 * sum(found[:few]), name


def test_classes_were_found_before_the_first_step_and_are_kept(pretrained: Path) -> None:
    centres = load_file(pretrained / "last" / "optimizer.safetensors")["losses/smrc.centres"]
    torch.testing.assert_close(centres.norm(dim=1), torch.ones(16))
    assert float((centres @ centres.T - torch.eye(16)).max()) < 0.999  # no two are the same


def test_colours_are_guessed_from_the_picture(tmp_path: Path) -> None:
    """Of "a red square on black" two words in five are in the picture alone: one of six inks, one of four grounds."""
    one_caption = (card._replace(captions=card.captions[:1]) for card in shapes.cards(seed=0, copies=6))
    pictures = shapes.write(tmp_path / "pictures", one_caption)
    data = recipe(pictures, losses={"vmlm": {"loss": "masked_words", "share": 0.3}}, schedule={"steps": 120})
    data["optimizer"] = {**FROZEN, "lr": 1e-2}
    train(parse_recipe(data, "it"), tmp_path / "run")
    without_looking = (math.log(6) + math.log(4)) / 5
    assert sum(losses(tmp_path / "run", "vmlm")[-20:]) / 20 < 0.7 * without_looking


def test_a_pretrained_model_is_fine_tuned_and_found_without_its_extra_layers(cards: Path, pretrained: Path) -> None:
    unseen = shapes.write(cards.parent / "unseen", shapes.cards(seed=1))
    data = recipe(cards, schedule={"steps": 40, "warmup": 0.1}, data={"batch_size": 24})
    data["model"] = {"start": str(pretrained / "best")}
    tuned = train(parse_recipe(data, "fine-tune"), cards.parent / "tuned")
    before, after = (
        evaluate(TorchModel.open(folder), read_all(unseen)) for folder in (pretrained / "best", tuned.folder)
    )
    assert after.r_sum > before.r_sum
    assert after.text_to_image["R@5"] > 80
    names = checkpoint.load(tuned.folder)[0].state_dict().keys()
    assert not [name for name in names if "guess" in name or "blank" in name]


def test_a_run_that_was_interrupted_has_the_same_classes_and_weights(few: Path, tmp_path: Path) -> None:
    def run(out: str, **options: Any) -> None:
        tasks = {"smrc": TASKS["smrc"], "vmlm": TASKS["vmlm"]}
        schedule = {"steps": 4, "run": "pattern", "pattern": ["smrc", "vmlm"]}
        data = recipe(few, losses=tasks, schedule=schedule, data={"draw": "pairs", "batch_tokens": 500})
        train(parse_recipe(data, "it"), tmp_path / out, **options)

    run("whole")
    run("halves", stop_after=2)
    run("halves", resume=True)
    one, other = (checkpoint.load(tmp_path / name / "last")[0].state_dict() for name in ("whole", "halves"))
    assert all(torch.equal(one[key], other[key]) for key in one)


def test_patches_are_hidden_from_a_tower_that_is_trained_above_frozen_layers(few: Path, tmp_path: Path) -> None:
    optimizer = {"lr": 1e-3, "frozen_layers": {"image": 1}}
    objectives = {"smrc": TASKS["smrc"], "smrfr": TASKS["smrfr"]}
    data = shapes.recipe(few, hidden=16, losses=objectives, schedule={"steps": 3}, data={"batch_size": 12})
    with pytest.raises(ModelError, match="none of it is"):
        train(parse_recipe(data, "it"), tmp_path / "refused")
    data["optimizer"] = optimizer
    train(parse_recipe(data, "it"), tmp_path / "run")
    assert losses(tmp_path / "run", "smrfr")[-1] < losses(tmp_path / "run", "smrfr")[0]


def test_batches_of_tokens_are_of_pairs_and_languages_are_some(few: Path) -> None:
    with pytest.raises(RecipeError, match=r'batch_tokens cannot be combined with draw = "unique"\nSet draw = "pairs"'):
        parse_recipe(recipe(few, data={"batch_tokens": 500}), "it")
    for lang in ([], ["en", "en"]):
        with pytest.raises(RecipeError, match="each only once"):
            parse_recipe(recipe(few, data={"lang": lang}), "it")


def test_several_languages_are_trained_at_once_and_judged_by_their_mean(tmp_path: Path) -> None:
    """German captions, for most pictures only, are learned beside the English, with one tokenizer for both."""
    pictures = shapes.write(tmp_path / "pictures", shapes.cards(seed=0, copies=4))
    lines = [json.loads(line) for line in pictures.read_text(encoding="utf-8").splitlines()]
    for number, line in enumerate(lines):
        english = line["captions"]
        line["captions"] = {"en": english}
        if number % 8:
            german = " ".join(GERMAN.get(word, word) for word in english[0].split())
            line["captions"]["de"] = [german]
    pictures.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    changes = {"lang": ["en", "de"], "batch_size": 24}
    trained = train(
        parse_recipe(recipe(pictures, pictures, data=changes, schedule={"steps": 60, "warmup": 0.1}), "both"),
        tmp_path / "run",
    )
    assert isinstance(trained.evaluation, Languages)
    found = trained.evaluation.evaluations
    assert (found["en"].images, found["de"].images) == (96, 84)
    chance = 100 * 5 / 96  # of R@5; cards of one kind are four pictures that captions do not tell apart
    assert min(one.text_to_image["R@5"] for one in found.values()) > 2.5 * chance
    saved = json.loads((trained.folder / "validation.json").read_text())
    assert saved["mR_by_language"].keys() == {"en", "de"}
    tokenizer = checkpoint.load(trained.folder)[1]
    assert "quadrat" in tokenizer.tokens("ein grünes Quadrat")
    assert "square" in tokenizer.tokens("a green square")
