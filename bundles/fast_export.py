"""Add the fast image graph that `bundles.fast` trained to a bundle: export, calibrate, measure.

    python -m bundles.fast_export bundles/default --start DIR/dinov2-small --run runs/fast

Of several runs (`--run` given more than once, each continuing the one before it), the mean of their weights is used.
Needs SIGHTLINE_DATA. Relevance is fitted on the same data as the bundle's own. Results go into the bundle and to
benchmarks/results/fast.
"""

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from benchmarks.provenance import write_result
from bundles.fast import new_student
from bundles.fast_weights import read_weights
from bundles.measure import TestRecipe, measured
from sightline.bundle import Bundle
from sightline.bundle.spec import read_spec
from sightline.datasets import Record, read_all
from sightline.evaluation.encodings import Needs, encode_images
from sightline.models.student import ImageStudent, StudentShape
from sightline.onnx_export.calibrate import pair_relevance
from sightline.onnx_export.fast_image import add_fast_image
from sightline.onnx_export.static_ranges import sample_images
from sightline.onnx_export.students import write_image_graph

RESULTS = Path("benchmarks/results/fast")
TERMS = "The pictures are under the terms of the bundle's own data; those of `photos` are listed in bundles/photos.toml"
TESTS = ("flickr8k-test", "coco-val", "web-val", "names-val")


def load_mean(student: ImageStudent, weights: Sequence[Mapping[str, Tensor]]) -> None:
    """Load the mean of the weights of several students, which may have been trained with images of different sizes."""
    loaded = []
    for one in weights:
        student.load(one)
        loaded.append({name: value.clone() for name, value in student.state_dict().items()})
    student.load_state_dict({name: torch.stack([one[name] for one in loaded]).mean(0) for name in loaded[0]})


def main() -> None:
    """Add the graph, fit its relevance, and measure it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--start", required=True, help="the folder that the training started from")
    what = "folder of a training, or the fast image graph that the next one continued"
    parser.add_argument("--run", type=Path, required=True, action="append", help=what)
    parser.add_argument("--size", type=int, default=0, help="size of the images; default: that of the last training")
    parser.add_argument("--licence", default="Started from DINOv2 ViT-S/14 (Meta), Apache-2.0")
    parser.add_argument("--rerank", type=int, default=0, help="also measure with this many candidates reranked")
    args = parser.parse_args()
    data, spec = Path(os.environ["SIGHTLINE_DATA"]), read_spec(args.bundle).without_fast()
    result = json.loads((args.run[-1] / "result.json").read_text(encoding="utf-8").splitlines()[-1])
    weights = [read_weights(run if run.suffix == ".onnx" else run / "student.pt") for run in args.run]
    parts = ("embedding", "fragments", "states.2")
    shape = StudentShape(*(weights[0][f"heads.{part}.weight"].shape[0] for part in parts))
    assert spec.image.preprocess is not None
    trained = result.get("size") or spec.image.preprocess.size
    size = args.size or trained
    rows = 0 if spec.image.grid is None else spec.image.grid[0]
    student = new_student(args.start, shape, result["activation"], True, size, rows)
    load_mean(student, weights)
    preprocess = replace(spec.image.preprocess, size=size, decode_at_least=size, previews=True)
    sets = ("flickr8k-val", "coco-val", "names-val", "web-val")
    held_out: list[Record] = [one for name in sets for one in read_all([str(data / f"{name}.tar")])]
    graph = write_image_graph(student, sample_images(held_out, preprocess), args.run[-1] / "graph")
    made: dict[str, Any] = {key: value for key, value in result.items() if key not in ("start", "results")}
    made |= {"initial weights": args.licence, "terms": TERMS, "validation": result["results"]}
    made |= {"size": size, "trained_size": trained, "runs": len(weights)}
    add_fast_image(args.bundle, graph, preprocess, None, made)
    fast = Bundle.open(args.bundle, fast=True)
    captioned = [one for one in held_out if one.label is None]
    known = [*captioned, *(one for one in held_out if one.label is not None)]
    images, readable = encode_images(fast, [one.image for one in known], Needs(), 32, None, None)
    records = [known[int(row)] for row in readable]
    fitted = pair_relevance(fast, records, images.embedding, fast.words, "en", None)
    relevance = replace(fitted, data=sets)
    add_fast_image(args.bundle, graph, preprocess, relevance, made)
    results: list[Any] = []
    for name in TESTS:
        kind: Literal["captions", "names"] = "names" if name.startswith("names") else "captions"
        whole = measured(fast, TestRecipe(name, (str(data / f"{name}.tar"),), args.rerank, kind))
        write_result(RESULTS / f"{name}.json", whole)
        results += whole["rows"]
        print(name, [row.get("rSum", row.get("names")) for row in whole["rows"]], flush=True)
    add_fast_image(args.bundle, graph, preprocess, relevance, made, results)


if __name__ == "__main__":
    main()
