"""Folding copies holds no more pictures in memory than there are different ones."""

from typing import Any

import numpy as np
import pytest

from sightline.retrieval.duplicates import ALIKE, Patches, leaders

KINDS, COPIES, PATCHES, WIDTH = 3, 20, 4, 16


class Stored:
    """As much of a store as folding reads: states of items, copies of a few, each a little changed."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        kinds = rng.standard_normal((KINDS, PATCHES, WIDTH))
        self.states = np.tile(kinds, (COPIES, 1, 1)) + 0.1 * rng.standard_normal((KINDS * COPIES, PATCHES, WIDTH))

    def fetch(self, ids: Any, part: str) -> Any:
        assert part == "states"
        values = self.states[ids].astype(np.float32)
        return type("Parts", (), {"values": values, "mask": np.ones(values.shape[:2], dtype=np.bool_)})


@pytest.fixture
def patches() -> Patches:
    return Patches(Stored(), np.arange(KINDS * COPIES))  # type: ignore[arg-type]


def test_copies_follow_the_first_of_their_kind_and_only_such_are_kept(patches: Patches) -> None:
    embeddings = np.ones((KINDS * COPIES, 1), dtype=np.float32)  # which cannot tell them apart
    found = leaders(embeddings, ALIKE, patches.is_same)
    assert found.tolist() == list(range(KINDS)) * COPIES
    assert sorted(patches.kept) == list(range(KINDS))


def test_patches_in_other_places_are_another_picture(patches: Patches) -> None:
    stored: Any = patches.store
    stored.states[1] = stored.states[0][::-1]
    stored.states[2] = 3 * stored.states[0]
    assert patches.is_same(0, np.array([1, 2])).tolist() == [False, True]
