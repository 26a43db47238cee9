"""Paper 1 (retrieve fast, rerank smart) at our scale: train its models and measure them, one JSON file per run.

    python -m replication.paper1 --part rates --seeds 0        learning rates, chosen on val
    python -m replication.paper1 --part check --seeds 0,1,2    BE and CE: is CE above BE in R@1? If not, stop and look
    python -m replication.paper1 --part tables --seeds 0,1,2   Tables 1, 5, 8 and 9
    python -m replication.paper1 --part table6                 trained on COCO; also figure3, figure4
    python -m replication.paper1 --part languages              Tables 2 and 7

The pre-training runs first, once. --features chooses the models and the image features that all of them read: `towers`
(the default), two towers over DINOv2 (recipes/towers-*.toml); `towers-joint`, the same, but pre-trained as much for the
embeddings as for the matcher; or one transformer, as in the paper (recipes/pretrain.toml, be.toml, …), over a `lower`
layer of CLIP, its last (`clip`), DINOv2 (`dino`), or the `regions` of a detector (flickr8k.regions in SIGHTLINE_DATA;
without pre-training, and CE starts from BE; only `check` and `tables`). Results for features other than the default
have folders of their own, such as benchmarks/results/paper1-clip. Needs SIGHTLINE_DATA, SIGHTLINE_PRETRAINED (see
replication/README.md) and preferably a GPU. The same command continues an interrupted run.
"""

import os
from argparse import Namespace
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.provenance import provenance, write_result
from replication.cascades import Cascades
from replication.training_runs import locked, options, parsed, run_all, train_once
from sightline.datasets import read_all
from sightline.datasets.regions import RegionStore
from sightline.datasets.regions.store import StoreSpec
from sightline.evaluation import Evaluation
from sightline.models import checkpoint, towers
from sightline.models.torch_model import TorchModel

RUNS = ("be", "ce", "joint")
LANGUAGES = ("en", "de", "zh", "pt", "ar", "fr", "cs")
_SOURCE = "model.image={{ source = '${{SIGHTLINE_PRETRAINED}}/{}'{} }}"
FEATURES: dict[str, list[str]] = {
    "towers": [],
    "towers-joint": ["losses.embed.weight=1"],
    "lower": [],
    "clip": [_SOURCE.format("clip-vit-base-patch16-vision", "")],
    "dino": [_SOURCE.format("dinov2-small", ""),
             "model.preprocess.mean=[0.485, 0.456, 0.406]", "model.preprocess.std=[0.229, 0.224, 0.225]"],
}  # fmt: skip
"""The changes to the recipe of the pre-training."""
REGIONS, DEFAULT = "regions", "towers"
_VAL = 'data.val=[{ name="coco", data=["${SIGHTLINE_DATA}/coco-val.tar"], limit=250 }]'
_COCO = ['data.train=["${SIGHTLINE_DATA}/coco-train-*.tar"]', _VAL]
_ALL = f"data.lang={list(LANGUAGES)}".replace("'", '"')
VARIANTS: dict[str, list[str]] = {
    "full": [], "half": [], "coco": _COCO, "1k": ["data.limit=1000"], "3k": ["data.limit=3000"],
    "english": [], "languages": [_ALL],
    **{f"rate-{rate:g}": [f"optimizer.lr={rate}"] for rate in (2e-5, 5e-5, 1e-4)},
}  # fmt: skip
PARTS = {
    "rates": tuple(name for name in VARIANTS if name.startswith("rate-")),
    "check": ("full",),
    "tables": ("full",),
    "table6": ("coco",),
    "figure3": ("1k", "3k"),
    "figure4": ("half",),
    "languages": ("english", "languages"),
}
_BRIEF = ["schedule.steps=2", "data.batch_size=4", "data.val=[]", "validation.every=0"]


class Bench:
    """The model folder, the image features that the models read, and the test set."""

    def __init__(self, arguments: Namespace) -> None:
        self.features, self.changes = arguments.features, list(arguments.changes)
        self.work: Path = arguments.work
        self.brief = _BRIEF if arguments.brief else []
        data = Path(os.environ["SIGHTLINE_DATA"])
        self.split = "val" if arguments.part == "rates" else "test"
        self.regions: StoreSpec | None = None
        if self.features == REGIONS:
            store = RegionStore.open(data / "flickr8k.regions")
            self.regions, self.distractors = store.spec, []
            self.records = [record for record in read_all([store.folder]) if record.split == self.split]
            if not self.records:
                raise SystemExit(f"{store.folder}: no image belongs to the split {self.split}")
        else:
            self.records = read_all([f"{data}/flickr8k-{self.split}.tar"])
            self.distractors = read_all([f"{data}/coco-distractors.tar", f"{data}/coco-val.tar"])

    def pretrained(self) -> Path:
        """Return the folder of the pre-trained model, which is trained if it does not exist."""
        out = self.work / f"pretrain-{self.features}"
        train_once(self._recipe("pretrain"), [*FEATURES[self.features], *self.brief, *self.changes], out)
        return out / "best"

    def _recipe(self, run: str) -> str:
        """Return the name of the recipe of a run, or of the pre-training."""
        family = self.features.partition("-")[0]
        return f"{family}-{run}" if family in ("towers", REGIONS) else run

    def trained(self, run: str, variant: str, seed: int) -> tuple[TorchModel, dict[str, Any]]:
        """Train a variant of a recipe, or open the result of an earlier call; also returns its cost."""
        starts = self.regions is None or run == "ce"  # from a model that had the changes to models
        own = [change for change in self.changes if not (starts and change.startswith("model."))]
        out, recipe = self.folder(run, variant, seed), self._recipe(run)
        changes = [*VARIANTS[variant], f"seed={seed}", self._start(run, variant, seed), *self.brief, *own]
        cost = train_once(recipe, changes, out)
        return TorchModel.open(out / "best", name=out.name), cost

    def folder(self, run: str, variant: str, seed: int) -> Path:
        """Return the folder of a run; `english` is the same training as `full`, measured in all languages."""
        return self.work / f"{run}-{self.features}-{'full' if variant == 'english' else variant}-{seed}"

    def _start(self, run: str, variant: str, seed: int) -> str:
        """Return the change that sets a model's initial weights; with regions, CE starts from BE."""
        if self.regions is not None and run != "ce":
            return f"model.regions.feature_dim={self.regions.feature_dim}"
        if self.regions is not None:
            self.trained("be", variant, seed)
            start = self.folder("be", variant, seed) / "best"
        else:
            start = halved(self.pretrained()) if variant == "half" else self.pretrained()
        return f'model.start="{start}"'

    def cascades(self, embedder: TorchModel, matcher: TorchModel | None, lang: str, enlarged: bool) -> Cascades:
        """Return the test set in a language, encoded by these models; with distractors if `enlarged`."""
        others = self.distractors if enlarged else []
        return Cascades(embedder, matcher, self.records, others, f"flickr8k-{self.split}", lang)


def halved(folder: Path) -> Path:
    """Return a copy of a checkpoint without every second layer of its transformers (paper 1, figure 4)."""
    out = folder.with_name(folder.name + "-half")
    with locked(out):
        if not out.exists():
            retriever, tokenizer = checkpoint.load(folder)
            for name, encoder in retriever.parts().items():
                if name != "image":  # the detector's part
                    towers.shorten(encoder, 2)
            checkpoint.save(retriever, tokenizer, out)
    return out


def measured(bench: Bench, models: dict[str, TorchModel], lang: str, whole: bool) -> Iterator[tuple[str, Evaluation]]:
    """Evaluate every system built from the trained models; whole: all of Tables 5, 8 and 9, not only k = 20."""

    def reranked(cascades: Cascades) -> Iterator[Evaluation]:
        yield cascades.rerank(20)
        if whole:
            yield from (cascades.rerank(k) for k in (10, 50))
            for rule in ("add", "norm_add"):
                yield from (cascades.rerank(20, rule, weight) for weight in (0.1, 0.5, 0.9))
        if whole and bench.distractors:
            yield cascades.rerank(20, enlarged=True)

    def embedded(cascades: Cascades) -> Iterator[Evaluation]:
        yield cascades.embed()
        if whole and bench.distractors:
            yield cascades.embed(enlarged=True)

    if "be" in models:
        yield from (("BE", one) for one in embedded(bench.cascades(models["be"], None, lang, whole)))
    if "ce" in models:
        yield "CE", bench.cascades(models["ce"], models["ce"], lang, enlarged=False).match_everything()
    if "be" in models and "ce" in models:
        yield from (("SEP+COOP", one) for one in reranked(bench.cascades(models["be"], models["ce"], lang, whole)))
    if "joint" in models:
        joint = bench.cascades(models["joint"], models["joint"], lang, whole)
        yield from (("JOINT+BE", one) for one in embedded(joint))
        yield from (("JOINT+COOP", one) for one in reranked(joint))
        if lang == "en":  # Tables 2 and 7 leave it out
            yield "JOINT+CE", joint.match_everything()


def result_of(bench: Bench, runs: Sequence[str], variant: str, seed: int) -> dict[str, Any]:
    """Train the models that a variant needs, measure them, and build the result file."""
    trained = {run: bench.trained(run, variant, seed) for run in runs}
    models = {run: model for run, (model, _) in trained.items()}
    spoken = LANGUAGES if variant in ("english", "languages") else ("en",)
    rows = [
        {"row": name, **found.to_json()}
        for lang in spoken
        for name, found in measured(bench, models, lang, whole=variant == "full")
    ]
    return {
        "experiment": "paper1",
        "variant": variant,
        "features": bench.features,
        **provenance(
            seed, [f"flickr8k-{bench.split}", *(["coco-distractors", "coco-val"] if bench.distractors else [])]
        ),
        "training": {run: cost for run, (_, cost) in trained.items()},
        "rows": rows,
    }


def main() -> None:
    parser = options(__doc__, "paper1", ",".join(RUNS), RUNS, PARTS)
    parser.add_argument(
        "--features", default=DEFAULT, choices=(*FEATURES, REGIONS), help="the models, and what they see of an image"
    )
    arguments = parsed(parser)
    if arguments.features == REGIONS and arguments.part not in (None, "check", "tables"):
        parser.error(f"--part {arguments.part} cannot be run with regions")
    if arguments.features != DEFAULT and arguments.out.name == "paper1":
        arguments.out = arguments.out.with_name(f"paper1-{arguments.features}")
    bench = Bench(arguments)
    runs = ("be", "ce") if arguments.part == "check" else arguments.runs.split(",")
    wanted = list(product(PARTS[arguments.part or "tables"], map(int, arguments.seeds.split(","))))
    if arguments.processes > 1:  # a measurement needs several trainings; the longest begin first
        trainings = [(run, *one) for run, one in product(reversed(runs), wanted)]
        run_all(arguments.processes, {one: partial(bench.trained, *one) for one in trainings})
    out = arguments.out / ("val" if bench.split == "val" else "")
    run_all(arguments.processes, {one: partial(write, out, bench, runs, *one) for one in wanted})


def write(out: Path, bench: Bench, runs: Sequence[str], variant: str, seed: int) -> None:
    """Write the result file of a variant and a seed, and print its rows."""
    result, name = result_of(bench, runs, variant, seed), f"{variant}-{'-'.join(runs)}-seed{seed}"
    write_result(out / f"{name}.json", result)
    for row in result["rows"]:
        found = f"rSum {row['rSum']:.1f} R@1 {row['text_to_image']['R@1']:.1f}"
        print(name, row["lang"], row["row"], *row["stages"], found, flush=True)


if __name__ == "__main__":
    main()
