"""What a wheel of Sightline holds: the code, the demo with its pictures, and the model where there is one."""

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from sightline.demo import PICTURES

ROOT = Path(__file__).parents[1]
NEEDED = ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what a wheel is built from, without the model, which is large."""
    folder = tmp_path / "checkout"
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name in NEEDED:
        shutil.copy(ROOT / name, folder / name)
    return folder


def wheel(checkout: Path, target: str = "wheel") -> zipfile.ZipFile:
    out = checkout.parent / "built"
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(out)]
    subprocess.run(command, cwd=checkout, check=True, capture_output=True)
    (path,) = out.glob("*.whl")
    return zipfile.ZipFile(path)


def test_a_wheel_holds_the_model_and_finds_it_once_installed(checkout: Path, tiny_bundle: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_bundle, checkout / "bundles" / "default")
    with wheel(checkout) as built:
        names = {name.removeprefix("sightline/bundles/default/") for name in built.namelist() if "/bundles/" in name}
        assert names == {path.name for path in tiny_bundle.iterdir()}
        built.extractall(tmp_path / "installed")
    script = "import sightline; model = sightline.load(); print(model.name, model.folder)"
    done = subprocess.run(
        [sys.executable, "-c", script], env={"PYTHONPATH": str(tmp_path / "installed")}, capture_output=True, text=True
    )
    assert done.stdout.split() == ["tiny", str(tmp_path / "installed" / "sightline" / "bundles" / "default")], (
        done.stderr
    )


def test_a_checkout_without_the_model_makes_a_wheel_without_it(checkout: Path) -> None:
    with wheel(checkout) as built:
        names = built.namelist()
    assert not [name for name in names if "/bundles/" in name]
    assert "sightline/cli/app.py" in names


def test_a_wheel_holds_the_demo_with_its_attributions_the_types_and_the_licence(checkout: Path) -> None:
    with wheel(checkout) as built:
        names = set(built.namelist())
    assert {f"sightline/demo/pictures/{path.name}" for path in PICTURES.iterdir()} <= names
    assert "sightline/demo/pictures/ATTRIBUTIONS.md" in names
    assert "sightline/py.typed" in names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    assert not [name for name in names if name.startswith(("tests", "benchmarks", "docs", "recipes"))]


def test_every_module_of_the_package_is_in_the_wheel(checkout: Path) -> None:
    source = checkout / "src"
    with wheel(checkout) as built:
        names = set(built.namelist())
    assert {str(path.relative_to(source)) for path in source.rglob("*") if path.is_file()} <= names


def test_the_package_has_a_name_that_nobody_else_has_on_pypi_and_hints_use_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["name"] == "sightline-search"
    texts = [*(ROOT / "src").rglob("*.py"), *(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
    wrong = re.compile(r"pip[x]? install [^\n]*\bsightline(\[|\b(?![-_/.]))")
    assert [path.name for path in texts if wrong.search(path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(("name", "extras"), [("search", []), ("dev", ["dev"])])
def test_a_lock_file_has_a_version_and_hashes_of_all_that_is_needed(name: str, extras: list[str]) -> None:
    lines = (ROOT / ".ci" / f"{name}.lock").read_text().replace("\\\n", " ").splitlines()
    locked = {line.partition("==")[0]: line for line in lines if not line.startswith("#")}
    for line in locked.values():
        assert re.fullmatch(r"[a-z0-9.-]+==\S+( ; [^-]+)?(\s+--hash=sha256:[0-9a-f]{64})+\s*", line), line
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (hatchling,) = project["build-system"]["requires"]
    assert locked["hatchling"].startswith(hatchling)
    needed = list(project["project"]["dependencies"])
    waiting = list(extras)
    while waiting:
        for one in project["project"]["optional-dependencies"][waiting.pop()]:
            inner = re.fullmatch(r"sightline-search\[(.*)\]", one)
            waiting += inner[1].split(",") if inner else []
            needed += [] if inner else [one]
    names = {re.split(r"[\[<>=; ]", one)[0].lower().replace("_", "-") for one in needed}
    assert not names - set(locked) - {"torch"}  # of which constraints.txt has the version
