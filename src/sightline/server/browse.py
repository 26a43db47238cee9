"""Browsing: sample items for the start page, and the folders and dates for filters."""

from collections import Counter
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from sightline.collection import Collection
from sightline.server.current_collection import CurrentCollection
from sightline.server.responses import item_answers, root_names

_MOST_FOLDERS = 1_000


def some_items(current: CurrentCollection, k: int, where: str | None) -> dict[str, Any]:
    """Up to k items that match a filter, evenly spaced in indexing order, and the number of matches."""
    with current.use() as collection:
        if where is None:
            total, ids = len(collection), _spread(collection, k)
        else:
            passing = collection.catalog.ids_where(where).tolist()
            total, ids = len(passing), [passing[place] for place in _places(0, len(passing) - 1, k)]
        found = collection.items(ids)
        return {"total": total, "items": item_answers([found[id] for id in sorted(found)], collection)}


def timeline(current: CurrentCollection, where: str | None) -> dict[str, Any]:
    """The number of items that match a filter, in total and by month."""
    with current.use() as collection:
        found = collection.timeline(where)
        return {"total": len(found), "months": [{"month": one.name, "items": one.items} for one in found.months()]}


def timeline_items(
    current: CurrentCollection, k: int, where: str | None, start: int, after: str | None
) -> dict[str, Any]:
    """Up to k items by time, newest first, starting at a position or after a cursor."""
    with current.use() as collection:
        found = collection.timeline(where)
        first = start if after is None else found.after(after)
        ids = [int(id) for id in found.ids[first : first + k]]
        items = collection.items(ids)
        end = first + len(ids)
        more = {"next": found.cursor(end - 1)} if ids and end < len(found) else {}
        shown = item_answers([items[id] for id in ids if id in items], collection)
        return {"total": len(found), "start": first, **more, "items": shown}


def understood(current: CurrentCollection, text: str, literal: Sequence[str]) -> dict[str, Any]:
    """The words to search for in a query, and its phrases that are filters."""
    with current.use() as collection:
        found = collection.understand(text, literal=literal)
    phrases = [{"text": one.text, "kind": one.kind, "label": one.label, "where": one.where} for one in found.phrases]
    return {"words": found.words, "phrases": phrases, **({"where": found.where} if found.where else {})}


def filter_choices(current: CurrentCollection) -> dict[str, Any]:
    """Every folder with its number of files, including subfolders, and the earliest and latest capture time."""
    with current.use() as collection:
        first, last = _row(collection, "SELECT min(taken), max(taken) FROM contents")
        taken = {"taken": {"first": first, "last": last}} if first else {}
        return {"folders": _folders(collection), **taken}


def _spread(collection: Collection, k: int) -> list[int]:
    """Evenly spaced ids. Each is looked up separately, because a collection may have millions."""
    if len(collection) <= k:
        return collection.catalog.ids()
    first, last = _row(collection, "SELECT min(id), max(id) FROM contents")
    query = "SELECT min(id) FROM contents WHERE id >= ?"
    return sorted({_row(collection, query, place)[0] for place in _places(first, last, k)})


def _places(first: int, last: int, k: int) -> list[int]:
    """Up to k evenly spaced numbers from `first` to `last`.

    >>> _places(1, 9, 3), _places(0, 1, 5), _places(0, -1, 5)
    ([1, 5, 9], [0, 1], [])
    """
    count = min(k, last - first + 1)
    return [first + (last - first) * step // max(1, count - 1) for step in range(count)]


def _folders(collection: Collection) -> list[dict[str, Any]]:
    """Folders with their numbers of files; if several roots were indexed, each root is included with an empty path."""
    counts: Counter[tuple[str, str]] = Counter()
    roots = root_names(collection)
    for root, folder, files in collection.catalog.everything().execute(
        "SELECT root, folder, count(*) FROM files WHERE status = 'ready' AND line IS NULL GROUP BY root, folder"
    ):
        for above in (PurePosixPath(folder), *PurePosixPath(folder).parents):
            counts[roots.get(root, ""), above.as_posix().removeprefix(".")] += files
    counts.pop(("", ""), None)
    return [
        {"path": path, "items": counts[root, path], **({"root": root} if root else {})}
        for root, path in sorted(counts)[:_MOST_FOLDERS]
    ]


def _row(collection: Collection, query: str, *values: object) -> tuple[Any, ...]:
    found: tuple[Any, ...] = collection.catalog.everything().execute(query, values).fetchone()
    return found
