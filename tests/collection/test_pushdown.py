"""What servers filter by is what SQL would choose or, where they cannot say it, more; never less."""

from typing import Any

import pytest
from hypothesis import given, settings

from collection.test_where import ROWS, expressions, judged, seen, written
from sightline.collection.catalog.filter_fields import CONTENT_FIELDS, FILE_FIELDS, STORED_FIELDS
from sightline.collection.catalog.where import parse_where
from sightline.collection.remote.notes import _low
from sightline.collection.remote.partitions import partition_key, partition_keys_for
from sightline.stores.base import Partition
from sightline.stores.filters import limited_to
from sightline.stores.milvus_filter import UNKNOWN, pushed


def kept(row: dict[str, Any]) -> dict[str, Any]:
    """A row as a store keeps it, of a picture or a text; there are no empty texts."""
    known = {name: UNKNOWN[name] if value is None else value for name, value in row.items()}
    return {**known, "low_path": _low(row["path"])}


ITEMS = [seen({**row, "text": row["text"] or None}) for row in ROWS]


def passes(filter: str, row: dict[str, Any]) -> bool:
    """Whether a row passes; what is written for Milvus happens to be Python, too."""
    return not filter or bool(eval(filter, {}, kept(row)))


@given(expressions)
@settings(max_examples=300, deadline=None)
def test_servers_pass_what_sql_chooses_and_say_when_it_is_more(tree: tuple[Any, ...]) -> None:
    found = pushed(limited_to(parse_where(written(tree, "'")), CONTENT_FIELDS | FILE_FIELDS))
    for row in ITEMS:
        right, passed = judged(tree, row) is True, passes(found.filter, row)
        assert passed == right if found.is_exact else passed >= right


@given(expressions)
@settings(max_examples=100, deadline=None)
def test_columns_that_cannot_be_trusted_decide_nothing(tree: tuple[Any, ...]) -> None:
    found = pushed(limited_to(parse_where(written(tree, "'")), CONTENT_FIELDS))
    assert not any(f"{name} " in found.filter for name in (*FILE_FIELDS, "low_path"))
    for row in ITEMS:
        assert passes(found.filter, row) >= (judged(tree, row) is True)


@pytest.mark.parametrize(
    "where",
    [
        "taken >= '2021' and taken < '2022-03'",
        "taken = '2021-02' and width > 1000",
        "not (taken is null or latitude > 42)",
        "path like 'beach/%' or path not like 'Town/%'",
        "width > height and id in (1, 3)",
        "folder = 'a' and name != 'b.png' and size between 1 and 9.5",
    ],
)
def test_what_milvus_can_say_is_left_to_it(where: str) -> None:
    found = pushed(parse_where(where))
    assert found.is_exact
    assert found.filter


def test_milvus_has_a_placeholder_for_every_value_that_may_be_unknown() -> None:
    assert set(UNKNOWN) == STORED_FIELDS.keys() - {"path", "folder", "name", "id"}


@pytest.mark.parametrize("partition", ["year", "month", "folder"])
@given(tree=expressions)
@settings(max_examples=100, deadline=None)
def test_no_shelf_is_left_out_on_which_something_passes(partition: Partition, tree: tuple[Any, ...]) -> None:
    shelves = partition_keys_for(parse_where(written(tree, "'")), partition)
    for row in ITEMS:
        if shelves is not None and judged(tree, row) is True:
            assert partition_key(kept(row), partition) in shelves


def test_a_filter_by_date_or_folder_looks_at_few_shelves() -> None:
    assert partition_keys_for(parse_where("taken >= '2021-11' and taken <= '2022'"), "year") == ["2021", "2022"]
    assert partition_keys_for(parse_where("taken = '2021-11-05' and width > 3"), "month") == ["2021-11"]
    assert partition_keys_for(parse_where("folder = 'holiday/beach'"), "folder") == ["holiday"]
    assert partition_keys_for(parse_where("folder in ('b/c', 'b', 'a')"), "folder") == ["a", "b"]
    assert partition_keys_for(parse_where("taken >= '2021'"), "year") is None
    assert partition_keys_for(parse_where("taken = '2021' or width > 3"), "year") is None
