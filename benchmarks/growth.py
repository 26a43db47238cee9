"""How the time of a stage grows with its data."""

from collections.abc import Sequence

import numpy as np


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """The power of the size that the time follows: 1 doubles with the data, 0 does not care, 2 is one too many.

    The slope of the straight line through the logarithms that is nearest to all of them in least squares. Times may
    be in any unit. At least two sizes that differ.
    """
    if len(sizes) != len(seconds):
        raise ValueError(f"{len(sizes)} sizes for {len(seconds)} times")
    if len(set(sizes)) < 2 or min(*sizes, *seconds) <= 0:
        raise ValueError(f"no growth is to be seen in sizes {list(sizes)} and times {list(seconds)}")
    x, y = np.log(sizes), np.log(seconds)
    x -= x.mean()
    return float((x * y).sum() / (x * x).sum())
