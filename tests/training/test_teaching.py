"""A teacher in a run: what it says of a batch, whom it can teach, and that students learn."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from sightline.datasets import read_all
from sightline.errors import ModelError, RecipeError
from sightline.losses.interaction import maxsim
from sightline.models import checkpoint
from sightline.models.retriever import Tokens
from sightline.training.captions import DrawnBatch
from sightline.training.corpus import Corpus, normalised
from sightline.training.distributed import World
from sightline.training.recipe import Recipe, parse_recipe
from sightline.training.setup import make_losses
from sightline.training.teacher import EncodingCache, Teacher, find_teacher
from sightline.training.trainer import train
from sightline.training.vocabulary import learn_tokenizer
from training import region_cards, shapes

CPU = torch.device("cpu")
DISTILL = {"shrink": {"loss": "distill", "teacher_temperature": 1.0, "student_temperature": 0.1}}
PAIRS = np.array([[3, 0], [3, 1], [7, 0], [1, 1], [20, 0]])


def student(few: Path, model: Path, by: str = "fragments", **changes: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "hidden": 16,
        "data": {"batch_size": 12},
        "losses": DISTILL,
        "schedule": {"steps": 3},
        "teacher": {"model": str(model), "by": by, "chunk": 3},
    }
    return shapes.recipe(few, **{**made, **changes})


def other(few: Path, out: Path, **preprocess: Any) -> Path:
    """A model with a smaller vocabulary, shorter texts, and other preprocessing than the student's."""
    data = shapes.recipe(few, hidden=16, schedule={"steps": 1}, data={"batch_size": 8})
    data["model"]["preprocess"] |= preprocess
    data["model"]["image"]["config"]["image_size"] = data["model"]["preprocess"]["size"]
    data["model"]["text"]["config"]["vocab_size"] = 40
    data["model"]["text_input"] = {"max_length": 6}
    data["losses"] = shapes.ALL
    return train(parse_recipe(data, "other"), out).folder


def opened(recipe: Recipe) -> tuple[Teacher, Corpus]:
    """The teacher of a recipe, and the student's corpus."""
    records = read_all(recipe.data.train[0])
    model = checkpoint.build(recipe.model_config())
    tokenizer = learn_tokenizer((text for record in records for text in record.captions_in("en")), 60, 9)
    corpus = Corpus(records, "en", model.preprocess, tokenizer)
    teacher = find_teacher(recipe, records, corpus, CPU, World())
    assert teacher is not None
    return teacher, corpus


@torch.inference_mode()
def said(folder: str, batch: DrawnBatch, corpus: Corpus, by: str, pixels: Tensor | None = None) -> Tensor:
    """What a checkpoint says of a batch, encoded on the spot from the captions' words."""
    model, tokenizer = checkpoint.load(folder)
    model.eval()
    texts_of = [text for record in corpus.records for text in record.captions_in("en")]
    tokens = tokenizer([texts_of[number] for number in batch.captions])
    text = model.encode_texts(Tokens(torch.from_numpy(tokens.ids), torch.from_numpy(tokens.mask)))
    if pixels is None:
        own = Corpus(corpus.records, "en", model.preprocess, tokenizer)
        pixels = own.pixels(batch.images)
    image = model.encode_images(normalised(pixels, model.preprocess))
    if by == "embedding":
        return text.embedding @ image.embedding.T
    if by == "fragments":
        return maxsim(text.fragments, text.mask, image.fragments, image.mask)
    assert text.states is not None
    assert image.states is not None
    rows = [
        model.match(*(part.expand(len(batch.images), *part.shape) for part in one), image.states, image.mask)
        for one in zip(text.states, text.mask, strict=True)
    ]
    return torch.stack(rows)


@pytest.mark.parametrize("by", ["embedding", "fragments", "match"])
def test_its_scores_are_those_of_the_model_for_every_text_with_every_picture(
    few: Path, teacher: Path, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = parse_recipe(student(few, teacher, by), "it")
    remembering, corpus = opened(recipe)
    batch = corpus.draw(PAIRS)
    expected = said(str(teacher), batch, corpus, by)
    assert expected.shape == (5, 4)
    assert expected.std() > 1e-3
    torch.testing.assert_close(remembering.scores(batch), expected, rtol=1e-4, atol=1e-5)
    monkeypatch.setattr(EncodingCache, "LIMIT", 0)
    torch.testing.assert_close(opened(recipe)[0].scores(batch), expected, rtol=1e-4, atol=1e-5)


def test_a_matching_teacher_reads_no_more_padding_than_the_longest_text_of_a_chunk_needs(
    few: Path, teacher: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = parse_recipe(student(few, teacher, "match"), "it")
    matching, corpus = opened(recipe)
    batch = corpus.draw(PAIRS)
    match, read = matching.model.match, []

    def recorded(text: Tensor, mask: Tensor, *image: Tensor) -> Tensor:
        read.append((text.shape[1], int(mask.sum(1).max())))
        return match(text, mask, *image)

    monkeypatch.setattr(matching.model, "match", recorded)
    matching.scores(batch)
    assert len({longest for _, longest in read}) > 1
    assert all(width == longest for width, longest in read)


def test_it_encodes_every_item_once_and_no_more(few: Path, teacher: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, corpus = opened(parse_recipe(student(few, teacher), "it"))
    monkeypatch.setattr(found.model, "encode_images", None)
    monkeypatch.setattr(found.model, "encode_texts", None)
    assert found.scores(corpus.draw(PAIRS)).shape == (5, 4)
    assert not any(module.training for module in found.model.modules())
    assert not any(parameter.requires_grad for parameter in found.model.parameters())


def test_it_sees_the_crops_that_the_student_sees(few: Path, teacher: Path) -> None:
    found, corpus = opened(parse_recipe(student(few, teacher, augment={"crop": 0.5}), "it"))
    batch = corpus.draw(PAIRS)
    crops = corpus.pixels(batch.images).flip(-1).float()
    expected = said(str(teacher), batch, corpus, "fragments", crops)
    torch.testing.assert_close(found.scores(batch, crops), expected, rtol=1e-4, atol=1e-5)
    assert (expected - said(str(teacher), batch, corpus, "fragments")).abs().max() > 1e-3


@pytest.mark.parametrize("augments", [True, False])
def test_in_a_run_it_is_shown_what_the_student_is_shown(
    few: Path, teacher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, augments: bool
) -> None:
    shown: list[tuple[DrawnBatch, Tensor | None]] = []

    def scores(_: Teacher, batch: DrawnBatch, pixels: Tensor | None = None) -> Tensor:
        shown.append((batch, pixels))
        return torch.zeros(len(batch.text_images), len(batch.images))

    monkeypatch.setattr(Teacher, "scores", scores)
    changes: dict[str, Any] = {"augment": {"crop": 0.5, "flip": 0.0}} if augments else {}
    train(parse_recipe(student(few, teacher, **changes), "it"), tmp_path / "run")
    assert len(shown) == 3
    for batch, pixels in shown:
        if not augments:
            assert pixels is None
            continue
        assert pixels is not None
        whole = opened(parse_recipe(student(few, teacher), "it"))[1].pixels(batch.images).float()
        assert pixels.shape == whole.shape
        assert (pixels - whole).abs().mean() > 1


def test_it_reads_with_its_own_tokenizer_and_sees_in_its_own_way(few: Path, tmp_path: Path) -> None:
    folder = other(few, tmp_path / "other", size=64, resize="crop", mean=[0.4, 0.4, 0.4])
    recipe = parse_recipe(student(few, folder), "it")
    found, corpus = opened(recipe)
    batch = corpus.draw(PAIRS)
    expected = said(str(folder), batch, corpus, "fragments")
    torch.testing.assert_close(found.scores(batch), expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(RecipeError, match="sizes images differently"):
        opened(parse_recipe(student(few, folder, augment={"crop": 0.5}), "it"))


def test_a_teacher_with_another_mean_sees_the_same_crops(few: Path, tmp_path: Path) -> None:
    folder = other(few, tmp_path / "other", mean=[0.3, 0.4, 0.5])
    found, corpus = opened(parse_recipe(student(few, folder, augment={"crop": 0.5}), "it"))
    batch = corpus.draw(PAIRS)
    crops = corpus.pixels(batch.images).flip(-1).float()
    expected = said(str(folder), batch, corpus, "fragments", crops)
    torch.testing.assert_close(found.scores(batch, crops), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"teacher": None}, "losses.shrink: distill learns from a teacher, but there is none"),
        ({"losses": {"embed": {"loss": "triplet"}}}, "teacher: no loss uses the teacher"),
        ({"teacher": {"model": "nowhere", "by": "states"}}, "teacher.by: 'states' is not an allowed value"),
        ({"teacher": {"model": "nowhere", "chunk": 0}}, "teacher.chunk cannot be 0"),
        ({"teacher": {"by": "match"}}, '"model" is missing'),
    ],
)
def test_a_recipe_whose_teacher_makes_no_sense_is_refused(few: Path, change: dict[str, Any], said: str) -> None:
    data = {**student(few, Path("runs/earlier/best")), **change}
    with pytest.raises(RecipeError) as refused:
        make_losses(parse_recipe({key: value for key, value in data.items() if value is not None}, "it"))
    assert said in str(refused.value)


def test_a_teacher_that_is_not_there_or_cannot_do_it_is_refused(few: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="nowhere: no such folder"):
        train(parse_recipe(student(few, tmp_path / "nowhere"), "it"), tmp_path / "run")
    plain = shapes.recipe(few, hidden=16, schedule={"steps": 1}, data={"batch_size": 8}, model={"matcher": "none"})
    folder = train(parse_recipe(plain, "plain"), tmp_path / "plain").folder
    matching = student(few, folder, "match")
    with pytest.raises(RecipeError, match='cannot compare images with texts by "match"') as refused:
        train(parse_recipe(matching, "it"), tmp_path / "run")
    assert refused.value.way_out == "Set teacher.by to one of embedding, or choose another teacher."


def test_a_student_of_regions_has_no_teacher(teacher: Path, tmp_path: Path) -> None:
    store = region_cards.store(tmp_path / "store", 0)
    taught = region_cards.recipe(store, losses=DISTILL, teacher={"model": str(teacher)})
    with pytest.raises(RecipeError, match="reads pixels, but the model reads regions"):
        train(parse_recipe(taught, "it"), tmp_path / "run")


def test_what_frozen_encoders_do_before_the_first_step_is_told(few: Path, teacher: Path, tmp_path: Path) -> None:
    frozen = student(few, teacher, schedule={"steps": 1}, optimizer={"rates": {"image": 0.0}})
    told: list[tuple[str, int, int]] = []
    train(parse_recipe(frozen, "it"), tmp_path / "run", on_prepare=lambda *part: told.append(part))
    assert told == [("encoding images", 24, 24), ("reading as teacher", 48, 48), ("looking as teacher", 24, 24)]


def losses(out: Path) -> list[float]:
    return [json.loads(line)["loss"]["shrink"] for line in (out / "log.jsonl").read_text().splitlines()]


def test_a_student_comes_to_agree_with_its_teacher_which_stays_as_it_is(
    few: Path, teacher: Path, tmp_path: Path
) -> None:
    before = checkpoint.load(teacher)[0].state_dict()
    data = student(few, teacher, schedule={"steps": 60, "warmup": 0.1}, data={"batch_size": 24}, optimizer={"lr": 3e-3})
    train(parse_recipe(data, "it"), tmp_path / "run")
    found = losses(tmp_path / "run")
    assert min(found[:3]) > 5 * max(found[-3:])
    after = checkpoint.load(teacher)[0].state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_codes_of_a_frozen_tower_are_trained(few: Path, tmp_path: Path) -> None:
    """What such a tower sees must not be remembered: it changes with its codes."""
    fragments = {"late": {"loss": "triplet", "on": "fragments", "margin": 0.6, "negatives": "sum"}}
    data = shapes.recipe(
        few, few, hidden=16, data={"batch_size": 12}, losses=fragments, schedule={"steps": 2, "decay": "constant"},
        model={"codes": 2, "matcher": "none"}, optimizer={"lr": 1e-3, "rates": {"image": 0.0}},
        validation={"late": 100},
    )  # fmt: skip
    recipe = parse_recipe(data, "it")
    trained = train(recipe, tmp_path / "run")
    torch.manual_seed(recipe.seed)
    start, end = checkpoint.build(recipe.model_config()).state_dict(), checkpoint.load(trained.folder)[0].state_dict()
    moved = {name for name in start if not torch.equal(start[name], end[name])}
    assert {"image.codes", "text_codes"} <= moved
    assert not any(name.startswith("image.encoder") for name in moved)
    assert trained.evaluation is not None
    assert trained.evaluation.stages == ("embed", "late@100")
