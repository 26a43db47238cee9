"""A collection opened for writing: made where there is none, mended where a crash left it uneven."""

import secrets
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

from sightline.bundle.model import Model, check_ability
from sightline.collection.catalog.database import Catalog
from sightline.collection.collection import VECTORS_FOLDER
from sightline.collection.indexing.writer import repair
from sightline.collection.locks import Notify, write_lock
from sightline.collection.manifest import (
    FORMAT,
    MANIFEST_FILE,
    Kind,
    Manifest,
    check_kind,
    check_model,
    read_manifest,
    write_manifest,
)
from sightline.errors import CollectionError
from sightline.media import blank
from sightline.stores.base import Shape, Store
from sightline.stores.local import LocalStore
from sightline.stores.milvus_address import parse_address


@contextmanager
def open_to_write(
    at: Path, kind: Kind, model: Model, wait: bool | float, notify: Notify | None, store: str | None = None
) -> Iterator[tuple[Catalog, Store]]:
    """Open a collection for writing, made or mended where need be, by nobody else meanwhile.

    store: where the vectors of a new collection are kept, if not in its folder; or where a server has moved to.
    """
    try:
        at.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CollectionError(
            f"{at}: cannot be made: {error.strerror or error}", "Choose another folder with --at."
        ) from error
    with write_lock(at, wait=wait, notify=notify):
        manifest = _manifest(at, kind, model, store)
        with (
            closing(Catalog.open(at, write=True)) as catalog,
            closing(_store(at, manifest)) as vectors,
        ):
            repair(catalog, vectors)
            yield catalog, vectors


def _store(at: Path, manifest: Manifest) -> Store:
    if not manifest.store:
        return LocalStore.open(at / VECTORS_FOLDER, manifest.shape, write=True)
    from sightline.collection.remote.access import open_remote_to_write

    return open_remote_to_write(at, manifest)


def _manifest(at: Path, kind: Kind, model: Model, store: str | None) -> Manifest:
    """The collection's manifest, written before all else where the collection is new."""
    url = "" if store is None else str(parse_address(store))
    if (at / MANIFEST_FILE).exists():
        manifest = read_manifest(at)
        check_model(at, manifest, model)
        check_kind(at, manifest, kind)
        if url and not manifest.store:
            raise CollectionError(
                f"{at}: keeps its vectors in its folder, not at {url}", "Index anew into another folder with --at."
            )
        now = replace(manifest, location=_location(model), store=url or manifest.store)
        if now == manifest:
            return manifest
        manifest = now
    else:
        owner = secrets.token_hex(16) if url else ""
        shape = _shape(model, kind)
        manifest = Manifest(FORMAT, kind, model.name, model.sha256, shape, _location(model), url, owner)
    write_manifest(at, manifest)
    return manifest


def _location(model: Model) -> str:
    """The folder of a bundle, so that a search finds it again; nothing for another model."""
    return str(model.folder.resolve()) if model.folder else ""


def _shape(model: Model, kind: Kind) -> Shape:
    """How wide the vectors of a model are, as seen from one item."""
    check_ability(model, "embed", "indexing", "A matcher alone finds nothing: index with another model.")
    encoded = model.encode_texts(["a"]) if kind == "texts" else model.encode_images(blank(model.preprocess))
    parts = (encoded.embedding, encoded.fragments, encoded.states)
    return Shape(*(0 if part is None else part.shape[-1] for part in parts))
