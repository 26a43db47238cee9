import dataclasses
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from losses.batches import BATCHES, batch, gradients, masked_sum, sources, value
from sightline.errors import ModelError
from sightline.losses import Listwise, Pairs
from sightline.losses.negative_sampling import draw_several, uniform

TEMPERATURE = 0.3


def literal_draw(cosines: list[float], allowed: list[bool], numbers: list[float], count: int) -> list[int]:
    """The places of the `count` largest cosine / temperature + Gumbel noise, among those allowed."""
    noisy = {
        place: cosine / TEMPERATURE - math.log(-math.log(number))
        for place, (cosine, there, number) in enumerate(zip(cosines, allowed, numbers, strict=True))
        if there
    }
    return sorted(noisy, key=lambda place: -noisy[place])[:count]


@settings(max_examples=40, deadline=None)
@given(
    pairs=BATCHES,
    count=st.integers(1, 4),
    seed=st.integers(0, 999),
    terms=st.sampled_from([(0.0, 0), (5.0, 0), (5.0, 2), (0.0, 3)]),
)
def test_it_is_the_mean_surprise_at_the_right_one_of_each_list(
    pairs: Pairs, count: int, seed: int, terms: tuple[float, int]
) -> None:
    cosine, most = terms
    text_ids, image_ids = pairs.text_ids.tolist(), pairs.image_ids.tolist()
    generator = torch.Generator().manual_seed(seed)
    for_images = torch.rand(len(text_ids), len(image_ids), generator=generator).tolist()
    for_texts = torch.rand(len(text_ids), len(text_ids), generator=generator).tolist()
    cosines = pairs.texts.embedding.detach().double() @ pairs.images.embedding.detach().double().T
    assert pairs.texts.states is not None
    assert pairs.images.states is not None
    texts, images = masked_sum(pairs.texts.states, pairs.texts.mask), masked_sum(pairs.images.states, pairs.images.mask)
    surprises = []
    for t, text_id in enumerate(text_ids):
        if text_id not in image_ids or (most and t >= most):
            continue
        i = image_ids.index(text_id)
        others = literal_draw(cosines[t].tolist(), [x != text_id for x in image_ids], for_images[t], count)
        rivals = literal_draw(cosines[:, i].tolist(), [x != text_id for x in text_ids], for_texts[t], count)
        for lists in ([(t, j) for j in [i, *others]], [(d, i) for d in [t, *rivals]]):
            scores = torch.stack([(texts[d] * images[j]).sum() for d, j in lists])
            added = cosine * torch.stack([cosines[d, j] for d, j in lists]).float()
            surprises += [-(scores + added).log_softmax(0)[0]]
    loss = value(Listwise(count, TEMPERATURE, cosine=cosine, texts=most), pairs, seed)
    if not surprises:
        assert loss == 0
        return
    expected = torch.stack(surprises).mean()
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-6)
    for one, other in zip(gradients(loss, sources(pairs)), gradients(expected, sources(pairs)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_several_are_drawn_without_repetition_as_often_as_they_should_be() -> None:
    logits = torch.tensor([0.5, 2.0, -1.0, 9.0])
    allowed = torch.tensor([True, True, True, False])
    count = 60_000
    numbers = uniform((count, 4), torch.Generator().manual_seed(3), torch.device("cpu"))
    drawn = draw_several(logits.expand(count, -1), allowed.expand(count, -1), numbers, 2)
    chances = logits[:3].double().softmax(0)
    for first in range(3):
        for second in range(3):
            seen = int(((drawn[:, 0] == first) & (drawn[:, 1] == second)).sum())
            chance = 0.0 if first == second else float(chances[first] * chances[second] / (1 - chances[first]))
            assert abs(seen - chance * count) <= 4 * math.sqrt(chance * (1 - chance) * count)


def test_fewer_items_than_asked_are_all_drawn() -> None:
    drawn = draw_several(torch.zeros(1, 2), torch.tensor([[False, True]]), torch.full((1, 2), 0.5), 5)
    assert drawn.tolist() == [[1, 0]]


def test_only_states_get_gradients() -> None:
    pairs = batch([0, 1, 2], [0, 1, 2])
    value(Listwise(), pairs).backward()
    assert pairs.texts.embedding.grad is None
    assert pairs.texts.states is not None
    assert pairs.texts.states.grad is not None


def test_a_model_without_a_matcher_is_refused() -> None:
    pairs = batch([0, 1], [0, 1])
    pairs = dataclasses.replace(pairs, images=pairs.images._replace(states=None))
    with pytest.raises(ModelError, match="Build it with a matcher"):
        value(Listwise(), pairs)


@pytest.mark.parametrize(
    "wrong", [{"negatives": 0}, {"temperature": 0.0}, {"chunk": -1}, {"cosine": -1.0}, {"texts": -1}], ids=str
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ModelError, match=next(iter(wrong))):
        Listwise(**wrong)  # type: ignore[arg-type]
