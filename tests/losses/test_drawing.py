import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sightline.losses.negative_sampling import draw, draw_each, inverse_density, masked_softmax, uniform


def test_draws_follow_the_softmax_over_what_is_allowed() -> None:
    logits = torch.tensor([0.5, 2.0, -1.0, 9.0, 0.0, -60.0])
    allowed = torch.tensor([True, True, True, False, True, True])
    count = 60_000
    numbers = uniform((count,), torch.Generator().manual_seed(3), torch.device("cpu"))
    drawn = draw(logits.expand(count, -1), allowed.expand(count, -1), numbers)
    seen = torch.bincount(drawn, minlength=6).double()
    expected = logits.double().masked_fill(~allowed, -torch.inf).softmax(0) * count
    assert seen[3] == seen[5] == 0
    chi_square = ((seen - expected) ** 2 / expected)[[0, 1, 2, 4]].sum()
    assert chi_square < 16.3  # exceeded once in a thousand times with three degrees of freedom


@settings(max_examples=60, deadline=None)
@given(
    allowed=st.lists(st.booleans(), min_size=1, max_size=9),
    number=st.sampled_from([0.0, 1e-8, 0.3, 0.5, 0.999, 1 - 2**-24, 1.0]),
    spread=st.sampled_from([0.0, 1.0, 50.0, 1e4]),
    seed=st.integers(0, 99),
)
def test_what_is_not_allowed_is_never_drawn(allowed: list[bool], number: float, spread: float, seed: int) -> None:
    logits = spread * torch.randn(1, len(allowed), generator=torch.Generator().manual_seed(seed))
    mask = torch.tensor([allowed])
    drawn = int(draw(logits, mask, torch.tensor([number])))
    assert 0 <= drawn < len(allowed)
    assert allowed[drawn] or not any(allowed)


def test_every_number_of_a_row_draws_as_if_it_were_alone() -> None:
    generator = torch.Generator().manual_seed(0)
    logits, numbers = torch.randn(2, 3, 7, generator=generator), torch.rand(2, 3, 40, generator=generator)
    allowed = torch.rand(2, 3, 7, generator=generator) < 0.8
    found = draw_each(logits, allowed, numbers)
    alone = [draw(logits.flatten(0, 1), allowed.flatten(0, 1), some) for some in numbers.flatten(0, 1).T]
    assert torch.equal(found.flatten(0, 1), torch.stack(alone, 1))
    assert found.unique().numel() > 4


def test_a_number_on_the_border_of_two_items_draws_the_second() -> None:
    numbers = torch.tensor([[0.0, 0.25, 0.5, 0.75]])
    assert draw_each(torch.zeros(1, 2), torch.ones(1, 2, dtype=torch.bool), numbers).tolist() == [[0, 0, 1, 1]]


def test_a_row_that_allows_nothing_has_no_weight() -> None:
    weights = masked_softmax(torch.tensor([[1.0, 2.0], [1.0, 2.0]]), torch.tensor([[False, False], [True, False]]))
    assert weights.tolist() == [[0, 0], [1, 0]]


@pytest.mark.parametrize("dim", [3, 16, 512, 1024])
def test_weights_are_the_inverse_of_the_density_of_distances(dim: int) -> None:
    cosines = torch.tensor([-0.4, -0.1, 0.0, 0.2, 0.5, 0.8, 0.9, 1.0, 1.0000001])

    def log_density(distance: float) -> float:
        return (dim - 2) * math.log(distance) + (dim - 3) / 2 * math.log(1 - distance**2 / 4)

    distances = [max(0.5, math.sqrt(max(0, 2 - 2 * float(cosine)))) for cosine in cosines]
    expected = torch.tensor([-log_density(distance) for distance in distances])
    torch.testing.assert_close(inverse_density(cosines, dim, nearest=0.5), expected, rtol=1e-4, atol=1e-4)


def test_weighted_by_it_random_points_are_drawn_at_all_distances_alike() -> None:
    generator = torch.Generator().manual_seed(0)
    points = torch.nn.functional.normalize(torch.randn(200_000, 6, generator=generator), dim=1)
    cosines = points[:, 0]
    distances = (2 - 2 * cosines).sqrt()
    weights = inverse_density(cosines, 6, nearest=0.5).exp()
    inside = (distances > 0.6) & (distances < 1.8)
    share = torch.histogram(distances[inside], bins=6, range=(0.6, 1.8), weight=weights[inside]).hist
    torch.testing.assert_close(share / share.sum(), torch.full((6,), 1 / 6), rtol=0.05, atol=0)


@pytest.mark.parametrize("cosine", [-1.0, 1.0])
def test_opposite_and_equal_points_have_finite_weights(cosine: float) -> None:
    assert torch.isfinite(inverse_density(torch.tensor([cosine]), 512, nearest=0.5)).all()
