"""A bundle is exactly the graphs and the tokenizer that it uses: regular files of its folder, all of them hashed."""

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx.external_data_helper import convert_model_to_external_data

from sightline.bundle import Bundle
from sightline.bundle.layout import SPEC_FILE
from sightline.bundle.spec import sha256
from sightline.errors import BundleError


@pytest.fixture
def copy(tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SIGHTLINE_CACHE", str(tmp_path / "cache"))
    return Path(shutil.copytree(tiny_bundle, tmp_path / "copy"))


def rewrite(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    spec = json.loads((folder / SPEC_FILE).read_text())
    change(spec)
    (folder / SPEC_FILE).write_text(json.dumps(spec))


def test_a_spec_that_lists_no_files_is_refused(copy: Path) -> None:
    rewrite(copy, lambda spec: spec.update(files={}))
    with pytest.raises(BundleError, match=r"the required image\.onnx, match\.onnx, text\.onnx, tokenizer\.json"):
        Bundle.open(copy)


@pytest.mark.parametrize("name", ["image.onnx", "match.onnx", "text.onnx", "tokenizer.json"])
def test_a_file_that_is_used_but_not_listed_is_refused(copy: Path, name: str) -> None:
    rewrite(copy, lambda spec: spec["files"].pop(name))
    with pytest.raises(BundleError, match=f"does not list the required {name}"):
        Bundle.open(copy)


@pytest.mark.parametrize("name", ["weights.bin", "../copy/image.onnx", "/etc/hostname", "image.onnx/", ""])
def test_a_file_that_is_listed_but_not_used_is_refused(copy: Path, name: str) -> None:
    rewrite(copy, lambda spec: spec["files"].update({name: "0" * 64}))
    with pytest.raises(BundleError, match=f"lists the unused {re.escape(name)}\n"):
        Bundle.open(copy)


@pytest.mark.parametrize(
    "name", ["../tokenizer.json", "{tmp}/tokenizer.json", "a/../tokenizer.json", "a\\t.json", "..", ""]
)
def test_a_tokenizer_outside_the_folder_is_refused(copy: Path, tmp_path: Path, name: str) -> None:
    shutil.copy(copy / "tokenizer.json", tmp_path / "tokenizer.json")
    name = name.format(tmp=tmp_path)

    def change(spec: dict[str, Any]) -> None:
        spec["files"][name] = spec["files"].pop("tokenizer.json")
        spec["text"]["tokenizer"] = name

    rewrite(copy, change)
    with pytest.raises(BundleError):
        Bundle.open(copy)


@pytest.mark.parametrize("name", ["image.onnx", "tokenizer.json", SPEC_FILE])
def test_a_pipe_or_a_device_in_place_of_a_file_is_refused_at_once(copy: Path, name: str) -> None:
    (copy / name).unlink()
    os.mkfifo(copy / name)
    with pytest.raises(BundleError, match="regular file"):
        Bundle.open(copy)
    (copy / name).unlink()
    (copy / name).symlink_to("/dev/zero")
    with pytest.raises(BundleError, match="regular file"):
        Bundle.open(copy)


def test_links_to_regular_files_are_followed(copy: Path, tmp_path: Path) -> None:
    """The cache of the hub is made of links."""
    for name in ("image.onnx", "tokenizer.json", SPEC_FILE):
        (copy / name).rename(tmp_path / name)
        (copy / name).symlink_to(tmp_path / name)
    assert Bundle.open(copy).name == "tiny"


def externalise(path: Path, where: str) -> None:
    model = onnx.load(path)
    convert_model_to_external_data(model, location=where, size_threshold=0)
    onnx.save(model, path)


def in_an_attribute(path: Path, where: str) -> None:
    """Hide the reference in a constant of a branch, not in the initializers."""
    model = onnx.load(path)
    tensor = onnx.TensorProto(name="hidden", data_type=onnx.TensorProto.FLOAT, dims=[4])
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=where)
    constant = onnx.helper.make_node("Constant", [], ["hidden"], value=tensor)
    branch = onnx.helper.make_graph([constant], "branch", [], [])
    model.graph.node.append(onnx.helper.make_node("If", ["x"], ["y"], then_branch=branch, else_branch=branch))
    path.write_bytes(model.SerializeToString())


@pytest.mark.parametrize("change", [externalise, in_an_attribute])
def test_a_graph_with_external_data_is_refused(copy: Path, change: Callable[[Path, str], None]) -> None:
    path = copy / "text.onnx"
    change(path, "weights.bin")
    rewrite(copy, lambda spec: spec["files"].update({"text.onnx": sha256(path)}))
    with pytest.raises(BundleError, match=r"text\.onnx: stores tensors in other files"):
        Bundle.open(copy)
    with pytest.raises(BundleError, match=r"text\.onnx: stores tensors in other files"):
        Bundle.open(copy)


@pytest.mark.parametrize("content", [b"not a graph", b"\x3a\xff\xff\xff\xff\x0f", b"\xff" * 20, b"\x3a"])
def test_what_is_no_protobuf_is_refused(copy: Path, content: bytes) -> None:
    (copy / "image.onnx").write_bytes(content)
    rewrite(copy, lambda spec: spec["files"].update({"image.onnx": sha256(copy / "image.onnx")}))
    with pytest.raises(BundleError, match=r"image\.onnx: not an ONNX file"):
        Bundle.open(copy)
