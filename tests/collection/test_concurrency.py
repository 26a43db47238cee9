"""Several threads and processes at once: nobody keeps half of a change, or takes one change for another."""

import base64
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

import sightline
from collection.made_up import Instant, picture, put
from sightline.collection import Collection, trust
from sightline.collection.catalog import integrity
from sightline.collection.catalog.database import Catalog
from sightline.collection.catalog.files import PendingFile
from sightline.collection.catalog.integrity import DamagedCatalogError
from sightline.collection.catalog.schema import CATALOG_FILE
from sightline.collection.catalog.timeline import Timeline
from sightline.collection.image_text import database
from sightline.collection.image_text.database import TextDatabase, TextRead, text_path
from sightline.collection.indexing.decoders import FileDecoders
from sightline.collection.remote.shared_catalog import SharedCatalog
from sightline.errors import CollectionError
from sightline.media import ImageBytes
from sightline.stores.base import RemoteStore
from sightline.stores.local import LocalStore


def test_a_timeline_read_before_the_catalog_has_the_new_items_is_not_kept(
    photos: Path, model: Instant, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = sightline.index(photos, model=model).at
    put(photos / "new.png", picture(50))
    opened: list[Collection] = []
    flush = LocalStore.flush

    def flush_and_browse(self: LocalStore) -> None:
        flush(self)
        if not opened and len(self) == 7:
            opened.append(Collection.open(at))  # as a server does as soon as the vectors are there
            assert len(opened[0].timeline()) == 6  # the catalog is not yet committed

    monkeypatch.setattr(LocalStore, "flush", flush_and_browse)
    sightline.index(at=at, model=model)
    with opened[0] as collection:
        assert len(collection.store.ids()) == len(collection.timeline()) == 7


def test_a_new_file_without_a_date_gets_one_in_an_open_timeline(photos: Path, model: Instant) -> None:
    at = sightline.index(photos, model=model).at
    now = time.time_ns()
    put(photos / "new.png", picture(50), now)  # so fresh that only the next run records when it was written
    sightline.index(at=at, model=model)
    with Collection.open(at) as collection:
        assert collection.timeline().months()[-1].name == ""
        os.utime(photos / "new.png", ns=(now - 10**10, now - 10**10))
        sightline.index(at=at, model=model)
        assert collection.timeline().months()[-1].name == "2020-09"
        assert collection.browse(k=1)[0].files[0].path == "new.png"


def test_a_run_that_changes_nothing_leaves_an_open_timeline_as_it_is(photos: Path, model: Instant) -> None:
    at = sightline.index(photos, model=model).at
    with Collection.open(at) as collection:
        found = collection.timeline()
        sightline.index(at=at, model=model)
        assert collection.timeline() is found


_WRITE = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute(sys.argv[2]); c.commit(); c.close()"


def test_a_collection_opened_twice_stays_readable_while_other_processes_write(photos: Path, model: Instant) -> None:
    """Closing one of the two must not release the locks of the other."""
    at = sightline.index(photos, model=model).at
    with Collection.open(at) as collection:
        wide = len(collection.browse("width > 5000"))
        Collection.open(at).close()
        command = [sys.executable, "-c", _WRITE, str(at / CATALOG_FILE), "UPDATE contents SET width = 5001"]
        subprocess.run(command, check=True)
        assert (at / f"{CATALOG_FILE}-wal").exists()  # still in use
        assert wide == 0 < len(collection.browse("width > 5000"))


def test_a_new_catalog_keeps_its_locks_while_another_thread_reads_it(tmp_path: Path) -> None:
    with closing(Catalog.open(tmp_path, write=True)) as writer:
        with writer.transaction():
            writer.connection.execute("CREATE TABLE extra (one)")
        with ThreadPoolExecutor(1) as pool:
            pool.submit(lambda: Catalog.open(tmp_path).close()).result()
        command = [sys.executable, "-c", _WRITE, str(tmp_path / CATALOG_FILE), "CREATE TABLE other (one)"]
        subprocess.run(command, check=True)
        assert (tmp_path / f"{CATALOG_FILE}-wal").exists(), "still in use"


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="this system does not list open files")
def test_a_closed_collection_leaves_no_file_open(photos: Path, model: Instant, tmp_path: Path) -> None:
    at = sightline.index(photos, at=tmp_path / "collection", model=model).at

    def open_files() -> list[str]:
        links = [str(one.readlink()) for one in Path("/proc/self/fd").iterdir() if one.is_symlink()]
        return [link for link in links if str(at) in link]

    with Collection.open(at) as one, Collection.open(at) as other:
        assert len(one) == len(other)
        assert open_files()
    assert open_files() == []
    damaged = at / CATALOG_FILE
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with pytest.raises(DamagedCatalogError):
        Collection.open(at)
    assert open_files() == []
    sightline.index(photos, at=at, model=model)
    assert open_files() == []


def test_searches_go_on_while_another_process_creates_the_text_database(photos: Path, model: Instant) -> None:
    at = sightline.index(photos, model=model).at
    text_path(at).parent.mkdir()
    creating = sqlite3.connect(text_path(at))
    creating.execute("PRAGMA journal_mode = WAL")  # the tables come next
    with Collection.open(at, model) as collection:
        assert len(collection.search("a dog", duplicates="show")) == 6
        text = TextDatabase.open(at, write=True)
        assert text is not None
        text.close()
        assert collection.image_text is not None
    creating.close()


def test_a_text_database_that_is_locked_is_not_replaced(
    photos: Path, model: Instant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_PATIENCE", 0.05)
    at = sightline.index(photos, model=model).at
    text = TextDatabase.open(at, write=True)
    assert text is not None
    text.add([TextRead(b"x" * 32, problem="kept")])
    text.close()
    other = sqlite3.connect(text_path(at), isolation_level=None)
    other.execute("PRAGMA locking_mode = EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(CollectionError, match="locked"):
        TextDatabase.open(at, write=True)
    other.close()
    text = TextDatabase.open(at)
    assert text is not None
    assert text.counts().read == 1
    text.close()


def test_a_catalog_that_was_written_and_is_as_before_is_not_damaged(
    photos: Path, model: Instant, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = sightline.index(photos, model=model).at

    def write() -> bool:
        """Record again that a file cannot be read, as each run does; returns whether the log showed it."""
        catalog = Catalog.open(at, write=True)
        with catalog.transaction():
            catalog.write(PendingFile(1, b"bad.png", "bad.png", photos / "bad.png"), None, "permission denied")
        found = has_log(at / CATALOG_FILE)
        catalog.close()
        return found

    has_log = integrity._has_log
    write()
    others = [True]

    def looked(path: Path) -> bool:
        return write() if others and others.pop() else has_log(path)

    monkeypatch.setattr(integrity, "_has_log", looked)
    assert integrity.check(at / CATALOG_FILE)


def test_two_processes_that_need_the_first_key_get_the_same_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIGHTLINE_STATE", str(tmp_path))
    random = trust.secrets.token_bytes
    others: list[Future[str]] = []
    with ThreadPoolExecutor(1) as pool:

        def slow(count: int) -> bytes:
            """The other asks while this one creates the key; it has to wait for it."""
            if not others:
                others.append(pool.submit(trust.proof_of, {"model": "a"}))
                with pytest.raises(TimeoutError):
                    others[0].result(timeout=0.3)
            return random(count)

        monkeypatch.setattr(trust.secrets, "token_bytes", slow)
        own = trust.proof_of({"model": "a"})
        assert own
        assert others[0].result(timeout=20) == own


def test_an_empty_key_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIGHTLINE_STATE", str(tmp_path))
    (tmp_path / "key").touch()
    assert trust.has_proof({"model": "a"}, trust.proof_of({"model": "a"}))


def test_a_decoder_that_is_needed_after_the_end_is_not_started() -> None:
    decoders = FileDecoders()
    decoders.close()  # a run was stopped while a thread was reading the bytes of a RAW photo
    with pytest.raises(RuntimeError, match="closed"):
        decoders.preview(ImageBytes("photo.dng", b""))


class Notes:
    """A store on a server that has nothing but notes."""

    def __init__(self, count: int) -> None:
        folder, stamp = base64.b64encode(b"/photos").decode(), (None, None, 10, 10**18)
        self._all: dict[int, dict[str, Any]] = {
            id: {
                "hash": f"{id:064x}",
                "files": [[folder, f"{id}.png", base64.b64encode(b"%d.png" % id).decode(), *stamp]],
            }
            for id in range(1, count + 1)
        }

    def notes(self, ids: Any) -> Mapping[int, Mapping[str, Any]]:
        return {id: self._all[id] for id in ids.tolist()}

    def notes_where(self) -> Mapping[int, Mapping[str, Any]]:
        return dict(self._all)


def test_the_timeline_of_a_shared_collection_has_items_that_others_are_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = SharedCatalog(cast("RemoteStore", Notes(4)))
    write = SharedCatalog._write
    is_between, may_go_on = threading.Event(), threading.Event()

    def slow(self: SharedCatalog, id: int, note: Mapping[str, Any]) -> None:
        if threading.current_thread().name.startswith("other"):
            is_between.set()
            assert may_go_on.wait(20)
        write(self, id, note)

    monkeypatch.setattr(SharedCatalog, "_write", slow)
    everything = catalog.everything
    with ThreadPoolExecutor(1, "other") as other:

        def and_then_another_reads() -> sqlite3.Connection:
            connection = everything()
            other.submit(catalog.items, [2, 3])
            assert is_between.wait(20)
            return connection

        monkeypatch.setattr(catalog, "everything", and_then_another_reads)
        found = Timeline.of(catalog)
        may_go_on.set()
    assert sorted(found.ids.tolist()) == [1, 2, 3, 4]
