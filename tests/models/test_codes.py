"""Models with codes, clusters, and the first fragments alone (paper 3)."""

import dataclasses
from typing import Any

import pytest
import torch

import tiny
from sightline.errors import ModelError
from sightline.models import DualStream, EncodedTensors, SingleStream, Tokens, TowerConfig, towers
from sightline.models.heads import masked_mean
from sightline.models.image_tower import ImageTower
from sightline.models.retriever import Retriever

IDS = torch.tensor([[2, 6, 9, 3, 0, 0], [2, 11, 8, 7, 9, 3]])
TOKENS = Tokens(IDS, IDS != 0)
PIXELS = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(3))
WITH_CODES = {name: config for name, config in tiny.INFLATED_MODELS.items() if "codes" in name}
SWIN = {"model_type": "swin", "image_size": 32, "patch_size": 2, "embed_dim": 8, "depths": [1, 1], "num_heads": [2, 2]}
SMALL = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}


def codes_of(model: Retriever) -> list[torch.nn.Parameter]:
    assert isinstance(model, DualStream | SingleStream)
    found = [model.text_codes]
    if isinstance(model, SingleStream):
        found.append(model.image_codes)
    else:
        found.append(model.image.codes if model.image_reader is None else model.image_reader.codes)
    return [codes for codes in found if codes is not None]


@pytest.mark.parametrize("name", tiny.INFLATED_MODELS)
@torch.inference_mode()
def test_patches_and_words_come_first_and_codes_after_them(name: str) -> None:
    config = tiny.INFLATED_MODELS[name]
    model = tiny.retriever(config)
    places = 5 if config.pool == "kmeans" else 4
    image, text = model.encode_images(PIXELS), model.encode_texts(TOKENS)
    assert image.fragments.shape == (2, config.fragments or places + config.codes, 8)
    assert text.fragments.shape == (2, config.fragments or 6 + config.codes, 8)
    assert text.mask.sum(1).tolist() == ([3, 3] if config.fragments else [4 + config.codes, 6 + config.codes])
    assert model.grid == (None if config.fragments or config.pool == "kmeans" else (2, 2))
    assert (image.states is None) == ("match" not in model.abilities)
    assert ("match" in model.abilities) == (config.fragments == 0 and "reader" not in name)
    for encoded in (image, text):
        torch.testing.assert_close(encoded.fragments.norm(dim=-1), torch.ones(encoded.mask.shape))
        if encoded.states is not None:
            assert encoded.states.shape[:2] == encoded.mask.shape


@pytest.mark.parametrize("name", [*WITH_CODES, "dual-reader-clusters"])
def test_codes_learn_from_fragments_and_from_embeddings(name: str) -> None:
    """They come out as fragments, and attention passes on what they hold; pooling itself leaves them out."""
    model = tiny.retriever(tiny.INFLATED_MODELS[name])
    assert len(codes_of(model)) == 2
    for field in ("fragments", "embedding"):
        both = model.encode_texts(TOKENS), model.encode_images(PIXELS)
        for codes, encoded in zip(codes_of(model), both, strict=True):
            weights = torch.randn(getattr(encoded, field).shape, generator=torch.Generator().manual_seed(0))
            (gradient,) = torch.autograd.grad((getattr(encoded, field) * weights).sum(), codes)
            assert (gradient.abs().sum(1) > 0).all()


@torch.inference_mode()
def test_embeddings_are_pooled_over_words_and_patches_alone() -> None:
    dual, single = (tiny.retriever(tiny.INFLATED_MODELS[name]) for name in ("dual-codes", "single-codes"))
    assert isinstance(dual, DualStream)
    assert isinstance(single, SingleStream)
    assert single.project is not None
    read = dual.text(TOKENS, dual.text_codes)[:, :6]
    torch.testing.assert_close(dual.encode_texts(TOKENS).embedding, dual.text_embedding(masked_mean(read, TOKENS.mask)))
    words = single.transformer(TOKENS, single.text_codes)[:, :6]
    text, image = single.encode_texts(TOKENS), single.encode_images(PIXELS)
    torch.testing.assert_close(text.embedding, single.project(masked_mean(words, TOKENS.mask)))
    assert image.states is not None
    patches = single.transformer.read(None, None, image.states, image.mask)[:, :4]
    torch.testing.assert_close(image.embedding, single.project(patches.mean(1)))


def matched(model: Retriever, text: EncodedTensors, image: EncodedTensors) -> torch.Tensor:
    assert text.states is not None
    assert image.states is not None
    return model.match(text.states, text.mask, image.states, image.mask)


def pressed(encoded: EncodedTensors) -> EncodedTensors:
    """The same items with all of their padding at the end, as a store gives them back."""
    order = (~encoded.mask).int().argsort(dim=1, stable=True)
    assert encoded.states is not None
    states = encoded.states.gather(1, order[..., None].expand_as(encoded.states))
    return encoded._replace(states=states, mask=encoded.mask.gather(1, order))


@pytest.mark.parametrize("name", WITH_CODES)
@torch.inference_mode()
def test_a_matcher_reads_words_and_patches_and_no_codes(name: str) -> None:
    model, config = tiny.retriever(WITH_CODES[name]), WITH_CODES[name]
    text, image = model.encode_texts(TOKENS), model.encode_images(PIXELS)
    right = matched(model, text, image)
    torch.testing.assert_close(matched(model, pressed(text), pressed(image)), right, atol=1e-5, rtol=1e-4)
    for encoded in (text, image):
        assert encoded.states is not None
        encoded.states[:, -config.codes :] = 7.0
    torch.testing.assert_close(matched(model, text, image), right, atol=1e-5, rtol=1e-4)
    assert text.states is not None
    text.states[:, 1] = 7.0
    assert (matched(model, text, image) - right).abs().min() > 1e-4


@pytest.mark.parametrize("kind", ["clip_vision_model", "siglip_vision_model", "vit", "dinov2"])
@torch.inference_mode()
def test_codes_enter_every_tower_of_one_row_of_vectors_after_the_layers_asked_for(kind: str) -> None:
    torch.manual_seed(0)
    settings = {"model_type": kind, **SMALL, "image_size": 32, "patch_size": 8}
    encoder, _ = towers.build(TowerConfig(config=settings), "vision")
    plain = ImageTower(encoder.eval(), 32, None, below=1)(PIXELS)
    seen = ImageTower(encoder, 32, None, below=1, codes=2, codes_layer=1)(PIXELS)
    assert seen.patches.shape == (2, 18, 32)
    assert seen.below is not None
    assert plain.below is not None
    assert seen.below.shape == (2, 18, 32)
    torch.testing.assert_close(seen.below[:, :16], plain.below)
    if kind == "siglip_vision_model":
        torch.testing.assert_close(seen.pooled, encoder.head(seen.patches[:, :16]))
    assert (seen.patches[:, :16] - plain.patches).abs().max() > 1e-5
    later = ImageTower(encoder, 32, None, below=2, codes=2, codes_layer=1)(PIXELS)
    assert later.below is not None
    assert later.below.shape == (2, 18, 32)
    torch.testing.assert_close(ImageTower(encoder, 32, None)(PIXELS).patches, plain.patches)  # no hook stays behind


@torch.inference_mode()
def test_clusters_of_an_earlier_layer_are_those_of_the_last() -> None:
    torch.manual_seed(0)
    encoder, _ = towers.build(TowerConfig(config=tiny.VISION), "vision")
    whole = ImageTower(encoder.eval(), 32, None, below=2)(PIXELS)
    pooled = ImageTower(encoder, 32, 3, below=2, pool="kmeans")(PIXELS)
    assert whole.below is not None
    assert pooled.below is not None
    shares = torch.linalg.lstsq(whole.patches.transpose(1, 2), pooled.patches.transpose(1, 2)).solution.transpose(1, 2)
    torch.testing.assert_close(shares @ whole.below, pooled.below, atol=1e-4, rtol=1e-3)


def test_frozen_layers_below_the_codes_are_not_gone_back_through() -> None:
    model = tiny.retriever(dataclasses.replace(tiny.DUAL, codes=2, codes_layer=3))
    assert isinstance(model, DualStream)
    for parameter in towers.before(model.image.encoder, 3):
        parameter.requires_grad_(False)
    said: list[torch.Tensor] = []
    layer = towers.layers(model.image.encoder)[2]
    layer.register_forward_hook(lambda _, __, out: said.append(out if isinstance(out, torch.Tensor) else out[0]))
    model.encode_images(PIXELS).fragments.sum().backward()
    assert not said[0].requires_grad
    assert model.image.codes is not None
    assert model.image.codes.grad is not None


@pytest.mark.parametrize("name", ["dual-first", "single-first"])
@torch.inference_mode()
def test_the_first_fragments_are_those_of_the_whole_model(name: str) -> None:
    config = tiny.INFLATED_MODELS[name]
    few, whole = tiny.retriever(config), tiny.retriever(dataclasses.replace(config, fragments=0))
    for some, everything in (
        (few.encode_images(PIXELS), whole.encode_images(PIXELS)),
        (few.encode_texts(TOKENS), whole.encode_texts(TOKENS)),
    ):
        torch.testing.assert_close(some.fragments, everything.fragments[:, :3])
        torch.testing.assert_close(some.embedding, everything.embedding)
    assert few.encode_texts(Tokens(IDS[:, :2], TOKENS.mask[:, :2])).fragments.shape[1] == 2


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"codes": -1}, "at least 0"),
        ({"codes_layer": 1}, "there are no codes"),
        ({"codes": 1, "codes_layer": 4}, "codes_layer is 4, but the image tower has 4 layers"),
        ({"fragments": 2}, "a matcher"),
        ({"fragments": 5, "matcher": "none"}, "5 fragments per image were requested, but the image tower returns 4"),
        ({"pool": "kmeans", "pool_to": 17}, "17 clusters: the image tower has 16"),
        ({"codes": 1, "image": TowerConfig(config=SWIN)}, "cannot take codes"),
        ({"codes": 1, "matcher": "none", "text": "clip_text_model"}, "does not take word vectors"),
    ],
)
def test_configurations_that_make_no_sense_are_refused(changes: dict[str, Any], said: str) -> None:
    if "text" in changes:
        words = {**SMALL, "model_type": changes["text"], "vocab_size": 50, "max_position_embeddings": 40}
        changes = {**changes, "text": TowerConfig(config=words)}
    with pytest.raises(ModelError, match=said):
        tiny.retriever(dataclasses.replace(tiny.DUAL, **{"pool_to": 2, **changes}))


def test_a_single_stream_of_first_fragments_does_not_match() -> None:
    model = tiny.retriever(tiny.INFLATED_MODELS["single-first"])
    states, mask = torch.zeros(1, 2, 24), torch.ones(1, 2, dtype=torch.bool)
    with pytest.raises(ModelError, match="too few fragments"):
        model.match(states, mask, states, mask)
    with pytest.raises(ModelError, match="at least 0"):
        dataclasses.replace(tiny.SINGLE, fragments=-1)
