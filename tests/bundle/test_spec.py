"""A bundle that is not whole is refused, with what is wrong and the way out."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tiny
from sightline.bundle import Bundle
from sightline.bundle.layout import SPEC_FILE
from sightline.bundle.model import Calibration, Defaults
from sightline.errors import BundleError
from sightline.onnx_export.exporter import export


@pytest.fixture
def copy(tiny_bundle: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_bundle, tmp_path / "copy"))


def rewrite(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    spec = json.loads((folder / SPEC_FILE).read_text())
    change(spec)
    (folder / SPEC_FILE).write_text(json.dumps(spec))


def test_a_whole_bundle_opens_and_says_what_it_is(tiny_bundle: Path) -> None:
    bundle = Bundle.open(tiny_bundle)
    assert bundle.name == "tiny"
    assert bundle.abilities == {"embed", "fragments", "match"}
    assert bundle.preprocess == tiny.PREPROCESS
    assert bundle.spec.image.grid == (2, 2)
    assert (bundle.spec.embedding_dim, bundle.spec.fragment_dim) == (16, 8)
    assert sorted(bundle.spec.files) == ["image.onnx", "match.onnx", "text.onnx", "tokenizer.json"]


def test_a_folder_without_a_spec_is_not_a_bundle(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"no sightline\.json"):
        Bundle.open(tmp_path)


@pytest.mark.parametrize("name", ["image.onnx", "text.onnx", "match.onnx", "tokenizer.json"])
def test_a_missing_file_is_named(copy: Path, name: str) -> None:
    (copy / name).unlink()
    with pytest.raises(BundleError, match=rf"file {name} cannot be read"):
        Bundle.open(copy)


@pytest.mark.parametrize("name", ["image.onnx", "text.onnx", "match.onnx", "tokenizer.json"])
def test_one_flipped_bit_is_found(copy: Path, name: str) -> None:
    content = bytearray((copy / name).read_bytes())
    content[len(content) // 2] ^= 1
    (copy / name).write_bytes(content)
    with pytest.raises(BundleError, match=rf"{name}: sha256 is"):
        Bundle.open(copy)


def test_a_truncated_file_is_found(copy: Path) -> None:
    content = (copy / "image.onnx").read_bytes()
    (copy / "image.onnx").write_bytes(content[: len(content) // 2])
    with pytest.raises(BundleError, match="damaged or was modified"):
        Bundle.open(copy)


def test_a_bundle_of_another_format_is_refused_with_the_way_out(copy: Path) -> None:
    rewrite(copy, lambda spec: spec.update(format=3))
    with pytest.raises(BundleError, match="Update Sightline"):
        Bundle.open(copy)


def test_a_bundle_of_format_1_opens_with_its_defaults_and_its_calibration(copy: Path) -> None:
    def older(spec: dict[str, Any]) -> None:
        del spec["defaults"], spec["relevance"]
        spec.update(format=1, fusion={"rule": "logit_add", "weight": 7.0}, usual={"late": 50, "rerank": 9})
        spec.update(calibration={"embed": {"scale": 2.0, "bias": -1.0}})

    new = Bundle.open(copy).sha256
    rewrite(copy, older)
    opened = Bundle.open(copy)
    assert opened.defaults == Defaults(50, 9, "logit_add", 7.0)
    assert opened.calibration == {"embed": Calibration(2.0, -1.0)}
    assert opened.sha256 == new
    rewrite(copy, lambda spec: spec.update(fusion={"rul": "ce"}))
    with pytest.raises(BundleError, match="rul"):
        Bundle.open(copy)


@pytest.mark.parametrize("content", ["", "{", "[]", '"text"', "\x00"])
def test_a_spec_that_is_not_a_json_object_is_refused(copy: Path, content: str) -> None:
    (copy / SPEC_FILE).write_text(content)
    with pytest.raises(BundleError):
        Bundle.open(copy)


def test_a_misspelt_or_missing_key_is_named(copy: Path) -> None:
    rewrite(copy, lambda spec: spec.update(embeding_dim=spec.pop("embedding_dim")))
    with pytest.raises(BundleError, match='Did you mean "embedding_dim"'):
        Bundle.open(copy)
    rewrite(copy, lambda spec: spec.pop("embeding_dim"))
    with pytest.raises(BundleError, match='"embedding_dim" is missing'):
        Bundle.open(copy)


def test_a_graph_that_onnx_runtime_cannot_load_is_an_error_when_it_is_needed(copy: Path) -> None:
    from sightline.bundle.spec import sha256

    (copy / "image.onnx").write_bytes(b"")  # a model without a graph
    rewrite(copy, lambda spec: spec["files"].update({"image.onnx": sha256(copy / "image.onnx")}))
    bundle = Bundle.open(copy)
    assert len(bundle.encode_texts(["a dog"])) == 1, "a text query never loads the image graph"
    with pytest.raises(BundleError, match="ONNX Runtime cannot load"):
        bundle.engine("image")


def test_a_file_that_is_no_tokenizer_is_refused(copy: Path) -> None:
    from sightline.bundle.spec import sha256

    (copy / "tokenizer.json").write_text("{}")
    rewrite(copy, lambda spec: spec["files"].update({"tokenizer.json": sha256(copy / "tokenizer.json")}))
    with pytest.raises(BundleError, match="not a tokenizer file"):
        Bundle.open(copy).encode_texts(["a dog"])


def test_only_the_graphs_that_are_needed_are_loaded(bundle: Bundle) -> None:
    assert bundle._engines.keys() == set()
    bundle.encode_texts(["a dog"])
    assert bundle._engines.keys() == {"text"}


@pytest.mark.parametrize(
    ("image", "says"), [({}, "but neither is"), ({"preprocess": ..., "regions": {"feature_dim": 4}}, "but both are")]
)
def test_an_image_graph_reads_either_pixels_or_regions(copy: Path, image: dict, says: str) -> None:
    def change(spec: dict) -> None:
        spec["image"] = {key: spec["image"][key] if value is ... else value for key, value in image.items()}

    rewrite(copy, change)
    with pytest.raises(BundleError, match=f"either `preprocess` or `regions` must be set, {says}"):
        Bundle.open(copy)


def test_a_failed_export_leaves_the_earlier_bundle_alone(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("disk full")

    monkeypatch.setattr("sightline.onnx_export.exporter._graphs", fail)
    with pytest.raises(RuntimeError, match="disk full"):
        export(tiny.retriever(tiny.DUAL), tiny.tokenizer(), copy, name="new")
    assert Bundle.open(copy).name == "tiny"
