import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightline.bundle.model import Calibration
from sightline.errors import EvaluationError
from sightline.evaluation.calibration import calibration_error, cross_calibrated, fit_calibration
from sightline.retrieval.relevance import relevance


@given(scale=st.floats(0.5, 20), bias=st.floats(-3, 3), seed=st.integers(0, 50))
def test_the_true_probabilities_are_found_again(scale: float, bias: float, seed: int) -> None:
    random = np.random.default_rng(seed)
    scores = random.normal(0, 2 / scale, 20_000)
    truth = Calibration(scale, bias)
    right = random.random(len(scores)) < relevance(scores, truth)
    fitted = fit_calibration(scores, right)
    assert np.abs(relevance(scores, fitted) - relevance(scores, truth)).max() < 0.06
    assert calibration_error(relevance(scores, fitted), right) < 0.03


def test_shifted_and_stretched_scores_give_the_same_probabilities() -> None:
    random = np.random.default_rng(0)
    scores = random.normal(size=500)
    right = random.random(500) < 1 / (1 + np.exp(-scores))
    one, other = fit_calibration(scores, right), fit_calibration(scores * 1000 - 7, right)
    np.testing.assert_allclose(relevance(scores, one), relevance(scores * 1000 - 7, other), atol=1e-6)


def test_scores_that_separate_perfectly_stay_finite() -> None:
    fitted = fit_calibration(np.array([-2.0, -1.0, 1.0, 2.0]), np.array([False, False, True, True]))
    assert np.isfinite([fitted.scale, fitted.bias]).all()
    assert relevance(np.array([2.0]), fitted)[0] > 0.95


@pytest.mark.parametrize("right", [[True, True], [False, False]])
def test_one_sided_answers_are_refused(right: list[bool]) -> None:
    with pytest.raises(EvaluationError, match="right and wrong"):
        fit_calibration(np.array([0.0, 1.0]), np.array(right))


def test_the_error_is_the_gap_between_stated_and_observed() -> None:
    chances = np.array([0.9] * 10 + [0.1] * 10)
    assert calibration_error(chances, np.array([True] * 9 + [False] + [True] + [False] * 9)) == pytest.approx(0)
    assert calibration_error(chances, np.array([True] * 5 + [False] * 5 + [False] * 10)) == pytest.approx(0.25)
    assert calibration_error(np.array([0.0, 1.0]), np.array([True, False])) == pytest.approx(1)


def test_the_error_of_a_calibration_is_that_on_the_half_it_was_not_fitted_on() -> None:
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((400, 5))
    right = rng.random(scores.shape) < relevance(scores, Calibration(2.0, -1.0))
    found = cross_calibrated(scores, right, np.arange(400), items=77)
    assert found.items == 77
    assert (found.scale, found.bias) == pytest.approx((2.0, -1.0), abs=0.4)
    assert found.error is not None
    assert found.error < 0.05
    shuffled = cross_calibrated(scores, np.where(np.arange(400)[:, None] % 2 == 0, right, ~right), np.arange(400), 77)
    assert shuffled.error is not None
    assert shuffled.error > 0.3, "what was learned on one half is wrong about the other"
