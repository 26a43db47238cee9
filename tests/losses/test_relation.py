"""The relation loss: its two mechanisms, where its gradients go, and shares that add up."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from losses import slow_relation
from losses.batches import batch, gradients, shards, sources, value
from sightline.errors import ModelError
from sightline.losses import Pairs, Relation
from sightline.losses.graph import nearest
from sightline.losses.relation_mechanisms import Fusion

DIM = 8
KINDS = ("fusion", "standalone")


def related(**settings: Any) -> Relation:
    """A relation loss for embeddings of eight numbers, without dropout, its weights drawn anew alike."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        relation = Relation(**{"negatives": "hardest", "heads": 2, "dropout": 0.0, "matches": 2, **settings})
        relation.fit(SimpleNamespace(embedding_dim=DIM))  # type: ignore[arg-type]
    return relation


def pairs_of(texts: int = 5, seed: int = 0) -> Pairs:
    """Four images and some texts, of which two belong to the first; every second item has padding."""
    return batch([0, 0, 1, 2, 3][:texts], [0, 1, 2, 3], seed, DIM)


@pytest.mark.parametrize("mechanism", KINDS)
def test_enhanced_embeddings_are_those_of_equation_12_and_figure_4(mechanism: Any) -> None:
    relation, pairs = related(mechanism=mechanism, layers=2, relevance=1.5), pairs_of()
    assert relation.attention is not None
    images, texts = pairs.images.embedding, pairs.texts.embedding
    graph = relation.graph(pairs)
    found = relation.attention(images, texts, graph)
    slow = slow_relation.fused if mechanism == "fusion" else slow_relation.apart
    expected = slow(relation.attention, images, texts, graph.connected.joined(), graph.relevance.joined())  # type: ignore[operator]
    for side, rows in zip(found, expected, strict=True):
        torch.testing.assert_close(side, torch.stack(rows), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("among", ["intra", "inter"])
@pytest.mark.parametrize("mechanism", KINDS)
def test_relations_within_or_across_alone_leave_the_others_out(mechanism: Any, among: Any) -> None:
    """An image is changed by another image only through relations within, and by a text only through those across."""
    relation, pairs = related(mechanism=mechanism, among=among, connected=1.0), pairs_of()
    assert relation.attention is not None
    graph = relation.graph(pairs)
    images, texts = (side.embedding.detach().requires_grad_() for side in (pairs.images, pairs.texts))
    enhanced, _ = relation.attention(images, texts, graph)
    by_image, by_text = gradients(enhanced[0, 0], [images, texts])
    assert bool((by_image[1:] != 0).any()) == (among == "intra")
    assert bool((by_text != 0).any()) == (among == "inter")


@pytest.mark.parametrize("mechanism", KINDS)
def test_what_is_not_connected_changes_nothing(mechanism: Any) -> None:
    relation, pairs = related(mechanism=mechanism, connected=0.25), pairs_of(4)
    assert relation.attention is not None
    graph = relation.graph(pairs)
    images, texts = (side.embedding.detach().requires_grad_() for side in (pairs.images, pairs.texts))
    enhanced, _ = relation.attention(images, texts, graph)
    by_image, by_text = gradients(enhanced[0, 0], [images, texts])
    there = torch.cat([by_image, by_text]).abs().sum(1) > 0
    if mechanism == "fusion":  # the standalone mechanism passes on in its second step what came in the first
        reached = graph.connected.joined()[0].clone()
        reached[0] = True
        assert torch.equal(there, reached)
    else:
        assert not there.all()


def test_gradients_reach_embeddings_and_all_weights_but_no_fragments() -> None:
    relation, pairs = related(), pairs_of()
    assert relation.needs == {"embedding"}
    value(relation, pairs).backward()
    for side in (pairs.texts, pairs.images):
        assert side.embedding.grad is not None
        assert (side.embedding.grad != 0).any()
        assert side.fragments.grad is None
        assert side.states is not None
        assert side.states.grad is None
    for name, parameter in relation.named_parameters():
        assert parameter.grad is not None, name
        # A bias of keys shifts all scores of a query alike, which softmax does not see.
        assert name.endswith("key.bias") or (parameter.grad != 0).any(), name
    assert not nearest(pairs.cosines(), 0.5).requires_grad


@pytest.mark.parametrize("chunk", [1, 2, 4])
def test_chunks_of_texts_give_the_same_loss_and_gradients(chunk: int) -> None:
    found = []
    for size in (0, chunk):
        pairs, relation = pairs_of(), related(chunk=size)
        loss = value(relation, pairs)
        found.append([loss.detach(), *gradients(loss, [*sources(pairs), *relation.parameters()])])
    for whole, chunked in zip(*found, strict=True):
        torch.testing.assert_close(chunked, whole, rtol=1e-5, atol=1e-6)


def longer(side: Any) -> Any:
    """The same items with more padding, full of fragments that would win if a mask were ignored."""
    more = torch.full((len(side.mask), 2, side.fragments.shape[2]), 9.0)
    mask = torch.cat([side.mask, torch.zeros(len(side.mask), 2, dtype=torch.bool)], 1)
    return side._replace(fragments=torch.cat([side.fragments, more], 1), mask=mask)


def test_padding_changes_nothing() -> None:
    pairs, relation = pairs_of(), related(matches=5)
    padded = dataclasses.replace(pairs, texts=longer(pairs.texts), images=longer(pairs.images))
    torch.testing.assert_close(value(relation, padded), value(relation, pairs))


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize(("mechanism", "negatives"), [("fusion", "distance"), ("standalone", "hardest")])
def test_shares_add_up_to_the_whole_with_the_same_dropout(mechanism: Any, negatives: Any, dropout: float) -> None:
    relation = related(mechanism=mechanism, negatives=negatives, dropout=dropout)
    pairs = pairs_of()
    leaves = [*sources(pairs), *relation.parameters()]
    torch.manual_seed(76)
    whole = value(relation, pairs)
    torch.manual_seed(77)  # another process has another luck of its own
    shares = [value(relation, shard) for shard in shards(pairs, [2, 3], [1, 1])]
    torch.testing.assert_close(torch.stack(shares).sum(), whole, rtol=1e-5, atol=1e-6)
    parts = [gradients(share, leaves) for share in shares]
    for expected, *found in zip(gradients(whole, leaves), *parts, strict=True):
        torch.testing.assert_close(torch.stack(found).sum(0), expected, rtol=1e-4, atol=1e-6)


def test_dropout_follows_the_generator_and_leaves_other_luck_alone() -> None:
    relation, pairs = related(dropout=0.5), pairs_of()
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    assert value(relation, pairs, 1) == value(relation, pairs, 1) != value(relation, pairs, 2)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_under_autocast_all_of_it_stays_in_float32() -> None:
    relation, pairs = related(), pairs_of()
    expected = value(relation, pairs)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = value(relation, pairs)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    "settings",
    [
        {"mechanism": "both"},
        {"among": "some"},
        {"connected": 0.0},
        {"connected": 1.5},
        {"matches": 0},
        {"layers": 0},
        {"relevance": -1.0},
        {"regularisation": -1.0},
        {"chunk": -1},
        {"margin": 0.2, "nearest": 2.0},
    ],
    ids=str,
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match=next(reversed(settings))):
        Relation(**settings)


def test_heads_must_divide_the_embedding_and_the_model_must_be_known() -> None:
    with pytest.raises(ModelError, match="8 dimensions cannot be split into 3 heads"):
        related(heads=3)
    with pytest.raises(ModelError, match=r"dropout cannot be 1\.0"):
        Fusion(8, 2, 1, 1.0, 1.0, "all")
    with pytest.raises(ModelError, match=r"fit\(model\)"):
        value(Relation(), pairs_of())
