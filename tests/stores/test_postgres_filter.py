"""Filters become SQL whose values are parameters; what the store does not know is left to the caller."""

import pytest

from sightline.collection.catalog.where import parse_where
from sightline.collection.remote.access import STORE_COLUMNS
from sightline.errors import StoreError
from sightline.stores import filters
from sightline.stores.filters import Joined, Negated, Undecided, limited_to
from sightline.stores.postgres_filter import EVERYTHING, to_condition, weakened


def test_values_are_parameters_and_columns_are_quoted() -> None:
    found = to_condition(parse_where("width > 9 and not path like 'A%' or taken = '2021-03'"), STORE_COLUMNS)
    assert found is not None
    assert found.sql == (
        '((i."width" > %s) AND (NOT (lower(i."path") LIKE lower(%s COLLATE "C") ESCAPE \'\')))'
        ' OR (substr(i."taken", 1, 7) = %s)'
    )
    assert found.values == (9.0, "A%", "2021-03")


def test_texts_that_postgres_cannot_store_are_replaced() -> None:
    found = to_condition(filters.Test("name", "text", "=", ("a\0b",)), STORE_COLUMNS)
    assert found is not None
    assert found.values == ("a\N{REPLACEMENT CHARACTER}b",)


def test_a_filter_by_an_unknown_column_is_left_to_the_caller() -> None:
    album = limited_to(parse_where("album = 'Rome'"), STORE_COLUMNS)
    width = parse_where("width > 9")
    assert isinstance(album, Undecided)
    both, either = Joined("and", (album, width)), Joined("or", (album, width))
    for filter in (album, both, either, Negated(both), parse_where("album = 'Rome'")):
        assert to_condition(filter, STORE_COLUMNS) is None
    assert weakened(both, STORE_COLUMNS).sql == '(i."width" > %s)'
    for filter in (album, either, Negated(both), Joined("and", (album, album))):
        assert weakened(filter, STORE_COLUMNS) == EVERYTHING


def test_letters_whose_case_the_server_does_not_know_match_any_letter() -> None:
    like = parse_where("path like '%Ärger_1.jpg'")
    assert to_condition(like, STORE_COLUMNS) is None
    assert to_condition(Negated(like), STORE_COLUMNS) is None
    assert weakened(like, STORE_COLUMNS).sql.count(" OR ") == 1
    assert weakened(like, STORE_COLUMNS).values == ("%_rger_1.jpg", "%A_rger_1.jpg")  # accents in either way
    assert weakened(Negated(like), STORE_COLUMNS) == EVERYTHING
    assert weakened(limited_to(like, {"width"}), STORE_COLUMNS) == EVERYTHING


def test_only_plain_names_become_columns() -> None:
    with pytest.raises(StoreError, match="a column cannot be called"):
        to_condition(filters.Test('a"b', "text", "=", ("x",)), {'a"b': "text"})
