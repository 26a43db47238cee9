"""Paper 4 (LightningDOT) at our scale: pre-train, fine-tune and measure, one JSON file per run.

    python -m replication.paper4 --part table5 --seeds 0,1,2     Tables 2 and 5
    python -m replication.paper4 --part languages                mR by language

Runs are fine-tuned on Flickr8k and measured on its test images: alone, among all splits (Table 2), and also among
COCO's images; scores are plain dot products (equations 5 and 6). All runs, even the one without pre-training, start
from MiniLM's six layers in both transformers or, with --start scratch, from random weights. --matcher MODEL reranks the
gallery of all splits, for example with the bundled model (default) or paper 1's CE. Needs SIGHTLINE_DATA,
SIGHTLINE_PRETRAINED and preferably a GPU. The same command continues an interrupted run, and adds the gains over runs
trained since.
"""

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.provenance import provenance
from replication.ranks import gain, ranked
from replication.systems import name_of
from replication.training_runs import Measured, measure_once, options, parsed, train_once, write_results
from sightline.bundle.model import Model
from sightline.datasets import read_all
from sightline.evaluation import Evaluation, evaluate, evaluate_languages
from sightline.evaluation.encodings import Needs, SharedImages
from sightline.evaluation.test_set import Questions
from sightline.models.torch_model import TorchModel
from sightline.registry.loader import load

LANGUAGES = ("en", "de", "zh", "pt", "ar", "fr", "cs")
_WORDS, _REGIONS = ("vmlm",), ("smrfr", "smrc")


def _without(*tasks: str) -> list[str]:
    return [f"losses.{task}.weight=0" for task in tasks]


RUNS: dict[str, list[str] | None] = {
    "none": None,
    "cmr": _without(*_WORDS, *_REGIONS),
    "vmlm": _without(*_REGIONS),
    "smrm": _without(*_WORDS),
    "mlm-mrm": [f"losses.{task}.fused=false" for task in (*_WORDS, *_REGIONS)],
    "vmlm-smrm": [],
}
"""The changes to each run's pre-training, which always includes CMR; `none` is not pre-trained."""

DATA = {**{name: ["flickr8k", "coco"] for name in RUNS}, "languages": ["flickr8k"]}

_MINILM = "={ source = '${SIGHTLINE_PRETRAINED}/all-MiniLM-L6-v2' }"
STARTS: dict[str, list[str]] = {"minilm": [f"model.text{_MINILM}", f"model.image_reader{_MINILM}"], "scratch": []}
PARTS = {"table5": tuple(RUNS), "languages": ("languages",)}
_DOT = "model.unit_length=false"
_CMR = ["losses.cmr.temperature=1.0", "losses.cmr.learn_temperature=false"]
BRIEF = {"dot-pretrain": ["schedule.steps=2", "data.batch_tokens=400", "losses.smrc.classes=8"]}
KEPT, RERANKED = "galleries.npz", "reranked.npz"
_BATCH = 256
_TWO_STEPS = ["schedule.epochs=0", "schedule.steps=2", "data.batch_size=4"]


class Bench:
    """The model folder, and the training settings."""

    def __init__(self, start: str, changes: Sequence[str], brief: bool, work: Path) -> None:
        self.start, self.changes, self.brief, self.work = start, list(changes), brief, work

    def folder(self, name: str, seed: int) -> Path:
        """Return the folder of a run's checkpoint and cost."""
        return self.work / f"{name}-{self.start}-{seed}"

    def trained(self, name: str, seed: int) -> list[dict[str, Any]]:
        """Pre-train and fine-tune a run, unless that has already been done; returns the cost of each."""
        if name == "languages":
            return [self._train("languages", [], self.folder(name, seed), seed)]
        changes = RUNS[name]
        if changes is None:
            return [self._train("dot-scratch", [*STARTS[self.start], _DOT, *_CMR], self.folder(name, seed), seed)]
        first = self.folder(f"{name}-pretrain", seed)
        before = self._train("dot-pretrain", [*changes, *STARTS[self.start], _DOT, *_CMR], first, seed)
        start = [f'model.start="{first / "best"}"', *_CMR]
        return [before, self._train("dot", start, self.folder(name, seed), seed)]

    def _train(self, recipe: str, changes: Sequence[str], out: Path, seed: int) -> dict[str, Any]:
        brief = BRIEF.get(recipe, _TWO_STEPS) if self.brief else []
        own = [change for change in self.changes if recipe != "dot" or not change.startswith("model.")]
        return train_once(recipe, [*changes, f"seed={seed}", "data.val=[]", *brief, *own], out)

    def opened(self, name: str, seed: int) -> TorchModel:
        """Open a trained run."""
        return TorchModel.open(self.folder(name, seed) / "best", name=f"{name}-{self.start}-{seed}")


class Galleries:
    """The test set alone, among all splits, and among all available images."""

    def __init__(self) -> None:
        data = os.environ["SIGHTLINE_DATA"]
        self.splits = read_all([f"{data}/flickr8k-{split}.tar" for split in ("train-*", "val", "test")])
        self.test = [record for record in self.splits if record.split == "test"]
        self.others = read_all([f"{data}/coco-{part}.tar" for part in ("train-*", "val", "distractors")])

    def measured(self, model: TorchModel) -> dict[str, Evaluation]:
        """Evaluate a model in each gallery, ranking by dot product."""
        sources = [record.image for record in (*self.splits, *self.others)]
        shared = SharedImages(model, sources, Needs(), _BATCH)
        options: dict[str, Any] = {"data": "flickr8k", "batch_size": _BATCH, "shared": shared}
        return {
            "test": evaluate(model, self.test, **options),
            "full": evaluate(model, self.splits, protocol="full", **options),
            "everything": evaluate(model, self.splits, protocol="full", distractors=self.others, **options),
        }

    def reranked(self, model: TorchModel, matcher: Model) -> dict[str, Any]:
        """Rerank the best 20 and 50 among the images of all splits with the matcher of another model (Table 2)."""
        options: dict[str, Any] = {"data": "flickr8k", "protocol": "full", "matcher": matcher, "fusion": "ce"}
        return {
            str(k): evaluate(model, self.splits, rerank=k, batch_size=_BATCH, **options).to_json() for k in (20, 50)
        }


def kept(bench: Bench, galleries: Galleries, name: str, seed: int) -> Measured:
    """Return the measurements of a trained run, made only once; the arrays are its ranks on the test set alone."""

    def measure() -> Measured:
        model, about = bench.opened(name, seed), provenance(seed, DATA[name])
        if name == "languages":
            result = evaluate_languages(model, galleries.test, LANGUAGES, data="flickr8k", batch_size=_BATCH).to_json()
            return Measured({**about, "result": result}, {})
        by_gallery = galleries.measured(model)
        to_image, _, to_text, _ = by_gallery["test"].ranks()
        results = {gallery: one.to_json() for gallery, one in by_gallery.items()}
        return Measured({**about, **results}, {"to_image": to_image, "to_text": to_text})

    return measure_once(bench.folder(name, seed) / KEPT, measure)


def reranked(bench: Bench, galleries: Galleries, name: str, seed: int, matcher: str) -> dict[str, Any]:
    """Return a run's results with the gallery of all splits reranked, which are computed only once for each matcher.

    Without a matcher, those of an earlier call, if any.
    """
    file = bench.folder(name, seed) / RERANKED
    if not matcher and not file.exists():
        return {}

    def measure() -> Measured:
        found = galleries.reranked(bench.opened(name, seed), load(matcher, prefer_gpu=True))
        return Measured({"reranked_by": matcher, "reranked": found}, {})

    found = measure_once(file, measure).about
    if matcher and found["reranked_by"] != matcher:
        file.unlink()
        found = measure_once(file, measure).about
    return found


def by_itself(galleries: Galleries, found: Measured) -> Evaluation:
    """Return the evaluation on the test set alone, from a run's saved ranks."""
    ranks = found.arrays["to_image"], found.arrays["to_text"]
    return ranked(Questions.of(galleries.test, "en"), ranks, "", "flickr8k")


def result_of(bench: Bench, galleries: Galleries, name: str, seed: int, matcher: str) -> dict[str, Any]:
    """Train whatever a run needs, measure the run, and build its result file."""
    costs = bench.trained(name, seed)
    found = kept(bench, galleries, name, seed)
    result = {"experiment": "paper4", "run": name, "start": bench.start, **found.about, "training": costs}
    if name == "languages":
        return result
    others = [other for other in RUNS if other != name and (bench.folder(other, seed) / KEPT).exists()]
    own = by_itself(galleries, found)
    result["gain_over"] = {
        name_of(other, result): gain(by_itself(galleries, kept(bench, galleries, other, seed)), own) for other in others
    }
    return result | reranked(bench, galleries, name, seed, matcher.format(seed=seed))


def main() -> None:
    parser = options(__doc__, "paper4", "none,cmr", (*RUNS, "languages"), PARTS)
    parser.add_argument("--start", default="minilm", choices=STARTS, help="what both transformers begin with")
    parser.add_argument("--matcher", default="", help="a model that reranks, such as default; {seed} is replaced")
    arguments = parsed(parser)
    bench = Bench(arguments.start, arguments.changes, arguments.brief, arguments.work)
    write_results(arguments, PARTS, arguments.start, partial(result_of, bench, Galleries(), matcher=arguments.matcher))


if __name__ == "__main__":
    main()
