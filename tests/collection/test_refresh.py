"""A collection that stays open while it is deleted and indexed again, or while its catalog is rebuilt."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from collection.made_up import Instant, picture, put
from sightline.collection import Collection, index
from sightline.collection.catalog.schema import CATALOG_FILE
from sightline.collection.indexing.remove import delete_collection
from sightline.errors import CollectionError


@pytest.fixture
def collection(photos: Path, model: Instant) -> Iterator[Collection]:
    index(photos, model=model)
    with Collection.open(photos, model) as opened:
        yield opened


def found(collection: Collection, text: str = "a dog") -> list[str]:
    return sorted(hit.path for hit in collection.search(text, k=20))


def remake(photos: Path, sha256: str = "a" * 64) -> list[str]:
    """Delete a collection and all pictures but two, and index again."""
    delete_collection(photos)
    for path in sorted(photos.rglob("*.png"))[:4]:
        path.unlink()
    index(photos, model=Instant(sha256))
    return sorted(path.relative_to(photos).as_posix() for path in photos.rglob("*.png"))


def test_a_collection_that_was_deleted_and_indexed_again_is_loaded_anew(collection: Collection, photos: Path) -> None:
    assert len(found(collection)) == 6
    left = remake(photos)
    assert collection.refresh()
    assert found(collection) == left
    assert sorted(item.files[0].path for item in collection.browse()) == left
    assert not collection.refresh()


def test_a_remade_collection_with_the_same_vectors_is_loaded_anew(collection: Collection, photos: Path) -> None:
    delete_collection(photos)
    (photos / "town" / "0.png").rename(photos / "town" / "0-renamed.png")
    index(photos, model=Instant())
    assert collection.refresh()
    assert "town/0-renamed.png" in found(collection)


def test_a_catalog_that_was_rebuilt_is_loaded_anew(collection: Collection, photos: Path) -> None:
    catalog = photos / ".sightline" / CATALOG_FILE
    catalog.write_bytes(catalog.read_bytes()[:-100])
    put(photos / "new.png", picture(50))
    index(photos, model=Instant(), notify=lambda said: None)
    assert collection.refresh()
    assert "new.png" in found(collection)
    assert len(found(collection)) == 7


def test_a_collection_remade_with_another_model_is_refused(collection: Collection, photos: Path) -> None:
    remake(photos, "b" * 64)
    with pytest.raises(CollectionError, match="was replaced by a collection of images of the model instant") as caught:
        collection.refresh()
    assert caught.value.way_out == "Open it again."


def test_a_new_thread_does_not_pair_the_old_vectors_with_a_new_catalog(collection: Collection, photos: Path) -> None:
    remake(photos)
    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(CollectionError, match="was replaced while it was open"):
            pool.submit(found, collection).result()
        delete_collection(photos)
        with pytest.raises(CollectionError, match="was replaced while it was open"):
            pool.submit(found, collection).result()
        index(photos, model=Instant())
        collection.refresh()
        assert len(pool.submit(found, collection).result()) == 2


def test_threads_may_search_and_browse_while_a_remade_collection_is_loaded(
    collection: Collection, photos: Path
) -> None:
    before, stop, have_read = frozenset(found(collection)), threading.Event(), threading.Barrier(5)

    def names() -> set[frozenset[str]]:
        return {frozenset(found(collection)), frozenset(item.files[0].path for item in collection.browse())}

    def read() -> set[frozenset[str]]:
        seen = names()
        have_read.wait(10)
        while not stop.is_set():
            seen |= names()
        return seen

    with ThreadPoolExecutor(4) as pool:
        reading = [pool.submit(read) for _ in range(4)]
        try:
            have_read.wait(10)
            after = frozenset(remake(photos))
            assert collection.refresh()
            assert frozenset(found(collection)) == after
        finally:
            stop.set()
        for thread in reading:
            assert thread.result() <= {before, after}


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="this system does not list open files")
def test_the_old_files_are_closed_by_a_refresh(collection: Collection, photos: Path) -> None:
    found(collection)
    remake(photos)
    collection.refresh()
    links = [str(one.readlink()) for one in Path("/proc/self/fd").iterdir() if one.is_symlink()]
    assert not [link for link in links if str(photos) in link and link.endswith("(deleted)")]


def test_a_collection_that_was_deleted_is_missing_after_a_refresh(collection: Collection, photos: Path) -> None:
    delete_collection(photos)
    with pytest.raises(CollectionError, match="is not a collection"):
        collection.refresh()
