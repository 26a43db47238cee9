"""The relation loss and its parts are paper 2's, equation by equation and gradient by gradient, in float64."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from losses import literal_hrem as literal
from losses.batches import batch, gradients, value
from sightline.losses import Pairs, Relation, Triplet
from sightline.losses.graph import AssociationGraph, matched, relevance_loss
from sightline.losses.negative_sampling import inverse_density, masked_softmax
from sightline.models import EncodedTensors
from sightline.models.attention import Attending, hide
from sightline.models.relations import RelationConfig, RelationPooling, dropped

DIM = 4
SEEDS = st.integers(0, 999)
few = settings(max_examples=5, deadline=None)


def doubled(pairs: Pairs) -> tuple[Pairs, list[Tensor]]:
    """The same batch in float64, and what its embeddings and fragments were before they got unit length."""
    leaves: list[Tensor] = []

    def moved(side: EncodedTensors) -> EncodedTensors:
        own = [part.detach().double().requires_grad_() for part in (side.embedding, side.fragments)]
        leaves.extend(own)
        return side._replace(embedding=F.normalize(own[0], dim=-1), fragments=F.normalize(own[1], dim=-1))

    return dataclasses.replace(pairs, texts=moved(pairs.texts), images=moved(pairs.images)), leaves


def pairs_of(seed: int, ids: tuple[int, ...] = (0, 1, 2, 3)) -> tuple[Pairs, list[Tensor]]:
    """Pairs in equal rows; some items are shorter than others."""
    return doubled(batch(list(ids), list(ids), seed, DIM))


def fragments_of(pairs: Pairs) -> tuple[list[Tensor], list[Tensor]]:
    """The real fragments of each image and of each text."""
    sides = (pairs.images, pairs.texts)
    return tuple([some[real] for some, real in zip(side.fragments, side.mask, strict=True)] for side in sides)  # type: ignore[return-value]


def graph_of(seed: int, share: float = 0.5, k: int = 2) -> AssociationGraph:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return AssociationGraph(share, k, 0).double()


def literal_relevance(network: nn.Sequential, rows: list[Tensor], columns: list[Tensor], k: int) -> Tensor:
    """Equations 7 to 9 for all pairs of items."""
    first, last = network[0], network[2]
    return torch.stack([
        torch.stack([
            literal.relevance_eq9(
                literal.match_vector_eq8(a, b, k).detach(), literal.overall_match_eq7(a, b).detach(),
                first.weight, first.bias, last.weight[0], last.bias[0],
            )
            for b in columns
        ])
        for a in rows
    ])  # fmt: skip


@few
@given(seed=SEEDS, k=st.sampled_from([1, 2]))
def test_matches_are_equations_7_and_8(seed: int, k: int) -> None:
    pairs, _ = pairs_of(seed)
    patches, words = fragments_of(pairs)
    for found, rows, columns in zip(matched(pairs, k), (patches, words), (words, patches), strict=True):
        for i, a in enumerate(rows):
            for j, b in enumerate(columns):
                torch.testing.assert_close(found.overall[i, j], literal.overall_match_eq7(a, b).detach())
                torch.testing.assert_close(found.best[i, j], literal.match_vector_eq8(a, b, k).detach())


@few
@given(seed=SEEDS, share=st.sampled_from([0.25, 0.5, 1.0]))
def test_the_graph_is_equations_4_to_10(seed: int, share: float) -> None:
    (pairs, _), module = doubled(batch([0, 0, 1, 2, 3], [0, 1, 2, 3], seed, DIM)), graph_of(seed, share)
    found = module(pairs)
    v, u = pairs.images.embedding, pairs.texts.embedding
    patches, words = fragments_of(pairs)
    overall = torch.stack([torch.stack([literal.overall_match_eq7(a, b) for b in words]) for a in patches])
    back = torch.stack([torch.stack([literal.overall_match_eq7(b, a) for a in patches]) for b in words])
    similar = (v @ v.T, overall, back, u @ u.T)
    assert torch.equal(
        found.connected.joined(), literal.blocks_eq4(*(literal.connect(block, share) for block in similar))
    )
    relevance = literal.blocks_eq4(
        literal.relevance_global(v, v), literal_relevance(module.to_text, patches, words, 2),
        literal_relevance(module.to_image, words, patches, 2), literal.relevance_global(u, u),
    )  # fmt: skip
    torch.testing.assert_close(found.relevance.joined(), relevance)


@few
@given(seed=SEEDS)
def test_the_regularisation_is_equation_11_and_trains_the_two_networks_alone(seed: int) -> None:
    (pairs, leaves), module = pairs_of(seed), graph_of(seed)
    found = relevance_loss(pairs, module(pairs).relevance)
    patches, words = fragments_of(pairs)
    expected = literal.regularisation_eq11(
        literal_relevance(module.to_text, patches, words, 2), literal_relevance(module.to_image, words, patches, 2),
        pairs.images.embedding, pairs.texts.embedding,
    )  # fmt: skip
    torch.testing.assert_close(found, expected)
    weights = list(module.parameters())
    for one, other in zip(gradients(found, weights), gradients(expected, weights), strict=True):
        torch.testing.assert_close(one, other)
    assert any((one != 0).any() for one in gradients(found, weights))
    assert all((one == 0).all() for one in gradients(found, leaves))


def test_attention_is_equation_12() -> None:
    torch.manual_seed(0)
    module, items, others = Attending(DIM, 1, 0.0).double(), torch.randn(3, DIM).double(), torch.randn(5, DIM).double()
    relevance, connection = torch.rand(3, 5).double(), torch.rand(3, 5) < 0.6
    connection[:, 0] = True
    attended = literal.attention_eq12(
        module.query(items), module.key(others), module.value(others), connection, relevance, 1.5
    )
    found = module(items, others, hide(1.5 * relevance, connection))
    torch.testing.assert_close(found, module.norm(items + module.out(attended)))


def test_pooling_is_equations_2_and_3() -> None:
    torch.manual_seed(0)
    module = RelationPooling(DIM, True, RelationConfig(heads=2, beta=0.8)).double().eval()
    fragments, mask = torch.randn(2, 5, DIM).double(), torch.tensor([[True] * 5, [True, True, True, False, False]])
    assert module.attend is not None
    assert module.feed_forward is not None
    for row, real in enumerate(mask):
        own = fragments[row][real]
        enhanced = module.feed_forward(module.attend(own, own, torch.zeros(1, len(own)).double()))
        expected = literal.pool_eq2(own, enhanced, 0.8)
        torch.testing.assert_close(module(fragments, mask)[row], expected / expected.norm())


@pytest.mark.parametrize(("negatives", "slow"), [("hardest", literal.triplet_hardest), ("sum", literal.triplet_all)])
@few
@given(seed=SEEDS, ids=st.sampled_from([(0, 1, 2, 3), (0, 1, 0, 2), (5, 5, 5)]))
def test_triplets_are_equation_13_summed_over_the_batch(
    negatives: Any, slow: Any, seed: int, ids: tuple[int, ...]
) -> None:
    """With an image twice, positives are only the diagonal, as in the option "vse" of the authors' code."""
    pairs, leaves = pairs_of(seed, ids)
    if len(set(ids)) == 3:
        pairs = dataclasses.replace(pairs, text_ids=torch.arange(4), image_ids=torch.arange(4),
                                    excluded=(pairs.own & ~torch.eye(4, dtype=torch.bool)))  # fmt: skip
    v, u = pairs.images.embedding, pairs.texts.embedding
    found, expected = value(Triplet(0.2, negatives, reduction="sum"), pairs), slow(v, u, list(ids))
    torch.testing.assert_close(found, expected)
    for one, other in zip(gradients(found, leaves), gradients(expected, leaves), strict=True):
        torch.testing.assert_close(one, other)


@few
@given(seed=SEEDS, dim=st.sampled_from([3, 8, 64]))
def test_negatives_are_drawn_by_distance_as_in_the_authors_code(seed: int, dim: int) -> None:
    ids = [0, 1, 0, 2, 3, 4]
    pairs, _ = doubled(batch(ids, ids, seed, dim))
    cosines = pairs.cosines().detach()
    allowed = pairs.negative & (cosines > 1 - 1.7**2 / 2)
    found = masked_softmax(inverse_density(cosines, dim, 0.5), allowed)
    torch.testing.assert_close(found, literal.negative_probabilities(cosines, ids, dim, 0.5, 1.7), atol=1e-9, rtol=1e-6)


@pytest.mark.parametrize("mechanism", ["fusion", "standalone"])
@pytest.mark.parametrize("consistent", [True, False])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_loss_is_equation_14_with_ten_times_the_regularisation(mechanism: Any, consistent: bool, seed: int) -> None:
    pairs, leaves = pairs_of(seed)
    torch.manual_seed(seed)
    relation = Relation(mechanism, negatives="hardest", heads=2, dropout=0.0, matches=2, consistent=consistent)
    relation.fit(SimpleNamespace(embedding_dim=DIM))  # type: ignore[arg-type]
    relation.double()
    assert relation.attention is not None
    v, u = pairs.images.embedding, pairs.texts.embedding
    v_bar, u_bar = relation.attention(v, u, relation.graph(pairs))
    patches, words = fragments_of(pairs)
    s_i2t = literal_relevance(relation.graph.to_text, patches, words, 2)
    s_t2i = literal_relevance(relation.graph.to_image, words, patches, 2)
    terms = literal.TERMS_FULL if consistent else literal.TERMS_WITHOUT_CROSS
    expected = literal.cross_eq14(
        lambda images, texts: literal.triplet_hardest(images, texts, [0, 1, 2, 3]), v, u, v_bar, u_bar, terms
    ) + literal.REG_WEIGHT * literal.regularisation_eq11(s_i2t, s_t2i, v, u)
    found = value(relation, pairs)
    torch.testing.assert_close(found, expected)
    leaves += relation.parameters()
    for one, other in zip(gradients(found, leaves), gradients(expected, leaves), strict=True):
        torch.testing.assert_close(one, other, atol=1e-8, rtol=1e-6)


def test_regions_are_dropped_as_in_the_authors_code() -> None:
    torch.manual_seed(3)
    draws = torch.rand(20, 12)
    torch.manual_seed(3)
    kept = dropped(torch.ones(20, 12, dtype=torch.bool), 0.2)
    for row, own in zip(kept, draws.tolist(), strict=True):
        assert row.nonzero().flatten().tolist() == literal.augment_regions(range(12), own)
