"""The options of a search, the same in Python, on the command line and over HTTP."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Literal, get_args

from sightline.bundle.model import DEFAULT_WEIGHT
from sightline.errors import OptionError, QueryError
from sightline.fusion_names import FusionRule
from sightline.media import ImageLike, image_source
from sightline.retrieval.duplicates import Duplicates
from sightline.retrieval.fusion import check_fusion
from sightline.retrieval.query import Query, check_readable

_WHOLE = {"k": 1, "start": 0, "late": 0, "late_fragments": 1, "rerank": 0}
"""The options that are whole numbers, and their smallest values."""


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """What to search for, and how. Invalid values are rejected at construction.

    text, image: the query, as text, an image, or both. image_weight: with both, the weight of the image, from 0 (only
        the text counts) to 1 (only the image counts).
    not_: one or several descriptions of what results should not show.
    where: a filter, such as `taken >= '2023-06-01' and path like 'holiday/%'`; see `catalog.where`.
    k: the number of results. start: skip this many results first.
    late: how many of the top candidates late interaction rescores; `all` ranks everything by it.
    late_fragments: late interaction uses only this many fragments of each side, counted from the first; None for all.
    rerank: how many of the top candidates the matcher then rescores; 0 for none.
    fusion, weight: how the matcher's score and the cosine are combined; see `fusion.fuse`.
    min_relevance: hide results below this relevance, 0 to 1.
    budget_ms: the time limit for the search. `late` and `rerank` are then upper limits.
    duplicates: `fold` shows images that look the same as one result, `show` shows all.
    lang: the language of `text` and `not_`, such as `de`; None to detect it. See `language.in_language`.

    Options left at None take the model's defaults; see `stages.resolve`.
    """

    text: str | None = None
    image: ImageLike | None = None
    image_weight: float = 0.5
    not_: str | Sequence[str] = ()
    where: str | None = None
    k: int = 10
    start: int = 0
    late: int | Literal["all"] | None = None
    late_fragments: int | None = None
    rerank: int | None = None
    fusion: FusionRule | None = None
    weight: float | None = None
    min_relevance: float | None = None
    budget_ms: float | None = None
    duplicates: Duplicates = "fold"
    lang: str | None = None

    def __post_init__(self) -> None:
        if self.image is not None:
            object.__setattr__(self, "image", image_source(self.image))  # once, because a file can change
        if not isinstance(self.not_, Iterable):
            raise OptionError("not_", f"must be a string or several, not {self.not_!r}")
        if not isinstance(self.not_, str):
            object.__setattr__(self, "not_", tuple(self.not_))
        self._check_types()
        for name in ("min_relevance", "image_weight"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise OptionError(name, f"must be between 0 and 1, not {value:g}")
        if self.budget_ms is not None and not 0 < self.budget_ms < math.inf:
            raise OptionError("budget_ms", f"must be more than 0, not {self.budget_ms:g}")
        for words in (self.text or "", *self.unwanted):
            check_readable(words)
        if not all(words.strip() for words in self.unwanted):
            raise OptionError("not_", "must not be empty")
        if self.duplicates not in get_args(Duplicates):
            raise OptionError("duplicates", f"must be 'fold' or 'show', not {self.duplicates!r}")
        if self.late == "all" and self.budget_ms is not None:
            raise OptionError("late", "cannot be 'all' with a time limit", "Use a number, or leave out `budget_ms`.")
        if self.fusion is not None:
            check_fusion(self.fusion, DEFAULT_WEIGHT if self.weight is None else self.weight)

    def _check_types(self) -> None:
        for name in ("text", "where", "lang"):
            if not isinstance(value := getattr(self, name), str | None):
                raise OptionError(name, f"must be a string, not {value!r}")
        for words in self.unwanted:
            if not isinstance(words, str):
                raise OptionError("not_", f"must be a string or several, not {words!r}")
        for name, least in _WHOLE.items():
            value = getattr(self, name)
            is_missing = value is None and name not in ("k", "start")
            if not (is_missing or (name == "late" and isinstance(value, str) and value == "all")):
                check_whole(name, value, least, "a whole number or 'all'" if name == "late" else "a whole number")
        for name in ("image_weight", "weight", "min_relevance", "budget_ms"):
            value = getattr(self, name)
            if value is not None or name == "image_weight":
                _check_number(name, value)

    @property
    def unwanted(self) -> tuple[str, ...]:
        """The descriptions of what results should not show."""
        return (self.not_,) if isinstance(self.not_, str) else tuple(self.not_)

    @property
    def query(self) -> Query:
        """The query without its options.

        >>> str(SearchOptions("a dog", not_="snow").query)
        'a dog'
        """
        text = self.text if self.text and self.text.strip() else None
        image = None if self.image is None else image_source(self.image)
        if text is None and image is None:
            listing = " To list what matches a filter, use `Collection.browse`." if self.where else ""
            raise QueryError("nothing to search for", f"Pass a text, an image, or both.{listing}")
        if text is not None and image is not None and self.image_weight in (0, 1):
            text, image = (text, None) if self.image_weight == 0 else (None, image)
        return Query(text, image, self.image_weight, self.unwanted)


def check_whole(option: str, value: object, least: int, kind: str = "a whole number") -> None:
    """Refuse the value of an option that is not a whole number, or too small. kind: what it must be."""
    if not isinstance(value, Integral):
        raise OptionError(option, f"must be {kind}, not {value!r}")
    if int(value) < least:
        raise OptionError(option, f"must be at least {least}, not {value}")


def _check_number(option: str, value: object) -> None:
    if not isinstance(value, Real):
        raise OptionError(option, f"must be a number, not {value!r}")
    try:
        float(value)
    except OverflowError as error:
        raise OptionError(option, "is too large") from error
