"""Imports scripts of benchmarks/ and replication/ by their full names."""

import importlib
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
BENCHMARKS, RECIPES = ROOT / "benchmarks", ROOT / "recipes"


def script(name: str) -> ModuleType:
    return importlib.import_module(name)
