"""The files of a collection, and whether a folder has none but these."""

from pathlib import Path

from sightline.collection.albums import ALBUMS_FILE, ALBUMS_FOLDER, BEFORE_FILE
from sightline.collection.catalog.integrity import CHECKSUM_FILE
from sightline.collection.catalog.schema import CATALOG_FILE
from sightline.collection.image_text.database import TEXT_FILE, TEXT_FOLDER
from sightline.collection.locks import LOCK_FILE
from sightline.collection.manifest import COPY_FILE, DEFAULT_FOLDER, MANIFEST_FILE, OWNER_FILE
from sightline.collection.vectors import VECTORS_FOLDER
from sightline.files import is_draft

COLLECTION_FILES = (
    MANIFEST_FILE,
    COPY_FILE,
    OWNER_FILE,
    CATALOG_FILE,
    f"{CATALOG_FILE}-wal",
    f"{CATALOG_FILE}-shm",
    f"{CATALOG_FILE}.damaged",
    CHECKSUM_FILE,
    *(f"{TEXT_FOLDER}/{TEXT_FILE}{suffix}" for suffix in ("", "-wal", "-shm")),
    f"{TEXT_FOLDER}/{LOCK_FILE}",
    f"{ALBUMS_FOLDER}/{ALBUMS_FILE}",
    f"{ALBUMS_FOLDER}/{BEFORE_FILE}",
    f"{ALBUMS_FOLDER}/{LOCK_FILE}",
    LOCK_FILE,
)
"""The files of a collection, except those of its vectors."""

_NAMES = {VECTORS_FOLDER, *(Path(name).parts[0] for name in COLLECTION_FILES)}


def can_hold_collection(folder: Path) -> bool:
    """Return whether a new collection can be created in a folder without mixing its files with others.

    The folder is missing, is empty, has a name that Sightline chose, or contains a collection whose creation was
    interrupted: that begins with a lock file.
    """
    if not folder.is_dir() or folder.name.startswith(DEFAULT_FOLDER):
        return True
    found = {path.name for path in folder.iterdir() if not is_draft(path)}
    return not found or (LOCK_FILE in found and found <= _NAMES)
