"""From scores to probabilities: how sure a user can be that this is what was asked for."""

from dataclasses import replace

import numpy as np

from sightline.arrays import BoolArray, FloatArray, Int64Array
from sightline.bundle.model import Calibration
from sightline.errors import EvaluationError
from sightline.retrieval.fusion import sigmoid
from sightline.retrieval.relevance import relevance


def fit_calibration(scores: FloatArray, right: BoolArray, steps: int = 100) -> Calibration:
    """Fit relevance = sigmoid(scale x score + bias) to scores [n] and whether each was right [n].

    Maximum likelihood by Newton's method (Platt scaling), on scores brought to zero mean and unit variance so that
    any range converges. A tiny pull towards zero keeps perfectly separable scores finite.

    >>> fit = fit_calibration(np.array([0.0, 1.0, 2.0, 3.0]), np.array([False, True, False, True]))
    >>> fit.scale > 0
    True
    """
    values = np.asarray(scores, dtype=np.float64).ravel()
    truth = np.asarray(right, dtype=np.float64).ravel()
    if not 0 < truth.sum() < len(truth):
        raise EvaluationError("calibration needs right and wrong answers", "Give captions with more than one image.")
    middle, spread = values.mean(), values.std() or 1.0
    features = np.stack([(values - middle) / spread, np.ones_like(values)])
    weights = np.zeros(2)
    for _ in range(steps):
        chance = sigmoid(weights @ features)
        gradient = features @ (chance - truth) + 1e-3 * weights
        curvature = (features * (chance * (1 - chance))) @ features.T + 1e-3 * np.eye(2)
        step = np.linalg.solve(curvature, gradient)
        weights -= step
        if np.abs(step).max() < 1e-9:
            break
    scale = weights[0] / spread
    return Calibration(float(scale), float(weights[1] - scale * middle))


def cross_calibrated(scores: FloatArray, right: BoolArray, groups: Int64Array, items: int) -> Calibration:
    """Fit to all scores [queries, candidates]; its `error` comes from fits to one half, judged on the other.

    groups: [queries], what must not be torn apart: the image that each query was written for. Even groups are one half.
    items: how many there were to choose from.
    """
    fitted = fit_calibration(scores, right)
    half = groups % 2 == 0
    errors = []
    for learn, judge in ((half, ~half), (~half, half)):
        if 0 < right[learn].sum() < right[learn].size and judge.any():
            chances = relevance(scores[judge], fit_calibration(scores[learn], right[learn]))
            errors.append(calibration_error(chances, right[judge]))
    return replace(fitted, error=float(np.mean(errors)) if errors else None, items=items)


def calibration_error(chances: FloatArray, right: BoolArray, bins: int = 15) -> float:
    """Expected calibration error: how far stated probabilities are from observed frequencies, on average, 0 to 1.

    Probabilities are put into bins of equal width; each bin counts by how many fall into it (Naeini et al. 2015).
    """
    chances, truth = np.asarray(chances).ravel(), np.asarray(right, dtype=np.float64).ravel()
    place = np.minimum((chances * bins).astype(np.int64), bins - 1)
    count = np.bincount(place, minlength=bins)
    gap = np.abs(np.bincount(place, chances, bins) - np.bincount(place, truth, bins))
    return float(gap.sum() / count.sum())
