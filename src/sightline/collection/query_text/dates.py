"""Recognise dates in a query, such as "last summer" or "14 August 2023", with a small grammar and no model.

Only unambiguous dates are recognised: "May" may be a name, "summer" may describe a picture, and "2023" may be a house
number, so these require another word or number next to them.
"""

import re
from calendar import monthrange
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta

_MONTHS = {
    name: number
    for number, names in enumerate(
        ("january jan", "february feb", "march mar", "april apr", "may", "june jun", "july jul", "august aug",
         "september sep sept", "october oct", "november nov", "december dec"), 1
    )
    for name in names.split()
}  # fmt: skip
_SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}  # first month, northern hemisphere
_HOLIDAYS = {
    "christmas": ((12, 24), (12, 26)),
    "halloween": ((10, 31), (10, 31)),
    "new year's eve": ((12, 31), (12, 31)),
}
_NUMBERS = {
    "one": 1,
    "two": 2,
    "three": 3,
    "four": 4,
    "five": 5,
    "six": 6,
    "seven": 7,
    "eight": 8,
    "nine": 9,
    "ten": 10,
}
_NUMBERS |= {"a": 1, "an": 1, "couple of": 2, "a couple of": 2}
_LEAD = r"(?:(?:taken |shot )?(?:in|on|from|of|at|during|around)(?: the)? )?"
_MONTH = rf"(?P<month>{'|'.join(sorted(_MONTHS, key=len, reverse=True))})\.?"
_YEAR = r"(?P<year>(?:19|20)\d\d)"
_DAY = r"(?P<day>[0-3]?\d)(?:st|nd|rd|th)?"
_SEASON = rf"(?P<season>{'|'.join(_SEASONS)})"
_HOLIDAY = rf"(?P<holiday>{'|'.join(_HOLIDAYS)})"
_COUNT = rf"(?P<count>\d{{1,3}}|{'|'.join(sorted(_NUMBERS, key=len, reverse=True))})"
_UNIT = r"(?P<unit>day|week|month|year)s?"


@dataclass(frozen=True, slots=True)
class Span:
    """Days from `first` to `last`, both included; None means no limit on that side.

    month: if given, the span is this month of every year.
    """

    first: date | None
    last: date | None
    month: int | None = None

    @property
    def where(self) -> str:
        """The filter for photos taken within this span."""
        if self.month is not None:
            return f"taken like '____-{self.month:02}-%'"
        limits = [f"taken >= '{self.first}'"] if self.first else []
        limits += [f"taken <= '{self.last}'"] if self.last else []
        return " and ".join(limits)


@dataclass(frozen=True, slots=True)
class DatePhrase:
    """A date phrase in a text, from `start` to `end`."""

    start: int
    end: int
    span: Span


def find_dates(text: str, today: date) -> list[DatePhrase]:
    """Return the dates in a text, from left to right; if two overlap, only the longer one.

    >>> [(phrase.span.first, phrase.span.last) for phrase in find_dates("a dog in August 2023", date(2026, 1, 1))]
    [(datetime.date(2023, 8, 1), datetime.date(2023, 8, 31))]
    >>> find_dates("a girl called May", date(2026, 1, 1))
    []
    """
    found: list[DatePhrase] = []
    for pattern, span_of in _RULES:
        for match in pattern.finditer(text):
            try:
                span = span_of(match, today)
            except (ValueError, OverflowError):  # no such day, such as 31 June, or out of range
                continue
            overlaps = any(match.start() < other.end and other.start < match.end() for other in found)
            if span is not None and not overlaps:
                found.append(DatePhrase(match.start(), match.end(), span))
    return sorted(found, key=lambda phrase: phrase.start)


def _month_span(year: int, month: int, months: int = 1) -> Span:
    end = year * 12 + month - 1 + months - 1
    last_year, last_month = end // 12, end % 12 + 1
    return Span(date(year, month, 1), date(last_year, last_month, monthrange(last_year, last_month)[1]))


def _year_span(year: int, years: int = 1) -> Span:
    return Span(date(year, 1, 1), date(year + years - 1, 12, 31))


def _moved(day: date, months: int) -> date:
    """Return the same day this many months earlier, or the last day of that month."""
    place = day.year * 12 + day.month - 1 - months
    year, month = place // 12, place % 12 + 1
    return date(year, month, min(day.day, monthrange(year, month)[1]))


def _count(match: re.Match[str]) -> int:
    count = match["count"].lower()
    return int(count) if count.isdecimal() else _NUMBERS[count]


def _back(today: date, count: int, unit: str) -> date:
    if unit in ("day", "week"):
        return today - timedelta(days=count * (7 if unit == "week" else 1))
    return _moved(today, count * (12 if unit == "year" else 1))


def _unit_of(day: date, unit: str) -> Span:
    """Return the day, week, month or year that contains a day; weeks begin on Monday."""
    if unit == "week":
        first = day - timedelta(days=day.weekday())
        return Span(first, first + timedelta(days=6))
    if unit == "month":
        return _month_span(day.year, day.month)
    return _year_span(day.year) if unit == "year" else Span(day, day)


def _iso(match: re.Match[str], _: date) -> Span:
    year, month, day = int(match["year"]), int(match["number"]), match["day"]
    if day is None:
        return _month_span(year, month)
    return Span(date(year, month, int(day)), date(year, month, int(day)))


def _named_day(match: re.Match[str], _: date) -> Span:
    day = date(int(match["year"]), _MONTHS[match["month"].lower()], int(match["day"]))
    return Span(day, day)


def _dotted(match: re.Match[str], _: date) -> Span:
    day = date(int(match["year"]), int(match["number"]), int(match["day"]))
    return Span(day, day)


def _named_month(match: re.Match[str], _: date) -> Span:
    return _month_span(int(match["year"]), _MONTHS[match["month"].lower()])


def _near_month(match: re.Match[str], today: date) -> Span:
    month, is_last = _MONTHS[match["month"].lower()], match["which"].lower() == "last"
    is_past = month < today.month or (month == today.month and not is_last)
    return _month_span(today.year if is_past or not is_last else today.year - 1, month)


def _any_month(match: re.Match[str], _: date) -> Span | None:
    name = match["month"]
    return Span(None, None, _MONTHS[name.lower()]) if name[0].isupper() and len(name) >= 3 else None


def _season(match: re.Match[str], _: date) -> Span:
    return _month_span(int(match["year"]), _SEASONS[match["season"].lower()], 3)


def _near_season(match: re.Match[str], today: date) -> Span:
    first = _SEASONS[match["season"].lower()]
    year = today.year if today.month >= first or match["which"].lower() == "this" else today.year - 1
    if match["season"].lower() == "winter" and today.month < 3 and match["which"].lower() == "this":
        year = today.year - 1
    span = _month_span(year, first, 3)
    is_over = span.last is not None and span.last < today
    return span if match["which"].lower() == "this" or is_over else _month_span(year - 1, first, 3)


def _holiday(match: re.Match[str], today: date) -> Span:
    (month, first), (_, last) = _HOLIDAYS[match["holiday"].lower().replace("’", "'")]
    year = int(match["year"]) if match["year"] else today.year - (date(today.year, month, last) >= today)
    return Span(date(year, month, first), date(year, month, last))


def _near_unit(match: re.Match[str], today: date) -> Span:
    unit = match["unit"].lower()
    return _unit_of(today if match["which"].lower() == "this" else _back(today, 1, unit), unit)


def _weekend(match: re.Match[str], today: date) -> Span:
    saturday = today - timedelta(days=(today.weekday() - 5) % 7)
    if match["which"].lower() == "last" and today.weekday() >= 5:
        saturday -= timedelta(days=7)
    elif match["which"].lower() == "this" and today.weekday() < 5:
        saturday += timedelta(days=7)
    return Span(saturday, saturday + timedelta(days=1))


def _range(match: re.Match[str], _: date) -> Span | None:
    first, last = _end(match["from_month"], match["from_year"]), _end(match["to_month"], match["to_year"])
    return Span(first.first, last.last) if first.first and last.last and first.first <= last.last else None


def _side(match: re.Match[str], _: date) -> Span:
    span, word = _end(match["month"], match["year"]), match["word"].lower()
    assert span.first
    assert span.last
    if word == "before":
        return Span(None, span.first - timedelta(days=1))
    if word == "after":
        return Span(span.last + timedelta(days=1), None)
    return Span(span.first, None) if word == "since" else Span(None, span.last)


def _end(month: str | None, year: str) -> Span:
    return _month_span(int(year), _MONTHS[month.lower()]) if month else _year_span(int(year))


def _decade(match: re.Match[str], _: date) -> Span:
    decade = match["decade"]
    return _year_span(int(decade) if len(decade) == 4 else 1900 + int(decade), 10)


_Rule = Callable[[re.Match[str], date], Span | None]
_ANY_MONTH = _MONTH.replace("?P<month>", "").removesuffix(r"\.?")
_FROM, _TO = (rf"(?:(?P<{side}_month>{_ANY_MONTH[1:-1]}) )?(?P<{side}_year>(?:19|20)\d\d)" for side in ("from", "to"))
_RULES: list[tuple[re.Pattern[str], _Rule]] = [
    (re.compile(rf"(?<![\w-]){pattern}(?![\w]|-\d)", re.IGNORECASE), rule)
    for pattern, rule in (
        (rf"{_LEAD}(?P<year>(?:19|20)\d\d)-(?P<number>[01]\d)(?:-(?P<day>[0-3]\d))?", _iso),
        (rf"{_LEAD}(?:the )?{_DAY}(?: of)? {_MONTH},? {_YEAR}", _named_day),
        (rf"{_LEAD}{_MONTH} {_DAY},? {_YEAR}", _named_day),
        (rf"{_LEAD}(?P<day>[0-3]?\d)\.(?P<number>[01]?\d)\.{_YEAR}", _dotted),
        (rf"(?:between|from) {_FROM} (?:and|to|until) {_TO}", _range),
        (rf"(?:in )?{_FROM} ?[-–] ?{_TO}", _range),
        (rf"(?P<word>before|after|since|until) (?:{_MONTH} )?{_YEAR}", _side),
        (rf"{_LEAD}{_MONTH}(?: of)? {_YEAR}", _named_month),
        (rf"{_LEAD}{_SEASON}(?: of)? {_YEAR}(?:/\d\d)?", _season),
        (rf"{_LEAD}{_HOLIDAY}(?: of)? {_YEAR}", _holiday),
        (rf"(?:from |in |of )?(?P<which>last) {_HOLIDAY}(?P<year>)", _holiday),
        (rf"(?:from |in |of )?(?P<which>last|this) {_MONTH}", _near_month),
        (rf"(?:from |in |of )?(?P<which>last|this) {_SEASON}", _near_season),
        (r"(?:from |of )?(?P<which>last|this) weekend", _weekend),
        (rf"(?:from |in |of )?(?:the )?(?:last|past) {_COUNT} {_UNIT}",
         lambda match, today: Span(_back(today, _count(match), match["unit"].lower()), today)),
        (rf"(?:from )?{_COUNT} {_UNIT} ago",
         lambda match, today: _unit_of(_back(today, _count(match), match["unit"].lower()), match["unit"].lower())),
        (r"(?:from |in |of )?(?P<which>last|this) (?P<unit>week|month|year)", _near_unit),
        (r"(?:from )?today", lambda match, today: Span(today, today)),
        (r"(?:from )?yesterday", lambda match, today: Span(today - timedelta(days=1), today - timedelta(days=1))),
        (r"(?:in |from )(?:the )?(?P<decade>(?:19|20)\d0|[5-9]0)['’]?s", _decade),
        (r"the (?P<decade>(?:19|20)\d0|[5-9]0)['’]?s", _decade),
        (rf"(?:taken |shot )?(?:in|from|during) {_YEAR}", lambda match, today: _year_span(int(match["year"]))),
        (rf"(?:taken |shot )?(?:in|from|during) {_MONTH}", _any_month),
    )
]  # fmt: skip
_ALONE = re.compile(rf"\s*{_YEAR}\s*")


def year_alone(text: str) -> Span | None:
    """Return the year, if the text is nothing but a year; next to other words, a bare number is ambiguous."""
    match = _ALONE.fullmatch(text)
    return _year_span(int(match["year"])) if match else None
