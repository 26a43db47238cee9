"""Find the nearest collection, and the model that indexed it."""

from pathlib import Path

from sightline.bundle.layout import HUB_PREFIX, SPEC_FILE
from sightline.bundle.model import Model
from sightline.bundle.spec import identity, read_spec
from sightline.collection.manifest import DEFAULT_FOLDER, Manifest, check_model, has_manifest, read_manifest
from sightline.collection.trust import is_own
from sightline.errors import CollectionError, SightlineError
from sightline.registry.loader import FAST, load, locate
from sightline.stores.opening import is_store_url, remote_store


def resolve_location(at: str | Path | None = None) -> Path | str:
    """Return the location of a collection: the URL of its store if given, or else the absolute path of its folder."""
    return remote_store(str(at)).normalize_url(str(at)) if is_store_url(at) else find_collection(at).resolve()


def find_collection(at: str | Path | None = None) -> Path:
    """Return the folder of a collection: `at` itself or, for a folder of images, the collection inside it.

    Without `at`, the nearest one, in the current folder or one of its parents. It is refused if it belongs to another
    user or is a symbolic link, because it was not named explicitly.
    """
    if at is not None:
        folder = named_path(at)
        inside = folder / DEFAULT_FOLDER
        return inside if has_manifest(inside) and not has_manifest(folder) else folder
    here = current_folder()
    for folder in (here, *here.parents):
        if has_manifest(folder / DEFAULT_FOLDER):
            check_found(folder / DEFAULT_FOLDER)
            return folder / DEFAULT_FOLDER
    raise CollectionError(
        f"No collection in {here} or any parent folder",
        "Create one first: sightline index FOLDER. Or specify its folder with --at DIR.",
    )


def current_folder() -> Path:
    """Return the current folder; raises an error if it was deleted."""
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise CollectionError("the current folder was deleted", "Change to another folder.") from error


def named_path(name: str | Path) -> Path:
    """Return the path with this name; one that is empty, usually by mistake, or that no file can have is refused."""
    if name == "":
        raise CollectionError("the name of a folder or file is empty", "For the current folder, use a dot.")
    if "\0" in str(name):
        raise CollectionError(f"{str(name)!r} has a null byte, so no folder or file has this name", "Leave it out.")
    return Path(name)


def check_found(at: Path) -> None:
    """Refuse a collection that the user did not name explicitly if it belongs to another user or is a link."""
    if at.is_symlink():
        raise CollectionError(f"{at}: is a link to another folder", f"If you trust it, use --at {at.resolve()}")
    if at.exists() and not is_own(at):
        raise CollectionError(f"{at}: belongs to another user", f"If you trust it, use --at {at}")


def model_for_collection(at: Path | str, manifest: Manifest, model: str | Path | Model | None = None) -> Model:
    """Return the model that indexed a collection: the given one, the bundled one, or the one at its last location.

    A location recorded by another user is refused: name the model, unless the bundled one indexed the collection.
    """
    if model is not None:
        given = load(model) if isinstance(model, str | Path) else model
        check_model(at, manifest, given)
        return given
    if found := model_at("default", manifest.sha256):
        return load(found)
    made_by = f"{manifest.model} ({manifest.sha256[:12]}…)"
    is_local = bool(manifest.location) and not manifest.location.startswith(HUB_PREFIX)
    if is_local and isinstance(at, Path) and not manifest.is_trusted:
        raise CollectionError(
            f"{at}: was indexed with the model {made_by} at {manifest.location}, but not by you on this machine",
            "If you trust that model, specify it: --model FOLDER",
        )
    if is_local and (found := model_at(manifest.location, manifest.sha256)):
        return load(found)
    raise CollectionError(
        f"{at}: was indexed with the model {made_by}, which is not at {manifest.location or 'a known location'}",
        "Specify its folder with --model FOLDER, or index again into another folder with --at.",
    )


def model_for_indexing(at: Path, model: str | Path | Model | None = None) -> str | Path | Model:
    """Return the model to index with: the model that an existing collection was indexed with, or the bundled model."""
    if model is not None or not has_manifest(at):
        return "default" if model is None else model
    return model_for_collection(at, read_manifest(at))


def model_at(place: str, sha256: str) -> str | None:
    """Return the name of the model with this hash: the bundle in a folder, or its fast variant; None if neither has it.

    The bundle's files are checked when it is loaded.
    """
    try:
        folder = locate(place)
        spec = read_spec(folder) if (folder / SPEC_FILE).is_file() else None
    except SightlineError:
        return None
    if spec is not None and identity(spec) == sha256:
        return place
    is_fast = spec is not None and spec.fast is not None and identity(spec.fast_variant()) == sha256
    return f"{place}:{FAST}" if is_fast else None
