"""Paper 2 (HREM) at our scale: train its models and measure them, one JSON file per run.

    python -m replication.paper2 --part table1 --seeds 0,1,2    Tables 1, 2 and 4
    python -m replication.paper2 --part table3a --seeds 0,1,2   also table3b, figure6, bigru

Every run takes the same steps over the same data, and keeps the checkpoint that is best on val. `base-neighbours` is
the base model trained on neighbour batches, like the others. A result file has the recalls, the gains over all existing
runs with the same seed, the recalls of the hardest and most infrequent queries (Table 4), and the losses of initial and
enhanced embeddings (Figure 7). Needs SIGHTLINE_DATA, SIGHTLINE_PRETRAINED and preferably a GPU. The same command
continues an interrupted run, and adds the gains over runs trained since.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.provenance import provenance
from replication.hard_queries import average_similarities, special_recalls
from replication.ranks import encode_test_set, gain, ranked
from replication.training_runs import NOTE, Measured, measure_once, options, parsed, train_once, write_results
from sightline.datasets import read_all
from sightline.evaluation import Evaluation
from sightline.evaluation.encodings import Needs
from sightline.evaluation.ranking import ranks_from_embeddings
from sightline.evaluation.test_set import Questions
from sightline.models.torch_model import TorchModel

BRIEF = ("schedule.epochs=0", "schedule.steps=12", "data.batch_size=16", "data.limit=16", "validation.every=0")
_EVERY = "validation.every=468"  # steps: two epochs of Flickr8k
_CURVE = 50  # points of Figure 7
SIDES = ("texts", "images")


@dataclass(frozen=True, slots=True)
class Run:
    """A model of the paper: its recipe, changes to the recipe, and an offset added to the seed."""

    recipe: str
    changes: tuple[str, ...] = ()
    more_seed: int = 0


def _relation(of: str = "losses.relation", **settings: float | str) -> Run:
    """Return the fusion model with other settings of its loss, or of its relations among fragments (`of`)."""
    return Run("hrem-fusion", tuple(f"{of}.{key}={json.dumps(value)}" for key, value in settings.items()))


_NEIGHBOURS = "data.neighbours={ begin = 0.235, clusters = 64, per_cluster = 16 }"
_BIGRU = (
    "model.text={ config = { model_type = 'bigru', vocab_size = 8000, word_dim = 300, hidden_size = 1024 } }",
    "optimizer.rates={ image = 0.0 }",
)
RUNS: dict[str, Run] = {
    "plain": Run("hrem-base", ("model.relations.image=false", "model.relations.text=false")),
    "base": Run("hrem-base"),
    "base-again": Run("hrem-base", more_seed=100),
    "base-neighbours": Run("hrem-base", (_NEIGHBOURS,)),
    "fusion": Run("hrem-fusion"),
    "standalone": Run("hrem-standalone"),
    "no-fragments": _relation("model.relations", image=False, text=False),
    "no-visual": _relation("model.relations", image=False),
    "no-textual": _relation("model.relations", text=False),
    "intra": _relation(among="intra", regularisation=0.0),
    "inter": _relation(among="inter"),
    "no-connection": _relation(connected=1.0),
    "no-relevance": _relation(relevance=0.0, regularisation=0.0),
    "no-consistency": _relation(consistent=False),
    "no-regularisation": _relation(regularisation=0.0),
    "no-neighbours": Run("hrem-fusion", ("data.neighbours.begin=1.0",)),
    **{f"lambda-{value:g}": _relation(relevance=value) for value in (0.0, 0.5, 1.5, 2.0)},
    **{f"k-{value}": _relation(matches=value) for value in (1, 5, 15, 20)},
    **{f"tau-{value}": _relation(connected=value) for value in (0.1, 0.25, 0.75)},
    "bigru-base": Run("hrem-base", _BIGRU),
    "bigru-base-neighbours": Run("hrem-base", (*_BIGRU, _NEIGHBOURS)),
    "bigru": Run("hrem-bigru"),
}
ENSEMBLES = {"full": ("fusion", "standalone"), "base-twice": ("base", "base-again")}
"""Pairs of trained runs to ensemble: the paper's and, for comparison, two models without relations."""
PARTS = {
    "table1": ("plain", "base", "base-neighbours", "base-twice", "fusion", "standalone", "full"),
    "table3a": ("base", "fusion", "no-fragments", "no-visual", "no-textual", "intra", "inter"),
    "table3b": ("fusion", "no-connection", "no-relevance", "no-consistency", "no-regularisation", "no-neighbours"),
    "figure6": ("fusion", *(name for name in RUNS if name.startswith(("lambda-", "k-", "tau-")))),
    "bigru": ("bigru-base", "bigru-base-neighbours", "bigru"),
}


class Bench:
    """A test set, and the folders for models and results."""

    def __init__(self, split: str, changes: Sequence[str], work: Path) -> None:
        self.changes, self.work, self.data = tuple(changes), work, f"flickr8k-{split}"
        self.questions = Questions.of(read_all([f"{os.environ['SIGHTLINE_DATA']}/{self.data}.tar"]), "en")

    def folder(self, name: str, seed: int) -> Path:
        """Return the folder of a run's checkpoint, log and cost."""
        return self.work / f"{name}-{seed}"

    def exists(self, name: str, seed: int) -> bool:
        """Return whether a run, or both runs of an ensemble, have been trained."""
        return all((self.folder(part, seed) / NOTE).exists() for part in ENSEMBLES.get(name, (name,)))

    def trained(self, name: str, seed: int) -> dict[str, Any]:
        """Train a run unless it has already been trained; returns its cost."""
        run, out = RUNS[name], self.folder(name, seed)
        return train_once(run.recipe, [*run.changes, f"seed={seed + run.more_seed}", _EVERY, *self.changes], out)

    def encoded(self, name: str, seed: int) -> Measured:
        """Return a run's embeddings of the test set, encoded once; an ensemble's cosine is the mean of its runs'."""
        if name in ENSEMBLES:
            first, second = (self.encoded(part, seed) for part in ENSEMBLES[name])
            joined = {side: np.concatenate([first.arrays[side], second.arrays[side]], 1) / 2**0.5 for side in SIDES}
            return Measured(second.about, joined)

        def encode() -> Measured:
            model = TorchModel.open(self.folder(name, seed) / "best")
            both = encode_test_set(model, self.questions, Needs())
            arrays = {side: found.embedding for side, found in zip(SIDES, both, strict=True)}
            return Measured(provenance(seed, [self.data]), arrays)

        return measure_once(self.folder(name, seed) / f"{self.data}.npz", encode)

    def measured(self, name: str, seed: int) -> Evaluation:
        """Rank the test set by the embeddings of a run."""
        arrays = self.encoded(name, seed).arrays
        ranks = ranks_from_embeddings(arrays["texts"], arrays["images"], self.questions.image_of)
        return ranked(self.questions, ranks, f"hrem-{name}-{seed}", self.data)

    def special(self, name: str, seed: int) -> dict[str, Any] | None:
        """Return the recalls of a run and of the base model on the base model's special queries; None without it."""
        if not self.exists("base", seed):
            return None
        base = self.encoded("base", seed).arrays
        averages = average_similarities(base["texts"], base["images"], self.questions.image_of)
        both = {"base": self.measured("base", seed), "run": self.measured(name, seed)}
        return {which: special_recalls(found, *averages) for which, found in both.items()}


def curve(log: Path) -> list[dict[str, float]]:
    """Return the losses of initial and of enhanced embeddings over a run's steps, averaged over equal intervals."""
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    reported = [(entry["step"], entry["parts"]["relation"]) for entry in entries if "parts" in entry]
    points = []
    for some in np.array_split(np.arange(len(reported)), min(_CURVE, len(reported))) if reported else []:
        means = {kind: float(np.mean([reported[i][1][kind] for i in some])) for kind in ("initial", "enhanced")}
        points.append({"step": reported[some[-1]][0], **{kind: round(mean, 5) for kind, mean in means.items()}})
    return points


def result_of(bench: Bench, name: str, seed: int) -> dict[str, Any]:
    """Train whatever a run needs, measure the run, and build its result file."""
    parts = ENSEMBLES.get(name, (name,))
    cost = {part: bench.trained(part, seed) for part in parts}
    found = bench.measured(name, seed)
    others = [other for other in (*RUNS, *ENSEMBLES) if other != name and bench.exists(other, seed)]
    return {
        "experiment": "paper2",
        "run": name,
        **bench.encoded(name, seed).about,
        "training": cost,
        "result": found.to_json(),
        "gain_over": {other: gain(bench.measured(other, seed), found) for other in others},
        "special": bench.special(name, seed),
        "curve": [] if name in ENSEMBLES else curve(bench.folder(name, seed) / "log.jsonl"),
    }


def main() -> None:
    parser = options(__doc__, "paper2", "base,fusion", (*RUNS, *ENSEMBLES), PARTS)
    parser.add_argument("--split", default="test", choices=("test", "val"), help="what to measure on")
    arguments = parsed(parser)
    bench = Bench(arguments.split, [*(BRIEF if arguments.brief else ()), *arguments.changes], arguments.work)
    write_results(arguments, PARTS, arguments.split, partial(result_of, bench))


if __name__ == "__main__":
    main()
