"""docs/recipe-reference.md is what the dataclasses of recipes say now."""

import dataclasses

import pytest

from docs.commands import ROOT
from sightline.training.reference import TABLES, described, reference

PAGE = ROOT / "docs" / "recipe-reference.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), "run python -m sightline.training.reference"


@pytest.mark.parametrize(
    "name",
    [name for name in TABLES if "model" in name] + [f"`[{name}]`" for name in ("checkpoint", "log", "lora", "average")],
)
def test_every_key_of_a_table_has_a_meaning(name: str) -> None:
    kind = TABLES[name]
    lacking = {field.name for field in dataclasses.fields(kind)} - described(kind.__doc__ or "")[1].keys()
    assert not lacking - {"decay"}  # explained with kind
