"""Answers as JSON values: results without absolute paths, but with the URLs of their images."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sightline.collection import Collection, Item
from sightline.collection.group import GroupHit, GroupResult
from sightline.collection.manifest import DEFAULT_FOLDER
from sightline.retrieval.results import Hit
from sightline.server.library import Member
from sightline.unicode_text import as_unicode


def text_counts(members: Sequence[Member]) -> dict[str, Any]:
    """Return the number of images whose text was read, and of those with text; empty if no text was read."""
    counts = [text.counts() for text in (member.collection.image_text for member in members) if text is not None]
    if not counts:
        return {}
    return {"text": {"read": sum(one.read for one in counts), "with_text": sum(one.with_text for one in counts)}}


def search_answer(result: GroupResult, members: Sequence[Member]) -> dict[str, Any]:
    """Return the output of `sightline search --json`, without details meant only for the owner of the machine."""
    return {**result.flat().about(), "hits": group_hit_answers(result.hits, members)}


def group_hit_answers(hits: Sequence[GroupHit], members: Sequence[Member]) -> list[dict[str, Any]]:
    """Return the results from several collections, in the order given."""
    own = {
        number: iter(hit_answers([one.hit for one in hits if one.member == number], member))
        for number, member in enumerate(members)
    }
    return [next(own[one.member]) for one in hits]


def hit_answers(hits: Sequence[Hit], member: Member) -> list[dict[str, Any]]:
    """Return results as JSON values; the paths of their other files are relative to the root, like `path`."""
    urls = _urls({hit.id: hit.moments[0] if hit.moments else None for hit in hits}, member)
    names = set(root_names(member).values())
    return [
        {**_hit_answer(hit), "id": member.outer(hit.id), **_root(hit.root, names), **urls.get(hit.id, {})}
        for hit in hits
    ]


def item_answers(items: Sequence[Item], member: Member) -> list[dict[str, Any]]:
    """Return the metadata of items; unknown fields are omitted."""
    urls, names = _urls({item.id: item.moment for item in items}, member), set(root_names(member).values())
    return [
        {
            **_item_answer(item),
            "id": member.outer(item.id),
            **_root(item.files[0].root, names),
            **urls.get(item.id, {}),
        }
        for item in items
    ]


def collection_name(collection: Collection) -> str:
    """Return the name of the image folder that a collection is stored in, or else of the collection's own folder."""
    at = Path(collection.at)
    return folder_name(at.parent if at.name == DEFAULT_FOLDER else at)


def root_names(member: Member) -> dict[int, str]:
    """Return the names of the indexed folders by root number, for use in filters; empty if there is only one."""
    collection = member.collection
    if collection.kind != "images" or isinstance(collection.at, str):
        return {}
    roots = collection.catalog.roots()
    return {id: folder_name(root) for id, root in roots.items()} if len(roots) > 1 or not member.is_alone else {}


def _root(root: Path, names: set[str]) -> dict[str, str]:
    return {"root": name} if names and (name := folder_name(root)) in names else {}


def folder_name(root: Path) -> str:
    """Return the name of a folder as valid text."""
    return as_unicode(root.name)


def version(hash: bytes) -> str:
    """Return the part of an image's URL that distinguishes it from images with the same id in other collections."""
    return hash.hex()[:16]


def _hit_answer(hit: Hit) -> dict[str, Any]:
    found = hit.to_json()
    del found["file"], found["root"]
    for name, paths in (("copies", hit.copies), ("folded", hit.folded)):
        if paths:
            found[name] = [_below(path, hit.root) for path in paths]
    return found


def _item_answer(item: Item) -> dict[str, Any]:
    first, *others = item.files
    found = {
        "id": item.id,
        "path": first.path,
        "width": item.width,
        "height": item.height,
        "taken": item.taken,
        "place": {"latitude": item.place.latitude, "longitude": item.place.longitude} if item.place else None,
        "text": item.text,
        "line": first.line,
        "key": first.key,
        "duration": item.duration,
    }
    known = {name: value for name, value in found.items() if value is not None}
    return {**known, "copies": [file.path for file in others]}


def album_names(collection: Collection, id: int) -> dict[str, list[str]]:
    """Return the names of the albums that contain an item, if any."""
    hash = collection.catalog.hash_of(id) if isinstance(collection.at, Path) else None
    names = collection.albums.of(hash) if hash else []
    return {"albums": names} if names else {}


def _urls(moments: Mapping[int, float | None], member: Member) -> dict[int, dict[str, str]]:
    """Return the URLs of items' images and of video files, with a version so that browsers can cache them.

    moments: by id, the time in seconds of the video frame to show; None for an image.
    """
    if member.collection.kind != "images":
        return {}
    found = {}
    for id, hash in member.collection.catalog.hashes_of(list(moments)).items():
        start, own, at = f"/v1/items/{member.outer(id)}", f"?v={version(hash)}", moments[id]
        shown = own if at is None else f"{own}&at={at:g}"
        found[id] = {"image": f"{start}/image{shown}", "thumbnail": f"{start}/thumbnail{shown}"}
        if at is not None:
            found[id]["video"] = f"{start}/video{own}"
    return found


def _below(path: Path, root: Path) -> str:
    """Return a path relative to the root, or only its name if outside the root. Invalid characters are replaced."""
    shown = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name
    return as_unicode(shown)
