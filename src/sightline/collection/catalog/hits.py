"""Turn the ids of a ranking into results with paths, by looking them up in the catalog."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from sightline.collection.catalog.conditions import Condition
from sightline.collection.catalog.database import FROM, Catalog
from sightline.collection.catalog.files import File, Item
from sightline.retrieval.cascade import Ranking
from sightline.retrieval.results import Hit, HitStage

_Named = tuple[int, Path, str]


class ItemCache:
    """Items read from the catalog during a search; each is read only once."""

    def __init__(self, catalog: Catalog) -> None:
        self.items: dict[int, Item] = {}
        self._catalog = catalog
        self._asked: set[int] = set()

    def __call__(self, ids: Sequence[int]) -> dict[int, Item]:
        """Read the items with these ids, if they still exist; returns all items read so far."""
        if new := [id for id in ids if id not in self._asked]:
            self._asked.update(new)
            self.items.update(self._catalog.items(new))
        return self.items

    def blank(self, ids: Sequence[int]) -> set[int]:
        """Return the ids among these whose images are blank; their items must have been read."""
        return {id for id in ids if self.items[id].is_blank}


def hits_of(
    catalog: Catalog, ranking: Ranking, count: int, items: Mapping[int, Item], condition: Condition | None = None
) -> tuple[Hit, ...]:
    """Return the first `count` entries of a ranking, as results. An item's files that match the filter come first."""
    count = min(count, len(ranking.candidates))
    ids = [items[int(id)].id for id in ranking.candidates.ids[:count]]
    asked_for = _files_where(catalog, condition, ids) if condition else set()
    return tuple(_hit(place, ranking, items, asked_for) for place in range(count))


def _hit(place: int, ranking: Ranking, items: Mapping[int, Item], asked_for: set[_Named]) -> Hit:
    candidates = ranking.candidates
    item = items[int(candidates.ids[place])]
    file, *others = item.files
    if others and asked_for:
        file, *others = sorted(item.files, key=lambda file: (item.id, file.root, file.path) not in asked_for)
    folded = [other for id in candidates.folded.get(int(candidates.ids[place]), ()) for other in items[id].files]
    return Hit(
        rank=place + 1,
        id=item.id,
        path=file.path,
        file=file.where,
        root=file.root,
        score=float(candidates.scores[place]),
        relevance=None if ranking.relevances is None else float(ranking.relevances[place]),
        stage=cast("HitStage", candidates.stages[place]),
        text=item.text,
        line=file.line,
        key=file.key,
        copies=_paths(others),
        folded=_paths(folded),
        width=item.width,
        height=item.height,
        taken=item.taken,
        moments=candidates.moments.get(int(candidates.ids[place]), ()),
        duration=item.duration,
        encoded_by="fast" if int(candidates.ids[place]) in ranking.fast else None,
    )


def _paths(files: Sequence[File]) -> tuple[Path, ...]:
    return tuple(file.where for file in files)


def _files_where(catalog: Catalog, condition: Condition, ids: Sequence[int]) -> set[_Named]:
    """Return the files of these items that satisfy a condition."""
    roots = catalog.roots()
    chosen = ", ".join(map(str, ids))
    query = f"f.content, f.root, f.path {FROM} f.content IN ({chosen}) AND ({condition.sql})"
    return {(id, roots[root], path) for id, root, path in catalog.select(query, condition.values) if root in roots}
