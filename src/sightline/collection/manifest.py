"""The manifest of a collection: its kind of items, the model that indexed it, and the shape of its vectors.

No other file says which model computed the vectors, so the manifest is written twice. If `manifest.json` is lost or
damaged, its copy is used, and the next indexing run restores it.
"""

import errno
import functools
import json
import logging
import shlex
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sightline import settings
from sightline.bundle.model import Model
from sightline.bundle.relevance_formula import PairRelevance
from sightline.collection.trust import has_proof, proof_of
from sightline.errors import CollectionError
from sightline.files import read_regular, write_atomic
from sightline.retrieval.query import ItemKind
from sightline.stores.base import Shape

FORMAT = 1
MANIFEST_FILE = "manifest.json"
COPY_FILE = "manifest-copy.json"
OWNER_FILE = "owner"
"""The `owner` of the manifest, until that is written: while the store of a new collection is created on a server."""

DEFAULT_FOLDER = ".sightline"
VECTORS_FOLDER = "vectors"

_LARGEST = 1 << 20
_NEW = "Index again into another folder with --at."
_TRY_AGAIN = "Check that its disk is connected, and try again."
_REFUSED = (errno.EINVAL, errno.EACCES, errno.EPERM)  # a link, a special file, or no permission
_DAMAGED = (errno.EFBIG, errno.EIO)  # other errors, such as too many open files, say nothing about the file
_WHERE = "Specify a collection's folder with --at, or create one first: sightline index FOLDER"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FastGraph:
    """The fast image graph that encoded some items: its hash, and the relevance that was fitted for its vectors."""

    sha256: str
    relevance: PairRelevance | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """The contents of `manifest.json`.

    model, sha256: name and hash of the model that computed the vectors.
    location: folder where the model was last found, if any.
    store, owner: for a collection whose vectors are on a server, the URL of their store, and an id that distinguishes
        the collection from others that might write there.
    fast: the model's fast image graph, if it may have encoded some of the items.
    proof: shows that this user wrote the manifest; see `trust`.
    checksum: covers the other fields; empty in manifests written by older versions.
    """

    format: int
    kind: ItemKind
    model: str
    sha256: str
    shape: Shape
    location: str = ""
    store: str = ""
    owner: str = ""
    fast: FastGraph | None = None
    proof: str = ""
    checksum: str = ""

    @property
    def is_trusted(self) -> bool:
        """Whether this user wrote the manifest on this machine."""
        return has_proof(self._fields(), self.proof)

    @property
    def is_damaged(self) -> bool:
        """Whether a field has changed since the manifest was written."""
        return bool(self.checksum) and self.checksum != self._sum()

    def is_like(self, other: "Manifest") -> bool:
        """Whether two manifests may belong to the same collection: no indexing run changes these fields."""
        return (self.kind, self.sha256, self.shape, self.owner) == (other.kind, other.sha256, other.shape, other.owner)

    def signed(self) -> "Manifest":
        """Return the manifest with this user's proof and a checksum."""
        return replace(self, proof=proof_of(self._fields()), checksum=self._sum())

    def _sum(self) -> str:
        return f"{zlib.crc32(json.dumps(self._fields(), sort_keys=True).encode()):08x}"

    def _fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = settings.plain(self)
        del fields["proof"], fields["checksum"]
        return fields


class DamagedManifestError(CollectionError):
    """A manifest that was modified or truncated since it was written."""


def has_manifest(at: Path) -> bool:
    """Return whether a folder contains a collection: a manifest, or at least its copy."""
    return (at / MANIFEST_FILE).is_file() or (at / COPY_FILE).is_file()


def enclosing(folder: Path) -> Path | None:
    """Return the nearest folder above this one that has a collection in it; None if there is none."""
    return next((one for one in folder.resolve().parents if has_manifest(one / DEFAULT_FOLDER)), None)


def read_manifest(at: Path) -> Manifest:
    """Read and check the manifest in a collection's folder; if it is missing or damaged, its copy."""
    if not at.is_dir():
        reason = "it is a file" if at.exists() else "no such folder"
        raise CollectionError(f"{at} is not a collection: {reason}", _WHERE)
    manifest, copy = _read_both(at)
    if isinstance(manifest, Manifest):
        if isinstance(copy, Manifest) and not manifest.is_like(copy):
            raise CollectionError(
                f"{at}: {MANIFEST_FILE} and {COPY_FILE} belong to different collections: one has "
                f"{_summary(manifest)}, the other {_summary(copy)}",
                "Delete the one that is wrong; `sightline index` then restores it from the other.",
            )
        return manifest
    if isinstance(copy, Manifest) and (manifest is None or isinstance(manifest, DamagedManifestError)):
        problem = f"{at / MANIFEST_FILE} is missing" if manifest is None else manifest.what
        _warn_once(f"{problem}; using {COPY_FILE}. To restore it: sightline index --at {shlex.quote(str(at))}")
        return copy
    errors = [error for error in (manifest, copy) if isinstance(error, CollectionError)]
    if not errors:
        around = enclosing(at)
        where = _WHERE if around is None else f"The collection of {around} includes it: --at {shlex.quote(str(around))}"
        raise CollectionError(f"{at} is not a collection: it has no {MANIFEST_FILE}", where)
    for error in errors:
        if not isinstance(error, DamagedManifestError):  # as long as one may be intact, none should be deleted
            raise error
    raise DamagedManifestError(errors[0].what, errors[0].way_out or _without_manifest(at)) from errors[0]


def is_intact(at: Path) -> bool:
    """Return whether both the manifest and its copy can be read, and are the same."""
    manifest, copy = _read_both(at)
    return isinstance(manifest, Manifest) and manifest == copy


def manifest_problem(at: Path) -> str:
    """Return what is wrong with the manifest or its copy; empty if nothing is.

    A missing copy is not a problem: earlier versions did not write one, and the next indexing run does.
    """
    manifest, copy = _read_both(at)
    if manifest is None:
        return f"{MANIFEST_FILE} is missing"
    for found in (manifest, copy):
        if isinstance(found, CollectionError):
            return found.what
    return "" if copy in (None, manifest) else f"{MANIFEST_FILE} and {COPY_FILE} differ"


def write_manifest(at: Path, manifest: Manifest) -> None:
    """Replace `manifest.json` and its copy, adding this user's proof; they are on disk once this returns."""
    plain = settings.plain(manifest.signed())
    for path in (at / MANIFEST_FILE, at / COPY_FILE):
        try:
            write_atomic(path, json.dumps(plain, indent=2, ensure_ascii=False) + "\n")
        except OSError as error:
            raise CollectionError(
                f"{path}: cannot be written: {error.strerror or error}",
                "Check its permissions and the space on its disk.",
            ) from error


def _read(path: Path) -> Manifest:
    try:
        data = json.loads(read_regular(path, _LARGEST))
    except FileNotFoundError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        says = f"{path}: cannot be read: {error}"
        if not isinstance(error, OSError) or error.errno in _DAMAGED:
            raise DamagedManifestError(says) from error
        raise CollectionError(says, _NEW if error.errno in _REFUSED else _TRY_AGAIN) from error
    found = data.get("format") if isinstance(data, dict) else None
    if isinstance(found, int) and found != FORMAT:
        raise CollectionError(
            f"{path}: has collection format {found!r}, but this version of Sightline reads format {FORMAT}",
            f"Update Sightline. Or {_NEW[0].lower()}{_NEW[1:]}",
        )
    manifest = settings.parse(Manifest, data, str(path), DamagedManifestError)
    if manifest.is_damaged:
        raise DamagedManifestError(f"{path} is damaged: its checksum is wrong")
    return manifest


def _read_both(at: Path) -> tuple[Manifest | CollectionError | None, Manifest | CollectionError | None]:
    """Return the manifest and its copy: None for a missing file, and an error for one that cannot be read."""
    return _try_to_read(at / MANIFEST_FILE), _try_to_read(at / COPY_FILE)


def _try_to_read(path: Path) -> Manifest | CollectionError | None:
    try:
        return _read(path)
    except FileNotFoundError:
        return None
    except CollectionError as error:
        return error


def _without_manifest(at: Path) -> str:
    """Return what to do if neither the manifest nor its copy can be used."""
    if not (at / VECTORS_FOLDER).exists():
        return (
            f"Its vectors are probably on a server. Restore {MANIFEST_FILE} or {COPY_FILE} from a backup; without one, "
            "index into another store: sightline index FOLDER --at DIR --store URL"
        )
    return (
        f"Delete {MANIFEST_FILE} and {COPY_FILE} there, then: sightline index FOLDER --at {shlex.quote(str(at))}\n"
        "All items are then encoded again; albums are kept."
    )


def _summary(manifest: Manifest) -> str:
    store = f" at {manifest.store}" if manifest.store else ""
    return f"{manifest.kind} of the model {manifest.model} ({manifest.sha256[:12]}…){store}"


@functools.cache
def _warn_once(message: str) -> None:
    _log.warning(message)


def trusted_store(at: Path, manifest: Manifest) -> str:
    """Return the URL of a collection's store; empty if its vectors are in its folder.

    A store named in another user's manifest is refused: it would receive the user's credentials and queries.
    """
    if manifest.store and not manifest.is_trusted:
        raise CollectionError(
            f"{at}: refers to the server {manifest.store}, but was not created by you on this machine",
            f"If you trust that server, open it by its URL: --at {manifest.store}",
        )
    return manifest.store


def check_model(at: Path | str, manifest: Manifest, model: Model) -> None:
    """Refuse a model other than the one that indexed the collection: vectors of two models cannot be compared."""
    if model.sha256 == manifest.sha256:
        return
    made_by = f"{manifest.model} ({manifest.sha256[:12]}…)"
    raise CollectionError(
        f"{at}: was indexed with the model {made_by}, but this is {model.name} ({model.sha256[:12]}…)",
        f"Use {manifest.model}, or index again with {model.name} into another folder with --at. Nothing was changed.",
    )


def check_kind(at: Path, manifest: Manifest, kind: ItemKind) -> None:
    """Refuse to mix images and texts in one collection."""
    if manifest.kind != kind:
        raise CollectionError(
            f"{at}: contains {manifest.kind}, so {kind} cannot be added",
            f"Index the {kind} into another folder with --at.",
        )
