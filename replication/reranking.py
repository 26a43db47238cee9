"""What the matcher of a model adds to its embeddings, and whether a second bi-encoder would add as much.

    python -m replication.reranking --model runs/default/best --second runs/other/best --out benchmarks/results/default

The weight of the fusion is chosen on val and reported on test.
"""

import argparse
import os
from pathlib import Path

import numpy as np

from benchmarks.provenance import RESULTS, provenance, write_result
from replication.cascades import Cascades
from sightline.datasets import read_all
from sightline.evaluation import Evaluation, evaluate
from sightline.models.torch_model import TorchModel

WEIGHTS = (0.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 50.0, 80.0, 120.0, 180.0)


def numbers(evaluation: Evaluation) -> str:
    t, i = evaluation.text_to_image, evaluation.image_to_text
    return f"{[round(x[f'R@{k}'], 1) for x in (t, i) for k in (1, 5, 10)]} {evaluation.r_sum:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--second", type=Path)
    parser.add_argument("--name", default="default")
    parser.add_argument("--out", type=Path, default=RESULTS / "reranking")
    arguments = parser.parse_args()
    data = os.environ["SIGHTLINE_DATA"]
    sets = {name: f"{data}/{name}.tar" for name in ("flickr8k-val", "flickr8k-test", "coco-val")}
    if "SIGHTLINE_STAMPS" in os.environ:
        sets["stamps"] = os.environ["SIGHTLINE_STAMPS"]
    model = TorchModel.open(arguments.model)
    second = TorchModel.open(arguments.second) if arguments.second else None
    rows = []
    best = 0.0
    second_weight = 0.0
    for name, path in sets.items():
        records = read_all([path])
        cascades = Cascades(model, model, records, [], name)
        embed = cascades.embed()
        if name == "flickr8k-val":
            swept = {w: cascades.rerank(20, "logit_add", w, most=20) for w in WEIGHTS}
            best = max(swept, key=lambda w: swept[w].r_sum)
            for w, found in swept.items():
                print("val weight", w, numbers(found), flush=True)
        for stage, found in (
            ("embed", embed),
            ("match alone", cascades.rerank(20, "ce", most=20)),
            ("fused", cascades.rerank(20, "logit_add", best, most=20)),
            ("late alone", evaluate(model, records, data=name, late=200, batch_size=128)),
        ):
            rows.append({"system": stage, "weight_chosen_on_val": best, **found.to_json()})
            print(arguments.name, name, stage, numbers(found), flush=True)
        if second is not None:
            other = Cascades(second, None, records, [], name)
            base_t, base_i = cascades.texts.embedding, cascades.images.embedding
            swept2 = {}
            for w in (0.25, 0.5, 1.0, 1.5, 2.0) if name == "flickr8k-val" else (second_weight,):
                cascades.texts = type(cascades.texts)(
                    np.concatenate([base_t, other.texts.embedding * np.sqrt(w)], 1) / np.sqrt(1 + w), None, None
                )
                cascades.images = type(cascades.images)(
                    np.concatenate([base_i, other.images.embedding * np.sqrt(w)], 1) / np.sqrt(1 + w), None, None
                )
                swept2[w] = cascades.embed()
            second_weight = max(swept2, key=lambda w: swept2[w].r_sum)
            found = swept2[second_weight]
            rows.append({"system": "two bi-encoders", "weight_chosen_on_val": second_weight, **found.to_json()})
            print(arguments.name, name, "two bi-encoders", second_weight, numbers(found), flush=True)
    result = {"experiment": "reranking", "name": arguments.name, **provenance(0, list(sets)), "rows": rows}
    write_result(arguments.out / f"{arguments.name}.json", result)


if __name__ == "__main__":
    main()
