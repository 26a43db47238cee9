"""A bundle gives the fragments of its model where they are not just words and patches: ONNX == torch."""

import dataclasses
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

import tiny
from kernels.agreeing import assert_graphs_agree
from sightline.bundle.spec import BundleSpec
from sightline.models import EncodedTensors, Tokens
from sightline.models.retriever import Retriever
from sightline.onnx_export.exporter import export

TEXTS = ["a dog", "two small children running on the beach with a red ball", "x", "a", "the", "bird", "a b c"]
Exported = tuple[Retriever, BundleSpec, Path]


CONFIGS = {
    "dual-clusters": tiny.INFLATED_MODELS["dual-clusters"],
    "dual-reader-first": dataclasses.replace(tiny.INFLATED_MODELS["dual-reader-clusters"], fragments=3),
    "single-first": tiny.INFLATED_MODELS["single-first"],
}


@pytest.fixture(scope="module", params=CONFIGS)
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    folder = tmp_path_factory.mktemp("exported") / request.param
    model = tiny.retriever(CONFIGS[request.param])
    return model, export(model, tiny.tokenizer(), folder, name=request.param), folder


def run(folder: Path, graph: str, **inputs: np.ndarray) -> dict[str, torch.Tensor]:
    session = onnxruntime.InferenceSession(str(folder / f"{graph}.onnx"))
    names = [output.name for output in session.get_outputs()]
    return {name: torch.from_numpy(value) for name, value in zip(names, session.run(names, inputs), strict=True)}


def assert_same(found: dict[str, torch.Tensor], expected: EncodedTensors) -> None:
    torch.testing.assert_close(found["embedding"], expected.embedding, atol=1e-4, rtol=0)
    real = expected.mask
    torch.testing.assert_close(found["fragments"][real], expected.fragments[real], atol=1e-4, rtol=0)
    assert ("states" in found) == (expected.states is not None)
    if expected.states is not None:
        torch.testing.assert_close(found["states"][real], expected.states[real], atol=1e-4, rtol=0)


@pytest.mark.parametrize("texts", [TEXTS[:1], TEXTS], ids=["one", "seven"])
@torch.inference_mode()
def test_graphs_give_what_the_model_gives(exported: Exported, texts: list[str]) -> None:
    model, spec, folder = exported
    assert spec.image.grid == model.grid
    pixels = np.random.default_rng(len(texts)).standard_normal((len(texts), 3, 32, 32)).astype(np.float32)
    tokens = tiny.tokenizer()(texts)
    image, text = run(folder, "image", pixels=pixels), run(folder, "text", ids=tokens.ids, mask=tokens.mask)
    seen = model.encode_images(torch.from_numpy(pixels))
    read = model.encode_texts(Tokens(torch.from_numpy(tokens.ids), torch.from_numpy(tokens.mask)))
    assert_same(image, seen)
    assert_same(text, read)
    assert torch.equal(text["fragments_mask"], read.mask)
    if "match" in model.abilities:
        assert read.states is not None
        assert seen.states is not None
        logits = run(
            folder, "match", text_states=text["states"].numpy(), text_mask=read.mask.numpy(),
            image_states=image["states"].numpy(), image_mask=seen.mask.numpy(),
        )["logits"]  # fmt: skip
        expected = model.match(read.states, read.mask, seen.states, seen.mask)
        torch.testing.assert_close(logits, expected, atol=1e-4, rtol=0)


def test_torch_makes_of_its_graphs_what_onnx_runtime_makes(exported: Exported) -> None:
    assert_graphs_agree(exported[2])
