"""The tables and figures of paper 1 at our scale: train its models, measure them, one JSON file a run.

    python benchmarks/paper1.py --runs be,ce,joint --seeds 0,1,2 --out benchmarks/results/paper1

needs SIGHTLINE_DATA (shards) and SIGHTLINE_PRETRAINED (a CLIP image tower and MiniLM), and a GPU to be quick.
"""

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import torch

from cascades import Cascades
from provenance import provenance
from sightline.datasets import read_all
from sightline.evaluation import Evaluation
from sightline.models.engine import TorchModel
from sightline.training.recipe import read_recipe
from sightline.training.trainer import train

RECIPES = Path(__file__).parent.parent / "recipes"
HALVED = ["model.transformer.layer_step=2"]
COCO = ['data.train=["${SIGHTLINE_DATA}/coco-train-*.tar"]', 'data.val=["${SIGHTLINE_DATA}/coco-val.tar"]']
VARIANTS: dict[str, list[str]] = {
    "full": [],
    "half": HALVED,
    "1k": ["data.limit=1000"],
    "3k": ["data.limit=3000"],
    "coco": COCO,
}


def trained(recipe: str, variant: str, seed: int, work: Path) -> tuple[TorchModel, dict[str, Any]]:
    """Train a recipe's variant, or take what an earlier call left, on the device there is."""
    changes = [*VARIANTS[variant], f"seed={seed}", *extra_changes(recipe)]
    out = work / f"{recipe}-{variant}-{seed}"
    start = time.perf_counter()
    steps = 0
    if not (out / "done").exists():
        run = train(read_recipe(RECIPES / f"{recipe}.toml", changes), out, save_every=10**9)
        steps = run.steps
        (out / "done").write_text(json.dumps({"seconds": time.perf_counter() - start, "steps": steps}))
    cost = json.loads((out / "done").read_text())
    folder = out / "best" if (out / "best").exists() else out / "last"
    model = TorchModel.open(folder)
    model.name = f"{recipe}-{variant}-{seed}"
    return model, {"recipe": f"recipes/{recipe}.toml", "changes": changes, **cost}


def extra_changes(recipe: str) -> list[str]:
    """Changes asked for by the environment, for probing: PAPER1_SET_BE='optimizer.lr=1e-4;…'."""
    return [change for change in os.environ.get(f"PAPER1_SET_{recipe.upper()}", "").split(";") if change]


def measure(cascades: Cascades, what: str) -> list[Evaluation]:
    """The rows that a run gives: by embedding; reranked by k and by fusion; with distractors; everything matched."""
    if what == "embed":
        return [cascades.embed(), cascades.embed(distractors=10**6)]
    if what == "match":
        return [cascades.match_everything()]
    rows = [cascades.rerank(k) for k in (10, 20, 50)]
    rows += [cascades.rerank(20, rule, weight) for rule in ("add", "norm_add") for weight in (0.1, 0.5, 0.9)]  # type: ignore[arg-type]
    return [*rows, cascades.rerank(20, distractors=10**6, most=20)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", default="be,ce,joint", help="among be, ce, joint")
    parser.add_argument("--variant", default="full", choices=VARIANTS)
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--everything", action="store_true", help="also match every pair (CE, JOINT+CE)")
    parser.add_argument("--work", type=Path, default=Path("runs/paper1"), help="where checkpoints are kept")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/paper1"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    data = os.environ["SIGHTLINE_DATA"]
    records = read_all([f"{data}/flickr8k-test.tar"])
    distractors = read_all([f"{data}/coco-distractors.tar", f"{data}/coco-val.tar"])
    runs = arguments.runs.split(",")
    for seed in map(int, arguments.seeds.split(",")):
        models = {run: trained(run, arguments.variant, seed, arguments.work) for run in runs}
        rows: list[tuple[str, list[Evaluation]]] = []

        def cascades(embedder: str, matcher: str | None) -> Cascades:
            found = models[matcher][0] if matcher else None  # noqa: B023
            return Cascades(models[embedder][0], found, records, distractors, "flickr8k-test")  # noqa: B023

        if "be" in runs:
            rows.append(("BE", measure(cascades("be", None), "embed")))
        if "be" in runs and "ce" in runs:
            rows.append(("SEP+COOP", measure(cascades("be", "ce"), "rerank")))
        if "joint" in runs:
            joint = cascades("joint", "joint")
            rows += [("JOINT+BE", measure(joint, "embed")), ("JOINT+COOP", measure(joint, "rerank"))]
            if arguments.everything:
                rows.append(("JOINT+CE", measure(joint, "match")))
        if "ce" in runs and arguments.everything:
            rows.append(("CE", measure(cascades("ce", "ce"), "match")))
        result = {
            "experiment": "paper1",
            "variant": arguments.variant,
            **provenance(seed, ["flickr8k-test", "coco-distractors", "coco-val"]),
            "training": {run: cost for run, (_, cost) in models.items()},
            "rows": [{"row": name, **evaluation.to_json()} for name, found in rows for evaluation in found],
        }
        path = arguments.out / f"{arguments.variant}-{'-'.join(runs)}-seed{seed}.json"
        path.write_text(json.dumps(result, indent=1) + "\n")
        for row in result["rows"]:
            t, i = row["text_to_image"], row["image_to_text"]
            print(path.name, row["row"], row["stages"], row.get("fusion"), row.get("weight"), row["distractors"],
                  [round(t[f"R@{k}"], 1) for k in (1, 5, 10)], [round(i[f"R@{k}"], 1) for k in (1, 5, 10)], round(row["rSum"], 1), flush=True)  # fmt: skip
    if torch.cuda.is_available():
        print("peak GPU memory", torch.cuda.max_memory_allocated() >> 20, "MiB")


if __name__ == "__main__":
    main()
