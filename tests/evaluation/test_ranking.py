import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluation import slow_reference
from sightline.errors import EvaluationError
from sightline.evaluation import ranks_from_embeddings
from sightline.evaluation.metrics import image_to_text_ranks, recall, text_to_image_ranks
from sightline.evaluation.ranking import candidates_from_embeddings


def units(rng: np.random.Generator, rows: int, dim: int) -> np.ndarray:
    vectors = rng.standard_normal((rows, dim))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def captioned(seed: int, counts: list[int], dim: int = 16) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Captions near their images, in no particular order."""
    rng = np.random.default_rng(seed)
    images = units(rng, len(counts), dim)
    image_of = rng.permutation(np.repeat(np.arange(len(counts)), counts))
    texts = images[image_of] + 1.2 * units(rng, len(image_of), dim)
    return (texts / np.linalg.norm(texts, axis=1, keepdims=True)).astype(np.float32), images, image_of


@pytest.mark.parametrize("counts", [[1] * 30, [7] * 20, [1, 0, 5, 2, 0, 7] * 6], ids=["one", "seven", "unequal"])
@pytest.mark.parametrize("chunk", [1, 3, 7, 64, 10_000])
def test_ranks_in_chunks_are_those_of_the_whole_score_matrix(counts: list[int], chunk: int) -> None:
    texts, images, image_of = captioned(1, counts)
    scores = texts.astype(np.float64) @ images.astype(np.float64).T
    to_image, to_text = ranks_from_embeddings(texts, images, image_of, chunk=chunk)
    np.testing.assert_array_equal(to_image, text_to_image_ranks(scores, image_of))
    np.testing.assert_array_equal(to_text, image_to_text_ranks(scores, image_of))
    assert to_image.tolist() == slow_reference.text_to_image(scores, image_of.tolist())
    assert to_text.tolist() == slow_reference.image_to_text(scores, image_of.tolist())


@given(st.integers(1, 40), st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_the_size_of_a_chunk_changes_no_rank(chunk: int, seed: int) -> None:
    counts = np.random.default_rng(seed).integers(0, 5, 15).tolist()
    texts, images, image_of = captioned(seed, [*counts, 1])
    for ours, whole in zip(
        ranks_from_embeddings(texts, images, image_of, chunk=chunk),
        ranks_from_embeddings(texts, images, image_of),
        strict=True,
    ):
        np.testing.assert_array_equal(ours, whole)


@pytest.mark.parametrize("chunk", [5, 1000])
def test_an_image_and_its_copy_tie_wherever_in_the_matrix_they_stand(chunk: int) -> None:
    """Rounding differs between blocks of a product; it must not decide between equals."""
    texts, images, image_of = captioned(2, [3] * 50, dim=300)
    doubled = np.concatenate([images, images])
    alone, _ = ranks_from_embeddings(texts, images, image_of, chunk=chunk)
    with_copies, _ = ranks_from_embeddings(texts, doubled, image_of, chunk=chunk)
    np.testing.assert_array_equal(with_copies, 2 * alone)
    assert recall(with_copies, 1) == 0


def test_embeddings_that_are_all_alike_find_nothing() -> None:
    same = np.ones((12, 4), np.float32) / 2
    to_image, to_text = ranks_from_embeddings(same, same[:4], np.repeat(np.arange(4), 3))
    assert set(to_image) == {4}
    assert set(to_text) == {10}


@pytest.mark.parametrize("value", [0.5, 0.0])
def test_no_number_of_wrong_captions_is_too_large_to_count(value: float) -> None:
    """Counts are made in bytes; a thousand captions that all tie must not overflow them."""
    same = np.full((1000, 4), value, np.float32)
    to_image, to_text = ranks_from_embeddings(same, same[:10], np.arange(1000) % 10)
    assert set(to_image) == {10}
    assert set(to_text) == {901}


def test_half_precision_and_transposed_embeddings_are_welcome() -> None:
    texts, images, image_of = captioned(3, [2] * 20)
    strange = np.asfortranarray(texts.astype(np.float16)), np.asfortranarray(images.astype(np.float16))
    plain = texts.astype(np.float16).astype(np.float32), images.astype(np.float16).astype(np.float32)
    for ours, expected in zip(
        ranks_from_embeddings(*strange, image_of), ranks_from_embeddings(*plain, image_of), strict=True
    ):
        np.testing.assert_array_equal(ours, expected)


def test_a_caption_of_an_image_that_is_not_there_has_an_infinite_rank() -> None:
    texts, images, image_of = captioned(4, [2] * 10)
    image_of = image_of.copy()
    image_of[3] = -1
    scores = texts.astype(np.float64) @ images.astype(np.float64).T
    to_image, to_text = ranks_from_embeddings(texts, images, image_of, chunk=4)
    assert to_image[3] == np.inf
    np.testing.assert_array_equal(to_image, text_to_image_ranks(scores, image_of))
    np.testing.assert_array_equal(to_text, image_to_text_ranks(scores, image_of))


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_embeddings_that_are_not_finite_are_refused_with_their_row(broken: float) -> None:
    texts, images, image_of = captioned(5, [2] * 10)
    texts[7, 3] = broken
    with pytest.raises(EvaluationError, match="row 7 of text embeddings"):
        ranks_from_embeddings(texts, images, image_of)
    with pytest.raises(EvaluationError, match="row 7 of gallery embeddings"):
        candidates_from_embeddings(images, texts, 3)


@pytest.mark.parametrize("chunk", [1, 2, 5, 100])
@pytest.mark.parametrize("k", [1, 4, 37, 50])
def test_the_best_k_are_those_of_a_full_sort_with_the_lower_index_first_among_equals(k: int, chunk: int) -> None:
    rng = np.random.default_rng(6)
    queries = rng.integers(-1, 2, (9, 4)).astype(np.float32)
    gallery = rng.integers(-1, 2, (37, 4)).astype(np.float32)
    scores = queries @ gallery.T
    expected = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    found = candidates_from_embeddings(queries, gallery, k, chunk=chunk)
    np.testing.assert_array_equal(found.ids, expected)
    np.testing.assert_array_equal(found.scores, np.take_along_axis(scores, expected, 1))


def test_the_best_come_first_and_not_last() -> None:
    gallery = np.array([[0.1], [0.9], [0.5]], np.float32)
    found = candidates_from_embeddings(np.ones((1, 1), np.float32), gallery, 2)
    assert found.ids.tolist() == [[1, 2]]
    assert found.scores[0, 0] > found.scores[0, 1]


@pytest.mark.parametrize(("k", "chunk"), [(0, 10), (3, 0)])
def test_nothing_or_less_is_refused(k: int, chunk: int) -> None:
    vectors = np.ones((3, 2), np.float32)
    with pytest.raises(EvaluationError, match="at least"):
        candidates_from_embeddings(vectors, vectors, k, chunk=chunk)


def test_the_score_matrix_of_a_large_test_set_is_never_held() -> None:
    """5,000 by 25,000 float32 scores are 500 MB; a few numbers an item make the product quick and change no size."""
    texts, images, image_of = captioned(8, [5] * 5000, dim=4)
    tracemalloc.start()
    ranks_from_embeddings(texts, images, image_of)
    _, ranking = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    candidates_from_embeddings(images[:2000], texts, 20)
    _, searching = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert ranking < 60e6
    assert searching < 160e6
