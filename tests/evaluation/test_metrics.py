import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from evaluation import slow_reference
from sightline.errors import EvaluationError
from sightline.evaluation.metrics import (
    image_to_text_ranks,
    recall,
    summary,
    text_to_image_ranks,
)
from sightline.evaluation.result import Recalls


def captions_per_image(counts: list[int]) -> np.ndarray:
    return np.repeat(np.arange(len(counts)), counts)


CASES = {
    "one caption each": [1] * 9,
    "seven captions each": [7] * 5,
    "unequal numbers": [1, 5, 2, 7, 3],
    "distractors without captions": [3, 0, 2, 0, 0, 1],
}


@pytest.mark.parametrize("counts", CASES.values(), ids=CASES)
@pytest.mark.parametrize("ties", [False, True])
def test_ranks_agree_with_the_slow_reference(counts: list[int], ties: bool) -> None:
    rng = np.random.default_rng(len(counts))
    image_of = rng.permutation(captions_per_image(counts))
    for _ in range(20):
        scores = rng.standard_normal((len(image_of), len(counts)))
        scores = np.round(scores) if ties else scores
        np.testing.assert_array_equal(
            text_to_image_ranks(scores, image_of), slow_reference.text_to_image(scores, image_of.tolist())
        )
        np.testing.assert_array_equal(
            image_to_text_ranks(scores, image_of), slow_reference.image_to_text(scores, image_of.tolist())
        )


@st.composite
def scored_captions(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Scores that are small whole numbers, so that there are ties and adding a constant is exact."""
    captions, images = draw(st.integers(1, 12)), draw(st.integers(1, 8))
    scores = draw(arrays.arrays(np.float64, (captions, images), elements=st.integers(-3, 3)))
    image_of = draw(arrays.arrays(np.int64, captions, elements=st.integers(0, images - 1)))
    return scores, image_of


@given(scored_captions(), st.integers(-1000, 1000))
@settings(max_examples=60, deadline=None)
def test_adding_a_constant_to_all_scores_changes_no_rank(case: tuple[np.ndarray, np.ndarray], constant: int) -> None:
    scores, image_of = case
    for ranks in (text_to_image_ranks, image_to_text_ranks):
        np.testing.assert_array_equal(ranks(scores + constant, image_of), ranks(scores, image_of))


@given(scored_captions())
@settings(max_examples=60, deadline=None)
def test_any_scores_agree_with_the_slow_reference(case: tuple[np.ndarray, np.ndarray]) -> None:
    scores, image_of = case
    assert text_to_image_ranks(scores, image_of).tolist() == slow_reference.text_to_image(scores, image_of.tolist())
    assert image_to_text_ranks(scores, image_of).tolist() == slow_reference.image_to_text(scores, image_of.tolist())


def test_all_negative_scores_are_ranked_like_any_others() -> None:
    scores = np.array([[-0.1, -0.5], [-0.9, -0.3]])
    assert text_to_image_ranks(scores, np.array([0, 1])).tolist() == [1, 1]


def test_a_model_that_scores_everything_alike_finds_nothing() -> None:
    scores, image_of = np.zeros((50, 10)), captions_per_image([5] * 10)
    assert set(text_to_image_ranks(scores, image_of)) == {10}
    assert set(image_to_text_ranks(scores, image_of)) == {46}


def test_a_rank_is_not_an_argsort() -> None:
    """The right image has the second highest score; its column in one argsort would say otherwise."""
    scores = np.array([[0.2, 0.8, 0.1, 0.5]])
    assert np.argsort(-scores)[0, 3] != 1
    assert text_to_image_ranks(scores, np.array([3])).tolist() == [2]


def test_the_highest_score_wins_not_the_lowest() -> None:
    scores = np.array([[0.9, 0.1], [0.2, 0.7]])
    assert text_to_image_ranks(scores, np.array([0, 1])).tolist() == [1, 1]
    assert image_to_text_ranks(scores, np.array([0, 1])).tolist() == [1, 1]


def test_one_found_caption_of_five_is_a_full_hit_and_not_a_fifth() -> None:
    image_of = captions_per_image([5, 5])
    scores = np.full((10, 2), 0.5)
    scores[:5, 0], scores[5:, 0] = [0.9, 0.1, 0.1, 0.1, 0.1], 0.5
    assert image_to_text_ranks(scores, image_of)[0] == 1


def test_sister_captions_do_not_stand_in_each_others_way() -> None:
    scores = np.array([[0.9], [0.9], [0.9]])
    assert image_to_text_ranks(scores, np.array([0, 0, 0])).tolist() == [1]


def test_a_caption_whose_image_is_not_there_is_missed_and_still_stands_in_the_way() -> None:
    scores = np.array([[0.1, 0.2], [0.9, 0.3]])
    image_of = np.array([0, -1])
    assert text_to_image_ranks(scores, image_of).tolist() == [2, np.inf]
    assert image_to_text_ranks(scores, image_of).tolist() == [2]


@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("ranks", [text_to_image_ranks, image_to_text_ranks])
def test_scores_that_are_not_finite_are_refused_with_their_row(broken: float, ranks) -> None:  # type: ignore[no-untyped-def]
    scores = np.zeros((4, 3))
    scores[2, 1] = broken
    with pytest.raises(EvaluationError, match=r"row 2, column 1"):
        ranks(scores, np.array([0, 1, 2, 0]))


@pytest.mark.parametrize("image_of", [[0, 1], [0, 1, 3], [0, 1, -2]])
def test_a_mapping_that_does_not_fit_is_refused(image_of: list[int]) -> None:
    with pytest.raises(EvaluationError, match="image_of"):
        text_to_image_ranks(np.zeros((3, 3)), np.array(image_of))


def test_recall_counts_queries_within_k_in_percent() -> None:
    ranks = np.array([1, 2, 5, 6, 10, 11, np.inf, 1])
    assert recall(ranks, 1) == 25
    assert recall(ranks, 5) == 50
    assert recall(ranks, 10) == 75
    assert summary(ranks) == {"R@1": 25, "R@5": 50, "R@10": 75, "medR": 5.5}


def test_the_median_rank_is_infinite_when_most_is_never_found() -> None:
    assert summary(np.array([1.0, np.inf, np.inf]))["medR"] == np.inf
    assert summary(np.array([1.0, 2.0, np.inf]))["medR"] == 2


def test_rsum_adds_six_recalls_and_mr_averages_them() -> None:
    class PerfectAndHalf(Recalls):
        def parts(self) -> list[tuple[dict[str, float], dict[str, float]]]:
            return [(summary(np.ones(4)), summary(np.array([1.0, 1, 99, 99])))]

    assert PerfectAndHalf().r_sum == 450
    assert PerfectAndHalf().mean_recall == 75


def test_no_queries_are_refused() -> None:
    with pytest.raises(EvaluationError, match="no queries"):
        recall(np.zeros(0), 1)
