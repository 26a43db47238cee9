"""Open collections whose vectors are on a Milvus server, by URL.

The indexing machine has the catalog; others read notes from the store. The manifest of the collection is in the
description of the store.
"""

import json
from dataclasses import replace
from pathlib import Path

from sightline import settings
from sightline.collection.catalog.conditions import STORED_COLUMNS
from sightline.collection.manifest import FORMAT, Manifest
from sightline.errors import CollectionError
from sightline.stores.milvus import READING, MilvusStore
from sightline.stores.milvus_address import Address, parse_address
from sightline.stores.milvus_schema import Columns, read_description
from sightline.stores.milvus_server import Server

STORE_COLUMNS: Columns = {
    **{name: "number" if kind == "number" else "text" for name, (kind, _) in STORED_COLUMNS.items() if name != "id"},
    "low_path": "text",
    "files": "number",
}
"""Columns that servers can filter by; `low_path` is `path` in lower case, `files` the number of an item's files."""


def open_remote(url: str) -> tuple[Manifest, MilvusStore]:
    """Open an existing store and read its manifest."""
    address = parse_address(url)
    manifest = _manifest_at(address)
    if manifest is None:
        raise CollectionError(f"{address}: no collection there", f"Make one: sightline index FOLDER --store {address}")
    return manifest, MilvusStore.open(_as_made(address, manifest), manifest.shape, write=False, columns=STORE_COLUMNS)


def open_remote_to_write(at: Path, manifest: Manifest) -> MilvusStore:
    """Open the store of a collection, creating it if missing; a store that belongs to another collection is refused."""
    address = parse_address(manifest.store)
    existing = _manifest_at(address)
    if existing is not None and existing.owner != manifest.owner:
        raise CollectionError(
            f"{address}: belongs to another collection than {at}, whose items would be lost",
            "Choose another name for the store, or index from the folder that it belongs to, with --at.",
        )
    address = _as_made(address, existing or manifest)
    description = json.dumps(settings.plain(manifest))
    return MilvusStore.open(address, manifest.shape, write=True, columns=STORE_COLUMNS, description=description)


def _manifest_at(address: Address) -> Manifest | None:
    """The manifest of the collection in a store; None if there is no store."""
    server = Server(address, READING)
    try:
        text = read_description(server, address.name)
    finally:
        server.close()
    if text is None:
        return None
    try:
        data = json.loads(text)
    except ValueError:
        data = {}
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise CollectionError(f"{address}: not a collection of this version of Sightline", "Choose another name.")
    return settings.parse(Manifest, data, str(address), CollectionError)


def _as_made(address: Address, manifest: Manifest) -> Address:
    """An address with the options that the store was created with; only the consistency can differ."""
    made = parse_address(manifest.store)
    return replace(address, index=made.index, partition=made.partition)
