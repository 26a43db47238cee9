"""How sure a user can be of each result: scores turned into probabilities, never rising down the list."""

from collections.abc import Mapping, Sequence

import numpy as np

from sightline.arrays import Float64Array, FloatArray
from sightline.bundle.model import Calibration
from sightline.errors import OptionError
from sightline.retrieval.fusion import sigmoid


def relevance(scores: FloatArray, calibration: Calibration, items: int | None = None) -> Float64Array:
    """The probability that each score's item is what was asked for, out of so many items.

    Among ten times as many items as the calibration was fitted on, ten times as many that are wrong get as high a
    score: the odds are a tenth. Without `items`, as many are taken as it was fitted on.

    >>> fitted = Calibration(scale=1.0, bias=0.0, items=1001)
    >>> [round(float(relevance(np.array([0.0]), fitted, items)[0]), 2) for items in (101, 1001, 10001)]
    [0.91, 0.5, 0.09]
    """
    logits = calibration.scale * np.asarray(scores, dtype=np.float64) + calibration.bias
    if items is not None and calibration.items is not None:
        logits += np.log((max(calibration.items, 2) - 1) / (max(items, 2) - 1))
    return sigmoid(logits)


def relevances(
    stages: Sequence[str],
    scores: FloatArray,
    embed: FloatArray,
    calibrations: Mapping[str, Calibration],
    items: int | None = None,
) -> Float64Array | None:
    """The probability of each result [n], best first, by the stage that judged it last; None without calibrations.

    scores: [n], by that stage. embed: [n], by the first; they stand in where a later stage has no calibration.
    items: how many there were to choose from.

    Stages differ in how sure they are, so that a result might seem more relevant than the one above it: each is given
    at most the relevance of the one above.
    """
    if "embed" not in calibrations:
        return None
    chances = relevance(embed, calibrations["embed"], items)
    for place, stage in enumerate(stages):
        if stage != "embed" and stage in calibrations:
            chances[place] = relevance(scores[place : place + 1], calibrations[stage], items)[0]
    capped: Float64Array = np.minimum.accumulate(chances)
    return capped


def relevant(chances: Float64Array | None, least: float | None, count: int) -> int:
    """How many of `count` results, best first, are at least so relevant."""
    if least is None:
        return count
    if chances is None:
        raise OptionError(
            "min_relevance",
            "is unavailable: the relevance of these results is unknown",
            "Search images by text with a calibrated model, or leave it out.",
        )
    return int(np.count_nonzero(chances >= least))
