"""Remove folders and files from a collection, or delete a whole collection. Indexed files are never touched."""

import logging
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sightline.bundle.model import Model
from sightline.collection.albums import ALBUMS_FOLDER
from sightline.collection.image_text.database import TEXT_FOLDER, TextDatabase
from sightline.collection.indexing.create import open_to_write
from sightline.collection.layout import COLLECTION_FILES
from sightline.collection.locate import current_folder, find_collection, model_for_collection, named_path
from sightline.collection.locks import Notify, write_lock
from sightline.collection.manifest import Manifest, read_manifest, trusted_store
from sightline.collection.vectors import vectors_folder
from sightline.errors import CollectionError, UnreachableServerError
from sightline.stores.local_files import delete_files

_log = logging.getLogger(__name__)


def remove(
    paths: Sequence[str | Path],
    at: str | Path | None = None,
    *,
    model: str | Path | Model | None = None,
    notify: Notify | None = None,
) -> int:
    """Remove files, or everything below folders, from a collection; returns the number of files removed.

    at: the collection, as for `sightline.open`. model: the model that indexed it; needed if it has been moved.

    If one of the paths is not in the collection, nothing is removed. The files themselves are not deleted. Those inside
    a folder that is still indexed are added again by the next `index`, unless a `.sightlineignore` excludes them.
    """
    found = find_collection(at).resolve()
    manifest = read_manifest(found)
    places = {path: (current_folder() / named_path(path), named_path(path).resolve()) for path in paths}
    opened = model_for_collection(found, manifest, model)
    opening = open_to_write(found, manifest.kind, opened, named=(), wait=True, notify=notify)
    with opening as (catalog, store):
        roots = catalog.roots()
        inside = {path: set[int]() for path in places}
        for number, root in roots.items():
            for row in catalog.rows(number):
                file = _path(root, row.raw)
                for path, either in places.items():
                    if any(file.is_relative_to(place) for place in either):
                        inside[path].add(row.id)
        if unknown := [str(path) for path, rows in inside.items() if not rows]:
            raise CollectionError(f"{', '.join(unknown)}: not in {found}", "`sightline status` lists what is indexed.")
        rows = set.union(*inside.values())
        with catalog.transaction():
            catalog.delete_files(rows)
            unused = catalog.delete_unused()
            catalog.delete_empty_roots()
        store.delete(np.array(unused, dtype=np.int64))
        store.flush()
        store.compact()
        _forget_text(found, set(catalog.hashes()))
    return len(rows)


def delete_collection(at: str | Path | None = None, *, notify: Notify | None = None) -> Path:
    """Delete a collection: its own files, and its folder if nothing else is in it. Returns the folder.

    A collection whose vectors are on a server is refused. If the server cannot be reached, only the folder is deleted.

    notify: called with a message about vectors that may be left on a server; by default, it is logged.
    """
    found = find_collection(at).resolve()
    _check_server(found, read_manifest(found), notify or _log.warning)
    with write_lock(found, wait=False):
        delete_files(vectors_folder(found))
        for folder in (TEXT_FOLDER, ALBUMS_FOLDER):
            if (found / folder).is_symlink():
                raise CollectionError(f"{found / folder}: is a symbolic link, which is not followed", "Delete it.")
        for name in COLLECTION_FILES:
            (found / name).unlink(missing_ok=True)
    for left in (found / TEXT_FOLDER, found / ALBUMS_FOLDER, found):
        if left.is_dir() and not any(left.iterdir()):  # the folder may also contain pictures
            left.rmdir()
    return found


def _check_server(at: Path, manifest: Manifest, notify: Notify) -> None:
    """Raise an error if the vectors of a collection are on a server."""
    url = trusted_store(at, manifest)
    if not url:
        return
    from sightline.collection.remote.access import is_stored

    try:
        has_vectors = is_stored(manifest)
    except UnreachableServerError as error:
        notify(f"{error.what}\nOnly {at} is deleted. If there are vectors at {url}, they stay there.")
        return
    if has_vectors:
        raise CollectionError(
            f"{at}: its vectors are on a server, at {url}", "Delete them on the server first, and then this folder."
        )


def _path(root: Path, raw: bytes) -> Path:
    """Return the path of a row; for a text or an image in a shard, a path below its file."""
    return root / os.fsdecode(raw)


def _forget_text(at: Path, kept: set[bytes]) -> None:
    database = TextDatabase.open(at)
    if database is None:
        return
    database.close()
    database = TextDatabase.open(at, write=True)
    assert database is not None
    try:
        database.remove(database.hashes() - kept)
    finally:
        database.close()
