"""An image side with a transformer of its own: [CLS] and places, buildable from a recipe, trained apart."""

import dataclasses
from typing import Any

import pytest
import torch

import tiny
from sightline.errors import ModelError
from sightline.models import DualStream, DualStreamConfig, RelationConfig, TowerConfig, towers
from sightline.models.aligned_matcher import AlignedStates
from sightline.models.checkpoint import build
from sightline.models.masking import see_with_gaps

READER = tiny.PIXEL_MODELS["dual-reader"]
PIXELS = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(3))
assert isinstance(READER, DualStreamConfig)


@pytest.fixture
def model() -> DualStream:
    made = tiny.retriever(READER)
    assert isinstance(made, DualStream)
    return made


def test_its_embedding_is_the_cls_and_its_fragments_are_what_was_read(model: DualStream) -> None:
    assert model.image_reader is not None
    encoded, seen = model.encode_images(PIXELS), model.image_features(PIXELS)
    read = model.image_reader(seen.patches)
    torch.testing.assert_close(encoded.embedding, model.image_embedding(read[:, 0]))
    torch.testing.assert_close(encoded.fragments, model.image_fragments(read[:, 1:]))
    torch.testing.assert_close(model.encode_images(seen).embedding, encoded.embedding)


def test_fragments_are_read_at_their_places(model: DualStream) -> None:
    """Without positions, [CLS] would not see which of two fragments is above the other."""
    assert model.image_reader is not None
    patches = model.image_features(PIXELS).patches
    one, other = (model.image_reader(some)[:, 0] for some in (patches, patches.flip(1)))
    assert (one - other).abs().max() > 1e-3


@torch.inference_mode()
def test_its_outputs_can_be_averaged_and_matched() -> None:
    made = tiny.retriever(tiny.PIXEL_MODELS["dual-reader-aligned"])
    assert isinstance(made, DualStream)
    assert made.image_reader is not None
    read = made.image_reader(made.image_features(PIXELS).patches)[:, 1:]
    encoded = made.encode_images(PIXELS)
    torch.testing.assert_close(encoded.embedding, made.image_embedding(read.mean(1)))
    assert isinstance(made.image_states, AlignedStates)
    torch.testing.assert_close(encoded.states, made.image_states(read))


@torch.inference_mode()
def test_codes_are_not_averaged() -> None:
    config = dataclasses.replace(tiny.INFLATED_MODELS["dual-reader-clusters"], image_pooling="mean")
    made = tiny.retriever(config)
    assert isinstance(made, DualStream)
    assert made.image_reader is not None
    read = made.image_reader(made.image_features(PIXELS).patches)
    torch.testing.assert_close(made.encode_images(PIXELS).embedding, made.image_embedding(read[:, 1:6].mean(1)))


@torch.inference_mode()
def test_a_new_aligned_matcher_gets_the_readers_outputs_unchanged() -> None:
    made = DualStream(tiny.PIXEL_MODELS["dual-reader-aligned"])  # type: ignore[arg-type]
    assert isinstance(made.image_states, AlignedStates)
    states = torch.randn(2, 4, 24)
    torch.testing.assert_close(made.image_states(states), states)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"image_reader": None, "image_pooling": "first"}, "no matcher or no image_reader"),
        ({"image_reader": None, "matcher_reads_image": "patches"}, "no image_reader whose outputs could be averaged"),
        ({"matcher": "none", "matcher_layers": 0}, "no matcher or no image_reader"),
        ({"relations": RelationConfig(), "fragment_dim": 16}, "relations compute the embedding from the fragments"),
        ({"matcher_layer": 1}, "matcher_layer is 1, but the matcher reads the output of the image_reader"),
    ],
)
def test_outputs_of_a_missing_reader_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        dataclasses.replace(tiny.PIXEL_MODELS["dual-reader-aligned"], **changes)


@torch.inference_mode()
def test_clusters_are_made_before_it_reads_and_codes_enter_it_behind_them() -> None:
    made = tiny.retriever(tiny.INFLATED_MODELS["dual-reader-clusters"])
    assert isinstance(made, DualStream)
    assert made.image_reader is not None
    assert made.image.codes is None
    seen, encoded = made.image_features(PIXELS), made.encode_images(PIXELS)
    assert seen.patches.shape == (2, 5, 32)
    read = made.image_reader(seen.patches)
    assert read.shape == (2, 1 + 5 + 2, 24)
    torch.testing.assert_close(encoded.embedding, made.image_embedding(read[:, 0]))
    torch.testing.assert_close(encoded.fragments, made.image_fragments(read[:, 1:]))
    assert encoded.mask.shape == (2, 7)
    assert encoded.mask.all()


@torch.inference_mode()
def test_the_first_fragments_are_cls_and_the_first_clusters_and_no_codes() -> None:
    config = tiny.INFLATED_MODELS["dual-reader-clusters"]
    few, whole = tiny.retriever(dataclasses.replace(config, fragments=3)), tiny.retriever(config)
    some, everything = few.encode_images(PIXELS), whole.encode_images(PIXELS)
    assert everything.pooled is not None
    torch.testing.assert_close(some.fragments[:, 0], few.image_fragments(everything.pooled))
    torch.testing.assert_close(some.fragments[:, 1:], everything.fragments[:, :2])
    torch.testing.assert_close(some.embedding, everything.embedding)
    five = tiny.retriever(dataclasses.replace(config, fragments=5)).encode_images(PIXELS)
    assert five.fragments.shape == (2, 5, 8)


@torch.inference_mode()
def test_gaps_are_guessed_for_clusters_and_not_for_codes() -> None:
    made = tiny.retriever(tiny.INFLATED_MODELS["dual-reader-clusters"])
    assert isinstance(made, DualStream)
    hidden = torch.zeros(2, 5, dtype=torch.bool)
    guessed = see_with_gaps(made, made.image_features(PIXELS), hidden)
    assert guessed.shape == (2, 5, 24)
    assert made.image_reader is not None
    torch.testing.assert_close(guessed, made.image_reader(made.image_features(PIXELS).patches)[:, 1:6])


def test_the_frozen_tower_stays_out_of_its_training(model: DualStream) -> None:
    model.image.requires_grad_(False)
    model.encode_images(PIXELS).embedding.sum().backward()
    assert all(parameter.grad is None for parameter in model.image.parameters())
    assert model.parts().keys() == {"image", "image_reader", "text"}
    assert all(p.grad is not None for p in towers.layers(model.parts()["image_reader"]).parameters())


def test_it_has_twelve_layers_if_so_configured() -> None:
    config = dataclasses.replace(
        READER,
        text=TowerConfig(config={**tiny.TEXT, "num_hidden_layers": 12}),
        image_reader=TowerConfig(config={**tiny.TEXT, "num_hidden_layers": 12, "hidden_size": 16}),
    )
    made = build(config)
    assert [len(towers.layers(made.parts()[name])) for name in ("text", "image_reader")] == [12, 12]
    assert made.encode_images(PIXELS).embedding.shape == (2, 16)


def test_what_it_cannot_read_is_refused() -> None:
    with pytest.raises(ModelError, match="codes enter the image_reader"):
        dataclasses.replace(READER, codes=2, codes_layer=1)
    with pytest.raises(ModelError, match=r'a matcher \("shared"\) reads the output of the image tower'):
        dataclasses.replace(READER, codes=2, matcher="shared")
    with pytest.raises(ModelError, match="5 tokens need more than the 5 positions"):
        build(dataclasses.replace(READER, image_reader=TowerConfig(config={**tiny.TEXT, "max_position_embeddings": 5})))
    vision = TowerConfig(config=tiny.VISION)
    with pytest.raises((ModelError, AttributeError)):
        build(dataclasses.replace(READER, image_reader=vision))


@pytest.mark.parametrize(("frozen", "count"), [(0, 0), (1, 1), (3, 3)])
def test_frozen_layers_are_counted_with_all_that_is_below_them(frozen: int, count: int) -> None:
    encoder, _ = towers.build(TowerConfig(config=tiny.VISION), "vision")
    if frozen:
        for parameter in towers.before(encoder, frozen):
            parameter.requires_grad_(False)
    assert towers.frozen_layers(encoder) == count


def test_a_frozen_layer_above_a_trained_one_does_not_count() -> None:
    encoder, _ = towers.build(TowerConfig(config=tiny.VISION), "vision")
    towers.layers(encoder).requires_grad_(False)
    assert towers.frozen_layers(encoder) == 0  # the embeddings are trained
    encoder.requires_grad_(False)
    assert towers.frozen_layers(encoder) == 4
