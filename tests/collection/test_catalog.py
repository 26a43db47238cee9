"""The catalog as a file: versions, damage, readers beside a writer, and what a crash can leave."""

import json
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from collection.made_up import Instant, contents, picture, put
from sightline.bundle import Encoded
from sightline.collection import Collection, index
from sightline.collection.catalog import schema
from sightline.collection.catalog.database import Catalog
from sightline.collection.catalog.files import Facts
from sightline.collection.catalog.integrity import CHECKSUM_FILE
from sightline.collection.manifest import read_manifest
from sightline.errors import CollectionError, QueryError
from sightline.stores.local import LocalStore


@pytest.fixture
def at(photos: Path, model: Instant) -> Path:
    index(photos, model=model)
    return photos / ".sightline"


def test_a_catalog_of_a_newer_version_is_refused(at: Path, photos: Path, model: Instant) -> None:
    connection = sqlite3.connect(at / "catalog.db")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    (at / CHECKSUM_FILE).unlink()
    for attempt in (lambda: Collection.open(at), lambda: index(photos, model=model)):
        with pytest.raises(CollectionError, match="catalog version 99") as caught:
            attempt()
        assert "Update Sightline" in caught.value.way_out


def test_a_collection_of_a_newer_format_is_refused(at: Path, photos: Path, model: Instant) -> None:
    manifest = json.loads((at / "manifest.json").read_text())
    (at / "manifest.json").write_text(json.dumps(manifest | {"format": 2}))
    for attempt in (lambda: Collection.open(at), lambda: index(photos, model=model)):
        with pytest.raises(CollectionError, match="collection format 2"):
            attempt()


FILES_OF_VERSION_2 = """
CREATE TABLE older AS SELECT * FROM files; DROP TABLE files;
CREATE TABLE files (id INTEGER PRIMARY KEY, root INTEGER NOT NULL, path TEXT NOT NULL, raw BLOB NOT NULL, line INTEGER,
    key TEXT, size INTEGER, mtime_ns INTEGER, ctime_ns INTEGER, content INTEGER, status TEXT NOT NULL,
    reason TEXT NOT NULL DEFAULT '', UNIQUE (root, raw));
CREATE INDEX files_by_content ON files (content);
INSERT INTO files SELECT id, root, path, raw, line, key, size, mtime_ns, ctime_ns, content, status, reason FROM older;
DROP TABLE older; PRAGMA user_version = 2;
"""


CONTENTS_OF_VERSION_4 = """
DROP INDEX contents_by_parent; ALTER TABLE contents DROP COLUMN moment; ALTER TABLE contents DROP COLUMN parent;
ALTER TABLE contents DROP COLUMN duration; PRAGMA user_version = 4;
"""


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_a_catalog_of_an_older_version_is_read_as_it_is_and_updated_by_indexing(
    version: int, at: Path, photos: Path, model: Instant
) -> None:
    filters = ("folder = 'beach'", "name like '1.%'", "folder = 'town' and name = '0.png'")
    with closing(Catalog.open(at)) as catalog:
        right = [catalog.ids_where(where).tolist() for where in filters]
    assert all(right)
    connection = sqlite3.connect(at / "catalog.db")
    connection.executescript(CONTENTS_OF_VERSION_4)
    if version < 4:
        connection.executescript("ALTER TABLE contents DROP COLUMN is_blank; PRAGMA user_version = 3")
    if version < 3:
        connection.executescript(FILES_OF_VERSION_2)
    if version == 1:
        connection.executescript("ALTER TABLE files DROP COLUMN ctime_ns; PRAGMA user_version = 1")
    connection.close()
    (at / CHECKSUM_FILE).unlink()
    with closing(Catalog.open(at)) as catalog:
        assert [catalog.ids_where(where).tolist() for where in filters] == right
        assert any(item.is_blank for item in catalog.items(catalog.ids()).values()) == (version == 4)
        assert len(catalog.items(catalog.ids())) == 6
    assert index(photos, model=model).unchanged == 6
    with closing(Catalog.open(at)) as catalog:
        assert [catalog.ids_where(where).tolist() for where in filters] == right
        assert catalog.connection.execute("PRAGMA user_version").fetchone() == (schema.SCHEMA,)
        plan = str(catalog.connection.execute("SELECT sql FROM sqlite_master WHERE name = 'files'").fetchall())
    assert plan.count("STORED") == 2


@pytest.mark.parametrize("data", [b"{", b"\xff", b"[]"])
def test_a_damaged_manifest_is_an_error_that_names_it(at: Path, data: bytes) -> None:
    (at / "manifest.json").write_bytes(data)
    (at / "manifest-copy.json").write_bytes(data)
    with pytest.raises(CollectionError, match=r"manifest\.json") as caught:
        Collection.open(at)
    assert caught.value.way_out


def test_a_damaged_catalog_is_an_error_that_names_it(at: Path) -> None:
    (at / "catalog.db").write_bytes(b"not a database at all" * 400)
    with pytest.raises(CollectionError, match=r"catalog\.db"):
        Collection.open(at)


def test_a_folder_without_a_collection_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(CollectionError, match="not a collection") as caught:
        Collection.open(tmp_path)
    assert "sightline index" in caught.value.way_out


def test_a_manifest_says_what_a_collection_is(at: Path, model: Instant) -> None:
    manifest = read_manifest(at)
    assert (manifest.kind, manifest.model, manifest.sha256) == ("images", "instant", model.sha256)
    assert (manifest.shape.embedding, manifest.shape.fragments, manifest.shape.states) == (16, 0, 0)


def test_a_reader_sees_nothing_of_a_transaction_before_its_end(at: Path) -> None:
    writer, reader = Catalog.open(at, write=True), Catalog.open(at)
    before = reader.ids()
    with writer.transaction():
        writer.add_contents([Facts(b"x")])
        assert reader.ids() == before
    assert len(reader.ids()) == len(before) + 1
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader.connection.execute("DELETE FROM files")
    writer.close()
    reader.close()


def test_a_transaction_that_fails_changes_nothing(at: Path) -> None:
    writer = Catalog.open(at, write=True)
    before = writer.ids()

    def fail() -> None:
        with writer.transaction():
            writer.add_contents([Facts(b"x")])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert writer.ids() == before
    writer.close()


def test_vectors_that_no_row_speaks_of_are_deleted_and_their_ids_not_given_again(
    at: Path, photos: Path, model: Instant
) -> None:
    """As after a crash between the store's flush and the catalog's commit."""
    manifest = read_manifest(at)
    store = LocalStore.open(at / "vectors", manifest.shape, write=True)
    store.add(np.array([7, 8]), Encoded(np.eye(16, dtype=np.float32)[:2], np.ones((2, 0), dtype=np.bool_)))
    store.close()
    put(photos / "new.png", picture(30))
    index(photos, model=model)
    contents(at)
    with Collection.open(at) as collection:
        assert collection.catalog.ids() == [1, 2, 3, 4, 5, 6, 9]


def test_rows_whose_vectors_are_lost_are_encoded_again(at: Path, photos: Path, model: Instant) -> None:
    manifest = read_manifest(at)
    store = LocalStore.open(at / "vectors", manifest.shape, write=True)
    store.delete(np.array([2, 3]))
    store.close()
    report = index(photos, model=model)
    assert (report.encoded, report.unchanged) == (2, 4)
    assert len(contents(at)) == 6


def test_items_without_a_file_are_left_out(at: Path, photos: Path) -> None:
    with Collection.open(at) as collection:
        assert set(collection.items([1, 2, 77])) == {1, 2}
        assert collection.item(1).files[0].path in {"beach/1.png", "town/0.png"}
        with pytest.raises(CollectionError, match="no item has the id 77"):
            collection.item(77)


def test_any_number_of_items_can_be_asked_for_at_once(tmp_path: Path, model: Instant) -> None:
    path = tmp_path / "c.txt"
    path.write_text("".join(f"text {number}\n" for number in range(2500)))
    index(path, at=tmp_path / "at", model=model)
    with Collection.open(tmp_path / "at") as collection:
        assert len(collection) == 2500
        items = collection.items(range(1, 2501))
    assert all(item.text == f"text {item.files[0].line - 1}" for item in items.values() if item.files[0].line)
    assert len(items) == 2500


def test_a_collection_that_may_not_be_written_beside_can_be_read(at: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = schema._open

    def on_a_read_only_disk(path: Path, mode: str) -> sqlite3.Connection:
        if mode == "ro":
            raise sqlite3.OperationalError("unable to open database file")
        return opened(path, mode)

    monkeypatch.setattr(schema, "_open", on_a_read_only_disk)
    monkeypatch.setattr("os.access", lambda *_: False)
    with Collection.open(at) as collection:
        assert len(collection) == 6


def test_a_full_disk_is_an_error_that_says_so(at: Path, photos: Path, model: Instant) -> None:
    catalog = Catalog.open(at, write=True)
    (pages,) = catalog.connection.execute("PRAGMA page_count").fetchone()
    catalog.connection.execute(f"PRAGMA max_page_count = {pages}")

    def fill() -> None:
        with catalog.transaction():
            catalog.add_contents(Facts(bytes([number]) * 3000) for number in range(100))

    with pytest.raises(CollectionError, match="full") as caught:
        fill()
    assert "Free up disk space" in caught.value.way_out
    assert len(catalog.ids()) == 6
    catalog.close()


ENDLESS = "count(*) FROM (WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n)"


def test_a_long_query_of_one_thread_holds_up_no_other_and_can_be_interrupted(at: Path) -> None:
    catalog = Catalog.open(at)
    began, cancelled = threading.Event(), threading.Event()
    errors: list[Exception] = []

    def is_cancelled() -> bool:
        began.set()
        return cancelled.is_set()

    def query() -> None:
        try:
            catalog.select(ENDLESS, ())
        except QueryError as error:
            errors.append(error)

    catalog.stop_when(is_cancelled)
    thread = threading.Thread(target=query)
    thread.start()
    try:
        assert began.wait(10)
        assert len(catalog.ids()) == len(catalog) > 0
    finally:
        cancelled.set()
        thread.join(10)
    assert not thread.is_alive()
    assert "interrupted" in str(errors[0])
    catalog.close()


def test_the_connection_of_a_thread_is_closed_with_it(at: Path) -> None:
    catalog = Catalog.open(at)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(20):
        thread = threading.Thread(target=catalog.ids)
        thread.start()
        thread.join()
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 2
    catalog.close()
