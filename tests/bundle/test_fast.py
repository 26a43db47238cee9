"""A bundle's fast image graph: its own variant, with an identity of its own, which leaves the bundle what it was."""

import dataclasses
import os
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest

import tiny
from sightline import doctor
from sightline.bundle import Bundle
from sightline.bundle.relevance_formula import PairRelevance
from sightline.bundle.spec import FastSpec, ImageSpec, identity, read_spec, write_spec
from sightline.errors import BundleError, ModelError
from sightline.onnx_export.fast_image import add_fast_image
from sightline.registry import loader
from sightline.registry.installed import installed_models
from sightline.registry.loader import load


@pytest.fixture
def copy(quick_bundle: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(quick_bundle, tmp_path / "copy"))


def test_adding_a_fast_graph_does_not_change_a_bundle_s_identity(
    tiny_bundle: Path, quick_bundle: Path, copy: Path
) -> None:
    assert Bundle.open(quick_bundle).sha256 == Bundle.open(tiny_bundle).sha256
    before = identity(read_spec(copy).fast_variant())
    add_fast_image(copy, copy / "image.onnx", tiny.PREPROCESS)  # the full graph, as another fast one
    assert Bundle.open(copy).sha256 == Bundle.open(tiny_bundle).sha256
    assert identity(read_spec(copy).fast_variant()) not in (before, Bundle.open(copy).sha256)


def test_the_fast_variant_shares_all_but_the_image_graph(quick_bundle: Path) -> None:
    full, fast = load(quick_bundle), load(f"{quick_bundle}:fast")
    assert (fast.name, fast.preprocess) == ("tiny-fast", tiny.FAST.preprocess)
    assert (fast.defaults, fast.grid, list(fast.words)) == (full.defaults, (2, 2), list(full.words))
    assert fast.relevance == PairRelevance({"cosine": 1.0, "bias": -0.5}, line=0.1)
    assert len({fast.sha256, full.sha256}) == 2
    texts = ["a dog", "two birds"]
    np.testing.assert_array_equal(fast.encode_texts(texts).embedding, full.encode_texts(texts).embedding)
    images = fast.encode_images(np.zeros((2, 3, 16, 16), dtype=np.float32))
    assert (images.embedding.shape, images.fragments.shape, images.states.shape) == ((2, 16), (2, 4, 8), (2, 4, 24))  # type: ignore[union-attr]
    own = full.fast_variant()
    assert own is not None
    assert own is full.fast_variant()  # so that its graph is loaded once
    assert own.sha256 == fast.sha256
    assert own.with_threads(1).sha256 == fast.sha256
    assert fast.fast_variant() is None


def test_the_name_fast_is_the_default_model_s(
    quick_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(loader, "_bundled", lambda: quick_bundle)
    assert load("fast").name == load("default:fast").name == "tiny-fast"
    assert {one.model: one.spec.name for one in installed_models()} == {"default": "tiny", "fast": "tiny-fast"}
    assert [one.megabytes > 0 for one in installed_models()] == [True, True]
    assert "fast image graph" in str(next(iter(doctor._model())))


def test_a_folder_whose_name_ends_in_fast_is_that_folder(tiny_bundle: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_bundle, tmp_path / "mine:fast")
    assert load(folder).name == "tiny"


def test_a_bundle_without_a_fast_graph_says_so(tiny_bundle: Path, tmp_path: Path) -> None:
    assert load(tiny_bundle).fast_variant() is None
    with pytest.raises(BundleError, match="no fast image graph"):
        load(f"{tiny_bundle}:fast")
    (tmp_path / "retriever.json").write_text("{}")
    with pytest.raises(ModelError, match="only bundles have a fast image graph"):
        load(f"{tmp_path}:fast")


@pytest.mark.parametrize("how", ["missing", "damaged"])
def test_a_fast_graph_that_is_missing_or_damaged_spoils_only_itself(copy: Path, how: str) -> None:
    path = copy / "image-fast.onnx"
    if how == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1] + b"!")
        os.utime(path, ns=(1, 1))
    model = Bundle.open(copy)
    assert model.encode_texts(["a dog"]).embedding.shape == (1, 16)
    for use in (lambda: load(f"{copy}:fast"), model.fast_variant):
        with pytest.raises(BundleError, match=r"image-fast\.onnx"):
            use()


def test_the_full_graph_may_be_missing_where_only_the_fast_one_is_used(copy: Path) -> None:
    (copy / "image.onnx").unlink()
    assert load(f"{copy}:fast").name == "tiny-fast"


def test_the_files_of_a_spec_agree_with_its_fast_entry(copy: Path) -> None:
    spec = read_spec(copy)
    write_spec(copy, dataclasses.replace(spec, fast=None))
    with pytest.raises(BundleError, match=r"lists the unused image-fast\.onnx"):
        read_spec(copy)
    write_spec(copy, dataclasses.replace(spec.without_fast(), fast=FastSpec(ImageSpec(tiny.PREPROCESS))))
    with pytest.raises(BundleError, match=r"does not list the required image-fast\.onnx"):
        read_spec(copy)


def narrowed(graph: Path, output: str, width: int) -> onnx.ModelProto:
    """A graph that gives only the first numbers of each vector of an output."""
    model = onnx.load(graph)
    (maker,) = (node for node in model.graph.node if output in node.output)
    maker.output[list(maker.output).index(output)] = "wide"
    bounds = {"start": 0, "stop": width, "axis": -1}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(np.array([at]), name) for name, at in bounds.items())
    model.graph.node.append(onnx.helper.make_node("Slice", ["wide", *bounds], [output]))
    (told,) = (value for value in model.graph.output if value.name == output)
    told.type.tensor_type.shape.dim[-1].dim_value = width
    return model


def test_a_graph_of_another_width_is_refused_and_nothing_changes(copy: Path, tmp_path: Path) -> None:
    graph = tmp_path / "image.onnx"
    onnx.save(narrowed(copy / "image-fast.onnx", "fragments", 5), graph)
    before = {path.name: path.read_bytes() for path in copy.iterdir()}
    with pytest.raises(BundleError, match="'fragments': 5"):
        add_fast_image(copy, graph, tiny.FAST.preprocess)
    assert {path.name: path.read_bytes() for path in copy.iterdir()} == before


def test_the_fast_variant_reads_the_languages_of_an_add_on(
    quick_bundle: Path, german_bundle: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(quick_bundle, tmp_path / "both"))
    shutil.copytree(german_bundle / "languages", folder / "languages")
    full, fast = load(folder), load(f"{folder}:fast")
    assert fast.languages == full.languages == ("en", "de")
    texts = ["ein hund"]
    german = fast.for_language("de")
    np.testing.assert_array_equal(
        german.encode_texts(texts).embedding, full.for_language("de").encode_texts(texts).embedding
    )
    other = full.for_language("de").fast_variant()
    assert other is not None
    assert other.sha256 == german.sha256 == fast.sha256
    assert full.fast_relevance is not None
    assert full.for_language("de").fast_relevance is None
