"""The relation loss is paper 2's, equation by equation; its gradients go where they should, and its shares add up."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from losses import slow_relation
from losses.batches import batch, gradients, shards, sources, value
from sightline.errors import ModelError
from sightline.losses import Pairs, Relation
from sightline.losses.graph import AssociationGraph, matched, nearest, relevance_loss
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


@pytest.mark.parametrize("k", [1, 2, 5])
def test_matching_values_and_vectors_are_those_of_equations_7_and_8(k: int) -> None:
    pairs = pairs_of()
    to_text, to_image = matched(pairs, k)
    patches, words = slow_relation.fragments(pairs)
    for i, some in enumerate(patches):
        for t, others in enumerate(words):
            torch.testing.assert_close(to_text.overall[i, t], slow_relation.overall(some, others))
            torch.testing.assert_close(to_image.overall[t, i], slow_relation.overall(others, some))
            torch.testing.assert_close(to_text.best[i, t], slow_relation.best(some, others, k))
            torch.testing.assert_close(to_image.best[t, i], slow_relation.best(others, some, k))


@pytest.mark.parametrize("share", [0.1, 0.5, 0.6, 1.0])
def test_the_graph_is_that_of_equations_4_to_10(share: float) -> None:
    pairs, module = pairs_of(), AssociationGraph(share, 2, 0)
    found = module(pairs)
    connected, relevant = slow_relation.graph(module, pairs)
    assert torch.equal(found.connected.joined(), connected)
    torch.testing.assert_close(found.relevance.joined(), relevant)
    assert connected.any(1).all()
    assert bool(connected.all()) == (share == 1)


def test_the_regularisation_is_that_of_equation_11() -> None:
    pairs, module = pairs_of(), AssociationGraph(0.5, 2, 0)
    relevance = module(pairs).relevance
    torch.testing.assert_close(
        relevance_loss(pairs, relevance), slow_relation.regularisation(pairs, relevance.joined()), atol=1e-6, rtol=1e-5
    )


@pytest.mark.parametrize("mechanism", KINDS)
def test_enhanced_embeddings_are_those_of_equation_12_and_figure_4(mechanism: Any) -> None:
    relation, pairs = related(mechanism=mechanism, layers=2, relevance=1.5), pairs_of()
    assert relation.attention is not None
    images, texts = pairs.images.embedding, pairs.texts.embedding
    graph = relation.graph(pairs)
    found = relation.attention(images, texts, graph)
    slow = slow_relation.fused if mechanism == "fusion" else slow_relation.apart
    expected = slow(relation.attention, images, texts, *slow_relation.graph(relation.graph, pairs))  # type: ignore[operator]
    for side, rows in zip(found, expected, strict=True):
        torch.testing.assert_close(side, torch.stack(rows), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("mechanism", KINDS)
@pytest.mark.parametrize("consistent", [True, False])
def test_the_loss_is_that_of_equations_13_and_14_with_its_regularisation(mechanism: Any, consistent: bool) -> None:
    relation, pairs = related(mechanism=mechanism, consistent=consistent, regularisation=3.0), pairs_of()
    images, texts = list(pairs.images.embedding), list(pairs.texts.embedding)
    connected, relevant = slow_relation.graph(relation.graph, pairs)
    slow = slow_relation.fused if mechanism == "fusion" else slow_relation.apart
    enhanced = slow(relation.attention, pairs.images.embedding, pairs.texts.embedding, connected, relevant)  # type: ignore[operator]

    def loss_of(pictures: list[Tensor], captions: list[Tensor]) -> Tensor:
        return slow_relation.triplet(pictures, captions, pairs, 0.2)

    initial, both = loss_of(images, texts), loss_of(*enhanced)
    crossed = loss_of(enhanced[0], texts) + loss_of(images, enhanced[1])
    stray = slow_relation.regularisation(pairs, relevant)
    expected = both + 3 * stray + (initial + crossed if consistent else 0)
    torch.testing.assert_close(value(relation, pairs), expected, atol=1e-5, rtol=1e-4)
    parts = {"initial": initial, "enhanced": both, "crossed": crossed, "regularisation": stray}
    assert relation.parts.keys() == parts.keys()
    for name, part in parts.items():
        torch.testing.assert_close(relation.parts[name], part.detach(), atol=1e-5, rtol=1e-4)
        assert not relation.parts[name].requires_grad


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


def test_gradients_reach_embeddings_fragments_and_all_weights_but_never_pass_who_is_connected() -> None:
    relation, pairs = related(), pairs_of()
    value(relation, pairs).backward()
    for side in (pairs.texts, pairs.images):
        assert side.embedding.grad is not None
        assert (side.embedding.grad != 0).any()
        assert side.fragments.grad is not None
        assert (side.fragments.grad != 0).any()
        assert side.states is not None
        assert side.states.grad is None
        assert (side.fragments.grad[~side.mask] == 0).all()
    for name, parameter in relation.named_parameters():
        assert parameter.grad is not None, name
        # A bias of keys shifts all scores of a query alike, which softmax does not see.
        assert name.endswith("key.bias") or (parameter.grad != 0).any(), name
    assert not nearest(pairs.cosines(), 0.5).requires_grad


def test_the_regularisation_moves_the_relevance_and_leaves_the_embeddings_alone() -> None:
    pairs = pairs_of()
    stray = relevance_loss(pairs, AssociationGraph(0.5, 2, 0)(pairs).relevance)
    embeddings = [pairs.texts.embedding, pairs.images.embedding]
    assert all((gradient == 0).all() for gradient in gradients(stray, embeddings))
    assert all((gradient != 0).any() for gradient in gradients(stray, [pairs.texts.fragments, pairs.images.fragments]))


@pytest.mark.parametrize(
    ("settings", "fields"),
    [
        ({}, {"embedding", "fragments"}),
        ({"relevance": 0.0, "regularisation": 0.0}, {"embedding"}),
        ({"among": "intra", "regularisation": 0.0}, {"embedding"}),
        ({"among": "inter", "regularisation": 0.0}, {"embedding", "fragments"}),
        ({"relevance": 0.0}, {"embedding", "fragments"}),
    ],
    ids=lambda value: str(sorted(value)) if isinstance(value, set) else str(value),
)
def test_it_needs_what_it_sends_gradients_into(settings: dict[str, Any], fields: set[str]) -> None:
    relation, pairs = related(**settings), pairs_of()
    value(relation, pairs).backward()
    found = {
        field
        for side in (pairs.texts, pairs.images)
        for field in ("embedding", "fragments", "states")
        if (gradient := getattr(side, field).grad) is not None and bool((gradient != 0).any())
    }
    assert found == relation.needs == fields


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
    with pytest.raises(ModelError):
        Relation(**settings)


def test_heads_must_divide_the_embedding_and_the_model_must_be_known() -> None:
    with pytest.raises(ModelError, match="3 heads over 8"):
        related(heads=3)
    with pytest.raises(ModelError, match=r"dropout 1\.0"):
        Fusion(8, 2, 1, 1.0, 1.0, "all")
    with pytest.raises(ModelError, match=r"fit\(model\)"):
        value(Relation(), pairs_of())
