"""Filters mean what they say, errors point at the place, and nothing but a SELECT is ever run."""

import os
import sqlite3
import unicodedata
from datetime import datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sightline.collection.catalog.conditions import lower_letters
from sightline.collection.catalog.schema import FOLDER, NAME
from sightline.collection.catalog.where import COLUMNS, compile_where, parse_where, shift_ids
from sightline.errors import QueryError
from sightline.stores.milvus_filter import pushed

TEXTS = ("path", "folder", "name", "text")
DATES = ("taken", "modified")
NUMBERS = ("width", "height", "size", "latitude", "longitude", "id")

ROWS: list[dict[str, Any]] = [
    {"id": 1, "path": "holiday/beach/a.jpg", "taken": "2023-06-01T09:30:00", "width": 4000, "height": 3000,
     "size": 900, "modified": 1_685_000_000, "latitude": 48.2, "longitude": -16.4, "text": None},
    {"id": 2, "path": "holiday/B.JPG", "taken": "2023-06-30T23:59:59+02:00", "width": 100, "height": 200,
     "size": 10, "modified": 1_700_000_000, "latitude": None, "longitude": None, "text": None},
    {"id": 3, "path": "c d'e.png", "taken": None, "width": 200, "height": 200, "size": None, "modified": None,
     "latitude": 0.0, "longitude": 0.0, "text": "a dog"},
    {"id": 4, "path": 'odd/"q"%_.gif', "taken": "2024-01-01T00:00:00", "width": None, "height": None, "size": 10,
     "modified": 1_000_000_000, "latitude": -33.9, "longitude": 151.2, "text": "ein Löwe"},
    {"id": 5, "path": "deep/er/and/deeper/Ünïcode.jpg", "taken": "1999-12-31T23:59:00", "width": 1, "height": 1,
     "size": 0, "modified": 1_685_000_001, "latitude": 90.0, "longitude": 180.0, "text": ""},
]  # fmt: skip


@pytest.fixture(scope="module")
def catalog() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    connection.create_function("lower_letters", 1, lower_letters)
    connection.executescript(
        "CREATE TABLE contents (id INTEGER, taken TEXT, width INTEGER, height INTEGER, latitude REAL, longitude REAL, "
        "text TEXT); CREATE TABLE files (content INTEGER, path TEXT, size INTEGER, mtime_ns INTEGER, "
        f"folder TEXT AS ({FOLDER}) STORED, name TEXT AS ({NAME}) STORED);"
    )
    for row in ROWS:
        connection.execute(
            "INSERT INTO contents VALUES (:id, :taken, :width, :height, :latitude, :longitude, :text)", row
        )
        mtime = None if row["modified"] is None else row["modified"] * 10**9 + 5
        connection.execute("INSERT INTO files VALUES (?, ?, ?, ?)", (row["id"], row["path"], row["size"], mtime))
    return connection


def chosen(catalog: sqlite3.Connection, expression: str) -> list[int]:
    sql, values = compile_where(expression)
    query = f"SELECT c.id FROM files f JOIN contents c ON c.id = f.content WHERE {sql} ORDER BY 1"
    return [id for (id,) in catalog.execute(query, values)]


@pytest.mark.parametrize(
    ("expression", "ids"),
    [
        ("taken >= '2023-06-01' and path like 'holiday/%'", [1, 2]),
        ("taken = '2023-06'", [1, 2]),
        ("taken <= '2023'", [1, 2, 5]),
        ("taken > '2023'", [4]),
        ("taken < 2023", [5]),
        ("taken != '2023-06-01'", [2, 4, 5]),
        ("taken between '2023-06-01' and '2023-06-30'", [1, 2]),
        ("taken not between '2000' and '2023'", [4, 5]),
        ("taken in ('1999', '2024-01-01')", [4, 5]),
        ("taken <= '2023-06-01 09:30'", [1, 5]),
        ("taken is null", [3]),
        ("taken like '%-31T%'", [5]),
        ("folder = 'holiday'", [2]),
        ("folder = ''", [3]),
        ("folder like 'deep%' or name = 'a.jpg'", [1, 5]),
        ("name like '%.jpg'", [1, 2, 5]),
        ("name in (\"c d'e.png\", 'a.jpg')", [1, 3]),
        ("path = 'c d''e.png'", [3]),
        ("width > height", [1]),
        ("WIDTH = Height AND NOT id = 3", [5]),
        ("not (width > 150 or width is null)", [2, 5]),
        ("latitude between -40 and -.5e0", [4]),
        ("id in (1, 3, 99)", [1, 3]),
        ("id not in (1, 3, 99)", [2, 4, 5]),
        ("text is not null and text != ''", [3, 4]),
        ("size <> 10", [1, 5]),
        ("size == 1e1", [2, 4]),
        ("text not like '%dog%'", [4, 5]),
        ("id = 1 or id = 2 and width > 1000", [1]),
        ("(id = 1 or id = 2) and width < 1000", [2]),
        ("id < 99999999999999999999999999", [1, 2, 3, 4, 5]),
    ],
)
def test_a_filter_chooses_what_it_says(catalog: sqlite3.Connection, expression: str, ids: list[int]) -> None:
    assert chosen(catalog, expression) == ids


@pytest.mark.parametrize(
    ("expression", "pointed", "said"),
    [
        ("heigth > 3", "heigth", 'Did you mean "height"?'),
        ("width > 3 and colour = 'red'", "colour", "Choose from: path, folder"),
        ("width > 'x'", "'x'", "number"),
        ("name = 5", "5", "quotes"),
        ("name = beach", "beach", "quotes"),
        ("taken > 'yesterday'", "'yesterday'", "2023-06-01"),
        ("taken > '2023-13'", "'2023-13'", "this is not a date"),
        ("taken > '2023-02-29 12:00'", "'2023-02-29 12:00'", "this is not a date"),
        ("taken > 2023-06-01", "-06", "quotes"),
        ("width like '1%'", "width", "compares text"),
        ("width > name", "name", "cannot be compared"),
        ("width > heigth", "heigth", 'Did you mean "height"?'),
        ("width", " ", "needs a comparison"),
        ("width >", " ", "number"),
        ("width is 3", "3", "null"),
        ("id in 3", "3", "("),
        ("id in (3", " ", ")"),
        ("id in ()", ")", "number"),
        ("(id = 3", " ", ")"),
        ("id = 3)", ")", "should end"),
        ("id = 3 id = 4", "id", "'and' or 'or'"),
        ("id between 3", " ", "and"),
        ("and", "and", "column"),
        ("", " ", "column"),
        ("name = 'open", "'", "Close it"),
        ("id = 3; drop table files", ";", "cannot be understood"),
        ("id = 3 -- or", "-", "cannot be understood"),
        ("id = 1x", "1", "cannot be understood"),
        ("name = '\udcff'", "' '", "valid Unicode"),
    ],
)
def test_an_error_points_at_the_place(expression: str, pointed: str, said: str) -> None:
    with pytest.raises(QueryError) as caught:
        compile_where(expression)
    _, shown, carets = caught.value.what.split("\n")
    place = carets.index("^")
    assert (shown + " ")[place : place + carets.count("^")] == pointed
    assert said in str(caught.value)


def test_nesting_and_length_have_ends() -> None:
    for expression in ("(" * 1_000, "not " * 1_000 + "id = 1"):
        with pytest.raises(QueryError, match="deeply"):
            compile_where(expression)
    with pytest.raises(QueryError, match="more than 5,000"):
        compile_where("id in (" + "1," * 10_000 + "1)")
    compile_where("(" * 40 + "id = 1" + ")" * 40)


@given(st.text() | st.lists(st.sampled_from([*COLUMNS, "=", "<", "'", '"', "(", ")", "and", "or", "not", "in", "like",
                                             "is", "null", "between", ";", "--", "/*", "1", "'x'", "DROP TABLE files",
                                             "x'00'", ",", "select", "union", "\0"])).map(" ".join))  # fmt: skip
@example("id = 1; DELETE FROM files")
@example("name = ''' OR 1=1 --'")
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_typed_only_ever_selects(catalog: sqlite3.Connection, expression: str) -> None:
    """SQLite asks before every action whether it may be done: only reading and calling a function are."""
    try:
        sql, values = compile_where(expression)
    except QueryError:
        return
    harmless = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION}
    actions: set[int] = set()

    def watch(action: int, *_: object) -> int:
        actions.add(action)
        return sqlite3.SQLITE_OK if action in harmless else sqlite3.SQLITE_DENY

    catalog.set_authorizer(watch)
    try:
        catalog.execute(f"SELECT c.id FROM files f JOIN contents c ON c.id = f.content WHERE {sql}", values).fetchall()
    finally:
        catalog.set_authorizer(None)
    assert actions <= harmless
    assert not any(isinstance(value, str) and value and f"'{value}'" in sql for value in values)


# A second opinion: expressions as trees, written out as text for the compiler and judged by plain Python.


def quoted(text: str, mark: str) -> str:
    return mark + text.replace(mark, mark * 2) + mark


texts = st.sampled_from(["", "a.jpg", "holiday", "c d'e.png", '"q"', "%", "dog", "Löwe", "B.JPG"])
dates = st.sampled_from(["1999", "2023", "2023-06", "2023-06-01", "2023-06-30T23", "2024-01-01T00:00:00", "2001-09-09"])
numbers = st.integers(-5, 5000) | st.sampled_from([48.2, -16.4, 0.5, 200, 10])
signs = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])
columns = st.sampled_from([(name, texts) for name in TEXTS] + [(name, dates) for name in DATES]
                          + [(name, numbers) for name in NUMBERS])  # fmt: skip


@st.composite
def one_column(draw: st.DrawFn) -> tuple[Any, ...]:
    name, values = draw(columns)
    kind = draw(st.sampled_from(["compare", "null", "in", "between", *([] if name in NUMBERS else ["like"])]))
    negated = draw(st.booleans())
    if kind == "compare":
        return kind, name, draw(signs), draw(values)
    if kind == "null":
        return kind, name, negated
    if kind == "in":
        return kind, name, negated, draw(st.lists(values, min_size=1, max_size=3))
    if kind == "like":
        return kind, name, negated, draw(st.sampled_from(["%", "h%", "%.jpg", "_", "%'%", "2023%", "%Ö%", "", "a dog"]))
    return kind, name, negated, draw(values), draw(values)


expressions = st.recursive(
    one_column(),
    lambda inner: (
        st.tuples(st.just("not"), inner)
        | st.tuples(st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=3))
    ),
    max_leaves=6,
).filter(lambda tree: str(tree).count("'modified'") <= 3)  # more tests of this column could be too many for a filter


def written(tree: tuple[Any, ...], mark: str) -> str:
    def value(one: Any) -> str:
        return quoted(one, mark) if isinstance(one, str) else str(one)

    kind, *rest = tree
    if kind == "not":
        return f"not ({written(rest[0], mark)})"
    if kind in ("and", "or"):
        return f" {kind} ".join(f"({written(part, mark)})" for part in rest[0])
    name, *rest = rest
    if kind == "compare":
        return f"{name} {rest[0]} {value(rest[1])}"
    no = "not " if rest[0] else ""
    if kind == "null":
        return f"{name} is {no}null"
    if kind == "in":
        return f"{name} {no}in ({', '.join(map(value, rest[1]))})"
    if kind == "like":
        return f"{name} {no}like {value(rest[1])}"
    return f"{name} {no}between {value(rest[1])} and {value(rest[2])}"


def judged(tree: tuple[Any, ...], row: dict[str, Any]) -> bool | None:
    """True, False or, where something is not known, None."""
    kind, *rest = tree
    if kind == "not":
        found = judged(rest[0], row)
        return None if found is None else not found
    if kind in ("and", "or"):
        parts = [judged(part, row) for part in rest[0]]
        decisive = kind == "or"
        return decisive if decisive in parts else None if None in parts else not decisive
    name, *rest = rest
    own = row[name]
    if kind == "null":
        return (own is None) != rest[0]
    if own is None:
        return None
    if kind == "compare":
        return compared(name, own, *rest)
    if kind == "in":
        return any(compared(name, own, "=", value) for value in rest[1]) != rest[0]
    if kind == "like":
        return like(own, rest[1]) != rest[0]
    return (compared(name, own, ">=", rest[1]) and compared(name, own, "<=", rest[2])) != rest[0]


def compared(name: str, own: Any, sign: str, value: Any) -> bool:
    if name in DATES:
        own = own[: len(value)]
    return {"=": own == value, "!=": own != value, "<": own < value, "<=": own <= value, ">": own > value,
            ">=": own >= value}[sign]  # fmt: skip


def like(text: str, pattern: str) -> bool:
    """A letter is its capital, in any script."""

    def match(t: str, p: str) -> bool:
        if not p:
            return not t
        if p[0] == "%":
            return match(t, p[1:]) or (bool(t) and match(t[1:], p))
        return bool(t) and p[0] in ("_", t[0]) and match(t[1:], p[1:])

    return match(text.lower(), pattern.lower())


def seen(row: dict[str, Any]) -> dict[str, Any]:
    folder, _, name = row["path"].rpartition("/")
    modified = None if row["modified"] is None else datetime.fromtimestamp(row["modified"]).isoformat()
    return {**row, "folder": folder, "name": name, "modified": modified}


@given(expressions, st.sampled_from(["'", '"']))
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_sql_and_plain_python_agree(catalog: sqlite3.Connection, tree: tuple[Any, ...], mark: str) -> None:
    expected = [row["id"] for row in ROWS if judged(tree, seen(row)) is True]
    assert chosen(catalog, written(tree, mark)) == expected


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize(
    ("expression", "ids"),
    [
        ("name = 'Ünïcode.jpg'", [5]),
        ("name != 'Ünïcode.jpg'", [1, 2, 3, 4]),
        ("name in ('a.jpg', 'Ünïcode.jpg')", [1, 5]),
        ("path like '%/Ünï%'", [5]),
        ("not name like 'Ü%'", [1, 2, 3, 4]),
        ("name like 'üNÏ%.JPG'", [5]),
        ("text like '%LÖWE'", [4]),
    ],
)
def test_accents_may_be_written_in_either_way(
    catalog: sqlite3.Connection, form: str, expression: str, ids: list[int]
) -> None:
    assert chosen(catalog, unicodedata.normalize(form, expression)) == ids  # type: ignore[arg-type]


def test_a_store_on_a_server_is_asked_for_both_ways_to_write_an_accent() -> None:
    asked = pushed(parse_where("path = 'café.jpg'"))
    assert asked.is_exact
    assert all(unicodedata.normalize(form, "café.jpg") in asked.filter for form in ("NFC", "NFD"))  # type: ignore[arg-type]


def test_times_of_change_are_by_the_clock_on_the_wall(catalog: sqlite3.Connection) -> None:
    local = datetime.fromtimestamp(ROWS[0]["modified"])
    assert chosen(catalog, f"modified = '{local:%Y-%m-%d %H:%M:%S}'") == [1], os.environ.get("TZ")


@pytest.mark.parametrize(
    "expression",
    [
        " or ".join(["folder = name"] * 132),
        " or ".join(["folder = 'a'"] * 65),
        " or ".join(["modified > '2020'"] * 17),
        " and ".join(["width > 1"] * 65),
        f"taken in ({', '.join(['2020'] * 64)})",
        " or ".join(["path like '%é%'"] * 13),
    ],
)
def test_a_filter_with_too_many_tests_is_refused(expression: str) -> None:
    with pytest.raises(QueryError, match=r"too many conditions[\s\S]*Use `in"):
        compile_where(expression)


def test_letters_beyond_ascii_are_converted_once_for_each_file_and_test(catalog: sqlite3.Connection) -> None:
    """Converting them takes most of the time of a filter."""
    converted: list[str] = []
    catalog.create_function("lower_letters", 1, lambda text: text and (converted.append(text) or lower_letters(text)))
    try:
        assert chosen(catalog, "path like '%Ï%'") == [5]
        assert sorted(converted) == sorted(row["path"] for row in ROWS)
        converted.clear()
        assert chosen(catalog, "path like '%/Ünï%'") == [5]
        assert converted == [ROWS[4]["path"]]  # the others do not match in ASCII
    finally:
        catalog.create_function("lower_letters", 1, lower_letters)


def test_lower_case_keeps_the_number_of_letters_and_never_becomes_ascii() -> None:
    """Servers know the case of ASCII letters only: they must find at least what this finds."""
    every = "".join(chr(code) for code in range(0x80, 0x20000) if not 0xD800 <= code < 0xE000)
    lower = lower_letters(every) or ""
    assert len(lower) == len(every)
    assert not any(letter.isascii() for letter in lower)
    assert lower_letters("ΟΔΟΣ İ") == lower_letters("οδος İ") == "οδοσ İ"


def test_many_values_of_one_column_are_one_test() -> None:
    condition = compile_where(f"folder in ({', '.join(map(repr, map(str, range(500))))})")
    assert len(condition.values) == 500
    compile_where(" or ".join(["width > 1"] * 64))


@pytest.mark.parametrize(
    ("expression", "shifted"),
    [
        ("id=5", "id=-5"),
        ("ID between +5 and 20 and width < 7", "ID between -5 and 10 and width < 7"),
        ("id not in (15,  16) or path = 'id = 5'", "id not in (5,  6) or path = 'id = 5'"),
        ("width = 3 and not (id > 1e3) ", "width = 3 and not (id > 990.0) "),
        ("id is not null and height in (1, 2)", "id is not null and height in (1, 2)"),
    ],
)
def test_only_ids_are_shifted(expression: str, shifted: str) -> None:
    assert shift_ids(expression, -10) == shifted


def test_ids_too_large_for_any_number_stay_a_filter() -> None:
    compile_where(shift_ids("id < 1e999", -10))


def test_a_filter_whose_ids_cannot_be_shifted_is_shown_as_given() -> None:
    with pytest.raises(QueryError, match="id = 5 and widht = 1"):
        shift_ids("id = 5 and widht = 1", -10)
