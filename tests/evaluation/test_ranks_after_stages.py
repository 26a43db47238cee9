import dataclasses

import numpy as np
import pytest

from evaluation import slow_reference
from sightline.errors import EvaluationError
from sightline.evaluation.metrics import image_to_text_ranks, text_to_image_ranks
from sightline.evaluation.ranking import ranks_after_stages
from sightline.retrieval.candidates import Candidates

GALLERY = 14


def shortlist(scores: np.ndarray, k: int) -> Candidates:
    items = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return Candidates.of(items, np.take_along_axis(scores, items, axis=1))


def rescored(lists: Candidates, k: int, scores: np.ndarray) -> Candidates:
    return lists.reranked(np.take_along_axis(scores, lists.ids[:, :k], axis=1), f"stage {k} {lists.stages[0]}")


@pytest.mark.parametrize(("late", "match"), [(8, 3), (3, 8), (5, 5), (GALLERY, GALLERY), (1, 1), (GALLERY, 1)])
@pytest.mark.parametrize("ties", [False, True])
def test_ranks_after_two_stages_are_those_of_the_simulated_list(late: int, match: int, ties: bool) -> None:
    rng = np.random.default_rng(late * 100 + match)
    first, second, third = (rng.standard_normal((40, GALLERY)) for _ in range(3))
    if ties:
        second, third = np.round(second), np.round(third)
    right = rng.random((40, GALLERY)) < 0.15
    right[np.arange(40), rng.integers(0, GALLERY, 40)] = True
    lists = shortlist(first, max(late, match))
    lists = rescored(rescored(lists, late, second), match, third)
    whole = 1.0 + np.array(
        [(row[~own] >= row[own].max()).sum() for row, own in zip(first, right, strict=True)], dtype=float
    )
    ranks = ranks_after_stages(lists, np.take_along_axis(right, lists.ids, axis=1), whole)
    expected = [
        slow_reference.cascade(first[q], [(late, second[q]), (match, third[q])], set(np.flatnonzero(right[q])))
        for q in range(40)
    ]
    assert ranks.tolist() == expected


def test_reranking_everything_gives_the_ranks_of_the_new_scores() -> None:
    rng = np.random.default_rng(0)
    old, new = rng.standard_normal((2, 20, 6))
    image_of = rng.integers(0, 6, 20)
    lists = rescored(shortlist(old, 6), 6, new)
    ranks = ranks_after_stages(lists, lists.ids == image_of[:, None], text_to_image_ranks(old, image_of))
    np.testing.assert_array_equal(ranks, text_to_image_ranks(new, image_of))
    captions = rescored(shortlist(old.T, 20), 20, new.T)
    images = np.unique(image_of)
    own = image_of[captions.ids][images] == images[:, None]
    chosen = dataclasses.replace(captions, ids=captions.ids[images], scores=captions.scores[images])
    ranks = ranks_after_stages(chosen, own, image_to_text_ranks(old, image_of))
    np.testing.assert_array_equal(ranks, image_to_text_ranks(new, image_of))


def test_the_candidate_with_the_highest_new_score_comes_first() -> None:
    lists = shortlist(np.array([[0.9, 0.8, 0.7, 0.1]]), 3).reranked(np.array([[1.0, 3.0, 2.0]]), "match")
    assert lists.ids.tolist() == [[1, 2, 0]]
    assert lists.scores.tolist() == [[3.0, 2.0, 1.0]]


def test_what_a_stage_rescored_stays_before_what_it_did_not_however_low_its_scores() -> None:
    lists = shortlist(np.array([[0.9, 0.8, 0.7, 0.6]]), 4).reranked(np.array([[-50.0, -40.0]]), "match")
    assert lists.ids.tolist() == [[1, 0, 2, 3]]
    third = np.array([[False, False, True, False]])
    assert ranks_after_stages(lists, third, np.array([3.0])).tolist() == [3]


def test_the_embeddings_scores_travel_with_their_candidates() -> None:
    lists = shortlist(np.array([[0.9, 0.8, 0.7]]), 3).reranked(np.array([[1.0, 2.0, 3.0]]), "match")
    np.testing.assert_allclose(lists.embed, [[0.7, 0.8, 0.9]])


def test_a_tie_after_reranking_counts_against_the_model() -> None:
    lists = shortlist(np.array([[0.9, 0.8, 0.7]]), 3).reranked(np.array([[5.0, 5.0, 1.0]]), "match")
    assert ranks_after_stages(lists, lists.ids == 0, np.array([1.0])).tolist() == [2]


@pytest.mark.parametrize(("copy", "rank"), [(4.999, 2), (4.5, 1)])
def test_a_copy_that_rounding_scores_lower_counts_against_the_model(copy: float, rank: int) -> None:
    lists = shortlist(np.array([[0.9, 0.9 - 1e-7, 0.7]]), 3).reranked(np.array([[5.0, copy, 1.0]]), "match")
    assert ranks_after_stages(lists, lists.ids == 0, np.array([2.0])).tolist() == [rank]


def test_a_close_score_of_another_item_is_no_tie() -> None:
    lists = shortlist(np.array([[0.9, 0.8, 0.7]]), 3).reranked(np.array([[5.0, 4.999, 1.0]]), "match")
    assert ranks_after_stages(lists, lists.ids == 0, np.array([1.0])).tolist() == [1]


def test_a_right_item_outside_the_list_keeps_its_old_rank() -> None:
    lists = shortlist(np.array([[0.9, 0.8, 0.7]]), 2).reranked(np.array([[1.0, 2.0]]), "match")
    assert ranks_after_stages(lists, lists.ids == 2, np.array([3.0])).tolist() == [3]


def test_scores_for_more_than_the_list_holds_are_refused() -> None:
    with pytest.raises(EvaluationError, match=r"\(1, 3\)"):
        shortlist(np.array([[0.9, 0.8, 0.7]]), 2).reranked(np.zeros((1, 3)), "match")
