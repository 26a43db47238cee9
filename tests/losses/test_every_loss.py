"""What every loss must do, whatever its settings."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Literal, get_origin, get_type_hints

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tiny
from losses.batches import BATCHES, batch, gradients, shards, sources, value
from sightline.losses import LOSSES, Contrastive, Distill, Listwise, Loss, Matching, Matryoshka, Pairs, Triplet
from sightline.models import EncodedTensors, Tokens
from sightline.models.retriever import Retriever

CUTS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=3)
EVERY: dict[str, Callable[[], Loss]] = {
    "triplet hardest": lambda: Triplet(0.2, "hardest"),
    "triplet mean": lambda: Triplet(0.2, "mean"),
    "triplet sum": lambda: Triplet(0.2, "sum"),
    "triplet distance": lambda: Triplet(0.2, "distance"),
    "triplet hardest summed": lambda: Triplet(0.2, "hardest", reduction="sum"),
    "triplet on fragments": lambda: Triplet(0.6, "sum", on="fragments"),
    "triplet hardest on fragments": lambda: Triplet(0.6, "hardest", on="fragments"),
    "contrastive": lambda: Contrastive(0.1),
    "contrastive smoothed": lambda: Contrastive(0.1, label_smoothing=0.1),
    "contrastive on fragments": lambda: Contrastive(0.5, on="fragments"),
    "contrastive on states": lambda: Contrastive(0.1, on="states"),
    "matryoshka": lambda: Matryoshka((2,), 0.5),
    "matching random": lambda: Matching("random", "both"),
    "matching random one": lambda: Matching("random", "one"),
    "matching hard": lambda: Matching("hard", "both"),
    "matching hard one": lambda: Matching("hard", "one"),
    "matching in chunks": lambda: Matching("hard", "both", chunk=2),
    "listwise": lambda: Listwise(2),
    "listwise in chunks": lambda: Listwise(2, chunk=3),
    "distill": lambda: Distill("embedding", 2.0, 0.5),
    "distill on fragments": lambda: Distill("fragments", 12.0, 12.0),
    "distill over positives": lambda: Distill("embedding", 2.0, 0.5, over="positives"),
}


@pytest.mark.parametrize("name", EVERY)
@settings(max_examples=12, deadline=None)
@given(pairs=BATCHES, cuts=CUTS, seed=st.integers(0, 99))
def test_shares_add_up_to_the_whole(name: str, pairs: Pairs, cuts: list[tuple[int, int]], seed: int) -> None:
    objective = EVERY[name]()
    leaves = [*sources(pairs), *objective.parameters()]
    whole = value(objective, pairs, seed)
    text_cuts = [min(cut, len(pairs.text_ids)) for cut, _ in cuts]
    image_cuts = [min(cut, len(pairs.image_ids)) for _, cut in cuts]
    shares = [value(objective, shard, seed) for shard in shards(pairs, text_cuts, image_cuts)]
    torch.testing.assert_close(torch.stack(shares).sum(), whole, rtol=1e-6, atol=1e-6)
    parts = [gradients(share, leaves) for share in shares]
    for expected, *found in zip(gradients(whole, leaves), *parts, strict=True):
        torch.testing.assert_close(torch.stack(found).sum(0), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize(
    ("text_ids", "image_ids"), [([7], [7]), ([7, 7, 7], [7, 7]), ([1, 2], [3]), ([1], [2, 3])], ids=str
)
def test_without_negatives_or_without_positives_there_is_no_loss(
    name: str, text_ids: list[int], image_ids: list[int]
) -> None:
    pairs = batch(text_ids, image_ids)
    loss = value(EVERY[name](), pairs)
    assert loss.dtype == torch.float32
    assert loss.requires_grad
    assert loss == 0
    assert all((gradient == 0).all() for gradient in gradients(loss, sources(pairs)))


@pytest.mark.parametrize("name", EVERY)
def test_gradients_reach_what_it_needs_and_nothing_else(name: str) -> None:
    pairs, objective = batch([0, 0, 1, 2, 3], [0, 1, 2, 3], seed=2), EVERY[name]()
    value(objective, pairs).backward()
    for side in (pairs.texts, pairs.images):
        for field in ("embedding", "fragments", "states"):
            assert (getattr(side, field).grad is not None) == (field in objective.needs)


@pytest.mark.parametrize("name", EVERY)
def test_the_same_generator_gives_the_same_loss(name: str) -> None:
    pairs, objective = batch([0, 0, 1, 2, 3], [0, 1, 2, 3]), EVERY[name]()
    assert value(objective, pairs, seed=5) == value(objective, pairs, seed=5)


@pytest.mark.parametrize("name", ["triplet distance", "matching random", "matching hard", "listwise"])
def test_another_generator_gives_other_negatives(name: str) -> None:
    pairs, objective = batch([0, 0, 1, 2, 3], [0, 1, 2, 3]), EVERY[name]()
    assert len({value(objective, pairs, seed).item() for seed in range(8)}) > 1


def encode(model: Retriever) -> Pairs:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(4, len(tiny.WORDS), (6, 7), generator=generator)
    ids[3:, 5:] = 0
    pixels = torch.randn(4, 3, 32, 32, generator=generator)
    texts, images = model.encode_texts(Tokens(ids, ids != 0)), model.encode_images(pixels)
    taught = torch.randn(6, 4, generator=generator)
    return Pairs(texts, images, torch.tensor([0, 0, 1, 2, 3, 3]), torch.arange(4), teacher_scores=taught)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("architecture", ["dual-shared", "dual-own", "single", "dual-clusters", "single-codes"])
def test_it_trains_a_real_model(name: str, architecture: str) -> None:
    model, objective = tiny.retriever({**tiny.PIXEL_MODELS, **tiny.INFLATED_MODELS}[architecture]), EVERY[name]()
    loss = objective(encode(model), model, torch.Generator().manual_seed(0))
    loss.backward()
    assert loss > 0
    found = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    assert all(gradient.isfinite().all() for gradient in found)
    assert sum(gradient.abs().sum() for gradient in found) > 0


@pytest.mark.parametrize("kind", [Matching, Listwise])
def test_chunks_of_a_real_model_give_the_same_gradients(kind: type[Matching | Listwise]) -> None:
    found = []
    for chunk in (0, 4):
        model = tiny.retriever(tiny.DUAL)
        kind(chunk=chunk)(encode(model), model, torch.Generator().manual_seed(0)).backward()
        found.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    assert found[0].keys() == found[1].keys()
    for name, gradient in found[0].items():
        torch.testing.assert_close(found[1][name], gradient, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", EVERY)
def test_under_autocast_cosines_and_loss_stay_in_float32(name: str) -> None:
    pairs, objective = batch([0, 0, 1, 2, 3], [0, 1, 2, 3]), EVERY[name]()
    expected = value(objective, pairs)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert pairs.cosines().dtype == torch.float32
        loss = value(objective, pairs)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize("name", LOSSES)
def test_every_setting_of_a_recipe_is_simple_typed_and_has_a_default(name: str) -> None:
    kind = LOSSES[name]
    hints = get_type_hints(kind.__init__)
    for setting in list(inspect.signature(kind.__init__).parameters.values())[1:]:
        hint = hints[setting.name]
        assert hint in (bool, int, float, str, float | None, tuple[int, ...]) or get_origin(hint) is Literal
        assert setting.default is not inspect.Parameter.empty
    assert isinstance(kind(), Loss)


@pytest.mark.parametrize("name", [name for name in EVERY if not name.startswith("listwise")])
def test_an_image_excluded_for_every_text_changes_nothing(name: str) -> None:
    without = batch([0, 0, 1, 2, 3], [0, 1, 2, 3], seed=3)
    among = batch([0, 0, 1, 2, 3], [0, 1, 2, 3, 9], seed=3)
    both = zip(without.images[:4], among.images[:4], strict=True)
    images = EncodedTensors(*(torch.cat([own, other[-1:]]) for own, other in both))  # type: ignore[arg-type,index]
    taught = torch.cat([without.teacher_scores, torch.full((5, 1), 50.0)], 1)  # type: ignore[list-item]
    excluded = (among.image_ids == 9).expand(5, -1)
    more = dataclasses.replace(
        without, images=images, image_ids=among.image_ids, teacher_scores=taught, excluded=excluded
    )
    objective = EVERY[name]()
    torch.testing.assert_close(value(objective, more), value(objective, without))


@pytest.mark.parametrize("count", [1, 2, 9])
def test_listwise_never_ranks_against_an_excluded_image(count: int) -> None:
    pairs = batch([0, 1, 2], [0, 1, 2], seed=4)
    excluded = ~torch.eye(3, dtype=torch.bool)
    assert value(Listwise(count), dataclasses.replace(pairs, excluded=excluded)) == 0


@pytest.mark.parametrize("name", [name for name in EVERY if name.split()[0] in ("triplet", "contrastive", "distill")])
def test_images_of_one_label_are_positives_as_if_they_were_one(name: str) -> None:
    by_label = batch([0, 0, 1], [0, 0, 1], seed=5)
    own = dataclasses.replace(by_label, text_ids=torch.arange(3), image_ids=torch.arange(3))
    told = dataclasses.replace(own, also_positive=by_label.positive)
    objective = EVERY[name]()
    torch.testing.assert_close(value(objective, told), value(objective, by_label))
    if not name.startswith("distill"):  # whose distributions do not ask which pairs are positive
        assert value(objective, told) != value(objective, own)
