import dataclasses

import pytest
import torch

import tiny
from sightline.errors import ModelError
from sightline.models import DualStream, Regions, SingleStream, SingleStreamConfig, Tokens, TowerConfig
from sightline.models.retriever import Retriever

TOKENS = Tokens(torch.tensor([[2, 6, 9, 3], [2, 11, 8, 3]]), torch.ones(2, 4, dtype=torch.bool))
PIXELS = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(3))


def score(model: Retriever) -> torch.Tensor:
    text, image = model.encode_texts(TOKENS), model.encode_images(PIXELS)
    assert text.states is not None
    assert image.states is not None
    return model.match(text.states, text.mask, image.states, image.mask)


@pytest.mark.parametrize("name", tiny.PIXEL_MODELS)
@torch.inference_mode()
def test_embeddings_and_fragments_have_unit_length_and_the_promised_shapes(name: str) -> None:
    model = tiny.retriever(tiny.PIXEL_MODELS[name])
    assert model.grid is not None
    for encoded, count in (
        (model.encode_images(PIXELS), model.grid[0] * model.grid[1]),
        (model.encode_texts(TOKENS), 4),
    ):
        assert encoded.embedding.shape == (2, 24 if name == "single-mean" else 16)
        assert encoded.fragments.shape == (2, count, 8)
        assert encoded.mask.shape == (2, count)
        torch.testing.assert_close(encoded.embedding.norm(dim=-1), torch.ones(2))
        torch.testing.assert_close(encoded.fragments.norm(dim=-1), torch.ones(2, count))


def test_a_shared_matcher_is_the_text_tower_and_trains_it() -> None:
    model = tiny.retriever(tiny.PIXEL_MODELS["dual-shared"])
    assert isinstance(model, DualStream)
    assert model.matcher is model.text
    score(model).sum().backward()
    assert model.text.encoder.encoder.layer[0].output.dense.weight.grad.abs().sum() > 0


def test_an_own_matcher_that_reads_words_leaves_the_text_towers_layers_alone() -> None:
    model = tiny.retriever(tiny.PIXEL_MODELS["dual-own"])
    assert isinstance(model, DualStream)
    assert model.own_matcher is not None
    score(model).sum().backward()
    assert model.text.encoder.encoder.layer[0].output.dense.weight.grad is None
    assert model.own_matcher.encoder.encoder.layer[0].output.dense.weight.grad.abs().sum() > 0
    assert model.image.encoder.encoder.layers[0].mlp.fc1.weight.grad.abs().sum() > 0


def test_an_own_matcher_that_reads_states_continues_the_text_tower() -> None:
    model = tiny.retriever(tiny.PIXEL_MODELS["dual-states"])
    assert isinstance(model, DualStream)
    score(model).sum().backward()
    assert model.text.encoder.encoder.layer[0].output.dense.weight.grad.abs().sum() > 0


def test_one_transformer_serves_both_sides_of_a_single_stream() -> None:
    model = tiny.retriever(tiny.SINGLE)
    assert isinstance(model, SingleStream)
    weight = model.transformer.encoder.encoder.layer[0].output.dense.weight
    for loss in (model.encode_images(PIXELS).embedding, model.encode_texts(TOKENS).embedding, score(model)):
        (gradient,) = torch.autograd.grad(loss.sum(), weight)
        assert gradient.abs().sum() > 0


@pytest.mark.parametrize("name", ["dual-shared", "dual-own", "dual-states", "single"])
@torch.inference_mode()
def test_a_match_depends_on_both_sides(name: str) -> None:
    model = tiny.retriever(tiny.PIXEL_MODELS[name])
    text, image = model.encode_texts(TOKENS), model.encode_images(PIXELS)
    assert text.states is not None
    assert image.states is not None
    right = model.match(text.states, text.mask, image.states, image.mask)
    other_image = model.match(text.states, text.mask, image.states.flip(0), image.mask)
    other_text = model.match(text.states.flip(0), text.mask, image.states, image.mask)
    assert (right - other_image).abs().min() > 1e-4
    assert (right - other_text).abs().min() > 1e-4


@torch.inference_mode()
def test_the_order_of_regions_does_not_matter() -> None:
    model = tiny.retriever(tiny.REGION_MODEL)
    features, boxes = torch.randn(1, 5, 10), torch.rand(1, 5, 6)
    mask = torch.ones(1, 5, dtype=torch.bool)
    one = model.encode_images(Regions(features, boxes, mask)).embedding
    other = model.encode_images(Regions(features.flip(1), boxes.flip(1), mask)).embedding
    torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_what_a_model_was_not_built_for_is_refused() -> None:
    plain = tiny.retriever(tiny.PIXEL_MODELS["dual-plain"])
    assert plain.abilities == {"embed", "fragments"}
    regions = Regions(torch.zeros(1, 2, 10), torch.zeros(1, 2, 6), torch.ones(1, 2, dtype=torch.bool))
    states, mask = torch.zeros(1, 2, 24), torch.ones(1, 2, dtype=torch.bool)
    with pytest.raises(ModelError, match="no matcher"):
        plain.match(states, mask, states, mask)
    with pytest.raises(ModelError, match="not regions"):
        plain.encode_images(regions)
    with pytest.raises(ModelError, match="not regions"):
        tiny.retriever(tiny.SINGLE).encode_images(regions)
    with pytest.raises(ModelError, match="not pixels"):
        tiny.retriever(tiny.REGION_MODEL).encode_images(PIXELS)


def test_configurations_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ModelError, match="cannot read its own states"):
        dataclasses.replace(tiny.DUAL, matcher="shared", matcher_reads="states")
    with pytest.raises(ModelError, match="matcher_tower"):
        dataclasses.replace(tiny.DUAL, matcher_tower=TowerConfig(config=tiny.TEXT))
    with pytest.raises(ModelError, match="matcher_layer"):
        dataclasses.replace(tiny.DUAL, matcher="none", matcher_layer=1)
    with pytest.raises(ModelError, match="layer 4 is not before the last"):
        tiny.retriever(dataclasses.replace(tiny.DUAL, matcher_layer=4))
    with pytest.raises(ModelError, match="either an image tower or regions"):
        SingleStreamConfig(transformer=TowerConfig(config=tiny.TEXT), preprocess=tiny.PREPROCESS)
    with pytest.raises(ModelError, match="cannot be 16 and 0"):
        dataclasses.replace(tiny.SINGLE, fragment_dim=0)
    large = TowerConfig(config={**tiny.DUAL.image.config, "patch_size": 512})
    with pytest.raises(ModelError, match="patches of 512 pixels do not fit"):
        tiny.retriever(dataclasses.replace(tiny.DUAL, image=large))
    wider = TowerConfig(config={**tiny.TEXT, "hidden_size": 48})
    with pytest.raises(ModelError, match="width 48"):
        tiny.retriever(dataclasses.replace(tiny.DUAL, matcher="own", matcher_tower=wider))
