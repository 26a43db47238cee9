"""Extract dates, file names, folders and albums from a query and turn them into filters.

A phrase whose filter matches no item stays in the query, and its words are searched for.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Literal

from sightline.collection.query_text.dates import find_dates, year_alone
from sightline.languages.letters import plain_letters

Kind = Literal["date", "name", "folder", "album"]

_FILE_NAME = re.compile(r"(?<!\S)(?=\S*\d)(?=\S*[A-Za-z_.])[\w.()-]{4,80}(?!\S)")
_MOST_FOLDERS = 5  # folders with the same name
_MOST = 6  # phrases per query
_PICTURES = frozenset(
    (
        *("photo", "photos", "picture", "pictures", "image", "images", "pic", "pics", "shot", "shots", "snapshots"),
        *("all", "any", "every", "the", "my", "our", "of", "from", "in", "show", "me", "find", "see", "taken", "made"),
    )
)
"""Words that, next to filters, ask for pictures of anything."""


@dataclass(frozen=True, slots=True)
class Phrase:
    """A part of a query, from `start` to `end`, and its filter. label: the filter in words."""

    start: int
    end: int
    text: str
    kind: Kind
    where: str
    label: str


@dataclass(frozen=True, slots=True)
class Understood:
    """A parsed query: the words to search for, which may be empty, and the phrases that became filters.

    unmatched: dates from which there are no items; they stay among the words.
    lang: the language of the whole query; None if it was not needed. The remaining words may be too few to
        recognise it.
    """

    words: str
    phrases: tuple[Phrase, ...] = ()
    unmatched: tuple[Phrase, ...] = ()
    lang: str | None = None

    @property
    def where(self) -> str | None:
        """All filters combined; None if there are none."""
        return " and ".join(f"({phrase.where})" for phrase in self.phrases) or None


def understand(
    text: str,
    *,
    today: date,
    folders: Iterable[str],
    albums: Iterable[str],
    matches: Callable[[str], bool],
    literal: Sequence[str] = (),
    is_english: bool = True,
) -> Understood:
    """Find the phrases in a query that can be turned into filters. Its letters become plain, as models read them.

    folders: paths of all folders. albums: names of all albums. matches: returns whether a filter matches any item.
    literal: phrases to search for as words, such as filters that the user has removed.
    is_english: whether to look for phrases such as "last summer"; in other languages, only file names and dates without
        words, such as 2023-08-14, become filters.
    """
    text, words = plain_letters(text), {plain_letters(phrase).casefold() for phrase in literal}
    chosen: list[Phrase] = []
    unmatched: list[Phrase] = []
    candidates = [*_dates(text, today), *_albums(text, albums), *_folders(text, folders), *_names(text)]
    if not is_english:
        candidates = [one for one in candidates if one.kind == "name" or not any(map(str.isalpha, one.text))]
    for phrase in sorted(candidates, key=lambda phrase: phrase.start - phrase.end):  # longest first
        overlaps = any(phrase.start < other.end and other.start < phrase.end for other in chosen)
        if len(chosen) == _MOST or overlaps or phrase.text.casefold() in words:
            continue
        if matches(phrase.where):
            chosen.append(phrase)
        elif phrase.kind == "date":
            unmatched.append(phrase)
    chosen.sort(key=lambda phrase: phrase.start)
    rest, at = [], 0
    for phrase in chosen:
        rest.append(text[at : phrase.start])
        at = phrase.end
    rest.append(text[at:])
    left = " ".join(" ".join(rest).split()).strip(" ,;")
    if is_english and chosen and _PICTURES.issuperset(left.lower().split()):
        left = ""
    return Understood(left, tuple(chosen), tuple(unmatched))


def _dates(text: str, today: date) -> list[Phrase]:
    alone = year_alone(text)
    if alone is not None:
        start = len(text) - len(text.lstrip())
        return [Phrase(start, len(text.rstrip()), text.strip(), "date", alone.where, text.strip())]
    return [
        Phrase(
            one.start, one.end, text[one.start : one.end], "date", one.span.where, _days(one.span.first, one.span.last)
        )
        for one in find_dates(text, today)
    ]


def _days(first: date | None, last: date | None) -> str:
    if first and last:
        return f"{first}" if first == last else f"{first} to {last}"
    return f"from {first}" if first else f"until {last}" if last else "any year"


def _albums(text: str, albums: Iterable[str]) -> list[Phrase]:
    """Find album names that follow the word "album"."""
    found = []
    for name in sorted(albums, key=len, reverse=True):
        pattern = rf"(?<!\w)(?:in |from )?(?:the |my )?album {re.escape(plain_letters(name))}(?!\w)"
        for match in re.finditer(pattern, text, re.IGNORECASE):
            found.append(_phrase(match, "album", f"album = '{_quoted(name)}'", name))
    return found


def _folders(text: str, folders: Iterable[str]) -> list[Phrase]:
    """Find folder names: after "folder", ignoring case; after "in" or "from", only if the capitalisation matches."""
    by_name: dict[str, list[str]] = {}
    for path in folders:
        by_name.setdefault(_folder_name(path).casefold(), []).append(path)
    found = []
    for name, paths in sorted(by_name.items(), key=lambda one: -len(one[0])):
        if name not in text.casefold() or len(name) < 2:
            continue
        chosen = paths[:_MOST_FOLDERS]
        where = " or ".join(f"folder = '{_quoted(path)}' or folder like '{_quoted(path)}/%'" for path in chosen)
        pattern = rf"(?<!\w)(?P<lead>(?:(?:in|from) )?(?:the )?folder |(?:in|from) )(?P<name>{re.escape(name)})(?!\w)"
        for match in re.finditer(pattern, text, re.IGNORECASE):
            is_exact = any(_folder_name(path) == match["name"] for path in paths)
            is_a_name = is_exact and (match["name"][0].isupper() or any(map(str.isdecimal, match["name"])))
            if "folder" in match["lead"].lower() or is_a_name:
                found.append(_phrase(match, "folder", where, chosen[0]))
    return found


def _folder_name(path: str) -> str:
    return plain_letters(path.rpartition("/")[2])


def _names(text: str) -> list[Phrase]:
    """Find words that look like file names: they have a digit, and a letter, a dot or an underscore."""
    return [
        _phrase(match, "name", f"name like '{_quoted(match[0])}%'", match[0]) for match in _FILE_NAME.finditer(text)
    ]


def _phrase(match: re.Match[str], kind: Kind, where: str, label: str) -> Phrase:
    return Phrase(match.start(), match.end(), match[0], kind, where, label)


def _quoted(text: str) -> str:
    return text.replace("'", "''").replace("%", "_")
