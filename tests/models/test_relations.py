"""Embeddings made of fragments that look at each other: equations 1 to 3 of paper 2, one item at a time."""

import dataclasses
import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import tiny
from sightline.errors import ModelError
from sightline.models import DualStream, RelationConfig, Tokens, TowerConfig, checkpoint
from sightline.models.relations import RelationPooling, dropped

BOTH, BIGRU = (tiny.RELATED_MODELS[name] for name in ("dual-relations", "dual-bigru"))


def slow_layer(pooling: RelationPooling, fragments: Tensor) -> Tensor:
    """Equation 1 with its feed-forward network, for the real fragments [n, dim] of one item, one after another."""
    attend, feed = pooling.attend, pooling.feed_forward
    assert attend is not None
    assert feed is not None
    width = fragments.shape[1] // attend.heads
    enhanced = []
    for one in fragments:
        heads = []
        for head in range(attend.heads):
            part = slice(head * width, (head + 1) * width)
            scores = [attend.query(one)[part] @ attend.key(other)[part] / math.sqrt(width) for other in fragments]
            shares = torch.stack(scores).softmax(0)
            heads.append(sum(share * attend.value(other)[part] for share, other in zip(shares, fragments, strict=True)))
        looked = attend.norm(one + attend.out(torch.cat(heads)))  # type: ignore[arg-type]
        enhanced.append(feed.norm(looked + feed.outer(feed.inner(looked).relu())))
    return torch.stack(enhanced)


@pytest.mark.parametrize("relates", [True, False])
@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
def test_pooling_is_that_of_equations_1_to_3(relates: bool, beta: float) -> None:
    torch.manual_seed(0)
    pooling = RelationPooling(8, relates, RelationConfig(beta=beta, heads=2)).eval()
    fragments, mask = torch.randn(3, 5, 8), torch.tensor([[True] * 5, [True] * 3 + [False] * 2, [True] + [False] * 4])
    found = pooling(fragments, mask)
    for one, real, pooled in zip(fragments, mask, found, strict=True):
        initial = one[real]
        enhanced = slow_layer(pooling, initial) if relates else initial
        greatest = torch.stack([max(column) for column in initial.T])
        expected = beta * greatest + (1 - beta) * sum(enhanced) / len(enhanced)  # type: ignore[operator]
        torch.testing.assert_close(pooled, expected / expected.norm(), atol=1e-5, rtol=1e-4)


def test_fragments_are_the_local_features_that_the_embedding_is_made_of() -> None:
    model = tiny.retriever(BOTH)
    assert isinstance(model, DualStream)
    encoded = model.encode_images(torch.randn(2, 3, 32, 32))
    assert encoded.fragments.shape == (2, 4, 16)
    torch.testing.assert_close(encoded.fragments.norm(dim=2), torch.ones(2, 4))
    encoded.embedding.sum().backward()
    assert model.image_fragments.linear.weight.grad is not None
    assert (model.image_fragments.linear.weight.grad != 0).any()


def test_while_training_fragments_of_images_are_left_out_and_never_all() -> None:
    torch.manual_seed(0)
    mask = torch.ones(2000, 5, dtype=torch.bool)
    mask[1000:, 2:] = False
    kept = dropped(mask, 0.4)
    assert kept.any(1).all()
    assert not kept[~mask].any()
    assert 1 - kept[:1000].float().mean().item() == pytest.approx(0.4, abs=0.03)
    assert torch.equal(dropped(mask, 0.0), mask)
    model, pixels = tiny.retriever(BOTH), torch.randn(8, 3, 32, 32)
    assert model.encode_images(pixels).mask.all()
    model.train()
    assert not model.encode_images(pixels).mask.all()


def test_what_is_left_out_changes_nothing() -> None:
    pooling = RelationPooling(8, True, RelationConfig(heads=2)).eval()
    fragments, mask = torch.randn(2, 5, 8), torch.tensor([[True, False, True, True, False]] * 2)
    other = torch.where(mask[:, :, None], fragments, 7.0)
    torch.testing.assert_close(pooling(fragments, mask), pooling(other, mask))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"fragment_dim": 8}, "fragment_dim = embedding_dim"),
        ({"codes": 2}, "codes = 0"),
        ({"relations": RelationConfig(heads=3)}, "16 dimensions cannot be split into 3 heads"),
    ],
)
def test_relations_that_do_not_fit_are_refused(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ModelError) as refused:
        tiny.retriever(dataclasses.replace(BOTH, **changes))  # type: ignore[arg-type]
    assert said in str(refused.value)


def test_shares_outside_their_range_are_refused() -> None:
    for settings in ({"beta": 1.2}, {"drop": 1.0}, {"drop": -0.1}):
        with pytest.raises(ModelError, match=next(iter(settings))):
            RelationConfig(**settings)


def test_a_recurrent_encoder_reads_each_text_from_both_of_its_own_ends() -> None:
    model = tiny.retriever(BIGRU)
    assert isinstance(model, DualStream)
    encoder = model.text.encoder
    ids, counts = torch.randint(2, len(tiny.WORDS), (3, 6)), [6, 2, 1]
    mask = torch.arange(6) < torch.tensor(counts)[:, None]
    found = model.text(Tokens(ids, mask))
    for row, count in enumerate(counts):
        words = encoder.embed_tokens(ids[row, :count])
        there, back = _gru(encoder.gru, words, ""), _gru(encoder.gru, words.flip(0), "_reverse").flip(0)
        torch.testing.assert_close(found[row, :count], (there + back) / 2, atol=1e-5, rtol=1e-4)


def _gru(gru: torch.nn.GRU, words: Tensor, ending: str) -> Tensor:
    """A gated recurrent unit over words [n, dim], one after another."""
    inputs, biases = getattr(gru, f"weight_ih_l0{ending}"), getattr(gru, f"bias_ih_l0{ending}")
    state, states = torch.zeros(gru.hidden_size), []
    for word in words:
        reset, update, new = F.linear(word, inputs, biases).chunk(3)
        old = F.linear(state, getattr(gru, f"weight_hh_l0{ending}"), getattr(gru, f"bias_hh_l0{ending}")).chunk(3)
        gate = torch.sigmoid(update + old[1])
        state = (1 - gate) * torch.tanh(new + torch.sigmoid(reset + old[0]) * old[2]) + gate * state
        states.append(state)
    return torch.stack(states)


@pytest.mark.parametrize("name", tiny.RELATED_MODELS)
def test_a_checkpoint_gives_the_same_model_back(name: str, tmp_path: object) -> None:
    model = tiny.retriever(tiny.RELATED_MODELS[name])
    checkpoint.save(model, tiny.tokenizer(), str(tmp_path))  # type: ignore[arg-type]
    again, _ = checkpoint.load(str(tmp_path))
    ids = torch.tensor([[2, 5, 6, 3]])
    tokens = Tokens(ids, torch.ones_like(ids, dtype=torch.bool))
    assert torch.equal(again.eval().encode_texts(tokens).embedding, model.encode_texts(tokens).embedding)


def test_a_recurrent_encoder_reads_words_only() -> None:
    with pytest.raises(ModelError, match="BERT-type"):
        tiny.retriever(dataclasses.replace(tiny.DUAL, text=TowerConfig(config=tiny.BIGRU)))
