"""The losses and the cascade of paper 1 are its equations, in float64 where there are gradients."""

from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from losses import literal_coop as literal
from losses.batches import Judge, batch, gradients, sources, value
from losses.test_literal_hrem import pairs_of
from sightline.losses import Matching, Triplet
from sightline.losses.matching import match_logits
from sightline.models.heads import MatchHead
from sightline.retrieval.candidates import Candidates
from sightline.retrieval.fusion import fuse, sigmoid
from sightline.retrieval.stages import Stage
from sightline.training.recipe import read_recipe
from sightline.training.schedule import weights_at

SEEDS = st.integers(0, 999)
RECIPES = Path(__file__).parents[2] / "recipes"


@settings(max_examples=8, deadline=None)
@given(seed=SEEDS)
def test_triplets_are_equation_2_averaged_over_pairs(seed: int) -> None:
    pairs, leaves = pairs_of(seed)
    found = value(Triplet(), pairs)
    expected = literal.triplet_batch_hard(pairs.images.embedding, pairs.texts.embedding, [0, 1, 2, 3])
    torch.testing.assert_close(found, expected)
    for one, other in zip(gradients(found, leaves), gradients(expected, leaves), strict=True):
        torch.testing.assert_close(one, other)


@settings(max_examples=8, deadline=None)
@given(seed=SEEDS)
def test_matching_is_the_cross_entropy_of_as_many_random_negatives_as_positives(seed: int) -> None:
    pairs, matching = batch(list(range(6)), list(range(6)), seed), Matching("random", "one")
    chosen = matching.choose(pairs, torch.Generator().manual_seed(seed))
    same = chosen.texts == chosen.images
    assert torch.equal(same, chosen.labels == 1)
    assert same.sum() == (~same).sum() == 6
    replaced_images, replaced_texts = (chosen.texts[~same], chosen.images[~same])
    assert sorted(replaced_images[:3].tolist()) == [0, 2, 4], "half keep the text"
    assert sorted(replaced_texts[3:].tolist()) == [1, 3, 5], "half keep the image"
    logits = match_logits(pairs, Judge(), chosen.texts, chosen.images)
    expected = literal.matching_bce(torch.sigmoid(logits.double()), chosen.labels)
    found = value(matching, pairs, seed)
    torch.testing.assert_close(found.double(), expected, atol=1e-5, rtol=1e-4)
    leaves = [leaf for leaf in sources(pairs) if leaf is pairs.texts.states or leaf is pairs.images.states]
    for one, other in zip(gradients(found, leaves), gradients(expected, leaves), strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-3)


def test_joint_training_alternates_and_embeds_as_often_as_the_bi_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIGHTLINE_DATA", "data")
    joint, alone = (read_recipe(RECIPES / f"{name}.toml") for name in ("joint", "be"))
    steps = [name for step in range(12) for name in weights_at(step, joint)]
    assert steps == list(islice(literal.joint_schedule(6), 12))
    assert joint.schedule.steps == 2 * alone.schedule.steps
    assert all(recipe.schedule.warmup == 0 and recipe.schedule.decay == "linear" for recipe in (joint, alone))


def test_logits_are_float32_under_autocast() -> None:
    torch.manual_seed(0)
    head, read = MatchHead(16), torch.randn(50, 3, 16)
    with torch.autocast("cpu", torch.bfloat16):
        found = head(read)
    assert found.dtype == torch.float32
    assert torch.equal(found, head(read))


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, k=st.integers(1, 8))
def test_reranking_orders_the_top_k_by_the_matcher_alone(seed: int, k: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    query, items = torch.randn(4, generator=generator), torch.randn(8, 4, generator=generator)
    logits = torch.randn(8, generator=generator).numpy()
    cosines = torch.stack([literal.cosine(query, item) for item in items]).numpy()
    order = np.argsort(-cosines)
    found = Stage("match", k, lambda ids: logits[ids], ("ce", 0.5)).run(Candidates.of(order, cosines[order]))
    assert found.ids.tolist()[:k] == literal.rerank(query, items, lambda item: float(logits[item]), k)
    assert found.ids.tolist()[k:] == order[k:].tolist()


@pytest.mark.parametrize("weight", [0.1, 0.5, 0.9])
def test_weighted_sums_are_equation_3(weight: float) -> None:
    random = np.random.default_rng(0)
    cosines, logits = random.normal(size=20), random.normal(size=20)
    chances = sigmoid(logits).tolist()
    assert fuse("add", cosines, logits, weight) == pytest.approx(literal.add_eq3(cosines.tolist(), chances, weight))
    expected = literal.norm_add(cosines.tolist(), chances, weight)
    assert fuse("norm_add", cosines, logits, weight) == pytest.approx(expected)
