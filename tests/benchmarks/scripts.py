"""The scripts of benchmarks/ are no package: each is loaded from its file, and finds its neighbours meanwhile."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
BENCHMARKS, RECIPES = ROOT / "benchmarks", ROOT / "recipes"


def script(name: str) -> ModuleType:
    """A script as a module, or one of its neighbours, as in `measuring.once`."""
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name.replace('.', '/')}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(BENCHMARKS))
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(BENCHMARKS))
    return module
