"""Where a user's collection is when nobody says, and where the model is that made it."""

from pathlib import Path

from sightline.bundle.layout import SPEC_FILE
from sightline.bundle.model import Model
from sightline.bundle.spec import identity, read_spec
from sightline.collection.manifest import DEFAULT_FOLDER, MANIFEST_FILE, Manifest, check_model, read_manifest
from sightline.errors import CollectionError, SightlineError
from sightline.registry.loader import load, locate
from sightline.stores.milvus_address import is_address, parse_address


def resolve_location(at: str | Path | None = None) -> Path | str:
    """Where a collection is: the URL of its store where that was given, or else the exact path of its folder."""
    return str(parse_address(str(at))) if is_address(at) else find_collection(at).resolve()


def find_collection(at: str | Path | None = None) -> Path:
    """The folder of a collection: `at` itself or, for a folder of pictures, the collection inside it.

    Without `at`, the nearest: in the current folder, or in one of those around it.
    """
    if at is not None:
        inside = Path(at) / DEFAULT_FOLDER
        return inside if (inside / MANIFEST_FILE).is_file() and not (Path(at) / MANIFEST_FILE).is_file() else Path(at)
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / DEFAULT_FOLDER / MANIFEST_FILE).is_file():
            return folder / DEFAULT_FOLDER
    raise CollectionError(
        f"{here}: neither here nor in a folder around it is there a collection",
        "Make one first: sightline index FOLDER. Or say where it is with --at DIR.",
    )


def model_for_collection(at: Path | str, manifest: Manifest, model: str | Path | Model | None = None) -> Model:
    """The model that made a collection: the one that is given, or else found where it was, or bundled."""
    if model is not None:
        given = load(model) if isinstance(model, str | Path) else model
        check_model(at, manifest, given)
        return given
    for place in (manifest.location, "default"):
        if place and is_model_at(place, manifest.sha256):
            return load(place)
    made_by = f"{manifest.model} ({manifest.sha256[:12]}…)"
    raise CollectionError(
        f"{at}: made by the model {made_by}, which is not at {manifest.location or 'a known place'}",
        "Say where it is with --model FOLDER, or index anew into another folder with --at.",
    )


def model_for_indexing(at: Path, model: str | Path | Model | None = None) -> str | Path | Model:
    """The model for a next run over a collection: the one that made it, or for a new one the bundled model."""
    if model is not None or not (at / MANIFEST_FILE).is_file():
        return "default" if model is None else model
    return model_for_collection(at, read_manifest(at))


def is_model_at(place: str, sha256: str) -> bool:
    """Whether a bundle is at a place, and the right one; its files are checked when it is loaded."""
    try:
        folder = locate(place)
        return (folder / SPEC_FILE).is_file() and identity(read_spec(folder)) == sha256
    except SightlineError:
        return False
