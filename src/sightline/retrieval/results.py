"""Search results, ready to be shown or sent."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, overload

from sightline.retrieval.query import Query
from sightline.unicode_text import as_unicode

HitStage = Literal["embed", "late", "match", "text"]


@dataclass(frozen=True, slots=True)
class Hit:
    """One result.

    path: relative to `root`, the indexed folder or text file; as displayed, and as used by filters.
    file: the exact path; for a text, that of the text file.
    score: from the last stage that scored it, named in `stage`; only scores of the same stage are comparable.
    relevance: the probability that it is what was asked for; None if the model has no relevance, or if nothing was
        asked for, as with the text "in the".
    text, line, key: for a text, its content, its line number, and its id in the file.
    copies: other files with exactly the same content. folded: files that show the same image, slightly changed.
    width, height: in pixels. taken: when it was taken, in ISO 8601. duration: the length of a video in seconds.
    moments: the times, in seconds, of a video's best-matching moments, best first.
    quote: a line of text in the image that contains words of the query. If this text determined the rank, the hit's
        stage is `text` and its relevance is unknown.
    encoded_by: `fast` if the model's fast image graph encoded it; `sightline index --refine` encodes it again.
    """

    rank: int
    id: int
    path: str
    file: Path
    root: Path
    score: float
    relevance: float | None
    stage: HitStage
    text: str | None = None
    line: int | None = None
    key: str | None = None
    copies: tuple[Path, ...] = ()
    folded: tuple[Path, ...] = ()
    width: int | None = None
    height: int | None = None
    taken: str | None = None
    quote: str | None = None
    moments: tuple[float, ...] = ()
    duration: float | None = None
    encoded_by: Literal["fast"] | None = None

    def __repr__(self) -> str:
        said = f"score={self.score:.3f}" if self.relevance is None else f"relevance={self.relevance:.2f}"
        return f"Hit({self.rank}, {(self.text or self.path)!r}, {said}, stage={self.stage!r})"

    def to_json(self) -> dict[str, Any]:
        """Return the JSON of a hit in `sightline search --json`; unknown and empty fields are omitted.

        In paths, bytes that are not UTF-8 are replaced by U+FFFD, as in `path`; `file` and `root` of the hit are exact.
        """
        found = {one.name: value for one in fields(self) if (value := getattr(self, one.name)) not in (None, ())}
        found |= {"file": as_unicode(self.file), "root": as_unicode(self.root), "score": round(self.score, 6)}
        if self.relevance is not None:
            found["relevance"] = round(self.relevance, 4)
        for name in ("copies", "folded"):
            if name in found:
                found[name] = [as_unicode(path) for path in found[name]]
        if self.moments:
            found["moments"] = list(self.moments)
        return found


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The result of a query: its hits, best first, and how many milliseconds each part of the work took.

    best_relevance: the highest relevance of the examined items, even if `min_relevance` excluded it; None if unknown.
    truncated: whether the query's text exceeds the model's length limit.
    line: the minimum relevance for a hit to count as a match. None if the relevance is unknown, or of the older kind:
        the probability that a hit is the one that was meant.
    has_content: whether the text says what an image shows; if it has only filler words, no relevance is known.
    notice: one line about a query that the model cannot read. did_you_mean: the query with misspelt words replaced.
    lang: the language that the text was read in; None without a text, or for a model that names no languages.
    """

    query: Query
    hits: tuple[Hit, ...]
    took_ms: Mapping[str, float] = field(default_factory=dict)
    where: str | None = None
    best_relevance: float | None = None
    truncated: bool = False
    line: float | None = None
    notice: str | None = None
    did_you_mean: str | None = None
    lang: str | None = None
    has_content: bool = True

    @property
    def matches(self) -> tuple[Hit, ...]:
        """The hits that are likely to show what was asked for; all hits if relevance is unknown."""
        return tuple(hit for hit in self.hits if self._is_match(hit))

    @property
    def rest(self) -> tuple[Hit, ...]:
        """The hits that are not matches."""
        return tuple(hit for hit in self.hits if not self._is_match(hit))

    @property
    def is_older_kind(self) -> bool:
        """Whether the relevance is that of an older bundle, which decreases with the number of items that match."""
        return self.line is None and self.best_relevance is not None

    def _is_match(self, hit: Hit) -> bool:
        return self.line is None or hit.relevance is None or hit.relevance >= self.line

    def __repr__(self) -> str:
        shown = ", ".join(repr(hit) for hit in self.hits[:3])
        return f"SearchResult({str(self.query)!r}, {len(self)} hits: {shown}{', …' if len(self) > 3 else ''})"

    def __len__(self) -> int:
        return len(self.hits)

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    @overload
    def __getitem__(self, place: int) -> Hit: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[Hit, ...]: ...

    def __getitem__(self, place: int | slice) -> Hit | tuple[Hit, ...]:
        return self.hits[place]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON of `sightline search --json`."""
        return {**self.about(), "hits": [hit.to_json() for hit in self.hits]}

    def about(self) -> dict[str, Any]:
        """Return everything in `to_json` except the hits."""
        extra = {
            "lang": self.lang,
            "image": as_unicode(self.query.image.name) if self.query.image else None,
            "not": list(self.query.without),
            "where": self.where,
            "best_relevance": None if self.best_relevance is None else round(self.best_relevance, 4),
            "line": self.line,
            "matches": None if self.line is None else len(self.matches),
            "relevance_kind": "older" if self.is_older_kind else None,
            "truncated": self.truncated or None,
            "notice": self.notice,
            "did_you_mean": self.did_you_mean,
        }
        return {
            "query": as_unicode(str(self.query)),
            **{name: value for name, value in extra.items() if value not in (None, [])},
            "took_ms": {part: round(spent, 2) for part, spent in self.took_ms.items()},
        }
