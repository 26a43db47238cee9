"""Where a word was found is drawn where it was found."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from retrieval.made_up import PIXEL
from sightline.errors import QueryError
from sightline.explanations.explain import Explanation, WordMatch
from sightline.explanations.heatmap import check_suffix, draw, heat, lit, sheet, spline_weights

WHOLE = (0.0, 0.0, 1.0, 1.0)


def word(name: str, grid: np.ndarray) -> WordMatch:
    return WordMatch(name, 0, len(name), float(grid.max()), grid.astype(np.float32))


def peak(row: int, column: int, score: float = 0.5) -> np.ndarray:
    grid = np.full((7, 7), 0.1)
    grid[row, column] = score
    return grid


@pytest.mark.parametrize(("row", "column"), [(0, 0), (3, 5), (6, 2)])
def test_a_word_is_brightest_where_it_is_most_alike(row: int, column: int) -> None:
    dog = word("dog", peak(row, column))
    warm = heat([dog], dog, WHOLE, 140, 70)
    y, x = np.unravel_index(warm.argmax(), warm.shape)
    assert (y // 10, x // 20) == (row, column)
    assert warm.max() == pytest.approx(1, abs=0.02)
    assert warm.min() == 0


def test_what_all_words_have_in_common_counts_half() -> None:
    """A part that resembles both words a little more than their own part does lights neither."""
    common = peak(3, 3, 0.6)
    words = [word("dog", np.maximum(common, peak(0, 0))), word("snow", np.maximum(common, peak(6, 6)))]
    for number, place in enumerate((0, 6)):
        warm = heat(words, words[number], WHOLE, 70, 70)
        assert warm[35, 35] < warm[10 * place + 5, 10 * place + 5]


def test_a_weak_word_shines_less_than_a_strong_one() -> None:
    words = [word("dog", peak(1, 1, 0.8)), word("of", peak(5, 5, 0.2))]
    strong, weak = (heat(words, one, WHOLE, 70, 70).max() for one in words)
    assert 0.35 < weak < 0.6 * strong


def test_there_is_no_heat_where_the_model_did_not_look_or_finds_everything_alike() -> None:
    dog, even = word("dog", peak(3, 0)), word("a", np.full((7, 7), 0.3))
    warm = heat([dog], dog, (0.25, 0.0, 0.75, 1.0), 200, 100)
    assert not warm[:, :50].any()
    assert not warm[:, 150:].any()
    assert warm[:, 50:60].any()
    assert not heat([even], even, WHOLE, 20, 10).any()


def test_a_padded_picture_is_only_the_middle_of_the_grid() -> None:
    dog = word("dog", peak(3, 3))
    warm = heat([dog], dog, (0.0, -0.5, 1.0, 1.5), 200, 100)
    assert np.unravel_index(warm.argmax(), warm.shape) == pytest.approx((50, 100), abs=2)
    assert warm[0, 100] < 0.2


def test_curves_go_through_the_points_and_keep_what_is_even() -> None:
    np.testing.assert_allclose(spline_weights(np.arange(5.0), 5), np.eye(5), atol=1e-12)
    places = np.linspace(-0.5, 4.5, 40)
    np.testing.assert_allclose(spline_weights(places, 5).sum(axis=1), 1)
    inner = places[(places >= 1) & (places <= 3)]
    np.testing.assert_allclose(spline_weights(inner, 5) @ np.arange(5), inner)  # a straight line stays one


def test_light_warms_and_the_rest_is_dimmed() -> None:
    picture = Image.new("RGB", (2, 1), (120, 120, 120))
    cold, hot = np.asarray(lit(picture, np.array([[0, 1]], dtype=np.float32)))[0].astype(int)
    assert cold.max() < 100
    assert hot[0] > hot[2] + 50


def test_an_explanation_is_the_picture_and_then_each_word() -> None:
    words = tuple(word(f"word{number}", peak(number % 7, 3)) for number in range(8))
    drawn = draw(Explanation("w" * 500, PIXEL, words, WHOLE))
    assert drawn.mode == "RGB"
    narrow = draw(Explanation("dog", PIXEL, words[:1], WHOLE))
    assert drawn.width > narrow.width
    assert drawn.height > narrow.height


def test_a_sheet_has_even_rows_below_its_title() -> None:
    red = Image.new("RGB", (140, 30), (255, 0, 0))
    pixels = np.asarray(sheet("title", [red] * 6, [("dog", "0.12")] * 6))
    is_red = (pixels == (255, 0, 0)).all(axis=2)
    assert is_red.sum() == 6 * 140 * 30
    down, across = is_red.any(axis=1), is_red.any(axis=0)
    assert np.count_nonzero(np.diff(down.astype(int)) == 1) == 2
    assert np.count_nonzero(np.diff(across.astype(int)) == 1) == 3
    first = int(down.argmax())
    assert (pixels[:first] < 200).any(), "the title"
    assert (pixels[first + 30 : first + 60] < 100).any(), "a label"


def test_a_file_of_no_kind_is_refused() -> None:
    check_suffix(Path("heat.PNG"))
    with pytest.raises(QueryError, match=r"heat\.txt"):
        check_suffix(Path("heat.txt"))


def test_a_word_has_room_below_a_narrow_picture() -> None:
    narrow = Image.new("RGB", (5, 300), (255, 0, 0))
    assert sheet("t", [narrow] * 3, [("dog", "0.12")] * 3).width > 3 * 120
