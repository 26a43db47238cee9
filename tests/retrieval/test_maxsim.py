"""Late interaction with what is stored: the naive sum of best cosines, however items are cut up."""

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
from sightline.retrieval import maxsim as interaction
from sightline.retrieval.late import LateScorer
from sightline.retrieval.maxsim import patches_with_texts, words_with_images
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


@pytest.mark.parametrize("tile", [1, 700, 10**9])
def test_scores_do_not_depend_on_how_products_are_tiled(tile: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    asked, stored = rng.standard_normal((5, 16)).astype(np.float32), rows_of(rng, [49, 3, 30, 1, 49], 16)
    before = words_with_images(asked, stored), patches_with_texts(asked, stored)
    monkeypatch.setattr(interaction, "_TILE", tile)
    np.testing.assert_allclose(words_with_images(asked, stored), before[0], rtol=1e-5)
    np.testing.assert_allclose(patches_with_texts(asked, stored), before[1], rtol=1e-5)


def test_products_stay_below_what_wakes_other_threads() -> None:
    """They would wait for one another by spinning, for ever on a busy machine."""
    for own, dim in ((8, 128), (32, 128), (64, 128), (12, 768)):
        tile = max(interaction._LEAST, interaction._TILE // (own * dim))
        assert own * dim * tile <= 4 * 65536


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
