import numpy as np
import pytest

from sightline.bundle.ragged import RaggedBuilder
from sightline.errors import ModelError


def built(batches: list[tuple[np.ndarray, np.ndarray]]):  # type: ignore[no-untyped-def]
    builder = RaggedBuilder("states")
    for values, mask in batches:
        builder.add(values, mask)
    return builder.build()


def two_batches() -> list[tuple[np.ndarray, np.ndarray]]:
    """Items of 2, 1 | 3, 0 rows, numbered in order; padding is a number that must never come back."""
    first, second = np.full((2, 2, 1), 999.0, np.float32), np.full((2, 3, 1), 999.0, np.float32)
    first_mask, second_mask = np.array([[1, 1], [0, 1]], bool), np.array([[1, 1, 1], [0, 0, 0]], bool)
    first[first_mask, 0], second[second_mask, 0] = [1, 2, 3], [4, 5, 6]
    return [(first, first_mask), (second, second_mask)]


def test_only_what_the_mask_shows_is_kept_in_half_precision() -> None:
    ragged = built(two_batches())
    assert ragged.rows[:, 0].tolist() == [1, 2, 3, 4, 5, 6]
    assert ragged.rows.dtype == np.float16
    assert ragged.lengths.tolist() == [2, 1, 3, 0]


def test_items_come_back_in_any_order_padded_and_masked() -> None:
    values, mask = built(two_batches()).padded(np.array([2, 0, 2, 1]))
    assert values[:, :, 0].tolist() == [[4, 5, 6], [1, 2, 0], [4, 5, 6], [3, 0, 0]]
    assert mask.sum(axis=1).tolist() == [3, 2, 3, 1]
    assert values.dtype == np.float32


def test_items_come_back_end_to_end() -> None:
    rows, lengths = built(two_batches()).joined(np.array([1, 3, 0]))
    assert rows[:, 0].tolist() == [3, 1, 2]
    assert lengths.tolist() == [1, 0, 2]


def test_reordering_moves_items_and_not_rows() -> None:
    ragged = built(two_batches())
    turned = ragged.reordered(np.array([3, 2, 1, 0]))
    assert turned.rows is ragged.rows
    assert turned.joined(np.array([1, 2]))[0][:, 0].tolist() == [4, 5, 6, 3]


def test_numbers_too_large_for_half_precision_are_kept_whole() -> None:
    large = np.full((1, 1, 1), 1e6, np.float32)
    ragged = built([*two_batches(), (large, np.ones((1, 1), bool))])
    assert ragged.joined(np.array([4, 1]))[0][:, 0].tolist() == [1e6, 3]


def test_a_model_that_promised_states_and_gave_none_is_refused() -> None:
    with pytest.raises(ModelError, match="states of shape None"):
        RaggedBuilder("states").add(None, np.ones((2, 3), bool))
    with pytest.raises(ModelError, match=r"\(2, 4, 1\)"):
        RaggedBuilder("states").add(np.ones((2, 4, 1), np.float32), np.ones((2, 3), bool))
