"""Candidates for the bundled model: fine-tune, draw back towards the general tower, and measure at home and away.

    python -m replication.candidates --name both --set … --out benchmarks/results/candidates

Home is Flickr8k; away is COCO val and, where SIGHTLINE_STAMPS names a shard of it, drawings with a line of description.
"""

import argparse
import os
from pathlib import Path

import torch

from benchmarks.provenance import RESULTS, provenance, write_result
from replication.cascades import Cascades
from replication.training_runs import train_once
from sightline.datasets import read_all
from sightline.models import checkpoint
from sightline.models.torch_model import TorchModel
from sightline.models.weight_average import blend


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", required=True)
    parser.add_argument("--recipe", default="default-embed")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--shares", default="1.0", help="how much of the trained image tower remains")
    parser.add_argument("--work", type=Path, default=Path("runs/candidates"))
    parser.add_argument("--out", type=Path, default=RESULTS / "candidates")
    arguments = parser.parse_args()
    out = arguments.work / arguments.name
    seconds = train_once(arguments.recipe, arguments.set, out)["seconds"]
    data = os.environ["SIGHTLINE_DATA"]
    sets = {name: f"{data}/{name}.tar" for name in ("flickr8k-val", "flickr8k-test", "coco-val")}
    if "SIGHTLINE_STAMPS" in os.environ:
        sets["stamps"] = os.environ["SIGHTLINE_STAMPS"]
    rows = []
    for share in map(float, arguments.shares.split(",")):
        retriever, tokenizer = checkpoint.load(out / "best")
        if share < 1:
            blend(retriever, "image", os.environ["SIGHTLINE_PRETRAINED"] + "/clip-vit-base-patch16-vision", share)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        model = TorchModel(retriever.to(device).eval(), tokenizer, arguments.name)
        for name, path in sets.items():
            row = Cascades(model, None, read_all([path]), [], name).embed().to_json()
            rows.append({"share": share, **row})
            t, i = row["text_to_image"], row["image_to_text"]
            numbers = [round(x[f"R@{k}"], 1) for x in (t, i) for k in (1, 5, 10)]
            print(arguments.name, share, name, numbers, round(row["rSum"], 1), flush=True)
            result = {"experiment": "candidates", "name": arguments.name, "changes": arguments.set,
                      "train_seconds": seconds, **provenance(0, list(sets)), "rows": rows}  # fmt: skip
            write_result(arguments.out / f"{arguments.name}.json", result)


if __name__ == "__main__":
    main()
