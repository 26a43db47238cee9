"""Turn the ids of a ranking into results with paths, by looking them up in the catalog."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from sightline.collection.catalog.conditions import Condition
from sightline.collection.catalog.database import Catalog
from sightline.collection.catalog.files import File, Item
from sightline.retrieval.cascade import Ranking
from sightline.retrieval.results import Hit, HitStage


class ItemCache:
    """Items read from the catalog during a search; each is read only once. Files that meet the condition come first."""

    def __init__(self, catalog: Catalog, condition: Condition | None = None) -> None:
        self.items: dict[int, Item] = {}
        self._catalog, self._condition = catalog, condition
        self._asked: set[int] = set()

    def __call__(self, ids: Sequence[int]) -> dict[int, Item]:
        """Read the items with these ids, if they still exist; returns all items read so far."""
        if new := [id for id in ids if id not in self._asked]:
            self._asked.update(new)
            self.items.update(self._catalog.items(new, self._condition))
        return self.items

    def blank(self, ids: Sequence[int]) -> set[int]:
        """Return the ids among these whose images are blank; their items must have been read."""
        return {id for id in ids if self.items[id].is_blank}


def hits_of(ranking: Ranking, count: int, items: Mapping[int, Item]) -> tuple[Hit, ...]:
    """Return the first `count` entries of a ranking, as results."""
    return tuple(_hit(place, ranking, items) for place in range(min(count, len(ranking.candidates))))


def _hit(place: int, ranking: Ranking, items: Mapping[int, Item]) -> Hit:
    candidates = ranking.candidates
    item = items[int(candidates.ids[place])]
    file, *others = item.files
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
