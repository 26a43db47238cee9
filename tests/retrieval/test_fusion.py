import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval.slow_reference import maxsim
from sightline.errors import EvaluationError, ModelError, OptionError
from sightline.fusion_names import FUSIONS
from sightline.retrieval.fusion import fuse, sigmoid
from sightline.retrieval.maxsim import patches_with_texts
from sightline.stores.base import QuantizedRows


def units(rng: np.random.Generator, *shape: int) -> np.ndarray:
    vectors = rng.standard_normal(shape)
    return (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)).astype(np.float32)


def maxsim_texts(rows: np.ndarray, lengths: np.ndarray, image: np.ndarray) -> np.ndarray:
    """Scores of texts that are not quantised."""
    return patches_with_texts(image, QuantizedRows(rows, np.ones(len(rows), np.float32), lengths))


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.integers(1, 5), st.integers(1, 6), st.integers(0, 999))
@settings(deadline=None)
def test_texts_are_scored_as_the_naive_triple_loop_does(lengths: list[int], patches: int, dim: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, image = units(rng, sum(lengths), dim), units(rng, patches, dim)
    expected = [maxsim(text, image) for text in np.split(rows, np.cumsum(lengths)[:-1])]
    np.testing.assert_allclose(maxsim_texts(rows, np.array(lengths), image), expected, rtol=1e-4, atol=1e-5)


def test_words_add_up_in_float32_whatever_is_given() -> None:
    """Half precision cannot add 0.1 to 300: it would stop growing long before 4,000 words."""
    words, patch = np.full((4000, 1), 1, np.float16), np.full((1, 1), 0.1, np.float16)
    score = maxsim_texts(words, np.array([4000]), patch)
    assert score.dtype == np.float32
    assert score[0] == pytest.approx(4000 * float(np.float16(0.1)), rel=1e-4)


def test_without_fragments_there_is_nothing_to_score() -> None:
    words, image = np.ones((2, 3), np.float32), np.ones((1, 3), np.float32)
    with pytest.raises(ModelError, match="stored text has no fragments"):
        maxsim_texts(words, np.array([2, 0]), image)
    with pytest.raises(ModelError, match="query has no fragments"):
        maxsim_texts(words, np.array([2]), image[:0])
    assert maxsim_texts(words[:0], np.empty(0, np.int64), image).shape == (0,)


EMBED = np.array([[0.9, 0.5, 0.1], [0.2, 0.2, 0.2]], np.float32)
LOGITS = np.array([[-2.0, 3.0, 0.0], [1.0, 0.0, -1.0]], np.float32)


def test_ce_ranks_by_the_matcher_alone() -> None:
    np.testing.assert_array_equal(fuse("ce", EMBED, LOGITS, 0.7), LOGITS)


def test_ce_tells_confident_logits_apart_where_their_probabilities_are_equal() -> None:
    logits = np.array([[50.0, 60.0]], np.float32)
    assert len(set(sigmoid(logits)[0])) == 1
    assert fuse("ce", np.zeros_like(logits), logits, 0.5).argmax() == 1


def test_add_is_the_weighted_sum_of_cosine_and_probability() -> None:
    expected = 0.3 * EMBED + 0.7 / (1 + np.exp(-LOGITS.astype(np.float64)))
    np.testing.assert_allclose(fuse("add", EMBED, LOGITS, 0.3), expected, rtol=1e-6)


def test_norm_add_brings_both_to_zero_and_one_within_each_query() -> None:
    scores = fuse("norm_add", EMBED, LOGITS, 0.5)
    probability = 1 / (1 + np.exp(-LOGITS[0].astype(np.float64)))
    middle = (probability[2] - probability[0]) / (probability[1] - probability[0])
    np.testing.assert_allclose(scores[0], [0.5, 0.25 + 0.5, 0.5 * middle], rtol=1e-6)


def test_norm_add_of_equal_scores_is_zero_and_not_nan() -> None:
    scores = fuse("norm_add", EMBED[1:], np.zeros((1, 3), np.float32), 0.5)
    np.testing.assert_array_equal(scores, np.zeros((1, 3)))
    assert fuse("norm_add", EMBED[:, :1], LOGITS[:, :1], 0.5).tolist() == [[0.0], [0.0]]
    assert fuse("norm_add", EMBED[:, :0], LOGITS[:, :0], 0.5).shape == (2, 0)


def test_logit_add_is_the_logit_plus_a_weight_times_the_cosine() -> None:
    np.testing.assert_allclose(fuse("logit_add", EMBED, LOGITS, 4.0), LOGITS + 4 * EMBED, rtol=1e-6)


@pytest.mark.parametrize("rule", ["add", "norm_add"])
def test_the_weight_moves_the_order_from_the_matchers_to_the_embeddings(rule) -> None:  # type: ignore[no-untyped-def]
    assert np.argsort(-fuse(rule, EMBED, LOGITS, 0.0))[0].tolist() == np.argsort(-LOGITS)[0].tolist()
    assert np.argsort(-fuse(rule, EMBED, LOGITS, 1.0))[0].tolist() == np.argsort(-EMBED)[0].tolist()


@given(st.sampled_from(FUSIONS), st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=6), st.floats(0, 1))
@settings(max_examples=80, deadline=None)
def test_no_logit_makes_a_fusion_overflow(rule, logits: list[float], weight: float) -> None:  # type: ignore[no-untyped-def]
    values = np.array([logits], np.float32)
    assert np.isfinite(fuse(rule, np.zeros_like(values), values, weight)).all()


def test_what_cannot_be_fused_is_refused_with_a_way_out() -> None:
    with pytest.raises(OptionError, match="ce, add, norm_add, logit_add"):
        fuse("sum", EMBED, LOGITS, 0.5)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match=r"weight must be between 0 .* and 1 .* for add, not 1\.5"):
        fuse("add", EMBED, LOGITS, 1.5)
    with pytest.raises(OptionError, match="weight must be a finite number, not nan"):
        fuse("logit_add", EMBED, LOGITS, float("nan"))
    with pytest.raises(EvaluationError, match=r"\(2, 2\)"):
        fuse("ce", EMBED[:, :2], LOGITS, 0.5)
