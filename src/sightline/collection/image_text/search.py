"""Find images by the text in them, and merge them with images that look like the query."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sightline.collection.catalog.database import Catalog
from sightline.collection.catalog.hits import hits_of
from sightline.collection.catalog.where import compile_where
from sightline.collection.image_text.database import TextDatabase
from sightline.collection.image_text.words import contains, fold, match, query_words
from sightline.retrieval.candidates import Candidates
from sightline.retrieval.cascade import Ranking
from sightline.retrieval.options import SearchOptions
from sightline.retrieval.results import Hit, SearchResult
from sightline.stores.base import Ids

LEAST_COVERAGE = 0.5
"""The minimum share of a query's words that a text must contain to count as found."""

DECIDING = 3
"""How many of a query's words an image must contain to rank above all images that only look like the query.

That many words do not match by chance.
"""

_CERTAIN = 0.9

NOT_READ = (
    "Quoted words search the text in images, which was not read here. To read it, install the extra ocr, and run: "
    "sightline index"
)
"""The notice for a query with quotes if there is no text to search."""


@dataclass(frozen=True, slots=True)
class FoundText:
    """An image found by its text: its id, how much of the query it contains, how many words, and the best line."""

    id: int
    coverage: float
    words: int
    quote: str


@dataclass(frozen=True, slots=True)
class TextResults:
    """Results found by the text in images, best first, and how many words of the query each contains."""

    hits: tuple[Hit, ...]
    words: tuple[int, ...]
    quoted: tuple[str, ...]
    milliseconds: float

    @classmethod
    def find(
        cls,
        database: TextDatabase,
        catalog: Catalog,
        text: str,
        quoted: Sequence[str] = (),
        allowed: Ids | None = None,
        where: str | None = None,
    ) -> "TextResults":
        """Find images by their text; for the other arguments, see `find_text`. where: the filter expression."""
        began = time.perf_counter()
        found = find_text(database, catalog, text, quoted, allowed)
        items = catalog.items([one.id for one in found], None if where is None else compile_where(where))
        found = [one for one in found if one.id in items]
        ids, scores = np.array([one.id for one in found], dtype=np.int64), np.array([one.coverage for one in found])
        ranking = Ranking(Candidates.of(ids, scores, "text"), None, {})
        hits = hits_of(ranking, len(found), items)
        quotes = tuple(replace(hit, quote=one.quote) for hit, one in zip(hits, found, strict=True))
        took = 1000 * (time.perf_counter() - began)
        return cls(quotes, tuple(one.words for one in found), tuple(quoted), took)

    @property
    def ids(self) -> Ids:
        """The ids of the images, in ascending order."""
        return np.array(sorted(hit.id for hit in self.hits), dtype=np.int64)

    def alone(self, options: SearchOptions) -> SearchResult:
        """Return the result of a query that consists only of quoted text."""
        hits = self.hits[options.start : options.start + options.k]
        return SearchResult(options.query, hits, {"text": self.milliseconds}, options.where, notice=self._missing())

    def merged_with(self, result: SearchResult, options: SearchOptions) -> SearchResult:
        """Merge these images with the result of a search by appearance."""
        quotes = {hit.id: hit.quote for hit in self.hits}
        hits = result.hits
        if self.quoted:  # all hits contain the quoted text, so they are ranked only by appearance
            hits = tuple(replace(hit, quote=quotes.get(hit.id)) for hit in hits)
        elif self.hits:
            scores = {hit.id: hit.score for hit in self.hits}
            copies = {path: scores[hit.id] for hit in hits if hit.id in scores for path in hit.folded}
            own = [  # images that look the same, such as two receipts, are copies only if their text is the same
                (hit, words)
                for hit, words in zip(self.hits, self.words, strict=True)
                if hit.score > copies.get(hit.file, -1.0)
            ]
            shown = {hit.file for hit, _ in own}
            hits = tuple(replace(hit, folded=tuple(path for path in hit.folded if path not in shown)) for hit in hits)
            hits = tuple(merged(hits, [hit for hit, _ in own], [words for _, words in own]))
        return replace(
            result,
            query=options.query,
            hits=hits[options.start : options.start + options.k],
            took_ms={**result.took_ms, "text": self.milliseconds},
            notice=self._missing() or (None if self.hits else result.notice),
            did_you_mean=None if self.hits else result.did_you_mean,
        )

    def _missing(self) -> str | None:
        if self.hits or not self.quoted:
            return None
        return f"No image contains the text {' and '.join(repr(part) for part in self.quoted)}."


def find_text(
    database: TextDatabase, catalog: Catalog, text: str, quoted: Sequence[str] = (), allowed: Ids | None = None
) -> list[FoundText]:
    """Return the images whose text contains all or most of a query's words, best first.

    quoted: phrases that a text must contain. allowed: the only ids that may be found.
    """
    words = query_words(text)
    parts = [word for part in quoted for word in query_words(part)]
    if quoted:
        rows = [
            (hash, lines)
            for hash, lines in database.matching(parts or [fold(part) for part in quoted], every=True)
            if all(contains(part, lines) for part in quoted)
        ]
    else:
        rows = database.matching(words) if words else []
    may = None if allowed is None else set(allowed.tolist())
    found = []
    for hash, lines in rows:
        one = match((*words, *parts), lines)
        if not quoted and not _is_enough(one.coverage, one.words, len(words)):
            continue
        id = catalog.content(hash)
        if id is not None and (may is None or id in may):
            found.append(FoundText(id, one.coverage if not quoted else 1.0, one.words, one.quote))
    return sorted(found, key=lambda one: -one.coverage)  # stable sort: ties stay in bm25 order


def _is_enough(coverage: float, count: int, asked: int) -> bool:
    """Return whether a text contains enough of a query; a query of one word must match a whole word."""
    return coverage >= LEAST_COVERAGE and (count >= 2 or (asked == 1 and coverage >= _CERTAIN))


def merged(visual: Sequence[Hit], text: Sequence[Hit], words: Sequence[int]) -> list[Hit]:
    """Merge two rankings, best first, into one. words: how many words of the query each hit of `text` contains.

    Images that contain several words come first, in the order of `text`. The rest are ordered by the better of their
    two ranks, so that the lists alternate. Reciprocal rank fusion, which adds up both, would rank an image that
    looks right and contains some of the words above one that contains all of them (docs/pictures.md).
    """
    keys: dict[int, tuple[int, int, int]] = {}  # 0 if text decides, else 1; rank; list. Smallest first
    chosen: dict[int, Hit] = {}
    for place, hit in enumerate(visual):
        keys[hit.id], chosen[hit.id] = (1, place, 0), hit
    for place, (hit, count) in enumerate(zip(text, words, strict=True)):
        key = (0 if count >= DECIDING else 1, place, 1)
        keys[hit.id], chosen[hit.id] = min(key, keys.get(hit.id, key)), hit
    order = sorted(chosen, key=lambda id: keys[id])
    return [replace(chosen[id], rank=place + 1) for place, id in enumerate(order)]
