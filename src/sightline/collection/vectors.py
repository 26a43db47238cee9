"""Where a collection's vectors are: in a folder next to its catalog, or in a store on a server."""

from pathlib import Path

from sightline.collection.manifest import VECTORS_FOLDER as VECTORS_FOLDER
from sightline.collection.manifest import Manifest, trusted_store
from sightline.errors import CollectionError
from sightline.stores.base import Store
from sightline.stores.local import LocalStore


def vectors_folder(at: Path) -> Path:
    """Return the folder that contains a collection's vectors; symbolic links are refused."""
    folder = at / VECTORS_FOLDER
    if folder.is_symlink():
        raise CollectionError(f"{folder}: is a symbolic link, which is not followed", "Delete it and index again.")
    return folder


def open_vectors(at: Path, manifest: Manifest, prefer_gpu: bool) -> Store:
    """Open the vectors of a collection for reading."""
    store = trusted_store(at, manifest)
    if not store:
        return LocalStore.open(vectors_folder(at), manifest.shape, write=False, prefer_gpu=prefer_gpu)
    from sightline.collection.remote.access import open_remote

    return open_remote(store)[1]
