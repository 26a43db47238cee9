import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightline import settings
from sightline.errors import DataError


@dataclass(frozen=True)
class Inner:
    size: int
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outer:
    rate: float
    kind: Literal["fast", "slow"] = "fast"
    inner: Inner | None = None
    pair: tuple[int, float] = (1, 2.0)
    either: int | str = 0
    table: Mapping[str, float] = field(default_factory=dict)
    anything: Mapping[str, Any] = field(default_factory=dict)
    flag: bool = False


def parse(data: object) -> Outer:
    return settings.parse(Outer, data, "file.toml", DataError)


@given(
    st.builds(
        Outer,
        rate=st.floats(allow_nan=False),
        kind=st.sampled_from(["fast", "slow"]),
        inner=st.none() | st.builds(Inner, size=st.integers(), names=st.lists(st.text()).map(tuple)),
        pair=st.tuples(st.integers(), st.floats(allow_nan=False)),
        either=st.integers() | st.text(),
        table=st.dictionaries(st.text(), st.floats(allow_nan=False)),
        flag=st.booleans(),
    )
)
def test_what_was_written_is_read_back(value: Outer) -> None:
    assert parse(json.loads(json.dumps(settings.plain(value)))) == value


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"rate": 1, "kinds": "fast"}, 'unknown key "kinds"\nDid you mean "kind"'),
        ({"rate": 1, "zzz": 1}, "Known keys: rate, kind"),
        ({}, '"rate" is missing'),
        ({"rate": "1"}, "file.toml.rate: expected float, found '1'"),
        ({"rate": True}, "expected float"),
        ({"rate": 1, "kind": "slwo"}, 'Did you mean "slow"'),
        ({"rate": 1, "inner": {"size": True}}, r"file.toml.inner.size: expected int"),
        ({"rate": 1, "inner": 3}, "expected a table"),
        ({"rate": 1, "pair": [1, 2, 3]}, "expected 2 values, found 3"),
        ({"rate": 1, "pair": ["a", 2]}, r"pair\[0\]: expected int"),
        ({"rate": 1, "pair": "a"}, "pair: expected a list, found 'a'\nPut it in brackets: \\[\"a\"\\]"),
        ({"rate": 1, "table": 3}, "table: expected a table of settings, found 3"),
        ({"rate": 1, "either": 1.5}, "expected str, found 1.5"),
        ({"rate": 1, "table": {"x": "y"}}, "table.x: expected float"),
        ({"rate": 1, "flag": 1}, "expected bool"),
        ([], "expected a table"),
    ],
)
def test_a_wrong_value_is_named_with_its_place(data: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse(data)


def test_the_way_out_stands_alone_or_beside_an_update(tmp_path: Path) -> None:
    path = tmp_path / "inner.json"
    for text, way_out in (("{", "Make it again."), ('{"format": 2}', "Update Sightline. Or make it again.")):
        path.write_text(text)
        with pytest.raises(DataError) as caught:
            settings.read(Inner, path, "thing", 1, DataError, "Make it again.")
        assert caught.value.way_out == way_out


def test_a_whole_number_will_do_for_a_float() -> None:
    assert parse({"rate": 3}).rate == 3.0


@dataclass(frozen=True)
class Older:
    line: float


@dataclass(frozen=True)
class Either:
    formula: Inner | Older


@pytest.mark.parametrize(
    ("formula", "said"),
    [
        ({"size": "large"}, "formula.size: expected int"),
        ({"line": "high"}, "formula.line: expected float"),
        ({"size": 1, "line": 0.5}, "unknown"),
    ],
)
def test_an_error_is_that_of_the_table_whose_keys_were_given(formula: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError, match=said):
        settings.parse(Either, {"formula": formula}, "file.toml", DataError)
