"""Texts encoded together get what each gets alone, in the order asked, and no time is spent on padding."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sightline.bundle import Bundle, Encoded
from sightline.bundle.encoded import stacked
from sightline.bundle.engines import OnnxRuntime
from sightline.bundle.spec import read_spec

TEXTS = ["a dog on a beach", "cat", "two birds", "a red ball in the snow", "the man", "two small cats", "cat"]


def assert_same(found: Encoded, alone: Encoded, tolerance: float = 0.0) -> None:
    assert found.mask.tolist() == alone.mask.tolist()
    for name in ("embedding", "fragments", "states", "truncated"):
        own, other = getattr(found, name), getattr(alone, name)
        np.testing.assert_allclose(own, other, rtol=0, atol=tolerance, err_msg=name)


def test_a_batch_is_never_padded_and_each_text_gets_what_it_gets_alone(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [bundle.encode_texts([text]) for text in TEXTS]
    run, masks = OnnxRuntime.run, []

    def noted(engine: OnnxRuntime, inputs: dict[str, Any]) -> dict[str, Any]:
        masks.append(inputs["mask"])
        return run(engine, inputs)

    monkeypatch.setattr(OnnxRuntime, "run", noted)
    found = bundle.encode_texts(TEXTS)
    assert all(mask.all() for mask in masks)
    assert len(masks) == len({mask.shape[1] for mask in masks}) < len(TEXTS)
    for number, alone in enumerate(expected):
        assert_same(found.row(number), alone, 1e-5)


def test_codes_stay_the_last_fragments_of_each_text(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph with two codes: fragments number the words of a text, and then the codes."""

    def run(engine: OnnxRuntime, inputs: dict[str, Any]) -> dict[str, Any]:
        count, n = inputs["ids"].shape
        numbers = np.broadcast_to(np.arange(n + 2.0)[:, None], (count, n + 2, 1))
        real = np.ones((count, n + 2), dtype=np.bool_)
        return {"embedding": np.zeros((count, 4), np.float32), "fragments": numbers, "fragments_mask": real}

    monkeypatch.setattr(OnnxRuntime, "run", run)
    found = bundle.encode_texts(TEXTS)
    for number, text in enumerate(TEXTS):
        fragments = found.row(number).fragments
        assert fragments is not None
        assert fragments[0, :, 0].tolist() == list(range(len(text.split()) + 2 + 2))


def test_an_int8_model_gives_a_text_the_same_numbers_in_a_batch(default_bundle: Path) -> None:
    """All that it gives, in whatever company; the one that ships, whose sums are long enough to tell."""
    spec = read_spec(default_bundle)
    assert spec.precision == "int8"
    bundle = Bundle(default_bundle, spec, threads=1)
    found = bundle.encode_texts(TEXTS)
    for number, text in enumerate(TEXTS):
        assert_same(found.row(number), bundle.encode_texts([text]), 1e-6)  # to the last digit on ARM, not on x86-64


def test_what_was_encoded_apart_is_padded_to_the_longest() -> None:
    def of_length(n: int) -> Encoded:
        return Encoded(np.ones((1, 2), np.float32), np.ones((1, n), np.bool_), np.ones((1, n, 3)))

    both = stacked([of_length(2), of_length(4)])
    assert both.mask.tolist() == [[True, True, False, False], [True] * 4]
    assert both.fragments is not None
    assert both.fragments.sum(axis=(1, 2)).tolist() == [6, 12]
    assert both.states is both.truncated is None
