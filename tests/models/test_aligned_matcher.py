"""The aligned matcher: where it starts, and how it is added to a model that has none."""

import dataclasses
from pathlib import Path

import pytest
import torch

import tiny
from sightline.errors import ModelError
from sightline.models import DualStream, checkpoint
from sightline.models.aligned_matcher import AlignedMatcher, AlignedStates
from sightline.models.retriever import Tokens

ADDED = {"matcher": "aligned", "matcher_reads": "states", "matcher_layers": 1}


@pytest.fixture
def embedding_only(tmp_path: Path) -> Path:
    config = dataclasses.replace(tiny.DUAL, matcher="none")
    checkpoint.save(tiny.retriever(config), tiny.tokenizer(), tmp_path / "embed")
    return tmp_path / "embed"


def test_states_start_where_both_embeddings_agree() -> None:
    """An image fragment and a word with one embedding have one state, as far as the embedding tells."""
    states = AlignedStates(width=7, hidden=5, places=0)
    image, text = torch.randn(9, 7), torch.randn(9, 5)
    states.align(image, text)
    word = torch.randn(3, 5)
    fragment = (word @ text.T) @ torch.linalg.pinv(image).T  # a fragment that is projected to where the word is
    projected = fragment @ image.T
    expected = projected @ torch.linalg.pinv(text).T
    torch.testing.assert_close(states(fragment[:, None])[:, 0], expected, atol=1e-4, rtol=1e-4)


def test_hidden_fragments_change_nothing() -> None:
    matcher = AlignedMatcher(hidden=8, heads=2).eval()
    text, image = torch.randn(2, 3, 8), torch.randn(2, 5, 8)
    mask = torch.tensor([[True] * 4 + [False], [True] * 2 + [False] * 3])
    other = torch.where(mask[:, :, None], image, torch.randn(2, 5, 8))
    torch.testing.assert_close(matcher.compare(text, image, mask), matcher.compare(text, other, mask))


@torch.inference_mode()
def test_every_image_is_projected_once_for_all_texts() -> None:
    model = tiny.retriever(tiny.PIXEL_MODELS["dual-aligned"])
    assert isinstance(model, DualStream)
    assert model.aligned is not None
    texts, images = torch.randn(3, 4, tiny.TEXT["hidden_size"]), torch.randn(2, 5, tiny.TEXT["hidden_size"])
    rows = []
    model.aligned.key.register_forward_hook(lambda _, given, __: rows.append(given[0].shape[:-1].numel()))
    logits = model.match_all(texts, torch.ones(3, 4).bool(), images, torch.ones(2, 5).bool())
    assert logits.shape == (3, 2)
    assert rows == [2 * 5]


def test_a_matcher_is_added_to_a_checkpoint_that_has_none(embedding_only: Path) -> None:
    before, _ = checkpoint.load(embedding_only)
    model, tokenizer = checkpoint.load(embedding_only, ADDED)
    assert isinstance(model, DualStream)
    assert isinstance(before, DualStream)
    assert model.abilities == {"embed", "fragments"}  # the matcher is not trained yet
    layers = model.matcher.encoder.encoder.layer
    assert len(layers) == 1
    torch.testing.assert_close(layers[-1].state_dict(), before.text.encoder.encoder.layer[-1].state_dict())
    assert isinstance(model.image_states, AlignedStates)
    expected = torch.linalg.pinv(before.text_embedding.linear.weight) @ before.image_embedding.linear.weight  # type: ignore[union-attr]
    torch.testing.assert_close(model.image_states.linear.weight, expected)
    checkpoint.save(model, tokenizer, embedding_only.parent / "both")
    again, _ = checkpoint.load(embedding_only.parent / "both")
    torch.testing.assert_close(again.state_dict(), model.state_dict())


def test_only_a_matcher_can_be_added_and_only_once(embedding_only: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="embedding_dim cannot be added"):
        checkpoint.load(embedding_only, {"embedding_dim": 7})
    checkpoint.save(tiny.retriever(tiny.DUAL), tiny.tokenizer(), tmp_path / "shared")
    with pytest.raises(ModelError, match="already has a matcher"):
        checkpoint.load(tmp_path / "shared", ADDED)


def test_it_reads_states_and_no_codes() -> None:
    with pytest.raises(ModelError, match="aligned matcher needs the states"):
        dataclasses.replace(tiny.DUAL, matcher="aligned", matcher_reads="words")
    with pytest.raises(ModelError, match="requested, but BertModel has"):
        tiny.retriever(dataclasses.replace(tiny.DUAL, matcher="aligned", matcher_reads="states", matcher_layers=99))


OWN = {**ADDED, "matcher_layer": 1, "matcher_text_layer": 1, "matcher_text_layers": 1, "matcher_image_layers": 1}


def test_a_matcher_has_layers_of_its_own(embedding_only: Path, tmp_path: Path) -> None:
    """They start as copies of the text tower's, are saved with the heads, and leave the embeddings alone."""
    before, _ = checkpoint.load(embedding_only)
    model, tokenizer = checkpoint.load(embedding_only, OWN)
    assert isinstance(model, DualStream)
    assert isinstance(before, DualStream)
    assert model.matcher_text is not None
    assert model.matcher_image is not None
    copied, original = (one.encoder.encoder.layer for one in (model.matcher_text, before.text))
    assert len(copied) == 1
    torch.testing.assert_close(copied[0].state_dict(), original[1].state_dict())
    batch = tokenizer(["a red square", "two dogs"])
    tokens = Tokens(torch.from_numpy(batch.ids), torch.from_numpy(batch.mask))
    pixels = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        texts, images = model.eval().encode_texts(tokens), model.encode_images(pixels)
        torch.testing.assert_close(texts.embedding, before.eval().encode_texts(tokens).embedding)
        torch.testing.assert_close(images.embedding, before.encode_images(pixels).embedding)
    checkpoint.save(model, tokenizer, tmp_path / "both")
    again, _ = checkpoint.load(tmp_path / "both")
    with torch.no_grad():
        torch.testing.assert_close(again.eval().encode_texts(tokens).states, texts.states)
        torch.testing.assert_close(again.encode_images(pixels).states, images.states)


def test_layers_of_its_own_are_for_an_aligned_matcher_and_must_be_there(embedding_only: Path) -> None:
    with pytest.raises(ModelError, match="matcher_text_layers"):
        dataclasses.replace(tiny.DUAL, matcher_text_layers=1)
    with pytest.raises(ModelError, match="9 layers after layer 1"):
        checkpoint.load(embedding_only, {**OWN, "matcher_text_layers": 9})
    with pytest.raises(ModelError, match="matcher_text_layer is 3, but the text tower has 2 layers"):
        checkpoint.load(embedding_only, {**ADDED, "matcher_text_layer": 3})
