"""Measure zero-shot accuracy on unseen names: train without a tenth of the names, then test on those.

    python -m benchmarks.unseen_names recipes/default-embed.toml --epochs 3

Trains with the recipe, but leaves out every tenth name, in alphabetical order, from its source of names. The result
compares names-val images of the left-out names with the others, and with a run that saw all names. Needs a GPU,
SIGHTLINE_DATA and whatever the recipe needs.
"""

import argparse
import os
import tempfile
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.provenance import RESULTS, provenance, write_result
from sightline.datasets import Record, read_all
from sightline.evaluation import evaluate_names
from sightline.evaluation.metrics import recall
from sightline.evaluation.names import labels_of
from sightline.models import checkpoint
from sightline.models.torch_model import TorchModel
from sightline.training import distributed
from sightline.training.recipe import Recipe, read_recipe
from sightline.training.trainer import train

SOURCE, SHARD, TEST = "names", "names-train", "names-val"


def left_out(shard: str) -> tuple[str, ...]:
    """Every tenth label of a shard, in alphabetical order."""
    return tuple(sorted({record.label for record in read_all([shard]) if record.label})[::10])


def shortened(recipe: Recipe, skip_labels: tuple[str, ...], epochs: float) -> Recipe:
    """The recipe with fewer epochs, without some names and without validation."""
    names = {SOURCE: skip_labels}
    sources = tuple(replace(one, skip_labels=names.get(one.name, ())) for one in recipe.data.sources)
    data = replace(recipe.data, sources=sources, val=())
    return replace(recipe, data=data, schedule=replace(recipe.schedule, epochs=epochs))


def measure(folder: Path, records: list[Record], labels: Collection[str]) -> dict[str, Any]:
    """Top 1 and top 5 among all labels, for images of the given labels and for the others."""
    retriever, tokenizer = checkpoint.load(folder)
    found = evaluate_names(TorchModel(retriever.to(distributed.device()), tokenizer, folder.name), records, data=TEST)
    unseen = np.array([label in labels for label in labels_of(records)])
    parts = {"left out": found.ranks[unseen], "others": found.ranks[~unseen]}
    return {
        name: {"images": len(ranks), "top1": recall(ranks, 1), "top5": recall(ranks, 5)}
        for name, ranks in parts.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--epochs", type=float, default=3)
    parser.add_argument("--json", type=Path, default=RESULTS / "unseen-names.json")
    arguments = parser.parse_args()
    data, recipe = Path(os.environ["SIGHTLINE_DATA"]), read_recipe(arguments.recipe)
    labels = left_out(str(data / f"{SHARD}.tar"))
    records, rows = read_all([str(data / f"{TEST}.tar")]), []
    for kind, skipped in (("a tenth left out", labels), ("all names", ())):
        with tempfile.TemporaryDirectory() as folder:
            done = train(shortened(recipe, skipped, arguments.epochs), folder, resume=True)
            rows.append({"run": kind, "steps": done.steps, **measure(done.folder, records, labels)})
        print(rows[-1], flush=True)
        result = {"experiment": "unseen names", **provenance(recipe.seed, [SHARD, TEST]), "rows": rows}
        write_result(arguments.json, {**result, "names left out": len(labels)})


if __name__ == "__main__":
    main()
