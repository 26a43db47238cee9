"""A bundle gives what its model gives: ONNX == torch, and int8 close to float32."""

import dataclasses
import os
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

import sightline
import tiny
from kernels.agreeing import assert_graphs_agree, inputs_of
from sightline.bundle import Bundle, Encoded
from sightline.bundle.engines import OnnxRuntime
from sightline.kernels.graphs import TorchGraph
from sightline.media import ImageBytes, ImageSource, Preprocess, load_pixels
from sightline.models import DualStreamConfig, TextInput, TowerConfig, checkpoint
from sightline.models.torch_model import TorchModel
from sightline.onnx_export.exporter import export, trace

SHORT = ["a dog", "the cat", "a bird", "two children", "red ball", "blue water", "green grass"]
MIXED = [
    "a dog",
    "two small children running on the beach with a red ball",
    "cat",
    "a bird in the water",
    "x",
    "a",
    "the",
]


def layers(config: dict[str, Any], count: int) -> TowerConfig:
    """A tower of so many layers, each of which takes a second or two to export: no more than a model has a use for."""
    return TowerConfig(config={**config, "num_hidden_layers": count})


CONFIGS: dict[str, checkpoint.Config] = {
    "dual-shared": tiny.DUAL,
    "dual-aligned": dataclasses.replace(tiny.PIXEL_MODELS["dual-aligned"], image=layers(tiny.VISION, 3)),
    "dual-reader-aligned": dataclasses.replace(
        tiny.PIXEL_MODELS["dual-reader-aligned"], image=layers(tiny.VISION, 1), text=layers(tiny.TEXT, 1)
    ),
    "dual-clusters": dataclasses.replace(tiny.INFLATED_MODELS["dual-clusters"], image=layers(tiny.VISION, 3)),
    "single": dataclasses.replace(tiny.SINGLE, image=layers(tiny.VISION, 1)),
    "single-first": dataclasses.replace(
        tiny.INFLATED_MODELS["single-first"], image=layers(tiny.VISION, 1), transformer=layers(tiny.TEXT, 1)
    ),
    "dual-reader-first": dataclasses.replace(
        tiny.INFLATED_MODELS["dual-reader-clusters"],
        fragments=3,
        image=layers(tiny.VISION, 1),
        text=layers(tiny.TEXT, 1),
    ),
}
"""Every kind of part that a graph can have, in as few models as can be."""


@pytest.fixture(scope="session", params=CONFIGS)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, tiny_bundle: Path
) -> tuple[TorchModel, Bundle]:
    """A tiny model saved, loaded by path, and exported: under torch and as a bundle."""
    folder = tmp_path_factory.mktemp("parity")
    config = CONFIGS[request.param]
    checkpoint.save(tiny.retriever(config), tiny.tokenizer(), folder / "checkpoint")
    model = TorchModel.open(folder / "checkpoint")
    if config is tiny.DUAL:
        return model, Bundle.open(tiny_bundle)
    export(model.retriever, model.tokenizer, folder / "bundle", name=request.param)
    return model, Bundle.open(folder / "bundle")


def assert_close(one: Encoded, other: Encoded) -> None:
    assert (one.mask.sum(1) == other.mask.sum(1)).all()  # where padding stands is each one's own affair
    np.testing.assert_allclose(one.embedding, other.embedding, atol=1e-4)
    for a, b in ((one.fragments, other.fragments), (one.states, other.states)):
        assert (a is None) == (b is None)
        if a is not None and b is not None:
            np.testing.assert_allclose(a[one.mask], b[other.mask], atol=1e-4)


@pytest.mark.parametrize("texts", [SHORT[:1], SHORT, MIXED], ids=["one", "seven alike", "seven padded"])
def test_a_bundle_encodes_and_matches_as_its_model_does(pair: tuple[TorchModel, Bundle], texts: list[str]) -> None:
    model, bundle = pair
    pixels = np.random.default_rng(len(texts)).standard_normal((len(texts), 3, 32, 32)).astype(np.float32)
    images, captions = bundle.encode_images(pixels), bundle.encode_texts(texts)
    assert_close(images, model.encode_images(pixels))
    assert_close(captions, model.encode_texts(texts))
    assert (bundle.abilities, bundle.grid) == (model.abilities, model.grid)
    if "match" in bundle.abilities:
        assert images.states is not None
        assert captions.states is not None
        inputs = captions.states, captions.mask, images.states, images.mask
        np.testing.assert_allclose(bundle.match(*inputs), model.match(*inputs), atol=1e-4)
        found, expected = bundle.word_cosines(*inputs), model.word_cosines(*inputs)
        assert (found is None) == (expected is None)
        if found is not None and expected is not None:
            np.testing.assert_allclose(found, expected, atol=1e-4)


def test_a_text_that_is_padded_for_a_bundles_graph_is_encoded_as_alone(pair: tuple[TorchModel, Bundle]) -> None:
    _, bundle = pair
    tokens, alone = bundle.tokenizer(MIXED), bundle.encode_texts(MIXED[:1])
    assert not tokens.mask[0].all()
    padded = bundle.engine("text").run({"ids": tokens.ids, "mask": tokens.mask})["embedding"]
    np.testing.assert_allclose(padded[0], alone.embedding[0], atol=1e-5)


def test_torch_makes_of_its_graphs_what_onnx_runtime_makes(pair: tuple[TorchModel, Bundle]) -> None:
    assert_graphs_agree(pair[1].folder)


def test_no_graph_tells_where_it_was_exported(
    tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.fx.config, "do_not_emit_stack_traces", False, raising=False)  # as outside of tests
    trace(torch.nn.Linear(2, 2), "image", {"pixels": torch.zeros(2, 2)}, ["embedding"], tmp_path)
    graphs = [path.read_bytes() for folder in (tiny_bundle, tmp_path) for path in folder.glob("*.onnx")]
    assert len(graphs) == 4
    here = str(Path(sightline.__file__).parent).encode()
    assert not any(here in graph or b"site-packages" in graph or b'File "' in graph for graph in graphs)


@pytest.mark.usefixtures("traced")
def test_int8_stays_close_and_is_smaller(tmp_path: Path, tiny_bundle: Path) -> None:
    pixels = np.random.default_rng(0).standard_normal((7, 3, 32, 32)).astype(np.float32)
    export(tiny.retriever(tiny.DUAL), tiny.tokenizer(), tmp_path / "int8", name="tiny", precision="int8", images=pixels)
    whole, small = Bundle.open(tiny_bundle), Bundle.open(tmp_path / "int8")
    assert b"MatMulIntegerToFloat" in (tmp_path / "int8/image.onnx").read_bytes()
    assert b"MatMulIntegerToFloat" not in (tmp_path / "int8/text.onnx").read_bytes()
    for one, other in (
        (whole.encode_images(pixels), small.encode_images(pixels)),
        (whole.encode_texts(MIXED), small.encode_texts(MIXED)),
    ):
        assert (one.embedding * other.embedding).sum(-1).min() > 0.97
    assert small.spec.precision == "int8"
    for graph in ("image", "text"):  # under torch, only the weights are rounded
        inputs = inputs_of(small.folder)[graph]
        right = OnnxRuntime(whole.folder / f"{graph}.onnx", 1).run(inputs)["embedding"]
        found = TorchGraph.open(small.folder / f"{graph}.onnx", "cpu").run(inputs)["embedding"]
        assert (right * found).sum(-1).min() > 0.99
    names = [name for name in small.spec.files if name.endswith(".onnx")]
    assert sum((small.folder / n).stat().st_size for n in names) < sum((whole.folder / n).stat().st_size for n in names)


def photos(shard: Path, count: int, preprocess: Preprocess) -> npt.NDArray[np.float32]:
    with tarfile.open(shard) as archive:
        sources: list[ImageSource] = []
        while len(sources) < count and (member := archive.next()) is not None:
            file = archive.extractfile(member)
            if file is not None and not member.name.endswith(".json"):
                sources.append(ImageBytes(member.name, file.read()))
    return np.stack([loaded.pixels for loaded in load_pixels(sources, preprocess) if loaded.pixels is not None])


def test_int8_of_a_real_tower_stays_within_097_on_real_photos(data: Path, tmp_path: Path) -> None:
    """Needs SIGHTLINE_PRETRAINED: a folder with a CLIP ViT-B/16 image tower and MiniLM in the transformers layout."""
    pretrained = Path(os.environ.get("SIGHTLINE_PRETRAINED", ""))
    vision, text = pretrained / "clip-vit-base-patch16-vision", pretrained / "all-MiniLM-L6-v2"
    if not (vision.is_dir() and text.is_dir()):
        pytest.skip("SIGHTLINE_PRETRAINED does not name a folder with a CLIP image tower and MiniLM")
    mean, std = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
    clip = Preprocess(size=224, resize="squash", mean=mean, std=std)
    config = DualStreamConfig(TowerConfig(str(text)), TowerConfig(str(vision)), clip, text_input=TextInput(32))
    torch.manual_seed(0)
    retriever = checkpoint.build(config).eval()
    tokenizer = checkpoint.tokenizer_of(config.text, 32)
    export(retriever, tokenizer, tmp_path / "int8", name="real", precision="int8")
    whole, small = TorchModel(retriever, tokenizer, "real"), Bundle.open(tmp_path / "int8")
    pixels = photos(data / "flickr8k-val.tar", 16, clip)
    one, other = whole.encode_images(pixels), small.encode_images(pixels)
    assert (one.embedding * other.embedding).sum(-1).min() > 0.97
    captions = [
        "A child and a woman are at waters edge in a big city .",
        "two dogs",
        "A man in a red shirt climbs a rock .",
    ]
    a, b = whole.encode_texts(captions), small.encode_texts(captions)
    assert (a.embedding * b.embedding).sum(-1).min() > 0.97
