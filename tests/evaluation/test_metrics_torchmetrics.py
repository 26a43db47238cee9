"""The same recalls from torchmetrics, query by query, on scores without ties.

Its hit rate takes scores of any sign. Its recall ignores right items whose score is not positive, so it is given
exp(score): the same order, and always positive.
"""

from typing import Any

import numpy as np
import pytest

from sightline.evaluation.metrics import image_to_text_ranks, recall, text_to_image_ranks

torch = pytest.importorskip("torch")

COUNTS = [1, 5, 2, 7, 0, 3, 1, 0, 4, 5, 6, 2]


@pytest.fixture(scope="module")
def retrieval() -> Any:
    """Imported when a test wants it: it takes more than a second, in every process that runs tests."""
    return pytest.importorskip("torchmetrics.functional.retrieval")


def hit_rate(retrieval: Any, scores: np.ndarray, right: np.ndarray, k: int) -> float:
    """Percentage of rows with a right item among the k best, by torchmetrics."""
    hits = [
        retrieval.retrieval_hit_rate(torch.tensor(row), torch.tensor(target), top_k=k).item()
        for row, target in zip(scores, right, strict=True)
    ]
    return 100 * float(np.mean(hits))


@pytest.mark.parametrize("shift", [0.0, 10.0, -10.0], ids=["mixed", "positive", "negative"])
@pytest.mark.parametrize("k", [1, 5, 10])
def test_recalls_agree_with_torchmetrics(retrieval: Any, shift: float, k: int) -> None:
    rng = np.random.default_rng(3)
    image_of = rng.permutation(np.repeat(np.arange(len(COUNTS)), COUNTS))
    scores = rng.standard_normal((len(image_of), len(COUNTS))) + shift
    scores[np.arange(len(image_of)), image_of] += 0.5
    right = image_of[:, None] == np.arange(len(COUNTS))
    queries = np.array(COUNTS) > 0
    assert recall(text_to_image_ranks(scores, image_of), k) == pytest.approx(hit_rate(retrieval, scores, right, k))
    found = recall(image_to_text_ranks(scores, image_of), k)
    assert found == pytest.approx(hit_rate(retrieval, scores.T[queries], right.T[queries], k))


def test_with_one_right_image_hit_rate_and_recall_are_the_same(retrieval: Any) -> None:
    rng = np.random.default_rng(4)
    scores, image_of = rng.standard_normal((20, 8)), rng.integers(0, 8, 20)
    theirs = [
        retrieval.retrieval_recall(torch.tensor(np.exp(row)), torch.arange(8) == image, top_k=5).item()
        for row, image in zip(scores, image_of, strict=True)
    ]
    assert recall(text_to_image_ranks(scores, image_of), 5) == pytest.approx(100 * np.mean(theirs))
