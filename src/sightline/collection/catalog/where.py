"""Parse filters such as `taken >= '2023-06-01' and path like 'holiday/%'` and compile them to SQL conditions.

    expression   conjunction, or …
    conjunction  condition, and …
    condition    not condition | ( expression ) | COLUMN test
    test         = != < <= > >= and a VALUE or COLUMN | is [not] null | [not] like TEXT
                 | [not] in ( VALUE, … ) | [not] between VALUE and VALUE

Texts are in single or double quotes. Dates are texts and match at the precision given: `taken = '2023-06'` is all of
June, `taken <= '2023'` includes the whole year. Unknown values, such as the latitude of an image without GPS data,
match only `is null`. `like` supports % (anything) and _ (one character), and ignores case. An accent may be part of its
letter or follow it; =, !=, `in` and `like` match both.

User input never becomes part of the SQL: columns are looked up, and values are bound as parameters.
"""

import math
import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from sightline.close_names import did_you_mean
from sightline.collection.catalog.conditions import Condition, to_sql
from sightline.collection.catalog.filter_fields import FIELDS
from sightline.errors import OptionError, QueryError
from sightline.stores.filters import ColumnKind, Filter, Joined, Negated, Sign, Test, Value

COLUMNS: tuple[str, ...] = tuple(FIELDS)

_COMPARISONS: dict[str, Sign] = {
    "=": "=",
    "==": "=",
    "!=": "!=",
    "<>": "!=",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
}
_KEYWORDS = {"and", "or", "not", "like", "in", "between", "is", "null"}
_TOKEN = re.compile(
    r"""\s*(?:(?P<text>'(?:[^']|'')*'|"(?:[^"]|"")*")"""
    r"""|(?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![\w.]))"""
    r"""|(?P<word>[^\W\d]\w*)|(?P<mark><=|>=|!=|<>|==|[=<>(),]))"""
)
_DATE = re.compile(r"\d{4}(-\d\d(-\d\d([T ]\d\d(:\d\d(:\d\d)?)?)?)?)?", re.ASCII)
_DEEPEST = 50
_MOST = 5_000  # tokens
_MOST_TESTS = 64  # each is evaluated for every file
_COSTLY = {"modified": 4, "root": 8, "album": 8}  # computed columns, each of which counts as this many tests
_COSTLY_LIKE = 4  # SQLite calls a Python function to ignore the case of letters beyond ASCII


class _Token(NamedTuple):
    kind: str
    text: str
    start: int
    end: int

    @property
    def word(self) -> str:
        """The keyword or punctuation as the grammar writes it; empty for a text or number."""
        return self.text.lower() if self.kind in ("word", "mark") else ""


def compile_where(expression: str) -> Condition:
    """Compile a filter to SQL; errors point to the part that is not understood.

    >>> compile_where("width > 1000 and not folder = 'raw'")
    Condition(sql='(c.width > ? AND NOT f.folder = ?)', values=(1000, 'raw'))
    >>> compile_where("heigth > 1000")
    Traceback (most recent call last):
        ...
    sightline.errors.QueryError: the filter has no column "heigth":
      heigth > 1000
      ^^^^^^
    Did you mean "height"?
    """
    if not isinstance(expression, str):
        raise OptionError("where", f"must be a string, not {expression!r}")
    return to_sql(parse_where(expression))


def parse_where(expression: str) -> Filter:
    """Parse a filter; errors point to the part that is not understood."""
    parser = _Parser(expression, list(_tokens(expression)))
    found = parser.expression()
    if parser.here.kind != "end":
        raise parser.wrong(
            parser.here,
            "the filter continues where it should end",
            "Join conditions with 'and' or 'or'; put text and dates in quotes.",
        )
    return found


def shift_ids(expression: str, by: int) -> str:
    """Return a filter in which `by` was added to the numbers that ids are compared with; other columns are kept.

    >>> shift_ids("id in (5, 17) and width > 1", -4)
    'id in (1, 13) and width > 1'
    """
    parse_where(expression)  # errors point into the given filter
    parts, column, place = [], "", 0
    for token in _tokens(expression):
        if token.kind == "word" and token.word not in _KEYWORDS:
            column = token.word
        if token.kind == "number" and column == "id" and math.isfinite(float(token.text)):
            parts += [expression[place : token.start], str(_number(token.text) + by)]
            place = token.end
    return "".join([*parts, expression[place:]])


def _tokens(expression: str) -> Iterator[_Token]:
    place, count = 0, 0
    while place < len(expression.rstrip()):
        found = _TOKEN.match(expression, place)
        if not found or count > _MOST:
            start = place + len(expression[place:]) - len(expression[place:].lstrip())
            raise _unreadable(expression, start) if not found else _too_long()
        kind = found.lastgroup or ""
        yield _Token(kind, found[kind], found.start(kind), found.end(kind))
        place, count = found.end(), count + 1
    end = len(expression.rstrip())
    yield _Token("end", "", end, end + 1)


def _too_long() -> QueryError:
    return QueryError(
        f"the filter has more than {_MOST:,} words, values and signs", "Split it, or filter by an album of these items."
    )


def _unreadable(expression: str, start: int) -> QueryError:
    if expression[start] in "'\"":
        what, way_out = "a quote in the filter is not closed", f"Close it with another {expression[start]}"
    else:
        what, way_out = f"the filter cannot be understood at {expression[start]!r}", "Put text and dates in quotes."
    return _pointing(expression, start, start + 1, what, way_out)


def _pointing(expression: str, start: int, end: int, what: str, way_out: str) -> QueryError:
    shown = "".join(
        " " if character.isspace() or not character.isprintable() else character for character in expression
    )
    return QueryError(f"{what}:\n  {shown}\n  {' ' * start}{'^' * (end - start)}", way_out)


@dataclass(slots=True)
class _Parser:
    """Recursive-descent parser: one method for each rule of the grammar."""

    source: str
    tokens: list[_Token]
    place: int = 0
    depth: int = 0
    tests: int = 0

    @property
    def here(self) -> _Token:
        return self.tokens[self.place]

    def wrong(self, token: _Token, what: str, way_out: str = "") -> QueryError:
        return _pointing(self.source, token.start, token.end, what, way_out)

    def take(self) -> _Token:
        token = self.here
        self.place += token.kind != "end"
        return token

    def has(self, word: str) -> bool:
        """Consume the next token if it is this keyword or punctuation."""
        if self.here.word != word:
            return False
        self.place += 1
        return True

    def must_have(self, word: str) -> None:
        if not self.has(word):
            raise self.wrong(self.here, f"the filter needs {word!r} here")

    def expression(self) -> Filter:
        return self._joined("or", lambda: self._joined("and", self.condition))

    def _joined(self, word: Literal["and", "or"], part: Callable[[], Filter]) -> Filter:
        parts = [part()]
        while self.has(word):
            parts.append(part())
        return parts[0] if len(parts) == 1 else Joined(word, tuple(parts))

    def condition(self) -> Filter:
        if self.here.word not in ("not", "("):
            return self.test()
        self.depth += 1
        if self.depth > _DEEPEST:
            raise self.wrong(self.here, "the filter is nested too deeply", "Use fewer parentheses.")
        found: Filter
        if self.has("not"):
            found = Negated(self.condition())
        else:
            self.must_have("(")
            found = self.expression()
            self.must_have(")")
        self.depth -= 1
        return found

    def test(self) -> Filter:
        token = self.take()
        name, kind = self.column(token)
        if self.here.word in _COMPARISONS:
            return self.compared(name, kind, _COMPARISONS[self.take().word])
        if self.has("is"):
            is_negated = self.has("not")
            self.must_have("null")
            return _perhaps(is_negated, Test(name, kind, "null"))
        is_negated = self.has("not")
        if self.has("like"):
            return _perhaps(is_negated, self.like(token, name, kind))
        if self.has("in"):
            return _perhaps(is_negated, self.within(name, kind))
        if self.has("between"):
            low = self.compared(name, kind, ">=")
            self.must_have("and")
            return _perhaps(is_negated, Joined("and", (low, self.compared(name, kind, "<="))))
        raise self.wrong(self.here, f"{token.text} needs a comparison", "Continue with =, <, like, in, between, is …")

    def column(self, token: _Token) -> tuple[str, ColumnKind]:
        name = token.text.lower()
        if token.kind == "word" and name in FIELDS:
            self.count(token, _COSTLY.get(name, 1))
            return name, FIELDS[name].kind
        if token.kind != "word" or name in _KEYWORDS:
            raise self.wrong(token, "the filter needs a column here", f"The columns are {', '.join(COLUMNS)}.")
        raise self.wrong(token, f'the filter has no column "{token.text}"', did_you_mean(name, COLUMNS))

    def count(self, token: _Token, tests: int) -> None:
        self.tests += tests
        if self.tests > _MOST_TESTS:
            raise self.wrong(token, "the filter has too many conditions", "Use `in (…)` to test for several values.")

    def compared(self, name: str, kind: ColumnKind, sign: Sign) -> Filter:
        """Parse the right side of a comparison: a value or another column."""
        token = self.take()
        if token.kind == "word" and token.text.lower() in FIELDS:
            other, other_kind = self.column(token)
            if "album" in (name, other):
                raise self.wrong(token, "an album must be compared with text", "Put its name in quotes.")
            if other_kind != kind:
                raise self.wrong(token, f"a {kind} cannot be compared with a {other_kind}")
            return Test(name, kind, sign, other=other)
        if kind == "number" and token.kind == "word":
            self.column(token)  # raises an error that suggests a column
        values = _spellings(self.value(token, kind))
        if len(values) > 1 and sign in ("=", "!="):
            return _perhaps(sign == "!=", Test(name, kind, "in", values))
        return Test(name, kind, sign, values[:1])

    def like(self, column: _Token, name: str, kind: ColumnKind) -> Test:
        if kind == "number":
            raise self.wrong(column, f"{column.text} is a number, but `like` compares text", "Use =, < or >.")
        token = self.take()
        pattern = self.text(token)
        if not pattern.isascii():
            self.count(token, _COSTLY_LIKE)
        return Test(name, kind, "like", _spellings(pattern))

    def within(self, name: str, kind: ColumnKind) -> Test:
        self.must_have("(")
        values = [*_spellings(self.value(self.take(), kind))]
        while self.has(","):
            values += _spellings(self.value(self.take(), kind))
        if kind == "date":  # each date is a separate test
            self.count(self.here, len(values) * _COSTLY.get(name, 1))
        self.must_have(")")
        return Test(name, kind, "in", tuple(values))

    def value(self, token: _Token, kind: ColumnKind) -> Value:
        if kind == "number":
            return self.number(token)
        if kind == "date":
            return self.date(token)
        return self.text(token)

    def text(self, token: _Token) -> str:
        if token.kind != "text":
            raise self.wrong(token, "the filter needs text here", "Put it in quotes.")
        quote, inner = token.text[0], token.text[1:-1]
        if not inner.isascii() and not _is_unicode(inner):
            raise self.wrong(
                token, "this text is not valid Unicode", "Use `like`, with _ for characters that cannot be typed."
            )
        return inner.replace(quote * 2, quote)

    def date(self, token: _Token) -> str:
        written = token.text if token.kind == "number" else self.text(token)
        written = written.replace(" ", "T")
        if not _DATE.fullmatch(written) or not _exists(written):
            raise self.wrong(token, "this is not a date", "Write it as '2023', '2023-06', '2023-06-01' or with a time.")
        return written

    def number(self, token: _Token) -> int | float:
        if token.kind != "number":
            raise self.wrong(token, "the filter needs a number here")
        return _number(token.text)


def _number(text: str) -> int | float:
    return int(text) if re.fullmatch(r"[+-]?[0-9]{1,18}", text) else float(text)


def _exists(date: str) -> bool:
    """Return whether there is such a date, of which the end may be missing.

    >>> _exists("2024-02-29T12"), _exists("2023-02-29"), _exists("2023-13")
    (True, False, False)
    """
    try:
        datetime.fromisoformat(date + "0001-01-01T00:00:00"[len(date) :])
    except ValueError:
        return False
    return True


def _spellings(value: Value) -> tuple[Value, ...]:
    """Return a value and, for text, other ways to write its accents: a Mac may store é as an e and an accent.

    >>> _spellings("cafe"), len(_spellings("café"))
    (('cafe',), 2)
    """
    forms = [unicodedata.normalize(form, value) for form in ("NFC", "NFD")] if isinstance(value, str) else []
    return tuple(dict.fromkeys([value, *forms]))


def _perhaps(is_negated: bool, node: Filter) -> Filter:
    return Negated(node) if is_negated else node


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
