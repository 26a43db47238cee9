"""Killed at random moments while it refines, a collection has of every item the old vectors or the new ones."""

import random
import signal
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt

from collection.made_up import contents, digest, picture, put, vectors
from collection.nursery import refined_log
from collection.test_crash import check_whole, disturb, started
from sightline.bundle import Bundle
from sightline.collection import Collection, index
from sightline.media import ImageBytes, require_pixels, to_pixels
from sightline.stores.base import RefinableStore

KILLS = 100
PICTURES = 30
CLOSE = 2e-3


class Expected:
    """The vectors that the full graph and the fast one give for all pictures that were ever in a folder."""

    def __init__(self, bundle: Path) -> None:
        self._graphs = {is_fast: Bundle.open(bundle, threads=1, fast=is_fast) for is_fast in (False, True)}
        self._pictures: dict[bytes, bytes] = {}
        self._known: dict[tuple[bytes, bool], npt.NDArray[np.float32]] = {}

    def remember(self, photos: Path) -> None:
        found = (path.read_bytes() for path in photos.rglob("*.png"))
        self._pictures |= {digest(data): data for data in found}

    def of(self, hash: bytes, is_fast: bool) -> npt.NDArray[np.float32]:
        if (hash, is_fast) not in self._known:
            model = self._graphs[is_fast]
            pixels = to_pixels(ImageBytes("picture", self._pictures[hash]), require_pixels(model.preprocess))
            self._known[hash, is_fast] = model.encode_images(pixels[None]).embedding[0]
        return self._known[hash, is_fast]


def check_each(at: Path, expected: Expected, log: Path) -> int:
    """Every item has the vectors of the graph that its record names; how many are of the fast one."""
    with Collection.open(at) as collection:
        store = collection.store
        assert isinstance(store, RefinableStore)
        fast, hashes = set(store.fast_ids().tolist()), collection.catalog.hashes_of(collection.catalog.ids())
    for hash, vector in vectors(at).items():
        id = next(id for id, own in hashes.items() if own == hash)
        np.testing.assert_allclose(vector, expected.of(hash, id in fast), atol=CLOSE)
        assert not np.allclose(vector, expected.of(hash, id not in fast), atol=10 * CLOSE), "the graphs are too alike"
    refined = set(refined_log(log).read_text().split()) if refined_log(log).exists() else set()
    assert not refined & {hashes[id].hex() for id in fast if id in hashes}, "what was refined is fast again"
    return len(fast)


def test_refining_survives_being_killed_at_any_moment(quick_bundle: Path, tmp_path: Path) -> None:
    photos, at, log = tmp_path / "photos", tmp_path / "at", tmp_path / "log"
    chance, fresh, expected = random.Random(8), iter(range(10**6)), Expected(quick_bundle)
    for number in range(PICTURES):
        put(photos / f"{next(fresh)}.png", picture(number + 10**6))
    expected.remember(photos)
    kills, half_done, completed = 0, 0, True
    with started(quick_bundle, photos, at, log) as nursery:
        assert nursery.run(60, "quick") == 0
        began = time.perf_counter()
        assert nursery.run(60, "refine") == 0
        usual = time.perf_counter() - began
        while kills < KILLS:
            if completed:
                disturb(photos, chance, fresh)
                expected.remember(photos)
            mode = ["quick", "refine"] if completed or chance.random() < 0.3 else ["refine"]
            code = nursery.run(chance.uniform(0, usual), *mode)
            completed = code == 0
            kills += code == -signal.SIGKILL
            assert code in (0, -signal.SIGKILL)
            check_whole(at, photos, log)
            half_done += 0 < check_each(at, expected, log) < PICTURES
        assert nursery.run(60, "refine") == 0
    assert check_each(at, expected, log) == 0
    assert half_done, "no kill came in the middle: the test has lost its edge"
    undisturbed = tmp_path / "undisturbed"
    index(photos, at=undisturbed, model=quick_bundle)
    assert contents(at) == contents(undisturbed)
    found = vectors(at)
    for hash, vector in vectors(undisturbed).items():
        np.testing.assert_allclose(found[hash], vector, atol=CLOSE)
