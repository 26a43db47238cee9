"""The training data as it is drawn: pictures decoded once, captions tokenised once, broken ones named."""

import io
import json
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from PIL import Image

import tiny
from sightline.datasets import Record, read_all
from sightline.errors import DataError, MediaError, ModelError, RecipeError, SightlineError
from sightline.media import ImageBytes, Preprocess, to_pixels
from sightline.models import checkpoint
from sightline.training import corpus as corpus_module
from sightline.training.augment import Augment
from sightline.training.corpus import Corpus, FeatureCache, normalised
from sightline.training.recipe import parse_recipe
from sightline.training.setup import check_validation_records, training_records, validation_records
from sightline.training.state import saved_step
from sightline.training.trainer import train
from training import shapes

PREPROCESS = Preprocess(size=32, resize="crop", mean=(0.4, 0.5, 0.6), std=(0.2, 0.25, 0.3))


class Counted:
    """A picture that counts how often it is read."""

    reads: ClassVar[Counter[str]] = Counter()

    def __init__(self, name: str, data: bytes) -> None:
        self.name, self.data = name, data

    def read(self) -> bytes:
        self.reads[self.name] += 1
        return self.data


def encoded(picture: Image.Image, kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    picture.save(file, kind)
    return file.getvalue()


def record(number: int, captions: tuple[str, ...], side: tuple[int, int] = (40, 50)) -> Record:
    pixels = np.random.default_rng(number).integers(0, 256, (side[1], side[0], 3), dtype=np.uint8)
    return Record(str(number), Counted(f"{number}.png", encoded(Image.fromarray(pixels))), {"en": captions})


def made(records: list[Record]) -> Corpus:
    return Corpus(records, "en", PREPROCESS, tiny.tokenizer())


@pytest.fixture
def records() -> list[Record]:
    Counted.reads = Counter()
    captions = [("a dog",), ("a cat on the beach", "two small cat"), ("a large red ball in the water",)]
    return [record(number, texts) for number, texts in enumerate(captions)]


def test_a_draw_names_its_pictures_once_and_pads_to_its_longest_caption(records: list[Record]) -> None:
    corpus = made(records)
    drawn = corpus.draw(np.array([[1, 1], [0, 0], [1, 0]]))
    assert drawn.images.tolist() == [0, 1]
    assert drawn.text_images.tolist() == [1, 0, 1]
    expected = tiny.tokenizer()(["two small cat", "a dog", "a cat on the beach"])
    assert np.array_equal(drawn.tokens.ids.numpy(), expected.ids)
    assert np.array_equal(drawn.tokens.mask.numpy(), expected.mask)
    assert corpus.captions_per_image == [1, 2, 1]


def test_pictures_are_those_that_evaluation_sees(records: list[Record]) -> None:
    """A model must be trained on what it will be asked about: the same scaling, crop and normalisation."""
    corpus = made(records)
    found = normalised(corpus.pixels(np.array([2, 0])), PREPROCESS)
    for row, number in zip(found, (2, 0), strict=True):
        np.testing.assert_allclose(row, to_pixels(records[number].image, PREPROCESS), atol=1e-5)


def test_a_photo_is_decoded_at_the_fraction_of_its_size_that_evaluation_decodes_it_at() -> None:
    texture = np.random.default_rng(0).integers(0, 256, (240, 320, 3), dtype=np.uint8)
    jpeg = encoded(Image.fromarray(texture).resize((640, 480)), "JPEG")
    photo = Record("photo", ImageBytes("photo.jpg", jpeg), {"en": ("a dog",)})
    found = normalised(made([photo]).pixels(np.array([0])), PREPROCESS)[0]
    np.testing.assert_allclose(found, to_pixels(photo.image, PREPROCESS), atol=1e-5)


def test_a_picture_is_decoded_once_where_memory_allows(records: list[Record], monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = made(records)
    first, again = corpus.pixels(np.array([0, 1])), corpus.pixels(np.array([1, 0]))
    assert torch.equal(first, again.flip(0))
    assert Counted.reads == {"0.png": 1, "1.png": 1}
    monkeypatch.setattr(corpus_module, "_KEPT_BYTES", 3 * 32 * 32 * 3 - 1)
    forgetful = made(records)
    forgetful.pixels(np.array([0]))
    forgetful.pixels(np.array([0]))
    assert Counted.reads["0.png"] == 3


def test_what_a_frozen_tower_saw_is_what_it_sees(records: list[Record]) -> None:
    model = tiny.retriever(tiny.PIXEL_MODELS["dual-states"])
    corpus = Corpus(records, "en", model.preprocess, tiny.tokenizer())
    told: list[tuple[str, int, int]] = []
    seen = FeatureCache.of(corpus, model, torch.device("cpu"), lambda *part: told.append(part), batch=2)
    assert seen is not None
    assert told == [("encoding images", 2, 3), ("encoding images", 3, 3)]
    with torch.no_grad():
        fresh = model.image_features(normalised(corpus.pixels(np.array([2, 0])), model.preprocess))
    kept = seen.of_images(np.array([2, 0]))
    torch.testing.assert_close(kept.pooled, fresh.pooled)
    torch.testing.assert_close(kept.patches, fresh.patches)
    torch.testing.assert_close(kept.below, fresh.below)
    assert fresh.below is not None


def test_a_frozen_tower_sees_each_image_and_changed_views_of_it(records: list[Record]) -> None:
    model = tiny.retriever(tiny.PIXEL_MODELS["dual-aligned"])
    corpus = Corpus(records, "en", model.preprocess, tiny.tokenizer())
    seen = FeatureCache.of(corpus, model, torch.device("cpu"), augment=Augment(crop=0.3, views=3), batch=2)
    assert seen is not None
    assert corpus._kept is None, "the features are all that is needed"
    itself, first, second = (seen.of_images(np.arange(3), torch.full((3,), view)).patches for view in range(3))
    with torch.no_grad():
        fresh = model.image_features(normalised(corpus.pixels(np.arange(3)), model.preprocess)).patches
    torch.testing.assert_close(itself, fresh)
    torch.testing.assert_close(seen.of_images(np.arange(3)).patches, fresh)
    assert (first - itself).abs().amax() > 1e-3
    assert (second - first).abs().amax() > 1e-3
    drawn = seen.draw(300, seed=5)
    assert torch.equal(drawn, seen.draw(300, seed=5))
    assert set(drawn.tolist()) == {0, 1, 2}


def test_captions_that_are_cut_are_counted(records: list[Record]) -> None:
    assert made([*records, record(9, ("dog " * 30,))]).truncated == 1


def test_records_without_captions_are_left_out_and_a_missing_language_is_refused(records: list[Record]) -> None:
    bare = Record("bare", records[0].image, {})
    assert len(made([*records, bare])) == 3
    with pytest.raises(DataError, match="the training data has no captions"):
        made([bare])
    with pytest.raises(DataError, match="needs captions in 'de', but has en"):
        Corpus(records, "de", PREPROCESS, tiny.tokenizer())


def recipe(few: Path, **changes: Any) -> dict[str, Any]:
    common: dict[str, Any] = {"hidden": 16, "data": {"batch_size": 12}, "schedule": {"steps": 2}}
    return shapes.recipe(few, **common | changes)


def test_a_picture_that_does_not_open_ends_the_run_by_name_with_the_way_out(tmp_path: Path) -> None:
    path = shapes.write(tmp_path / "data", shapes.cards(seed=0))
    broken = sorted((tmp_path / "data").glob("*.png"))[7]
    broken.write_bytes(broken.read_bytes()[:60])
    with pytest.raises(MediaError) as refused:
        train(parse_recipe(recipe(path), "it"), tmp_path / "run")
    assert refused.value.name == str(broken)
    assert "remove it and its captions from the training data" in refused.value.way_out


def test_the_steps_before_a_picture_that_does_not_open_are_saved(tmp_path: Path) -> None:
    path = shapes.write(tmp_path / "data", shapes.cards(seed=0))
    whole = {picture: picture.read_bytes() for picture in (tmp_path / "data").glob("*.png")}
    asked = parse_recipe(recipe(path, schedule={"steps": 6}), "it")
    undisturbed = train(asked, tmp_path / "undisturbed")

    def damage(entry: dict[str, Any]) -> None:
        for picture in whole if entry["step"] == 2 else ():
            picture.write_bytes(b"")

    with pytest.raises(MediaError):
        train(asked, tmp_path / "run", report=damage)
    step = saved_step(tmp_path / "run" / "last")
    assert 2 <= step < 6
    assert len((tmp_path / "run" / "log.jsonl").read_text().splitlines()) == step
    for picture, data in whole.items():
        picture.write_bytes(data)
    resumed = train(asked, tmp_path / "run", resume=True)
    expected, found = (checkpoint.load(one.folder)[0].state_dict() for one in (undisturbed, resumed))
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_a_limit_takes_as_many_pictures_others_for_another_seed(few: Path) -> None:
    def keys(**changes: Any) -> list[str]:
        return [record.key for record in training_records(parse_recipe(recipe(few, **changes), "it"))[0]]

    assert len(keys()) == 24
    chosen = keys(data={"limit": 5})
    assert len(set(chosen)) == 5
    assert chosen == keys(data={"limit": 5})
    assert chosen != keys(data={"limit": 5}, seed=1)
    assert keys(data={"limit": 6})[:5] == chosen, "a larger share should hold the smaller one"
    with pytest.raises(RecipeError, match=r"data\.limit is 25, but there are only 24"):
        keys(data={"limit": 25})


def test_of_data_that_names_its_splits_only_the_right_one_is_used(few: Path, tmp_path: Path) -> None:
    """Whoever names a whole data set must not train on its test pictures."""
    splits = ["train"] * 14 + ["val"] * 4 + ["test"] * 6
    random.Random(0).shuffle(splits)
    whole = few.parent / "whole.jsonl"
    lines = [json.loads(line) for line in few.read_text().splitlines()]
    whole.write_text(
        "".join(json.dumps({**line, "split": split}) + "\n" for line, split in zip(lines, splits, strict=True))
    )
    asked = parse_recipe(recipe(whole, val=whole), "it")
    assert [[record.split for record in source] for source in training_records(asked)] == [["train"] * 14]
    assert {record.split for record in validation_records(asked)["val"]} == {"val"}
    unnamed = parse_recipe(recipe(few, val=few), "it")
    assert len(training_records(unnamed)[0]) == len(validation_records(unnamed)["val"]) == len(read_all(few)) == 24
    whole.unlink()


def test_a_validation_set_can_be_limited_to_images_that_are_evenly_spaced(few: Path) -> None:
    def limited(limit: int) -> list[str]:
        val = [{"name": "val", "data": [str(few)], "limit": limit}]
        asked = parse_recipe(shapes.recipe(few, few, data={"val": val}), "it")
        return [record.image.name for record in validation_records(asked)["val"]]

    every = limited(0)
    assert limited(24) == every
    assert limited(6) == every[::4]
    assert limited(5) == [every[i] for i in (0, 4, 9, 14, 19)]
    with pytest.raises(RecipeError, match=r"data\.val\.val\.limit is 25, but there are only 24 images"):
        limited(25)


@pytest.mark.parametrize("streaming", [False, True])
def test_data_without_a_train_split_is_not_trained_on(few: Path, streaming: bool) -> None:
    held_out = few.parent / "held-out.jsonl"
    lines = [json.loads(line) for line in few.read_text().splitlines()]
    held_out.write_text("".join(json.dumps({**line, "split": "test"}) + "\n" for line in lines))
    asked = parse_recipe(recipe(held_out, val=few, data={"streaming": streaming}), "it")
    with pytest.raises(SightlineError, match=r"has no train split, only test|no captioned images to train on"):
        train(asked, few.parent / "run")
    held_out.unlink()
    assert not (few.parent / "run").exists()


def test_several_files_are_read_as_one_data_set(few: Path, tmp_path: Path) -> None:
    """Two folders may use the same names for different images, but one image may not be listed twice."""
    places = []
    for name in ("one", "other"):
        shutil.copytree(few.parent, tmp_path / name)
        places.append(str(tmp_path / name / few.name))
    asked = parse_recipe(recipe(few, data={"train": places, "val": places}), "it")
    (found,), val = training_records(asked), validation_records(asked)["val"]
    assert len({record.key for record in found}) == len({record.key for record in val}) == 48
    check_validation_records(asked, val, PREPROCESS)
    twice = parse_recipe(recipe(few, data={"train": [str(few), str(few)]}), "it")
    with pytest.raises(DataError, match=r"list each image once[\s\S]*\nRepair or remove it\.$"):
        training_records(twice)


def test_a_loss_that_is_not_finite_ends_the_run_before_it_spoils_the_weights(few: Path, tmp_path: Path) -> None:
    wild = {"lr": 1e30, "clip": 0.0}
    with pytest.raises(SightlineError, match=r'the loss "embed" is nan at step 2\nLower the learning rate'):
        train(parse_recipe(recipe(few, optimizer=wild), "it"), tmp_path / "run", save_every=100)
    assert not (tmp_path / "run" / "last").exists()


def test_a_gradient_that_is_not_finite_ends_the_run_too(
    few: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", lambda *_: torch.tensor(float("inf")))
    with pytest.raises(SightlineError, match="the gradient is inf at step 1"):
        train(parse_recipe(recipe(few), "it"), tmp_path / "run")


def test_a_validation_that_the_model_cannot_do_is_refused_at_the_start(few: Path, tmp_path: Path) -> None:
    asked = recipe(few, val=few, model={"matcher": "none"}, validation={"rerank": 5})
    with pytest.raises(ModelError, match="has no matcher, so `rerank`"):
        train(parse_recipe(asked, "it"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_batch_larger_than_the_data_is_refused_and_a_part_of_an_epoch_is_at_least_a_step(
    few: Path, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="batches of 25 cannot be drawn from only 24"):
        train(parse_recipe(recipe(few, data={"batch_size": 25}), "it"), tmp_path / "run")
    short = train(parse_recipe(recipe(few, schedule={"epochs": 0.01}), "it"), tmp_path / "short")
    assert short.steps == 1
    epochs = train(parse_recipe(recipe(few, schedule={"epochs": 1}), "it"), tmp_path / "epochs")
    assert epochs.steps == 4  # 48 captions in batches of 12
