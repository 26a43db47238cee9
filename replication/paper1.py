"""The tables and figures of paper 1 at our scale: train its models, measure them, one JSON file per run.

    python -m replication.paper1 --runs be,ce,joint --seeds 0,1,2 --out benchmarks/results/paper1

Starts from --work/pretrain/best (`sightline train recipes/pretrain.toml --out …/pretrain`). Needs SIGHTLINE_DATA
(shards), SIGHTLINE_PRETRAINED (a CLIP image tower and MiniLM), and preferably a GPU.
"""

import argparse
import os
from pathlib import Path
from typing import Any

from benchmarks.provenance import RESULTS, provenance, write_result
from replication.cascades import Cascades
from replication.training_runs import train_once
from sightline.datasets import read_all
from sightline.evaluation import Evaluation
from sightline.models import SingleStream, checkpoint, towers
from sightline.models.torch_model import TorchModel

COCO = ['data.train=["${SIGHTLINE_DATA}/coco-train-*.tar"]', 'data.val=["${SIGHTLINE_DATA}/coco-val.tar"]']
VARIANTS: dict[str, list[str]] = {"full": [], "half": [], "coco": COCO}
VARIANTS |= {"1k": ["data.limit=1000"], "3k": ["data.limit=3000"]}


def trained(recipe: str, variant: str, seed: int, work: Path) -> tuple[TorchModel, dict[str, Any]]:
    """Train a recipe's variant on the available device, or load the result of an earlier call."""
    start = halved(work / "pretrain" / "best") if variant == "half" else work / "pretrain" / "best"
    changes = [*VARIANTS[variant], f"seed={seed}", f'model.start="{start}"']
    out = work / f"{recipe}-{variant}-{seed}"
    cost = train_once(recipe, changes, out)
    return TorchModel.open(out / "best", name=f"{recipe}-{variant}-{seed}"), cost


def halved(folder: Path) -> Path:
    """A copy of a checkpoint without every second layer of its transformer (paper 1, figure 4)."""
    out = folder.with_name(folder.name + "-half")
    if not out.exists():
        retriever, tokenizer = checkpoint.load(folder)
        if not isinstance(retriever, SingleStream):
            raise SystemExit(f"{folder}: not a single-stream model")
        towers.shorten(retriever.transformer.encoder, 2)
        checkpoint.save(retriever, tokenizer, out)
    return out


def measure(cascades: Cascades, what: str) -> list[Evaluation]:
    """The rows of a run: by embedding; reranked by k and by fusion; with distractors; every pair matched."""
    if what == "embed":
        return [cascades.embed(), cascades.embed(distractors=10**6)]
    if what == "match":
        return [cascades.match_everything()]
    rows = [cascades.rerank(k) for k in (10, 20, 50)]
    rows += [cascades.rerank(20, rule, weight) for rule in ("add", "norm_add") for weight in (0.1, 0.5, 0.9)]
    return [*rows, cascades.rerank(20, distractors=10**6, most=20)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", default="be,ce,joint", help="among be, ce, joint")
    parser.add_argument("--variant", default="full", choices=VARIANTS)
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--everything", action="store_true", help="also match every pair (CE, JOINT+CE)")
    parser.add_argument("--work", type=Path, default=Path("runs/paper1"), help="where checkpoints are kept")
    parser.add_argument("--out", type=Path, default=RESULTS / "paper1")
    arguments = parser.parse_args()
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
        name = f"{arguments.variant}-{'-'.join(runs)}-seed{seed}"
        write_result(arguments.out / f"{name}.json", result)
        for label, found in rows:
            print(name, label, *(f"{evaluation.r_sum:.1f}" for evaluation in found), flush=True)


if __name__ == "__main__":
    main()
