"""What a collection is, in one small file: its kind of items, the model that made it, and the shape of its vectors."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sightline import settings
from sightline.bundle.model import Model
from sightline.errors import CollectionError
from sightline.files import write_atomic
from sightline.stores.base import Shape

FORMAT = 1
MANIFEST_FILE = "manifest.json"
DEFAULT_FOLDER = ".sightline"
_ANEW = "Index anew into another folder with --at."
_WHERE = "Give the folder of a collection with --at, or make one first: sightline index FOLDER"
Kind = Literal["images", "texts"]


@dataclass(frozen=True, slots=True)
class Manifest:
    """The contents of `manifest.json`.

    model, sha256: the name of the model whose vectors these are, and what tells it from every other.
    location: the folder that the model was last in, if it had one; where to look for it first.
    store, owner: of a collection whose vectors are on a server, the URL of their store, and what tells the collection
        from every other that might write there.
    """

    format: int
    kind: Kind
    model: str
    sha256: str
    shape: Shape
    location: str = ""
    store: str = ""
    owner: str = ""


def read_manifest(at: Path) -> Manifest:
    """Read and check the manifest of a collection's folder."""
    if not at.is_dir():
        reason = "it is a file" if at.exists() else "there is no such folder"
        raise CollectionError(f"{at}: not a collection: {reason}", _WHERE)
    try:
        return settings.read(Manifest, at / MANIFEST_FILE, "collection", FORMAT, CollectionError, _ANEW)
    except FileNotFoundError as error:
        raise CollectionError(f"{at}: not a collection: it has no {MANIFEST_FILE}", _WHERE) from error


def write_manifest(at: Path, manifest: Manifest) -> None:
    """Write `manifest.json` whole or not at all, and safely on disk once this returns."""
    text = json.dumps(settings.plain(manifest), indent=2, ensure_ascii=False) + "\n"
    write_atomic(at / MANIFEST_FILE, text)


def check_model(at: Path | str, manifest: Manifest, model: Model) -> None:
    """Refuse a model other than the one that made the collection: vectors of two models cannot be compared."""
    if model.sha256 == manifest.sha256:
        return
    made_by = f"{manifest.model} ({manifest.sha256[:12]}…)"
    raise CollectionError(
        f"{at}: made by the model {made_by}, but this is {model.name} ({model.sha256[:12]}…)",
        f"Go on with {manifest.model}, or index anew with {model.name} into another folder with --at. "
        "Nothing was changed.",
    )


def check_kind(at: Path, manifest: Manifest, kind: Kind) -> None:
    """Refuse texts in a collection of images, and images in one of texts."""
    if manifest.kind != kind:
        raise CollectionError(
            f"{at}: a collection of {manifest.kind}, which takes no {kind}",
            f"Index the {kind} into another folder with --at.",
        )
