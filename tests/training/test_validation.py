"""Looking at the validation data: when, and which checkpoint is kept."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from sightline.datasets import Record, read_all
from sightline.datasets.regions import write_regions
from sightline.errors import RecipeError
from sightline.evaluation import evaluate
from sightline.media import ImageBytes, ImageFile, ImageSlice
from sightline.models import checkpoint
from sightline.models.image_tower import ImageTower
from sightline.models.torch_model import TorchModel
from sightline.training.overlap import overlap_notes
from sightline.training.recipe import parse_recipe
from sightline.training.setup import check_validation_records, training_records
from sightline.training.trainer import Trained, train
from tiny import PREPROCESS
from training import region_cards, shapes


class Scored:
    """An evaluation with given numbers."""

    def __init__(self, r_sum: float, r_at_1: float) -> None:
        self.r_sum = r_sum
        self.text_to_image = {"R@1": r_at_1}
        self.image_to_text = {"R@1": r_at_1}

    def to_json(self) -> dict[str, Any]:
        return {"rSum": self.r_sum, "text_to_image": self.text_to_image, "image_to_text": self.image_to_text}


SCORES = [Scored(300, 20), Scored(500, 30), Scored(400, 40), Scored(200, 10)]


def run(few: Path, out: Path, monkeypatch: pytest.MonkeyPatch, **validation: Any) -> Trained:
    scores = iter(SCORES)
    monkeypatch.setattr("sightline.training.validation.evaluate", lambda *_, **__: next(scores))
    common: dict[str, Any] = {"hidden": 16, "data": {"batch_size": 8}, "schedule": {"steps": 7}}
    return train(parse_recipe(shapes.recipe(few, few, validation=validation, **common), "it"), out)


@pytest.mark.parametrize(("metric", "best"), [("rSum", 1), ("R@1", 2)])
def test_the_checkpoint_that_did_best_is_kept(
    few: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, metric: str, best: int
) -> None:
    trained = run(few, tmp_path / "run", monkeypatch, every=2, metric=metric)
    assert trained.folder == tmp_path / "run" / "best"
    assert id(trained.evaluation) == id(SCORES[best])
    assert trained.validation is not None
    heads = trained.validation.pop("heads")
    assert trained.validation == {"step": 2 * (best + 1), **SCORES[best].to_json()}
    assert heads.keys() == {"embed"}
    assert heads["embed"]["rSum"] == SCORES[best].r_sum
    kept, last = (checkpoint.load(tmp_path / "run" / name)[0].state_dict() for name in ("best", "last"))
    assert not all(torch.equal(kept[name], last[name]) for name in kept)


def test_validation_comes_every_so_often_and_at_the_end(
    few: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(few, tmp_path / "often", monkeypatch, every=2)
    run(few, tmp_path / "once", monkeypatch)
    for name, steps in (("often", [2, 4, 6, 7]), ("once", [7])):
        entries = [json.loads(line) for line in (tmp_path / name / "log.jsonl").read_text().splitlines()]
        assert [entry["step"] for entry in entries if "val" in entry] == steps


def test_without_validation_data_the_last_checkpoint_is_the_best(few: Path, tmp_path: Path) -> None:
    common: dict[str, Any] = {"hidden": 16, "data": {"batch_size": 8}, "schedule": {"steps": 2}}
    trained = train(parse_recipe(shapes.recipe(few, **common), "it"), tmp_path / "run")
    assert (trained.evaluation, trained.validation) == (None, None)
    kept, last = (checkpoint.load(tmp_path / "run" / name)[0].state_dict() for name in ("best", "last"))
    assert all(torch.equal(kept[name], last[name]) for name in kept)


def test_validation_on_training_images_is_pointed_out(
    few: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = shapes.write(tmp_path / "other", list(shapes.cards(seed=1))[:4])
    lines = other.read_text().splitlines()
    names = [json.loads(line) for line in lines] + [{"image": str(few.parent / "0-red-black.png"), "captions": ["x"]}]
    mixed = tmp_path / "other" / "mixed.jsonl"
    mixed.write_text("".join(json.dumps(name) + "\n" for name in names))
    common: dict[str, Any] = {"hidden": 16, "data": {"batch_size": 8}, "schedule": {"steps": 1}}
    said: dict[Path, list[str]] = {}
    for number, val in enumerate((few, other, mixed)):
        notes = said.setdefault(val, [])
        train(parse_recipe(shapes.recipe(few, val, **common), "it"), tmp_path / f"run-{number}", notify=notes.append)
    assert "24 of 24 images of 'val' are also training images" in said[few][0]
    assert said[other] == []
    assert "1 of 5 images" in said[mixed][0]
    assert not caplog.records
    train(parse_recipe(shapes.recipe(few, few, **common), "it"), tmp_path / "logged")
    assert "24 of 24" in caplog.text


def test_copies_of_training_images_are_pointed_out_under_any_name(tmp_path: Path) -> None:
    (tmp_path / "copy.jpg").write_bytes(b"12345")
    (tmp_path / "archive.tar").write_bytes(b"..12345..54321")
    files = [ImageFile(tmp_path / "copy.jpg"), ImageFile(tmp_path / "missing.jpg"), ImageBytes("other", b"54322")]
    slices = [ImageSlice(tmp_path / "archive.tar", str(offset), offset, 5) for offset in (2, 9)]
    trained = [Record("a", image, {}) for image in (slices[0], ImageFile(tmp_path / "missing too.jpg"))]
    sets = {"files": [Record(image.name, image, {}) for image in files], "new": [Record("b", slices[1], {})]}
    (note,) = overlap_notes(trained, sets)
    assert note.startswith("data.val: 1 of 3 images of 'files' are also training images")
    assert overlap_notes([], sets) == []


def test_only_images_of_equal_size_are_read_to_find_copies() -> None:
    class Unread(ImageBytes):
        def read(self) -> bytes:
            raise AssertionError("read")

    trained = [Record("a", Unread("a", b"1234"), {})]
    assert overlap_notes(trained, {"val": [Record("b", Unread("b", b"12345"), {})]}) == []


def captioned(folder: Path, captions: Mapping[str, list[str]]) -> Path:
    """Two pictures with these captions each, by language."""
    shapes.write(folder, list(shapes.cards(seed=0))[:2])
    path = folder / "captions.jsonl"
    lines = [json.loads(line) | {"captions": captions} for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.mark.parametrize(
    ("lang", "captions", "said"),
    [
        (["en", "de"], {"en": ["a card"]}, "data.val: none of 2 records has captions in 'de'"),
        ("en", {"de": ["eine Karte"]}, "needs captions in 'en', but has de"),
        ("en", {}, "needs captions in 'en', but has no captions at all"),
    ],
)
def test_a_language_that_validation_lacks_is_refused_before_the_first_step(
    tmp_path: Path, lang: Any, captions: dict[str, list[str]], said: str
) -> None:
    taught = captioned(tmp_path / "train", {"en": ["a card"], "de": ["eine Karte"]})
    asked = captioned(tmp_path / "val", captions)
    short: dict[str, Any] = {"hidden": 16, "data": {"batch_size": 2, "lang": lang}, "schedule": {"steps": 1}}
    with pytest.raises(RecipeError) as refused:
        train(parse_recipe(shapes.recipe(taught, asked, **short), "it"), tmp_path / "run")
    assert said in refused.value.what
    assert not (tmp_path / "run").exists()


def test_a_language_that_no_training_caption_is_in_is_refused(tmp_path: Path) -> None:
    taught = captioned(tmp_path / "train", {"en": ["a card"], "de": ["eine Karte"]})
    recipe = parse_recipe(shapes.recipe(taught, data={"lang": ["en", "fr", "cs"]}), "it")
    with pytest.raises(RecipeError, match=r"data\.lang: no training caption is in fr or cs") as refused:
        training_records(recipe)
    assert "in the data: de, en." in refused.value.way_out


def test_validation_pictures_are_refused_beforehand_if_none_can_be_read(few: Path, tmp_path: Path) -> None:
    store = region_cards.store(tmp_path / "store", 0)
    with pytest.raises(RecipeError, match=r"data\.val: none of 24 images can be read: .* reads regions"):
        train(parse_recipe(region_cards.recipe(store, few), "it"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_single_broken_picture_is_left_to_the_validation_to_count(few: Path) -> None:
    recipe = parse_recipe(shapes.recipe(few, few), "it")
    broken = Record("broken", ImageBytes("broken", b"nothing"), {"en": ("a card",)})
    check_validation_records(recipe, [broken, *training_records(recipe)[0]], PREPROCESS)
    with pytest.raises(RecipeError, match="none of 1 images can be read"):
        check_validation_records(recipe, [broken], PREPROCESS)


@pytest.mark.parametrize(("rate", "times"), [(0.0, 1), (1e-3, 3)])
def test_a_frozen_image_tower_sees_the_validation_images_once(
    few: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rate: float, times: int
) -> None:
    seen, forward = [], ImageTower.forward

    def looked(self: ImageTower, pixels: torch.Tensor) -> Any:
        seen.extend([len(pixels)] if torch.is_inference_mode_enabled() else [])
        return forward(self, pixels)

    monkeypatch.setattr(ImageTower, "forward", looked)
    common: dict[str, Any] = {"hidden": 16, "data": {"batch_size": 8}, "schedule": {"steps": 6}}
    asked = shapes.recipe(few, few, validation={"every": 2}, optimizer={"rates": {"image": rate}}, **common)
    trained = train(parse_recipe(asked, "it"), tmp_path / "run")
    assert seen == [24] * times
    assert trained.evaluation is not None
    again = evaluate(TorchModel.open(trained.folder, "cpu"), read_all([str(few)]))
    assert again.r_sum == pytest.approx(trained.evaluation.r_sum)


def test_data_of_several_splits_without_val_is_refused(tmp_path: Path) -> None:
    found = [*region_cards.found(0), *region_cards.found(1, split="test")]
    write_regions(iter(found), tmp_path / "cards.regions")
    recipe = parse_recipe(region_cards.recipe(tmp_path / "cards.regions", tmp_path / "cards.regions"), "it")
    with pytest.raises(RecipeError, match=r"cards\.regions has no val split, only test, train"):
        train(recipe, tmp_path / "run")


def test_the_progress_of_a_validation_is_told(few: Path, tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    recipe = shapes.recipe(few, few, hidden=16, data={"batch_size": 8}, schedule={"steps": 1})
    train(parse_recipe(recipe, "it"), tmp_path / "run", on_prepare=lambda *part: told.append(part))
    validating = {part: (done, total) for part, done, total in told if part.startswith("validating ")}
    assert {"validating (encode images)", "validating (encode texts)"} <= validating.keys()
    assert all(done == total for done, total in validating.values()), "each part is told to its end"
