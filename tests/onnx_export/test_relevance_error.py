import numpy as np
import pytest

from sightline.onnx_export.relevance_fit import calibration_error


def test_the_error_is_the_gap_between_stated_and_observed() -> None:
    chances = np.array([0.9] * 10 + [0.1] * 10)
    assert calibration_error(chances, np.array([True] * 9 + [False] + [True] + [False] * 9)) == pytest.approx(0)
    assert calibration_error(chances, np.array([True] * 5 + [False] * 5 + [False] * 10)) == pytest.approx(0.25)
    assert calibration_error(np.array([0.0, 1.0]), np.array([True, False])) == pytest.approx(1)
