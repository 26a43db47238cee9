"""Examples in docstrings are run, wherever they stand."""

import doctest
import importlib
from pathlib import Path

import pytest

import sightline

ROOT = Path(sightline.__file__).parent
MODULES = sorted(
    ".".join(("sightline", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
    for path in ROOT.rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_hold(name: str, tiny_bundle: Path) -> None:
    found = doctest.testmod(importlib.import_module(name), extraglobs={"tiny_bundle": tiny_bundle})
    assert found.failed == 0


def test_there_are_examples() -> None:
    assert "sightline.bundle.runtime" in MODULES
