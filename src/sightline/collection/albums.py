"""A collection's albums, including favourites: named sets of items.

They are stored in `albums/albums.json` next to the catalog, in a separate file, so that they can be changed during a
long indexing run and survive when a damaged catalog is rebuilt. Items are identified by the hashes of their contents,
so moving or renaming a file does not affect albums, and a file that is deleted and put back is in its albums again. If
a file is changed, its new content joins the albums. The version before the last change is kept as `before.json`.
"""

import hashlib
import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from sightline.errors import CollectionError, QueryError
from sightline.files import FolderLock, read_regular, write_atomic

ALBUMS_FOLDER = "albums"
ALBUMS_FILE = "albums.json"
BEFORE_FILE = "before.json"
_FORMAT = 1
FAVOURITES = "Favourites"
_LARGEST = 64 << 20
_LONGEST_NAME = 100
_LOCK_FILE = "lock"
_PATIENCE = 5.0  # seconds to wait for another process
_threads = threading.Lock()


class Albums:
    """The albums in a collection's folder. Several threads and processes may read and change them."""

    def __init__(self, at: Path) -> None:
        self._path = at / ALBUMS_FOLDER / ALBUMS_FILE
        self._stamp: tuple[int, int] | None = None
        self._sets: dict[str, frozenset[bytes]] = {}

    def all(self) -> dict[str, frozenset[bytes]]:
        """Return the content hashes of each album, by album name; the file is reread only when it has changed."""
        try:
            found = self._path.stat()
        except OSError:
            self._stamp, self._sets = None, {}
            return self._sets
        stamp = (found.st_ino, found.st_mtime_ns)
        if stamp != self._stamp:
            self._sets, self._stamp = _read(self._path), stamp
        return self._sets

    def of(self, hash: bytes) -> list[str]:
        """Return the names of the albums that include the item with this content hash."""
        return [name for name, hashes in self.all().items() if hash in hashes]

    def add(self, name: str, hashes: Iterable[bytes]) -> None:
        """Add items to an album by content hash, creating the album if needed."""
        checked = check_name(name)
        with self._changing() as sets:
            if found := sets.get(checked, frozenset()) | frozenset(hashes):
                sets[checked] = found

    def remove(self, name: str, hashes: Iterable[bytes]) -> None:
        """Remove items from an album by content hash; an empty album is deleted, files are not."""
        with self._changing() as sets:
            left = sets.get(name, frozenset()) - frozenset(hashes)
            if left:
                sets[name] = left
            else:
                sets.pop(name, None)

    def delete(self, name: str) -> bool:
        """Delete an album, but no files; returns whether it existed."""
        with self._changing() as sets:
            return sets.pop(name, None) is not None

    def follow(self, changed: Mapping[bytes, bytes]) -> None:
        """Add the new contents of files that were changed to the albums of the old ones. changed: new hashes by old."""
        if not any(changed.keys() & hashes for hashes in self.all().values()):
            return
        with self._changing() as sets:
            for name, hashes in sets.items():
                sets[name] = hashes | {changed[old] for old in changed.keys() & hashes}

    @contextmanager
    def _changing(self) -> Iterator[dict[str, frozenset[bytes]]]:
        try:
            with _threads, _locked(self._path.parent):
                sets = dict(self.all())
                yield sets
                plain = {name: sorted(hash.hex() for hash in hashes) for name, hashes in sorted(sets.items())}
                file = {"format": _FORMAT, "sha256": _digest(plain), "albums": plain}
                if self._path.exists():
                    write_atomic(self._path.with_name(BEFORE_FILE), read_regular(self._path, _LARGEST))
                write_atomic(self._path, json.dumps(file, indent=1, ensure_ascii=False))
        except OSError as error:
            raise CollectionError(
                f"{self._path}: cannot be written: {error.strerror or error}", "Check its permissions and the disk."
            ) from error


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.mkdir(exist_ok=True)
    lock = FolderLock(folder / _LOCK_FILE)
    try:
        deadline = time.monotonic() + _PATIENCE
        while not lock.acquire():
            if time.monotonic() > deadline:
                raise CollectionError(f"{folder}: another process is changing it", "Try again in a moment.")
            time.sleep(0.02)
        yield
    finally:
        lock.close()


def check_name(name: str) -> str:
    """Strip and validate the name of an album."""
    name = name.strip()
    if not name or len(name) > _LONGEST_NAME or not name.isprintable():
        raise QueryError(f"{name[:40]!r} cannot be the name of an album", "Use up to 100 characters on one line.")
    return name


def _read(path: Path) -> dict[str, frozenset[bytes]]:
    before = path.with_name(BEFORE_FILE)
    way_out = f"Put {before} in its place, or delete it." if before.exists() else f"Repair it, or delete it: {path}"
    try:
        data = json.loads(read_regular(path, _LARGEST))
        is_newer, albums = data.get("format", _FORMAT) > _FORMAT, data["albums"]
        is_damaged = "sha256" in data and data["sha256"] != _digest(albums)
        found = {str(name): frozenset(bytes.fromhex(hash) for hash in hashes) for name, hashes in albums.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CollectionError(f"{path}: cannot be read: {error}", way_out) from error
    if is_newer:
        raise CollectionError(f"{path}: was written by a newer version of Sightline", "Update Sightline.")
    if is_damaged:
        raise CollectionError(f"{path}: is damaged: its checksum is wrong", way_out)
    return found


def _digest(albums: dict[str, list[str]]) -> str:
    """Return the checksum of albums as they are stored."""
    return hashlib.sha256(json.dumps(albums, sort_keys=True).encode()).hexdigest()
