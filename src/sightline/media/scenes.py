"""Choose the frames of a video in which something new comes into view."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

GREY_SIZE = (32, 18)
"""Width and height of the grey frames that are compared."""

_CHANGE = 16.0  # mean difference in grey levels at which a frame counts as showing something new
_SAME = 2.0  # mean difference below which two frames count as the same, however far apart
_WINDOW = 30.0  # seconds; something last seen longer ago than this counts as new
_GAP = 2.0  # minimum seconds between two chosen frames


def choose(times: Sequence[float], greys: npt.NDArray[Any], blank: Sequence[bool], most: int) -> list[int]:
    """Choose at most `most` frames that differ from those chosen shortly before; returns their indices.

    times: seconds, ascending. greys: uint8 [n, …], a small grey version of each frame. blank: whether each frame shows
    nothing; the first frame is chosen if all are blank, and otherwise no blank one is.

    >>> dark, light = np.zeros((2, 2), np.uint8), np.full((2, 2), 200, np.uint8)
    >>> choose([0, 3, 6, 9], np.stack([dark, dark, light, light]), [False] * 4, 64)
    [0, 2]
    """
    places = [place for place in range(len(times)) if not blank[place]] or [0][: len(times)]
    flat = greys.reshape(len(greys), -1).astype(np.float32)
    chosen: list[int] = []
    for place in places:
        if not chosen or _is_new(place, chosen, times, flat):
            chosen.append(place)
    if len(chosen) > most:
        chosen = [chosen[place] for place in np.linspace(0, len(chosen) - 1, most).round().astype(int)]
    return chosen


def _is_new(place: int, chosen: list[int], times: Sequence[float], flat: npt.NDArray[np.float32]) -> bool:
    if times[place] - times[chosen[-1]] < _GAP:
        return False
    near = [one for one in chosen if times[place] - times[one] <= _WINDOW]
    if not near:
        return float(np.abs(flat[place] - flat[chosen[-1]]).mean()) >= _SAME
    return float(np.abs(flat[near] - flat[place]).mean(axis=1).min()) >= _CHANGE
