"""Candidates for the bundled model, and what their matchers add, on Flickr8k, COCO and, with SIGHTLINE_STAMPS, stamps.

    python -m replication.candidates --name both --set …              fine-tune, average with the initial tower
    python -m replication.candidates --name three --model runs/three/best --second runs/other/best        rerank

Reranking chooses the weight of the fusion on val. A second bi-encoder shows what comes from having two models.
"""

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.provenance import RESULTS, provenance, write_result
from replication.cascades import Cascades, Half
from replication.training_runs import train_once
from sightline.datasets import read_all
from sightline.evaluation import Evaluation
from sightline.models import checkpoint
from sightline.models.torch_model import TorchModel
from sightline.models.weight_average import blend

VAL, SETS = "flickr8k-val", ("flickr8k-val", "flickr8k-test", "coco-val")
WEIGHTS = (0.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 50.0, 80.0, 120.0, 180.0)
SECOND_WEIGHTS = (0.25, 0.5, 1.0, 1.5, 2.0)


def data_sets() -> dict[str, str]:
    """The shards to measure on."""
    sets = {name: f"{os.environ['SIGHTLINE_DATA']}/{name}.tar" for name in SETS}
    return sets | ({"stamps": os.environ["SIGHTLINE_STAMPS"]} if "SIGHTLINE_STAMPS" in os.environ else {})


def averaged(name: str, out: Path, shares: list[float]) -> Iterator[dict[str, Any]]:
    """Embeddings alone, with some share of the trained image tower, the rest of the initial one (WiSE-FT)."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for share in shares:
        retriever, tokenizer = checkpoint.load(out / "best")
        if share < 1:
            blend(retriever, "image", os.environ["SIGHTLINE_PRETRAINED"] + "/clip-vit-base-patch16-vision", share)
        model = TorchModel(retriever.to(device).eval(), tokenizer, name)
        for data, path in data_sets().items():
            yield {"share": share, **Cascades(model, None, read_all([path]), [], data).embed().to_json()}


def reranked(model: TorchModel, second: TorchModel | None) -> Iterator[dict[str, Any]]:
    """By embedding, by the matcher alone, by both fused, and by two bi-encoders."""
    weight = second_weight = 0.0
    for data, path in data_sets().items():
        records = read_all([path])
        cascades = Cascades(model, model, records, [], data)
        if data == VAL:
            swept = {one: cascades.rerank(20, "logit_add", one, most=20).r_sum for one in WEIGHTS}
            weight = max(swept, key=lambda one: swept[one])
        found = {"embed": cascades.embed(), "match alone": cascades.rerank(20, "ce", most=20)}
        found["fused"] = cascades.rerank(20, "logit_add", weight, most=20)
        if second is not None:
            other = Cascades(second, None, records, [], data)
            both = {one: joined(cascades, other, one) for one in (SECOND_WEIGHTS if data == VAL else (second_weight,))}
            second_weight = max(both, key=lambda one: both[one].r_sum)
            found["two bi-encoders"] = both[second_weight]
        for system, one in found.items():
            chosen = second_weight if system == "two bi-encoders" else weight
            yield {"system": system, "weight_chosen_on_val": chosen, **one.to_json()}


def joined(first: Cascades, second: Cascades, weight: float) -> Evaluation:
    """By the weighted mean of two cosines."""
    halves = {}
    for side in ("texts", "images"):
        one, other = getattr(first, side).embedding, getattr(second, side).embedding
        together = np.concatenate([one, other * np.sqrt(weight)], 1) / np.sqrt(1 + weight)
        halves[side] = Half(together, None, None)
    return first.with_halves(**halves).embed()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", required=True)
    parser.add_argument("--recipe", default="default-embed")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--shares", default="1.0", help="how much of the trained image tower remains")
    parser.add_argument("--work", type=Path, default=Path("runs/candidates"))
    parser.add_argument("--model", type=Path, help="measure the reranking of this checkpoint")
    parser.add_argument("--second", type=Path, help="a second bi-encoder")
    arguments = parser.parse_args()
    about: dict[str, Any] = {"experiment": "reranking" if arguments.model else "candidates", "name": arguments.name}
    if arguments.model:
        second = TorchModel.open(arguments.second) if arguments.second else None
        rows = reranked(TorchModel.open(arguments.model), second)
    else:
        out = arguments.work / arguments.name
        seconds = train_once(arguments.recipe, arguments.set, out)["seconds"]
        about |= {"changes": arguments.set, "train_seconds": seconds}
        rows = averaged(arguments.name, out, [float(share) for share in arguments.shares.split(",")])
    result = {**about, **provenance(0, list(data_sets())), "rows": list(rows)}
    write_result(RESULTS / about["experiment"] / f"{arguments.name}.json", result)


if __name__ == "__main__":
    main()
