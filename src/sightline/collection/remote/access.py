"""Open collections whose vectors are on a server, by URL.

The indexing machine has the catalog; other machines read notes from the store. The collection's manifest is in the
store's description.
"""

import json
from pathlib import Path

from sightline import settings
from sightline.collection.catalog.filter_fields import STORED_FIELDS
from sightline.collection.manifest import FORMAT, Manifest
from sightline.errors import CollectionError
from sightline.stores.base import FILES, LOW_PATH, Columns, RemoteStore
from sightline.stores.opening import remote_store

STORE_COLUMNS: Columns = {
    **{name: "number" if field.kind == "number" else "text" for name, field in STORED_FIELDS.items() if name != "id"},
    LOW_PATH: "text",
    FILES: "number",
}
"""Columns that servers can filter by."""


def open_remote(url: str) -> tuple[Manifest, RemoteStore]:
    """Open an existing store and read its manifest."""
    kind = remote_store(url)
    url = kind.normalize_url(url)
    manifest = _manifest_at(kind, url)
    if manifest is None:
        raise CollectionError(f"{url}: no collection at this URL", f"Create one: sightline index FOLDER --store {url}")
    store = kind.open_url(url, manifest.shape, write=False, columns=STORE_COLUMNS, created_as=manifest.store)
    return manifest, store


def open_remote_to_write(at: Path, manifest: Manifest) -> RemoteStore:
    """Open the store of a collection, creating it if missing; a store that belongs to another collection is refused."""
    url, kind = manifest.store, remote_store(manifest.store)
    existing = _manifest_at(kind, url)
    if existing is not None and existing.owner != manifest.owner:
        raise CollectionError(
            f"{url}: belongs to a collection other than {at}, and its items would be lost",
            "Choose another name for the store, or index from the folder that it belongs to, with --at.",
        )
    return kind.open_url(
        url,
        manifest.shape,
        write=True,
        columns=STORE_COLUMNS,
        description=json.dumps(settings.plain(manifest)),
        created_as=(existing or manifest).store,
    )


def is_stored(manifest: Manifest) -> bool:
    """Return whether the server has the store of this collection, and not of another one or none."""
    existing = _manifest_at(remote_store(manifest.store), manifest.store)
    return existing is not None and existing.owner == manifest.owner


def _manifest_at(kind: type[RemoteStore], url: str) -> Manifest | None:
    """Return the manifest of the collection in a store; None if there is no store."""
    text = kind.read_description(url)
    if text is None:
        return None
    try:
        data = json.loads(text)
    except ValueError:
        data = {}
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise CollectionError(
            f"{url}: not a collection that this version of Sightline can read", "Choose another name."
        )
    return settings.parse(Manifest, data, url, CollectionError)
