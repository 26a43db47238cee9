"""Open a collection for writing: create it if missing, and repair damage from a crash or a bad disk."""

import logging
import secrets
import shlex
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

from sightline.bundle.model import Model, check_ability
from sightline.collection.catalog.database import Catalog
from sightline.collection.catalog.files import URL_LIST_SUFFIX
from sightline.collection.catalog.integrity import DamagedCatalogError, set_aside
from sightline.collection.catalog.schema import CATALOG_FILE
from sightline.collection.indexing.writer import repair
from sightline.collection.locks import Notify, write_lock
from sightline.collection.manifest import (
    FORMAT,
    MANIFEST_FILE,
    OWNER_FILE,
    FastGraph,
    Manifest,
    check_kind,
    check_model,
    has_manifest,
    is_intact,
    read_manifest,
    trusted_store,
    write_manifest,
)
from sightline.collection.trust import check_roots
from sightline.collection.vectors import vectors_folder
from sightline.errors import CollectionError, DamagedStoreError, StoreError
from sightline.files import read_regular, remove_drafts, write_atomic
from sightline.media import blank
from sightline.retrieval.query import ItemKind
from sightline.stores.base import Shape, Store
from sightline.stores.head import HEAD_FILE, read_head
from sightline.stores.local import LocalStore
from sightline.stores.opening import remote_store

_OWNER_BYTES = 16
_log = logging.getLogger(__name__)


@contextmanager
def open_to_write(
    at: Path,
    kind: ItemKind,
    model: Model,
    *,
    named: Sequence[Path],
    wait: bool | float,
    notify: Notify | None,
    store: str | None = None,
    verify: bool = False,
    fast: Model | None = None,
) -> Iterator[tuple[Catalog, Store]]:
    """Open a collection for writing, creating or repairing it if necessary, and lock it until the block ends.

    named: the folders and files that the user asked to index.
    store: where to keep the vectors of a new collection, if not in its folder; for an existing one, its new URL.
    verify: check all vectors for damage, not only those that are read.
    fast: the model's fast variant, if it will encode the new items.
    """
    try:
        at.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CollectionError(
            f"{at}: cannot be created: {error.strerror or error}", "Choose another folder with --at."
        ) from error
    with write_lock(at, wait=wait, notify=notify):
        remove_drafts(at)
        before = read_manifest(at) if has_manifest(at) else None
        manifest = _manifest(at, before, kind, model, store, fast)
        with closing(_catalog(at, named, notify or _log.warning)) as catalog:
            if before is None or not before.is_trusted:
                roots = set(catalog.roots().values())
                url_lists = {root for root in roots if root.suffix.lower() == URL_LIST_SUFFIX}
                check_roots(at, roots - url_lists, url_lists, named)
            if before is None:
                _drop_unknown_vectors(at, manifest, notify or _log.warning)
            with closing(_store(at, manifest, notify or _log.warning, verify)) as vectors:
                if manifest != before or not manifest.is_trusted or not is_intact(at):
                    write_manifest(at, manifest)  # only now, as it must not name a server that does not answer
                (at / OWNER_FILE).unlink(missing_ok=True)
                repair(catalog, vectors)
                yield catalog, vectors


def _catalog(at: Path, named: Sequence[Path], notify: Notify) -> Catalog:
    """Open the catalog; a damaged one is renamed and rebuilt from the folders that the user named."""
    try:
        return Catalog.open(at, write=True)
    except DamagedCatalogError as error:
        if not named:
            way_out = f"Specify what to index again: sightline index --at {at} FOLDER"
            raise DamagedCatalogError(error.what, way_out) from error
        notify(f"{error.what}; reading all files again")
        set_aside(at / CATALOG_FILE)
        return Catalog.open(at, write=True)


def _store(at: Path, manifest: Manifest, notify: Notify, verify: bool) -> Store:
    """Open the store; damaged vectors are deleted, so that their items are encoded again."""
    if manifest.store:
        from sightline.collection.remote.access import open_remote_to_write

        return open_remote_to_write(at, manifest)
    folder = vectors_folder(at)
    try:
        store = LocalStore.open(folder, manifest.shape, write=True)
        if verify or store.is_suspect:
            try:
                damaged = store.damaged_ids()
                if len(damaged):
                    notify(f"{folder}: damaged; encoding {len(damaged):,} items again")
                store.drop_damaged()
            except BaseException:
                store.close()
                raise
    except DamagedStoreError as error:
        notify(f"{error.what}; encoding all items again")
        LocalStore.reset(folder, manifest.shape)
        return LocalStore.open(folder, manifest.shape, write=True)
    return store


def _drop_unknown_vectors(at: Path, manifest: Manifest, notify: Notify) -> None:
    """Delete the vectors of a collection that has lost its manifest: another model may have computed them.

    This comes before the new manifest is written, so that a crash in between cannot leave them next to it.
    """
    folder = vectors_folder(at)
    if not manifest.store and (folder / HEAD_FILE).exists():
        if not _is_empty(folder):  # as after a crash between the creation of the store and of the manifest
            notify(f"{at / MANIFEST_FILE} is missing, so the model of its vectors is unknown; encoding all items again")
        LocalStore.reset(folder, manifest.shape)


def _is_empty(folder: Path) -> bool:
    """Return whether a folder contains a store without vectors."""
    try:
        head = read_head(folder)
    except StoreError:
        return False
    return head is not None and not any(head.counts.values())


def forget_fast(at: Path) -> None:
    """Record that the fast graph encoded no item of a collection; must be called while it is open for writing."""
    write_manifest(at, replace(read_manifest(at), fast=None))


def _manifest(
    at: Path, before: Manifest | None, kind: ItemKind, model: Model, store: str | None, fast: Model | None
) -> Manifest:
    """Return the manifest to write; an existing one is checked against the model, the kind and the fast graph."""
    manifest = _full_manifest(at, before, kind, model, store, fast)
    if fast is None:
        return manifest
    if manifest.store:
        raise CollectionError(
            f"{at}: stores its vectors on a server, which does not record which items the fast graph encoded",
            "Leave out --quick, or index into another folder with --at.",
        )
    if manifest.fast is not None and manifest.fast.sha256 != fast.sha256:
        raise CollectionError(
            f"{at}: has images from a different fast image graph ({manifest.fast.sha256[:12]}…) than {model.name} has",
            "Leave out --quick, or first encode these images with the full graph: "
            f"sightline index --refine --at {shlex.quote(str(at))}",
        )
    return replace(manifest, fast=FastGraph(fast.sha256, fast.relevance))


def _full_manifest(
    at: Path, before: Manifest | None, kind: ItemKind, model: Model, store: str | None, fast: Model | None
) -> Manifest:
    url = "" if store is None else remote_store(store).normalize_url(store)
    if before is not None:
        manifest = before
        check_model(at, manifest, model)
        check_kind(at, manifest, kind)
        if url and not manifest.store:
            raise CollectionError(
                f"{at}: stores its vectors in its own folder, not at {url}",
                "Index again into another folder with --at.",
            )
        return replace(manifest, location=_location(model), store=url or trusted_store(at, manifest))
    owner = _new_owner(at) if url else ""
    return Manifest(FORMAT, kind, model.name, model.sha256, _shape(fast or model, kind), _location(model), url, owner)


def _new_owner(at: Path) -> str:
    """Return the owner of a new collection on a server.

    It is on disk before the store is created, and until the manifest is written: if this run is killed in between, the
    next one recognises the store as its own.
    """
    path = at / OWNER_FILE
    try:
        owner = read_regular(path, _OWNER_BYTES * 2).decode("ascii")
    except FileNotFoundError:
        owner = secrets.token_hex(_OWNER_BYTES)
        write_atomic(path, owner)
    return owner


def _location(model: Model) -> str:
    """Return the folder of a bundle, recorded so that searches find the model; empty for other models."""
    return str(model.folder.resolve()) if model.folder else ""


def _shape(model: Model, kind: ItemKind) -> Shape:
    """Return the dimensions of a model's vectors, found by encoding one item."""
    if "fragments" not in model.abilities:
        check_ability(model, "embed", "indexing", "A matcher alone cannot retrieve: index with another model.")
    encoded = model.encode_texts(["a"]) if kind == "texts" else model.encode_images(blank(model.preprocess))
    parts = (encoded.embedding, encoded.fragments, encoded.states)
    return Shape(*(0 if part is None else part.shape[-1] for part in parts))
