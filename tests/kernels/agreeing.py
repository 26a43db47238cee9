"""Whether torch makes of a bundle's graphs what ONNX Runtime makes of them."""

from pathlib import Path

import numpy as np

from sightline.arrays import Arrays
from sightline.bundle.engines import OnnxRuntime
from sightline.bundle.model import Graph
from sightline.bundle.spec import read_spec
from sightline.bundle.tokenizer import Tokenizer
from sightline.kernels.graphs import TorchGraph

TEXTS = ["a dog", "two small children running on the beach with a red ball", "cat"]


def inputs_of(folder: Path) -> dict[Graph, Arrays]:
    """Inputs for every graph of a bundle, three items each, of different lengths where they may be."""
    spec, chance = read_spec(folder), np.random.default_rng(0)
    tokens = Tokenizer.open(folder / spec.text.tokenizer, spec.text.max_length, spec.text.pad_id)(TEXTS)
    found: dict[Graph, Arrays] = {"text": {"ids": tokens.ids, "mask": tokens.mask}}
    if spec.image.preprocess is not None:
        size = spec.image.preprocess.size
        found["image"] = {"pixels": chance.standard_normal((3, 3, size, size)).astype(np.float32)}
    elif spec.image.regions is not None:
        regions = chance.standard_normal((3, 4, spec.image.regions.width)).astype(np.float32)
        found["image"] = {"regions": regions, "mask": np.arange(4) < np.array([[4], [2], [1]])}
    if "match" in spec.abilities:
        text, image = (OnnxRuntime(folder / f"{side}.onnx", 1).run(found[side]) for side in ("text", "image"))
        everything = np.ones(image["states"].shape[:2], dtype=np.bool_)
        found["match"] = {
            "text_states": text["states"],
            "text_mask": text.get("fragments_mask", tokens.mask),
            "image_states": image["states"],
            "image_mask": image.get("fragments_mask", found["image"].get("mask", everything)),
        }
    return found


def assert_graphs_agree(folder: Path, tolerance: float = 1e-4) -> None:
    """Every graph of a bundle gives the same under torch, in float32, with the first and with a second run."""
    for graph, inputs in inputs_of(folder).items():
        path = folder / f"{graph}.onnx"
        expected, opened = OnnxRuntime(path, 1).run(inputs), TorchGraph.open(path, "cpu")
        for _ in range(2):
            found = opened.run(inputs)
            assert list(found) == list(expected)
            for name, values in expected.items():
                assert found[name].dtype == values.dtype
                np.testing.assert_allclose(found[name], values, atol=tolerance, err_msg=f"{graph}: {name}")
