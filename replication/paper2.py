"""The tables and figures of paper 2 (HREM) at our scale: train its models, measure them, one JSON file a run.

    python -m replication.paper2 --runs plain,base,base-twice,fusion,standalone,full --seeds 0,1,2   Tables 1, 2 and 4
    python -m replication.paper2 --runs base,fusion,no-fragments,no-visual,no-textual,intra,inter        Table 3a
    python -m replication.paper2 --runs no-connection,no-relevance,no-consistency,no-regularisation,no-neighbours
                                                                                            Table 3b
    python -m replication.paper2 --runs lambda-0,lambda-0.5,lambda-2,k-1,k-5,k-20,tau-0.1,tau-0.25,tau-0.75
                                                                                            Figure 6
    python -m replication.paper2 --runs bigru-base,bigru --seeds 0,1,2                       texts read by a BiGRU

Tables 3 and Figure 6 want --out benchmarks/results/paper2-parts and a --work of their own: a GPU adds up in an order of
its own each time, and so what is compared has to be trained beside each other.

Every run takes the same steps over the same data, from the same initial weights where it has the same model. Each file
has the recalls with their intervals, the gains over all runs of its seed that are there, the recalls of the hardest and
the most infrequent queries (Table 4; chosen by the base model of the same seed, if it is there), and the losses of
initial and of enhanced embeddings on the way (Figure 7). "full" is the mean of fusion and standalone, "base-twice"
that of two base models, and they train nothing of their own.

Needs SIGHTLINE_DATA (shards) and SIGHTLINE_PRETRAINED (a CLIP image tower and MiniLM), and a GPU to be quick. --brief
takes 12 steps of 16 images: enough to see on a CPU, with shards of a few images, that all of
it runs. When stopped, the same call goes on; when called again, it takes what is there from --work, and the gains over
runs that were trained meanwhile (by another process, say) are added to the files.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.provenance import provenance
from replication.ranks import gain, ranked
from replication.training_runs import NOTE, Measured, measure_once, options, train_once, write_results
from sightline.datasets import read_all
from sightline.evaluation import Evaluation
from sightline.evaluation.encodings import Encodings, Needs, encode_images, encode_texts
from sightline.evaluation.ensemble import beside
from sightline.evaluation.hard_queries import average_similarities, special_recalls
from sightline.evaluation.ranking import ranks_from_embeddings
from sightline.evaluation.test_set import Questions
from sightline.models.torch_model import TorchModel

BRIEF = ("schedule.epochs=0", "schedule.steps=12", "data.batch_size=16", "data.limit=16")
_CURVE = 50  # points of Figure 7
Encoded = tuple[Encodings, Encodings]
"""Texts and images of the test set, as a model encodes them."""


@dataclass(frozen=True, slots=True)
class Run:
    """A model of the paper: its recipe, what is changed in it, and what is added to the seed."""

    recipe: str
    changes: tuple[str, ...] = ()
    more_seed: int = 0


def _relation(**settings: float | str) -> Run:
    """The fusion model with other settings of its loss."""
    return Run(
        "hrem-fusion", tuple(f"objectives.relation.{key}={json.dumps(value)}" for key, value in settings.items())
    )


def _fragments(**sides: bool) -> Run:
    """The fusion model without relations among the fragments of one side, or of both."""
    return Run("hrem-fusion", tuple(f"model.relations.{side}={json.dumps(value)}" for side, value in sides.items()))


_BIGRU = (
    "model.text={ config = { model_type = 'bigru', vocab_size = 8000, word_dim = 300, hidden_size = 1024 } }",
    "optimizer.rates={ image = 0.0 }",
)
RUNS: dict[str, Run] = {
    "plain": Run("hrem-base", ("model.relations.image=false", "model.relations.text=false")),
    "base": Run("hrem-base"),
    "base-again": Run("hrem-base", more_seed=100),
    "base-neighbours": Run("hrem-base", ("data.neighbours={ begin = 0.235, clusters = 64, per_cluster = 16 }",)),
    "fusion": Run("hrem-fusion"),
    "standalone": Run("hrem-standalone"),
    "no-fragments": _fragments(image=False, text=False),
    "no-visual": _fragments(image=False),
    "no-textual": _fragments(text=False),
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
    "bigru": Run("hrem-bigru"),
}
ENSEMBLES = {"full": ("fusion", "standalone"), "base-twice": ("base", "base-again")}
"""Two trained runs that are measured together: the paper's, and what two models without relations make."""


class Bench:
    """A test set, and where models and results are kept."""

    def __init__(self, split: str, changes: Sequence[str], work: Path) -> None:
        self.changes, self.work, self.data = tuple(changes), work, f"flickr8k-{split}"
        self.questions = Questions.of(read_all([f"{os.environ['SIGHTLINE_DATA']}/{self.data}.tar"]), "en")
        self._encoded: dict[tuple[str, int], Encoded] = {}
        self._measured: dict[tuple[str, int], Evaluation] = {}

    def folder(self, name: str, seed: int) -> Path:
        """Where a run's checkpoint, log and cost are kept."""
        return self.work / f"{name}-{seed}"

    def is_there(self, name: str, seed: int) -> bool:
        """Whether a run, or both of an ensemble, were trained."""
        return all((self.folder(part, seed) / NOTE).exists() for part in ENSEMBLES.get(name, (name,)))

    def trained(self, name: str, seed: int) -> dict[str, Any]:
        """Train a run unless that was done; gives what it took. Nothing is validated on the way."""
        run, out = RUNS[name], self.folder(name, seed)
        return train_once(run.recipe, [*run.changes, f"seed={seed + run.more_seed}", "data.val=[]", *self.changes], out)

    def encoded(self, name: str, seed: int) -> Encoded:
        """The test set as a trained run encodes it, or as both of an ensemble do, side by side."""
        if (name, seed) not in self._encoded:
            if name in ENSEMBLES:
                (texts, images), (more_texts, more_images) = (self.encoded(part, seed) for part in ENSEMBLES[name])
                self._encoded[name, seed] = beside(texts, more_texts), beside(images, more_images)
            else:
                kept = self._kept(name, seed).arrays
                names = self.questions.captions, [image.name for image in self.questions.images]
                texts, images = (
                    Encodings(np.array(own, dtype=np.object_), kept[side], None, None)
                    for own, side in zip(names, ("texts", "images"), strict=True)
                )
                self._encoded[name, seed] = texts, images
        return self._encoded[name, seed]

    def origin(self, name: str, seed: int) -> dict[str, Any]:
        """Where the numbers of a run come from; those of an ensemble, from where its last one does."""
        return self._kept(ENSEMBLES.get(name, (name,))[-1], seed).about

    def _kept(self, name: str, seed: int) -> Measured:
        """Embeddings of the test set by a trained run, encoded once."""

        def encode() -> Measured:
            model = TorchModel.open(self.folder(name, seed) / "best")
            images, readable = encode_images(model, self.questions.images, Needs(), 256)
            if len(readable) < len(self.questions.images):
                raise SystemExit("some test images cannot be read")
            texts, _ = encode_texts(model, self.questions.captions, Needs(), 256)
            arrays = {"texts": texts.embedding, "images": images.embedding}
            return Measured(provenance(seed, [self.data]), arrays)

        return measure_once(self.folder(name, seed) / f"{self.data}.npz", encode)

    def measured(self, name: str, seed: int) -> Evaluation:
        """Rank the test set by the embeddings of a run."""
        if (name, seed) not in self._measured:
            texts, images = self.encoded(name, seed)
            ranks = ranks_from_embeddings(texts.embedding, images.embedding, self.questions.image_of)
            self._measured[name, seed] = ranked(self.questions, ranks, f"hrem-{name}-{seed}", self.data)
        return self._measured[name, seed]

    def special(self, name: str, seed: int) -> dict[str, Any] | None:
        """Recalls of special queries by a run and by the base model, whose averages choose them; None without it."""
        if not self.is_there("base", seed):
            return None
        texts, images = self.encoded("base", seed)
        averages = average_similarities(texts.embedding, images.embedding, self.questions.image_of)
        both = {"base": self.measured("base", seed), "run": self.measured(name, seed)}
        return {which: special_recalls(found, *averages) for which, found in both.items()}


def curve(log: Path) -> list[dict[str, float]]:
    """The losses of initial and of enhanced embeddings over a run's steps, averaged over equal parts of them."""
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    told = [(entry["step"], entry["parts"]["relation"]) for entry in entries if "parts" in entry]
    points = []
    for some in np.array_split(np.arange(len(told)), min(_CURVE, len(told))) if told else []:
        means = {kind: float(np.mean([told[i][1][kind] for i in some])) for kind in ("initial", "enhanced")}
        points.append({"step": told[some[-1]][0], **{kind: round(mean, 5) for kind, mean in means.items()}})
    return points


def result_of(bench: Bench, name: str, seed: int) -> dict[str, Any]:
    """Train what a run needs, measure it, and put together its result file."""
    parts = ENSEMBLES.get(name, (name,))
    cost = {part: bench.trained(part, seed) for part in parts}
    found = bench.measured(name, seed)
    others = [other for other in (*RUNS, *ENSEMBLES) if other != name and bench.is_there(other, seed)]
    return {
        "experiment": "paper2",
        "run": name,
        **bench.origin(name, seed),
        "training": cost,
        "result": found.to_json(),
        "gain_over": {other: gain(bench.measured(other, seed), found) for other in others},
        "special": bench.special(name, seed),
        "curve": [] if name in ENSEMBLES else curve(bench.folder(name, seed) / "log.jsonl"),
    }


def main() -> None:
    parser = options(__doc__, "paper2", "plain,base,fusion,standalone,full", (*RUNS, *ENSEMBLES))
    parser.add_argument("--split", default="test", choices=("test", "val"), help="what to measure on")
    arguments = parser.parse_args()
    bench = Bench(arguments.split, [*(BRIEF if arguments.brief else ()), *arguments.changes], arguments.work)
    write_results(arguments, lambda run, seed: (f"{run}-{arguments.split}-seed{seed}", result_of(bench, run, seed)))


if __name__ == "__main__":
    main()
