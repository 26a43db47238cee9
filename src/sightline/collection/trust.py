"""Whether this user created a collection on this machine.

A folder from an archive, a disk or a share may include a `.sightline`. Its vectors and catalog are only data, but
its manifest and catalog can also refer to a server, a model and files elsewhere. These are used only if the manifest
has a proof: a keyed hash whose key is in the user's state folder and never in the collection.
"""

import hashlib
import hmac
import json
import os
import secrets
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sightline.cache import state_folder
from sightline.errors import CollectionError
from sightline.files import FolderLock, read_regular, write_atomic

_KEY_FILE, _LOCK_FILE = "key", "lock"
_POLL_SECONDS = 0.01
_KEY_BYTES = 32


def proof_of(manifest: Mapping[str, Any]) -> str:
    """Return the proof for the fields of a manifest; empty if the user's key can be neither read nor created."""
    key = _key(create=True)
    return _mac(key, manifest) if key else ""


def has_proof(manifest: Mapping[str, Any], proof: str) -> bool:
    """Return whether a proof is valid for these fields of a manifest and was made by this user."""
    key = _key(create=False) if proof else None
    return key is not None and hmac.compare_digest(_mac(key, manifest), proof)


def is_own(folder: Path) -> bool:
    """Return whether a folder belongs to this user or to root."""
    return not hasattr(os, "geteuid") or folder.lstat().st_uid in (os.geteuid(), 0)


def check_roots(at: Path, folders: Iterable[Path], url_lists: Iterable[Path], named: Iterable[Path]) -> None:
    """For a collection without a proof, refuse roots that are neither next to it nor named by the user.

    url_lists: lists of URLs, which are read over the network; the user must name these explicitly.
    """
    named = list(named)
    unnamed = [root for root in folders if not any(root.is_relative_to(place) for place in [at.parent, *named])]
    unnamed += [root for root in url_lists if root not in named]
    if unnamed:
        raise CollectionError(
            f"{at}: refers to {unnamed[0]}, but was not created by you on this machine",
            f"If it is yours, specify it: sightline index --at {at} {unnamed[0]}",
        )


def _mac(key: bytes, manifest: Mapping[str, Any]) -> str:
    return hmac.new(key, json.dumps(manifest, sort_keys=True).encode(), hashlib.sha256).hexdigest()


def _key(create: bool) -> bytes | None:
    """Return the user's key, created if missing; None if it can be neither read nor created."""
    try:
        folder = state_folder()
        path = folder / _KEY_FILE
        if create and not _is_complete(path):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _create(path)
        key = read_regular(path, _KEY_BYTES)
    except (OSError, RuntimeError):  # RuntimeError: no home folder
        return None
    return key if len(key) == _KEY_BYTES else None


def _create(path: Path) -> None:
    """Create the key; processes that need it at the same time wait, and get the same one."""
    lock = FolderLock(path.with_name(_LOCK_FILE))
    try:
        while not lock.acquire():
            time.sleep(_POLL_SECONDS)
        if not _is_complete(path):
            write_atomic(path, secrets.token_bytes(_KEY_BYTES), mode=0o600)
    finally:
        lock.close()


def _is_complete(path: Path) -> bool:
    """Return whether the key exists; an empty file is what a crash of an earlier version left."""
    return path.exists() and path.stat().st_size > 0
