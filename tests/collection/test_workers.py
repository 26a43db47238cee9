"""What is asked of workers is refused before anything is done, where they cannot do it."""

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from collection.made_up import Instant, picture, put
from sightline.bundle import Bundle
from sightline.collection import Report, index
from sightline.collection.catalog.files import Facts, PendingFile
from sightline.collection.indexing.batches import encode_in_batches, without_known
from sightline.collection.indexing.readers import Outcome
from sightline.collection.indexing.writer import EncodedBatch
from sightline.collection.remote import ray
from sightline.errors import CollectionError, SightlineError


def texts(*said: str) -> list[Outcome]:
    return [Outcome(PendingFile(1, b"%d" % n, "", Path()), Facts(text.encode()), text) for n, text in enumerate(said)]


def test_workers_that_nobody_knows_are_refused(tiny_bundle: Path, photos: Path) -> None:
    with pytest.raises(CollectionError, match=r"workers: 'spark'[\s\S]*ray://HOST:PORT"):
        index(photos, model=tiny_bundle, workers="spark")
    assert not (photos / ".sightline").exists()


def test_a_model_without_files_is_refused(model: Instant, photos: Path) -> None:
    with pytest.raises(CollectionError, match=r"is loaded only in this process[\s\S]*bundle or checkpoint folder"):
        index(photos, model=model, workers="ray")


def test_without_ray_the_way_out_is_named(tiny_bundle: Path, photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SightlineError, match=r"sightline-search\[scale\]"):
        index(photos, model=tiny_bundle, workers="ray")


def test_of_copies_in_a_block_the_first_is_encoded_and_every_file_is_kept(model: Instant) -> None:
    block = encode_in_batches(model, "texts", texts("one", "two", "one"))
    assert [fact.hash for facts, _ in block.contents for fact in facts] == [b"one", b"two"]
    assert len(block.files) == 3
    assert model.texts == ["one", "two"]
    assert all(outcome.payload is None for outcome in block.files)


def test_of_two_blocks_with_the_same_content_only_the_first_brings_it(model: Instant) -> None:
    known = {b"zero"}
    blocks = [encode_in_batches(model, "texts", texts(*said)) for said in (("zero", "one"), ("two", "one", "three"))]
    left = [without_known(block, known) for block in blocks]
    brought = [[fact.hash for facts, _ in one.contents for fact in facts] for one in left]
    assert brought == [[b"one"], [b"two", b"three"]]
    assert [len(encoded) for one in left for _, encoded in one.contents] == [1, 2]
    assert known == {b"zero", b"one", b"two", b"three"}
    assert (left[1].contents[0][1].embedding == blocks[1].contents[0][1].embedding[[0, 2]]).all()


def test_a_file_that_only_a_worker_does_not_see_ends_the_run_and_one_that_is_gone_does_not(tmp_path: Path) -> None:
    there = put(tmp_path / "a.png", picture(0))
    gone = Outcome(PendingFile(1, b"b.png", "b.png", tmp_path / "b.png"), gone=True)
    report = Report(tmp_path, "images")
    left = ray._counted(EncodedBatch([], [gone, *texts("one")]), report)
    assert (len(left.files), report.read, report.skipped[0].path) == (1, 2, str(tmp_path / "b.png"))
    unseen = Outcome(PendingFile(1, b"a.png", "a.png", there), gone=True)
    with pytest.raises(CollectionError, match=r"a\.png: exists here, but not on a worker[\s\S]*list of URLs"):
        ray._counted(EncodedBatch([], [unseen]), report)


def test_a_worker_without_the_model_makes_itself_a_copy_once(
    tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    class Library:
        @staticmethod
        def get(packed: str) -> dict[str, bytes]:
            asked.append(packed)
            return ray._files(tiny_bundle)

    monkeypatch.setenv("SIGHTLINE_CACHE", str(tmp_path))
    monkeypatch.setattr(ray, "_library", Library)
    sha256 = Bundle.open(tiny_bundle).sha256
    assert ray._place_of(str(tiny_bundle), sha256, ["it"]) == tiny_bundle
    copies = [ray._place_of(str(tmp_path / "elsewhere"), sha256, ["it"]) for _ in range(2)]
    assert (copies[0], asked) == (copies[1], ["it"])
    assert Bundle.open(copies[0]).sha256 == sha256
    assert [path.name for path in (tmp_path / "models").iterdir()] == [sha256]


def test_workers_encode_with_the_fast_graph_where_that_is_asked_for(quick_bundle: Path, tmp_path: Path) -> None:
    path = put(tmp_path / "a.png", picture(0))
    known = np.zeros(0, dtype=ray._HASH)
    models = [Bundle.open(quick_bundle, fast=is_fast) for is_fast in (False, True)]
    full, fast = (
        ray.encode_block(str(quick_bundle), one.sha256, [], "images", [PendingFile(1, b"a", "a", path)], known)
        for one in models
    )
    assert not np.allclose(full.contents[0][1].embedding, fast.contents[0][1].embedding, atol=0.01)
    copy = Path(shutil.copytree(quick_bundle, tmp_path / "copy"))
    assert ray._place_of(str(copy), models[1].sha256, []) == copy
