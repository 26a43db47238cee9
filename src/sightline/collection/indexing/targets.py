"""What a user points at when indexing: pictures in folders, shards, lists and stores of regions, or files of texts."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from sightline.collection.catalog.database import Catalog
from sightline.collection.catalog.files import below
from sightline.collection.indexing.shards_and_urls import is_container
from sightline.collection.indexing.texts import TEXT_SUFFIXES
from sightline.collection.locate import check_found
from sightline.collection.manifest import DEFAULT_FOLDER, Kind
from sightline.errors import CollectionError


class Target(NamedTuple):
    """A root, by its number and path, and the part of it to look at; most often all of it."""

    root: int
    path: Path
    within: Path


def kind_of(places: Iterable[Path]) -> Kind:
    """Whether these are files of texts or places of images; they may not be mixed."""
    kinds: set[Kind] = {"texts" if _is_texts(place) else "images" for place in places}
    if len(kinds) > 1:
        raise CollectionError("texts and images do not share a collection", "Index them one after the other.")
    return kinds.pop()


def _is_texts(place: Path) -> bool:
    return place.suffix.lower() in TEXT_SUFFIXES and not place.is_dir()


def default_location(places: list[Path], kind: Kind) -> Path:
    """Where a collection is kept when nobody says: in the folder that it is of, or beside the file."""
    if len(places) != 1:
        said = "several folders" if places else "no folder"
        raise CollectionError(f"{said} given, and no place for the collection", "Say where it is kept with --at DIR.")
    place = places[0]
    is_folder = kind == "images" and (place.is_dir() or not is_container(place))
    at = place / DEFAULT_FOLDER if is_folder else place.with_name(f"{DEFAULT_FOLDER}-{place.stem}")
    check_found(at)
    return at


def check_exists(place: Path) -> None:
    """Refuse what is not there, before anything is done: a disk may not be connected, a name mistyped."""
    if place.is_dir() or ((_is_texts(place) or is_container(place)) and place.is_file()):
        return
    if place.exists():
        raise CollectionError(
            f"{place}: neither a folder, a shard (.tar), a list of URLs (.urls) nor a file of texts (.jsonl, .txt)",
            "Give the folder that a picture is in.",
        )
    raise CollectionError(
        f"{place}: no such folder or file",
        "Check the name, and that its disk is connected. What was indexed of it is kept; to forget it, use --prune.",
    )


def targets(catalog: Catalog, places: Iterable[Path]) -> list[Target]:
    """The roots to look at, added to the catalog where they are new; only inside a transaction.

    A folder inside a known root is looked at as a part of that root, and a folder around a known root takes it over, so
    that no file is ever known twice. Shards, lists and stores are roots of their own, wherever they lie.
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
