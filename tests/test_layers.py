"""Imports point downwards only, and no two modules need each other."""

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

import sightline

ROOT = Path(sightline.__file__).parent

LAYERS: list[set[str]] = [
    {"errors", "arrays", "packages", "unicode_text"},
    {"device", "fusion_names", "files", "languages", "parallel", "plugins", "close_names", "commit"},
    {"cache", "settings"},
    {"media"},
    {"datasets", "kernels"},
    {"bundle"},
    {"models", "stores"},
    {"registry", "losses"},
    {"retrieval"},
    {"evaluation", "collection", "explanations"},
    {"onnx_export", "training"},
    {"api"},
    {"server", "doctor"},
    {"cli", "demo"},
]
"""From the bottom up: a package may import lower layers and itself. Imports inside functions count as well."""

TRAINING = {"models", "losses", "training", "onnx_export"}
"""What needs torch. The search side never imports it, but for what `MAY_TRAIN` names."""

MAY_TRAIN = {
    "sightline.registry.loader": {"models"},  # when it is given a checkpoint
    "sightline.api.training": {"training", "onnx_export", "models"},  # train() and export(), when they are called
    "sightline.cli": TRAINING,  # the commands that train and export
}
GPU = {"sightline.bundle.engines", "sightline.stores.gpu_index"}
"""The modules that reach the GPU backend, each behind an interface of its own."""

SAME_LAYER = {("cli", "demo"), ("demo", "cli"), ("training", "onnx_export")}
"""`sightline demo` is a command; a run that is finished exports its model."""


class Import(NamedTuple):
    """Who imports what, where, and whether as soon as it is imported itself."""

    module: str
    imported: str
    line: int
    at_once: bool

    def __str__(self) -> str:
        return f"{self.module}:{self.line} imports {self.imported}"


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("sightline", *parts)).removesuffix(".__init__")


MODULES = {name_of(path): path for path in sorted(ROOT.rglob("*.py"))}


def imports(module: str) -> Iterator[Import]:
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    lazy: set[int] = set()
    types_only: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and id(node) not in lazy:
            lazy |= _inside(node)
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            types_only |= _inside(node)
    for node in ast.walk(tree):
        if id(node) in types_only:
            continue
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            found = name if name in MODULES else name.rpartition(".")[0]
            if found in MODULES:
                yield Import(module, found, node.lineno, id(node) not in lazy)


def _inside(node: ast.AST) -> set[int]:
    return {id(child) for child in ast.walk(node)} - {id(node)}


@cache
def every() -> list[Import]:
    """All imports; found when a test asks, because every process that runs tests imports this file."""
    return [one for module in MODULES for one in imports(module)]


def package(module: str) -> str:
    """The package below sightline; that of `sightline` itself is its API."""
    return module.split(".")[1] if "." in module else "api"


def test_every_package_has_a_layer() -> None:
    assert {package(module) for module in MODULES} - {"__main__"} == set().union(*LAYERS)


def test_imports_point_downwards() -> None:
    height = {name: place for place, layer in enumerate(LAYERS) for name in layer}
    upwards = []
    for one in every():
        own, other = package(one.module), package(one.imported)
        is_below = height.get(own, len(LAYERS)) > height[other]
        is_version = one.imported == "sightline"  # __version__, or the public API from a command
        if own != other and not is_below and not is_version and (own, other) not in SAME_LAYER:
            upwards.append(str(one))
    assert upwards == []


def test_searching_needs_no_training() -> None:
    strays = [
        str(one)
        for one in every()
        if package(one.imported) in TRAINING
        and package(one.module) not in TRAINING
        and package(one.imported)
        not in MAY_TRAIN.get(one.module, MAY_TRAIN.get(f"sightline.{package(one.module)}", ()))
    ]
    assert strays == []


def test_what_needs_torch_is_imported_when_it_is_needed() -> None:
    wrong = [
        str(one) for one in every() if one.at_once and one.module in MAY_TRAIN and package(one.imported) in TRAINING
    ]
    assert wrong == []


def test_only_two_modules_reach_the_gpu_backend() -> None:
    reaching = {
        one.module for one in every() if package(one.imported) == "kernels" and package(one.module) != "kernels"
    }
    assert reaching == GPU


@pytest.mark.parametrize("lazy", [False, True], ids=["at once", "with imports inside functions"])
def test_no_two_modules_need_each_other(lazy: bool) -> None:
    graph: dict[str, set[str]] = {}
    for one in every():
        if (one.at_once or lazy) and one.imported not in (one.module, "sightline"):  # which has __version__
            graph.setdefault(one.module, set()).add(one.imported)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))
