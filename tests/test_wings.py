"""The search side runs without torch, and starts in a fraction of a second."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import sightline

BLOCKED = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "transformers", "safetensors", "onnx"):
            raise ImportError(f"{name} must not be imported by the search side")
sys.meta_path.insert(0, Block())
"""


def run(script: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_bundle_encodes_and_matches_where_torch_cannot_be_imported(tiny_bundle: Path) -> None:
    script = (
        BLOCKED
        + """
import io, json
from PIL import Image
import numpy as np
import sightline
from sightline.media import ImageBytes, to_pixels
data = io.BytesIO()
Image.new("RGB", (50, 40), "red").save(data, "PNG")
model = sightline.load(sys.argv[1])
image = model.encode_images(to_pixels(ImageBytes("red.png", data.getvalue()), model.preprocess)[None])
text = model.encode_texts(["a red square"])
score = model.match(text.states, text.mask, image.states, image.mask)
print(json.dumps([float(np.linalg.norm(image.embedding)), float(np.linalg.norm(text.embedding)), len(score)]))
"""
    )
    assert json.loads(run(script, str(tiny_bundle))) == [pytest.approx(1, abs=1e-5), pytest.approx(1, abs=1e-5), 1]


def test_a_prompt_offers_the_verbs_and_nothing_else() -> None:
    assert json.loads(run("import json, sightline; print(json.dumps(dir(sightline)))")) == sorted(sightline.__all__)


PACKAGES = (
    *("media", "datasets", "bundle", "stores", "retrieval", "explanations", "collection", "server"),
    *("evaluation", "settings", "errors", "api", "registry", "cli"),
)


def test_every_package_of_the_search_side_imports_without_torch() -> None:
    script = (
        BLOCKED
        + """
import importlib, pkgutil
for name in sys.argv[1:]:
    package = importlib.import_module("sightline." + name)
    for module in pkgutil.walk_packages(getattr(package, "__path__", []), package.__name__ + "."):
        importlib.import_module(module.name)
"""
    )
    run(script, *PACKAGES)


def test_what_a_search_does_not_need_is_not_imported_for_it(tiny_bundle: Path) -> None:
    """Each of these takes as long to import as a query takes to answer."""
    script = """
import json, sys
import sightline.cli, sightline.api
from sightline.bundle import Bundle
Bundle.open(sys.argv[1]).encode_texts(["a red square", "a dog"])
heavy = {"numpy.ma", "sightline.datasets", "sightline.explanations.explain"}
print(json.dumps(sorted(heavy & sys.modules.keys())))
"""
    assert json.loads(run(script, str(tiny_bundle))) == []


@pytest.mark.parametrize("arguments", [["-c", "import sightline"], ["-m", "sightline", "--help"]])
def test_starting_takes_under_04_seconds_of_cpu_time(arguments: list[str]) -> None:
    script = """
import resource, subprocess, sys

def seconds(*arguments):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

pairs = [(seconds(*sys.argv[1:]), seconds("-c", "import typer.rich_utils")) for _ in range(5)]
print(*map(min, zip(*pairs)))
"""
    started, library = map(float, run(script, *arguments).split())
    assert started < max(0.4, 2 * library)  # on a slow machine, the library that writes the help takes over 0.2
