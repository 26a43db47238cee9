"""What to index: folders, shards, URL lists and region stores of images, or text files."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from sightline.collection.catalog.database import Catalog
from sightline.collection.catalog.files import below
from sightline.collection.indexing.shards_and_urls import is_container
from sightline.collection.indexing.texts import TEXT_SUFFIXES
from sightline.collection.layout import can_hold_collection
from sightline.collection.locate import check_found, find_collection
from sightline.collection.manifest import DEFAULT_FOLDER, has_manifest
from sightline.errors import CollectionError
from sightline.retrieval.query import ItemKind


class Target(NamedTuple):
    """A root, by number and path, and the part of it to scan; usually all of it."""

    root: int
    path: Path
    within: Path


def kind_of(places: Iterable[Path]) -> ItemKind:
    """Return whether these places contain texts or images; the two cannot be mixed."""
    kinds: set[ItemKind] = {"texts" if _is_texts(place) else "images" for place in places}
    if len(kinds) > 1:
        raise CollectionError("texts and images cannot share a collection", "Index them separately.")
    return kinds.pop()


def _is_texts(place: Path) -> bool:
    return place.suffix.lower() in TEXT_SUFFIXES and not place.is_dir()


def location(at: str | Path | None, places: list[Path]) -> Path:
    """Return the folder of the collection to index into, resolving `at` in the same way as all commands.

    at: a collection's folder, or the folder of pictures that contains it. If there is none, a new collection goes
        into the folder itself if it is missing or empty, or else into a folder inside it. If not given, the default
        location for `places` or, without places, the collection nearest to the current folder.
    """
    if at is None:
        return default_location(places, kind_of(places)) if places else find_collection().resolve()
    found = find_collection(at).resolve()
    is_new = not has_manifest(found)
    return found / DEFAULT_FOLDER if is_new and (found in places or not can_hold_collection(found)) else found


def default_location(places: list[Path], kind: ItemKind) -> Path:
    """Return the default location of a collection: in the indexed folder, or next to the indexed file."""
    if len(places) != 1:
        given = "several folders are" if places else "no folder is"
        raise CollectionError(f"{given} given, so the collection has no default location", "Add --at DIR.")
    place = places[0]
    is_folder = kind == "images" and (place.is_dir() or not is_container(place))
    at = place / DEFAULT_FOLDER if is_folder else place.with_name(f"{DEFAULT_FOLDER}-{place.stem}")
    check_found(at)
    return at


def check_exists(place: Path) -> None:
    """Raise an error if a place does not exist or cannot be indexed."""
    if place.is_dir() or ((_is_texts(place) or is_container(place)) and place.is_file()):
        return
    if place.exists():
        raise CollectionError(
            f"{place}: not a folder, shard (.tar), list of URLs (.urls) or text file (.jsonl, .txt)",
            "To index an image, pass the folder it is in.",
        )
    raise CollectionError(
        f"{place}: no such folder or file",
        "Check the name, and that its disk is connected. Items indexed before are kept; to remove them, use --prune.",
    )


def targets(catalog: Catalog, places: Iterable[Path]) -> list[Target]:
    """Return the roots to scan, added to the catalog if new; must be called in a transaction.

    A folder inside a known root is scanned as a part of it, and a folder that contains a known root replaces it, so
    that no file is listed twice. Shards, lists and region stores are always separate roots.
    """
    found: list[Target] = []
    for place in sorted(set(places), key=lambda place: len(place.parts)):
        if is_container(place) or not any(place.is_relative_to(target.within) for target in found):
            found.append(_target(catalog, place))
    return found


def _target(catalog: Catalog, place: Path) -> Target:
    if is_container(place):
        return Target(catalog.root(place), place, place)
    known = {number: root for number, root in catalog.roots().items() if not is_container(root)}
    for number, root in known.items():
        if place.is_relative_to(root):
            return Target(number, root, place)
    added = catalog.root(place)
    for number, root in known.items():
        if root.is_relative_to(place):
            catalog.adopt(added, number, below(place, root))
    return Target(added, place, place)
