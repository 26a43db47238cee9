"""Compare two models on the same queries: paired differences, and the queries that one of them won or lost."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sightline.evaluation.metrics import DIRECTIONS, RECALLS
from sightline.evaluation.rank_files import RankedQuery, ranked_queries, shown, write_csv
from sightline.evaluation.report import empty_table
from sightline.evaluation.resampling import Difference
from sightline.evaluation.result import Evaluation
from sightline.unicode_text import as_unicode

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True, slots=True)
class Change:
    """The results of two models, a and b, for the same query."""

    a: RankedQuery
    b: RankedQuery

    @property
    def gain(self) -> float:
        """How much better b ranks the right answer than a: the difference of reciprocal ranks, -1 to 1."""
        return 1 / self.b.rank - 1 / self.a.rank

    @property
    def outcome(self) -> str:
        """The string `won` if only b ranks the right answer first, `lost` if only a does, and otherwise empty."""
        first = (self.a.rank == 1, self.b.rank == 1)
        return {(False, True): "won", (True, False): "lost"}.get(first, "")


@dataclass(frozen=True)
class Comparison:
    """Evaluations of two models on the same queries, both of which kept their `top` results."""

    a: Evaluation
    b: Evaluation

    @cached_property
    def gains(self) -> dict[str, dict[str, Difference]]:
        """The gains of b over a in each recall, with paired 95 % intervals."""
        return self.a.gain_of(self.b, seed=self.a.seed)

    @cached_property
    def changes(self) -> list[Change]:
        """All queries, sorted by how much better b ranks the right answer than a."""
        both = zip(ranked_queries(self.a), ranked_queries(self.b), strict=True)
        return sorted((Change(a, b) for a, b in both), key=lambda change: -change.gain)

    def count(self, direction: str, outcome: str) -> int:
        """Return the number of queries in a direction that b won, or that b lost."""
        return sum(one.a.direction == direction and one.outcome == outcome for one in self.changes)

    def to_json(self) -> dict[str, Any]:
        """Return the results of both models, the differences, and the numbers of queries won and lost."""
        differences = {
            way: {name: {"value": d.value, "ci95": [d.low, d.high]} for name, d in gains.items()}
            for way, gains in self.gains.items()
        }
        outcomes = {way: {kind: self.count(way, kind) for kind in ("won", "lost")} for way in DIRECTIONS}
        return {"a": self.a.to_json(), "b": self.b.to_json(), "differences": differences, "first": outcomes}

    def write_csv(self, path: Path) -> None:
        """Write a line for every query, in the order of `changes`."""
        rows = []
        for one in self.changes:
            firsts = ["".join(side.results[:1]) for side in (one.a, one.b)]
            ranks = [shown(side.rank) for side in (one.a, one.b)]
            rows.append([one.a.direction, one.a.query, one.a.text, *ranks, one.outcome, *firsts])
        write_csv(path, ("direction", "query", "text", "rank_a", "rank_b", "outcome", "first_a", "first_b"), rows)

    def table(self) -> "Table":
        """Return a row for each recall: both values and the difference with its interval, starred if significant."""
        a, b = self.a, self.b
        size = f"{a.captions:,} captions, {a.images:,} images"
        notes = [f"{size}; differences with paired 95 % intervals, * excludes zero"]
        for way, words in DIRECTIONS.items():
            won, lost = (f"{self.count(way, kind):,}" for kind in ("won", "lost"))
            notes.append(f"{words}: {won} queries are first only in {b.model}, {lost} only in {a.model}")
        title = f"{a.model} and {b.model} on {as_unicode(a.data) or 'unnamed data'} ({a.lang}, {a.protocol})"
        made = empty_table(title, ("", a.model, b.model, "difference"), "\n".join(notes))
        for way, words in DIRECTIONS.items():
            recalls = [one.text_to_image if way == "text_to_image" else one.image_to_text for one in (a, b)]
            for name in RECALLS:
                numbers = [f"{one[name]:.1f}" for one in recalls]
                made.add_row(f"{words} {name}", *numbers, described(self.gains[way][name]))
            made.add_section()
        return made


def described(gain: Difference) -> str:
    """Format a difference with its interval, and a star if it is significant.

    >>> described(Difference(1.5, 0.25, 3.0))
    '+1.5 (+0.2 to +3.0) *'
    """
    return f"{gain.value:+.1f} ({gain.low:+.1f} to {gain.high:+.1f}){' *' if gain.significant else ''}"
