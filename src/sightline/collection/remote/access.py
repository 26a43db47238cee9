"""Collections whose vectors are on a server, found by URL.

The machine that indexes keeps the catalog in its folder, and all others read what it knows from the store. What the
collection is, and which folder it belongs to, is written into the description of the store.
"""

import json
from dataclasses import replace
from pathlib import Path

from sightline import settings
from sightline.collection.catalog.conditions import COLUMNS
from sightline.collection.manifest import FORMAT, Manifest
from sightline.errors import CollectionError
from sightline.stores.milvus import READING, MilvusStore
from sightline.stores.milvus_address import Address, parse_address
from sightline.stores.milvus_schema import Columns, read_description
from sightline.stores.milvus_server import Server

STORE_COLUMNS: Columns = {
    **{name: "number" if kind == "number" else "text" for name, (kind, _) in COLUMNS.items() if name != "id"},
    "low_path": "text",
    "files": "number",
}
"""What the servers can filter by; `low_path` is `path` in small letters, `files` how many files an item has."""


def open_remote(url: str) -> tuple[Manifest, MilvusStore]:
    """Open a store that some machine has indexed into, and read what it holds."""
    address = parse_address(url)
    manifest = _manifest_at(address)
    if manifest is None:
        raise CollectionError(
            f"{address}: there is no collection", f"Make it: sightline index FOLDER --store {address}"
        )
    return manifest, MilvusStore.open(_as_made(address, manifest), manifest.shape, write=False, columns=STORE_COLUMNS)


def open_remote_to_write(at: Path, manifest: Manifest) -> MilvusStore:
    """Open the store of the collection in a folder, made where there is none; one of another folder is refused."""
    address = parse_address(manifest.store)
    there = _manifest_at(address)
    if there is not None and there.owner != manifest.owner:
        raise CollectionError(
            f"{address}: belongs to another collection than {at}, and would lose what that has indexed",
            "Choose another name for the store, or index from the folder that it belongs to, with --at.",
        )
    address = _as_made(address, there or manifest)
    description = json.dumps(settings.plain(manifest))
    return MilvusStore.open(address, manifest.shape, write=True, columns=STORE_COLUMNS, description=description)


def _manifest_at(address: Address) -> Manifest | None:
    """What the collection in a store is; None where there is no store."""
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
        raise CollectionError(f"{address}: holds no collection of this version of Sightline", "Choose another name.")
    return settings.parse(Manifest, data, str(address), CollectionError)


def _as_made(address: Address, manifest: Manifest) -> Address:
    """An address with what was decided when the store was made; only the consistency may change from time to time."""
    made = parse_address(manifest.store)
    return replace(address, index=made.index, partition=made.partition)
