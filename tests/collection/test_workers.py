"""What is asked of workers is refused before anything is done, where they cannot do it."""

import errno
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import tiny
from collection.made_up import Instant, picture, put
from sightline.bundle import Bundle
from sightline.collection import Report, index
from sightline.collection.catalog.files import Facts, PendingFile
from sightline.collection.indexing.batches import encode_in_batches, without_known
from sightline.collection.indexing.readers import Outcome
from sightline.collection.indexing.writer import EncodedBatch
from sightline.collection.remote import ray
from sightline.errors import CollectionError, SightlineError
from sightline.models import checkpoint
from sightline.models.torch_model import TorchModel


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


@pytest.fixture
def packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """What a worker with an empty cache receives: a folder, from which the test takes the files when they are asked."""
    monkeypatch.setenv("SIGHTLINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(ray, "_models", {})
    monkeypatch.setattr(ray, "_library", lambda: Library)
    return []


class Library:
    """In place of Ray: what was packed is a folder, and its files are what `get` returns."""

    get = staticmethod(ray._files)


def one_image(tmp_path: Path) -> list[PendingFile]:
    return [PendingFile(1, b"a.png", "a.png", put(tmp_path / "a.png", picture(0)))]


NOTHING = np.zeros(0, dtype=ray._HASH)


def test_a_model_with_another_hash_is_refused_on_a_worker(
    quick_bundle: Path, tmp_path: Path, packed: list[Path]
) -> None:
    packed.append(quick_bundle)
    for _ in range(2):
        with pytest.raises(CollectionError, match=rf"models/{'a' * 64} on a worker: contains [\s\S]*[Dd]elete"):
            ray.encode_block(str(tmp_path / "elsewhere"), "a" * 64, packed, "images", one_image(tmp_path), NOTHING)


def test_workers_encode_with_a_checkpoint(tmp_path: Path, packed: list[Path]) -> None:
    checkpoint.save(tiny.retriever(tiny.DUAL), tiny.tokenizer(), tmp_path / "checkpoint")
    packed.append(tmp_path / "checkpoint")
    sha256 = TorchModel.open(tmp_path / "checkpoint").sha256
    block = ray.encode_block(str(tmp_path / "checkpoint"), sha256, packed, "images", one_image(tmp_path), NOTHING)
    assert len(block.contents) == 1
    assert ray._models[sha256].sha256 == sha256


def test_a_copy_that_another_process_made_first_is_used(
    tiny_bundle: Path, tmp_path: Path, packed: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    packed.append(tiny_bundle)
    sha256 = Bundle.open(tiny_bundle).sha256

    def files_after_another_process(folder: Path) -> dict[str, bytes]:
        shutil.copytree(folder, tmp_path / "cache" / "models" / sha256)
        return ray._files(folder)

    monkeypatch.setattr(Library, "get", staticmethod(files_after_another_process))
    copy = ray._place_of(str(tmp_path / "elsewhere"), sha256, packed)
    assert Bundle.open(copy).sha256 == sha256
    assert [path.name for path in copy.parent.iterdir()] == [sha256]


def test_a_copy_that_cannot_be_made_is_an_error_and_leaves_nothing(
    tiny_bundle: Path, tmp_path: Path, packed: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(draft: Path, target: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(draft))

    packed.append(tiny_bundle)
    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(CollectionError, match=r"cannot be copied to .* on a worker: Perm[\s\S]*SIGHTLINE_CACHE"):
        ray._place_of(str(tmp_path / "elsewhere"), Bundle.open(tiny_bundle).sha256, packed)
    assert not list((tmp_path / "cache" / "models").iterdir())


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
