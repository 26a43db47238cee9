"""Late interaction with what is stored: the naive sum of best cosines, however items are cut up."""

import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval.slow_reference import maxsim
from sightline.bundle import Bundle, Encoded
from sightline.datasets import read_all
from sightline.errors import ModelError
from sightline.media import to_pixels
from sightline.registry.loader import locate
from sightline.retrieval.late import LateScorer
from sightline.retrieval.maxsim import patches_with_texts, words_with_images
from sightline.retrieval.product import product
from sightline.stores.base import QuantizedRows, Shape
from sightline.stores.local import LocalStore

lengths = st.lists(st.integers(1, 6), max_size=7)


def rows_of(rng: np.random.Generator, lengths: list[int], dim: int) -> QuantizedRows:
    count = sum(lengths)
    values = rng.integers(-127, 128, (count, dim), dtype=np.int8)
    return QuantizedRows(values, rng.uniform(0.001, 0.01, count).astype(np.float32), np.array(lengths, dtype=np.int64))


def items_of(rows: QuantizedRows) -> list[np.ndarray]:
    vectors = rows.values.astype(np.float64) * rows.scales[:, None]
    return np.split(vectors, np.cumsum(rows.lengths)[:-1]) if len(rows.lengths) else []


@given(lengths, st.integers(1, 5), st.integers(1, 9), st.integers(0, 999))
@settings(deadline=None)
def test_both_directions_are_the_naive_maxsim(lengths: list[int], own: int, dim: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    asked, stored = rng.standard_normal((own, dim)).astype(np.float32), rows_of(rng, lengths, dim)
    images = [maxsim(asked, item) for item in items_of(stored)]
    texts = [maxsim(item, asked) for item in items_of(stored)]
    np.testing.assert_allclose(words_with_images(asked, stored), images, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(patches_with_texts(asked, stored), texts, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("lengths", [[3, 3, 3], [3, 1, 5]])
def test_a_long_text_gets_the_scores_of_its_words_together(lengths: list[int]) -> None:
    rng = np.random.default_rng(1)
    asked, stored = rng.standard_normal((40, 16)).astype(np.float32), rows_of(rng, lengths, 16)
    each = [words_with_images(word[None], stored) for word in asked]
    np.testing.assert_allclose(words_with_images(asked, stored), np.sum(each, axis=0), rtol=1e-5)


def test_products_are_computed_in_the_calling_thread() -> None:
    """Threads of the numpy library wait for one another by spinning, for ever on a busy machine."""
    rng = np.random.default_rng(2)
    rows, vectors = (
        rng.standard_normal((20_000, 128), dtype=np.float32),
        rng.standard_normal((128, 32), dtype=np.float32),
    )
    np.testing.assert_allclose(product(rows[:99], vectors), rows[:99] @ vectors, rtol=1e-4, atol=1e-4)
    own, every = time.thread_time(), time.process_time()
    product(rows, vectors)
    own, every = time.thread_time() - own, time.process_time() - every
    assert every < 1.5 * own


def test_without_fragments_there_is_nothing_to_compare() -> None:
    stored = rows_of(np.random.default_rng(2), [2, 1], 4)
    for score in (words_with_images, patches_with_texts):
        with pytest.raises(ModelError, match="query has no fragments"):
            score(np.empty((0, 4), np.float32), stored)
        with pytest.raises(ModelError, match=r"stored (image|text) has no fragments"):
            score(np.ones((1, 4), np.float32), stored._replace(lengths=np.array([3, 0])))


def shared(fragments: np.ndarray, words: list[np.ndarray], folder: Path, k: int = 20) -> float:
    """The share of the k best by float32 fragments [images, n, dim] that are among the k best by stored ones."""
    count, mask = len(fragments), np.ones(fragments.shape[:2], dtype=np.bool_)
    store = LocalStore.open(folder, Shape(4, fragments.shape[2]), write=True)
    store.add(np.arange(count), Encoded(np.ones((count, 4), np.float32), mask, fragments))
    shares = []
    for own in words:
        text = Encoded(np.ones((1, 4), np.float32), np.ones((1, len(own)), dtype=np.bool_), own[None])
        exact = (own @ fragments.transpose(0, 2, 1)).max(axis=2).sum(axis=1)
        rounded = LateScorer(store, text, "images").scores(np.arange(count))
        shares.append(len(set(np.argsort(-exact)[:k]) & set(np.argsort(-rounded)[:k])) / k)
    store.close()
    return float(np.mean(shares))


def test_stored_fragments_keep_the_top_20_of_float32(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    fragments = rng.standard_normal((400, 49, 128)).astype(np.float32)
    fragments /= np.linalg.norm(fragments, axis=2, keepdims=True)
    words = [rng.standard_normal((12, 128)).astype(np.float32) for _ in range(20)]
    assert shared(fragments, words, tmp_path) >= 0.95


def test_stored_fragments_keep_the_top_6_of_float32_on_photos(data: Path, tmp_path: Path) -> None:
    bundle = Bundle.open(locate("default"))
    records = read_all([str(data / "flickr8k-test.tar")])[:24]
    pixels = np.stack([to_pixels(record.image, bundle.preprocess) for record in records])
    parts = [bundle.encode_images(some).fragments for some in np.array_split(pixels, 6)]
    fragments = np.concatenate([part for part in parts if part is not None]).astype(np.float32)
    texts = [bundle.encode_texts([record.captions_in("en")[0]]) for record in records]
    words = [text.fragments[0][text.mask[0]] for text in texts if text.fragments is not None]
    assert shared(fragments, words, tmp_path, k=6) >= 0.95
