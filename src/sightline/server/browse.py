"""Browsing: sample items for the start page, and the folders and dates for filters."""

from collections import Counter
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from sightline.collection import Collection
from sightline.collection.catalog.timeline import Timeline
from sightline.server.answers import item_answers, root_names
from sightline.server.library import Library, Member, split_ids

_MOST_FOLDERS = 1_000


def some_items(library: Library, k: int, where: str | None) -> dict[str, Any]:
    """Return up to k items that match a filter, evenly spaced in indexing order, and the number of matches."""
    with library.use() as members:
        parts = [_some(member.collection, k, member.own_filter(where)) for member in members]
        total = sum(count for count, _ in parts)
        shown = []
        for member, (count, ids) in zip(members, parts, strict=True):
            share = len(ids) if total <= k else max(1, k * count // total)
            kept = [ids[place] for place in _places(0, len(ids) - 1, share)]
            found = member.collection.items(kept, member.own_filter(where))
            shown += item_answers([found[id] for id in sorted(found)], member)
        return {"total": total, "items": shown[:k]}


def _some(collection: Collection, k: int, where: str | None) -> tuple[int, list[int]]:
    if where is None:
        return len(collection), _spread(collection, k)
    passing = collection.catalog.ids_where(where).tolist()
    return len(passing), [passing[place] for place in _places(0, len(passing) - 1, k)]


def timeline(library: Library, where: str | None) -> dict[str, Any]:
    """Return the number of items that match a filter, in total and by month."""
    with library.use() as members:
        found = _timeline(members, where)
        return {"total": len(found), "months": [{"month": one.name, "items": one.items} for one in found.months()]}


def timeline_items(library: Library, k: int, where: str | None, start: int, after: str | None) -> dict[str, Any]:
    """Return up to k items by time, newest first, starting at a position or after a cursor."""
    with library.use() as members:
        found = _timeline(members, where)
        first = start if after is None else found.after(after)
        ids = [int(id) for id in found.ids[first : first + k]]
        end = first + len(ids)
        more = {"next": found.cursor(end - 1)} if ids and end < len(found) else {}
        shown: dict[int, dict[str, Any]] = {}
        for member, own in split_ids(members, ids):
            items = member.collection.items(own, member.own_filter(where))
            shown.update((one["id"], one) for one in item_answers(list(items.values()), member))
        return {"total": len(found), "start": first, **more, "items": [shown[id] for id in ids if id in shown]}


def _timeline(members: Sequence[Member], where: str | None) -> Timeline:
    """Return the timeline of all collections, with the ids that clients use."""
    found = [member.collection.timeline(member.own_filter(where)) for member in members]
    if len(found) == 1 and not members[0].number:
        return found[0]
    return Timeline.merged([(one, member.outer(0)) for one, member in zip(found, members, strict=True)])


def understood(library: Library, text: str, literal: Sequence[str], lang: str | None = None) -> dict[str, Any]:
    """Split a query into words to search for and phrases to filter by, using the collection that finds the most."""
    with library.use() as members:
        every = [member.collection.understand(text, literal=literal, lang=lang) for member in members]
    found = max(every, key=lambda one: len(one.phrases))
    phrases, unmatched = (
        [{"text": one.text, "kind": one.kind, "label": one.label, "where": one.where} for one in some]
        for some in (found.phrases, found.unmatched)
    )
    known = {"unmatched": unmatched, "where": found.where, "lang": found.lang}
    return {"words": found.words, "phrases": phrases, **{name: value for name, value in known.items() if value}}


def filter_choices(library: Library) -> dict[str, Any]:
    """Return every folder with its number of files, including subfolders, and the earliest and latest capture time."""
    with library.use() as members:
        query = "SELECT min(taken), max(taken) FROM contents"
        times = [time for member in members for time in _row(member.collection, query) if time]
        taken = {"taken": {"first": min(times), "last": max(times)}} if times else {}
        folders = [folder for member in members for folder in _folders(member)]
        return {"folders": folders[:_MOST_FOLDERS], **taken}


def _spread(collection: Collection, k: int) -> list[int]:
    """Return evenly spaced ids, each looked up separately, because a collection may have millions."""
    if len(collection) <= k:
        rows = collection.catalog.everything().execute("SELECT id FROM contents WHERE parent IS NULL ORDER BY id")
        return [id for (id,) in rows]
    first, last = _row(collection, "SELECT min(id), max(id) FROM contents WHERE parent IS NULL")
    query = "SELECT min(id) FROM contents WHERE id >= ? AND parent IS NULL"
    return sorted({_row(collection, query, place)[0] for place in _places(first, last, k)})


def _places(first: int, last: int, k: int) -> list[int]:
    """Return up to k evenly spaced numbers from `first` to `last`.

    >>> _places(1, 9, 3), _places(0, 1, 5), _places(0, -1, 5)
    ([1, 5, 9], [0, 1], [])
    """
    count = min(k, last - first + 1)
    return [first + (last - first) * step // max(1, count - 1) for step in range(count)]


def _folders(member: Member) -> list[dict[str, Any]]:
    """Return folders and the number of files in each; each of several roots has an entry with an empty path."""
    counts: Counter[tuple[str, str]] = Counter()
    roots = root_names(member)
    for root, folder, files in member.collection.catalog.everything().execute(
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
