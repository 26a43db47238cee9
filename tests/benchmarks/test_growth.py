"""The exponent of growth is the one that the times were made with."""

import numpy as np
import pytest

from benchmarks.scripts import script

exponent = script("benchmarks.growth").exponent
SIZES = [1_000, 10_000, 50_000, 1_000_000]


@pytest.mark.parametrize("power", [0.0, 0.3, 1.0, 2.0])
@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e3])
def test_the_power_is_found_whatever_the_unit(power: float, unit: float) -> None:
    assert exponent(SIZES, [unit * size**power for size in SIZES]) == pytest.approx(power, abs=1e-12)


def test_it_is_the_least_squares_line_through_the_logarithms() -> None:
    seconds = np.random.default_rng(0).uniform(1, 9, len(SIZES)).tolist()
    assert exponent(SIZES, seconds) == pytest.approx(np.polyfit(np.log(SIZES), np.log(seconds), 1)[0])


@pytest.mark.parametrize(
    ("sizes", "seconds"), [([10, 20], [1.0]), ([10, 10], [1.0, 2.0]), ([10, 20], [0.0, 1.0]), ([], [])]
)
def test_times_that_show_no_growth_are_refused(sizes: list[float], seconds: list[float]) -> None:
    with pytest.raises(ValueError, match="sizes"):
        exponent(sizes, seconds)
