"""Graphs may be loaded ahead of time, several at once, and what is wrong with one is told to whoever needs it."""

import shutil
from pathlib import Path

import pytest

from sightline.bundle import Bundle
from sightline.bundle.spec import read_spec
from sightline.errors import BundleError


def test_graphs_that_were_begun_are_loaded_once(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    load = bundle._load
    monkeypatch.setattr(bundle, "_load", lambda graph: (loaded.append(graph), load(graph))[1])
    bundle.prepare("text", "match")
    bundle.prepare("text")
    bundle.prepare("match", wait=True)
    bundle.prepare("text", wait=True)
    bundle.prepare("text", "match")
    assert sorted(loaded) == ["match", "text"]


def test_a_broken_graph_is_told_of_when_it_is_needed(tiny_bundle: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny_bundle, tmp_path / "copy"))
    (folder / "match.onnx").write_bytes(b"not a graph")
    broken = Bundle(folder, read_spec(folder))
    broken.prepare("match")
    with pytest.raises(BundleError, match="cannot load"):
        broken.prepare("match", wait=True)
