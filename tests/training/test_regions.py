"""A model of regions goes the whole way of the others: trained, evaluated, exported, indexed with and searched with."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import sightline
import tiny
from kernels.agreeing import assert_graphs_agree
from sightline.bundle import Bundle
from sightline.cli import app
from sightline.datasets import read_all
from sightline.datasets.regions import write_regions
from sightline.errors import DataError, EvaluationError, MediaError, RecipeError
from sightline.evaluation import evaluate
from sightline.media import RegionConfig, stack_inputs
from sightline.models.torch_model import TorchModel
from sightline.training.recipe import parse_recipe
from sightline.training.trainer import Trained, train
from training import region_cards, shapes


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("stores")
    return region_cards.store(folder / "train", 0, copies=8), region_cards.store(folder / "test", 1, split="test")


@pytest.fixture(scope="module")
def trained(stores: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Trained:
    recipe = region_cards.recipe(
        *stores,
        model={"codes": 2},
        losses=shapes.ALL,
        schedule={"steps": 150, "warmup": 0.1, "run": "pattern", "pattern": shapes.PATTERN},
    )
    return train(parse_recipe(recipe, "regions"), tmp_path_factory.mktemp("run") / "run")


@pytest.fixture(scope="module")
def bundle(trained: Trained, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundle") / "regions"
    done = CliRunner().invoke(app, ["export", str(trained.folder), "--out", str(folder)])
    assert done.exit_code == 0, done.output
    return folder


def test_recall_rises_from_chance_on_pictures_never_seen(
    stores: tuple[Path, Path], trained: Trained, tmp_path: Path
) -> None:
    untrained = train(parse_recipe(region_cards.recipe(*stores), "regions"), tmp_path / "run", stop_after=1)
    begin = evaluate(TorchModel.open(untrained.folder), read_all(stores[1]))
    assert begin.images == 24
    assert begin.text_to_image["R@1"] < 20  # chance is 1 in 24
    assert trained.evaluation is not None
    assert trained.evaluation.text_to_image["R@1"] > 80
    assert trained.evaluation.image_to_text["R@1"] > 80


@pytest.mark.parametrize("kind", ["checkpoint", "bundle"])
def test_eval_measures_it_like_any_other(
    kind: str, stores: tuple[Path, Path], trained: Trained, bundle: Path, tmp_path: Path
) -> None:
    model = trained.folder if kind == "checkpoint" else bundle
    options = ["--late", "10", "--rerank", "5", "--json", str(tmp_path / "result.json")]
    done = CliRunner().invoke(app, ["eval", str(model), str(stores[1]), *options])
    assert done.exit_code == 0, done.output
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["stages"] == ["embed", "late@10", "match@5"]
    assert (result["images"], result["captions"]) == (24, 48)
    assert result["text_to_image"]["R@10"] > 80


def test_a_store_is_indexed_and_searched_by_words(stores: tuple[Path, Path], bundle: Path, tmp_path: Path) -> None:
    photos = Path(shutil.copytree(stores[1], tmp_path / "photos"))
    report = sightline.index(photos, model=bundle)
    assert (report.new, report.broken, report.at) == (24, [], photos / ".sightline")
    right = 0
    with sightline.open(photos) as collection:
        for colour in region_cards.COLOURS:
            result = collection.search(f"a {colour} star", k=1, rerank=0)
            right += result[0].path == f"test-0-{colour}-star.jpg"
        reranked = collection.search("a red star", k=3, rerank=5)
    assert right >= 5
    assert {hit.stage for hit in reranked} == {"match"}
    again = sightline.index(photos, model=bundle)
    assert (again.new, again.encoded, again.deleted) == (0, 0, 0)


def test_pictures_that_leave_a_store_leave_its_collection(bundle: Path, tmp_path: Path) -> None:
    region_cards.store(tmp_path / "photos", 1)
    sightline.index(tmp_path / "photos", at=tmp_path / "at", model=bundle)
    shutil.rmtree(tmp_path / "photos")
    kept = list(region_cards.found(1))[:20]
    write_regions(kept, tmp_path / "photos")
    report = sightline.index(at=tmp_path / "at", model=bundle)
    assert (report.deleted, report.encoded) == (4, 0)
    (tmp_path / "photos" / "features.bin").write_bytes(b"")
    assert sightline.index(at=tmp_path / "at", model=bundle).deleted == 0


def test_pictures_are_broken_items_for_a_model_of_regions(bundle: Path, tmp_path: Path) -> None:
    shapes.write(tmp_path / "photos", list(shapes.cards(0))[:2])
    report = sightline.index(tmp_path / "photos", model=bundle)
    assert (report.new, len(report.broken)) == (0, 2)
    assert "this model reads regions" in report.broken[0].reason
    with sightline.open(tmp_path / "photos") as collection, pytest.raises(MediaError, match="reads regions"):
        collection.search(image=next((tmp_path / "photos").glob("*.png")))


def test_a_bundle_encodes_and_matches_regions_as_its_model_does(trained: Trained, bundle: Path) -> None:
    """One with codes, so that an item has more fragments than regions."""
    model, exported = TorchModel.open(trained.folder), Bundle.open(bundle)
    assert_graphs_agree(bundle)
    assert isinstance(exported.preprocess, RegionConfig)
    assert exported.preprocess == model.preprocess
    chance, width = np.random.default_rng(0), exported.preprocess.width
    batch = stack_inputs([chance.standard_normal((count, width)).astype(np.float32) for count in (4, 1, 6, 4)])
    one, other = exported.encode_images(batch), model.encode_images(batch)
    assert one.mask.sum(axis=1).tolist() == other.mask.sum(axis=1).tolist() == [6, 3, 8, 6]
    np.testing.assert_allclose(one.embedding, other.embedding, atol=1e-4)
    for row in range(len(batch)):
        np.testing.assert_allclose(one.row(row).fragments, other.row(row).fragments, atol=1e-4)
    texts = exported.encode_texts(["a dog", "the red ball", "cat", "two"])
    parts = (texts.states, texts.mask)
    np.testing.assert_allclose(
        exported.match(*parts, one.states, one.mask), model.match(*parts, other.states, other.mask), atol=1e-4
    )


def test_a_batch_that_is_encoded_in_chunks_has_the_losses_of_the_whole(
    stores: tuple[Path, Path], tmp_path: Path
) -> None:
    def losses(chunk: int) -> list[float]:
        data = region_cards.recipe(stores[0], schedule={"steps": 3}, optimizer={"lr": 1e-3, "chunk": chunk})
        train(parse_recipe(data, "regions"), tmp_path / str(chunk))
        lines = (tmp_path / str(chunk) / "log.jsonl").read_text().splitlines()
        return [json.loads(line)["loss"]["embed"] for line in lines]

    assert losses(0) == pytest.approx(losses(2), rel=1e-4)


def test_batches_by_tokens_and_regions_count_the_regions_of_each_picture(
    stores: tuple[Path, Path], tmp_path: Path
) -> None:
    data = {"draw": "pairs", "batch_tokens": 120}
    recipe = parse_recipe(region_cards.recipe(stores[0], data=data, schedule={"steps": 2}), "regions")
    assert train(recipe, tmp_path / "run").steps == 2


def test_what_cannot_be_trained_is_refused_before_the_first_step(stores: tuple[Path, Path], tmp_path: Path) -> None:
    pixels = shapes.write(tmp_path / "pictures", shapes.cards(seed=0))
    with pytest.raises(DataError, match="an image, but the model reads regions"):
        train(parse_recipe(region_cards.recipe(pixels), "regions"), tmp_path / "one")
    augmented = region_cards.recipe(stores[0], augment={"flip": 0.5})
    with pytest.raises(RecipeError, match="reads regions"):
        train(parse_recipe(augmented, "regions"), tmp_path / "two")
    with pytest.raises(DataError, match="regions, but the model reads pixels"):
        train(parse_recipe(shapes.recipe(stores[0], hidden=16, data={"batch_size": 8}), "pixels"), tmp_path / "three")
    for name, dim in (("four", region_cards.DIM + 4), ("five", 2048)):
        wide = region_cards.recipe(stores[0])
        wide["model"]["regions"]["feature_dim"] = dim
        with pytest.raises(
            RecipeError, match=rf"has {region_cards.DIM} numbers per region[^$]*feature_dim = {region_cards.DIM}"
        ):
            train(parse_recipe(wide, "regions"), tmp_path / name)
    with pytest.raises(EvaluationError, match="such as the regions of a picture"):
        evaluate(TorchModel(tiny.retriever(tiny.DUAL), tiny.tokenizer(), "pixels"), read_all(stores[1]))
