"""The tables of paper 4 at our scale: pre-train, fine-tune, measure; one JSON file a run.

    python benchmarks/paper4.py --runs none,cmr,mlm-mrm,vmlm-smrm --seeds 0,1,2     Tables 2 and 5
    python benchmarks/paper4.py --runs languages                                    mR by language

Every run of Table 5 is fine-tuned alike on Flickr8k. It is measured on the test images: by themselves; among the images
and captions of all splits (Table 2); and among all images at hand, those of COCO too. --start minilm begins both
transformers with MiniLM's six layers, instead of twelve at random. Translate-test (Table 6) is left to a translator:
--translate COMMAND, as in `sightline eval`, measures the runs in the other languages through it.

Needs SIGHTLINE_DATA (shards) and SIGHTLINE_PRETRAINED (a CLIP image tower and MiniLM), and a GPU to be quick: an H200
takes about 120 s to pre-train, 80 s to fine-tune and 40 s to measure a run, and 500 s for the languages (an estimate).
--brief takes two steps of a few images, which is enough to see on a CPU, with shards of a few images, that it all runs.
"""

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from once import train_once
from paper3 import gain
from provenance import provenance
from sightline.datasets import read_all
from sightline.evaluation import Evaluation, command_translator, evaluate, evaluate_languages
from sightline.evaluation.encoding import Needs, SharedImages
from sightline.evaluation.metrics import recall
from sightline.models.engine import TorchModel

LANGUAGES = ("en", "de", "zh", "pt", "ar", "fr", "cs")
_WORDS, _REGIONS = ("vmlm",), ("smrfr", "smrc")


def _without(*tasks: str) -> list[str]:
    return [f"objectives.{task}.weight=0" for task in tasks]


def _plain(*tasks: str) -> list[str]:
    return [f"objectives.{task}.fused=false" for task in tasks]


RUNS: dict[str, list[str] | None] = {
    "none": None,
    "cmr": _without(*_WORDS, *_REGIONS),
    "vmlm": _without(*_REGIONS),
    "smrm": _without(*_WORDS),
    "mlm-mrm": _plain(*_WORDS, *_REGIONS),
    "vmlm-smrm": [],
}
"""What is changed in the pre-training of each run, all of which have CMR; nothing is pre-trained for `none`."""

DATA = {**{name: ["flickr8k", "coco"] for name in RUNS}, "languages": ["flickr8k"]}

_MINILM = "={ source = '${SIGHTLINE_PRETRAINED}/all-MiniLM-L6-v2' }"
STARTS: dict[str, list[str]] = {"scratch": [], "minilm": [f"model.text{_MINILM}", f"model.image_reader{_MINILM}"]}
BRIEF = {"dot-pretrain": ["schedule.steps=2", "data.batch_tokens=400", "objectives.smrc.classes=8"]}
_BATCH = 256
_TWO_STEPS = ["schedule.epochs=0", "schedule.steps=2", "data.batch_size=4"]


class Bench:
    """Where models are kept, and how runs are trained."""

    def __init__(self, start: str, changes: Sequence[str], brief: bool, work: Path) -> None:
        self.start, self.changes, self.brief, self.work = start, list(changes), brief, work

    def folder(self, name: str, seed: int) -> Path:
        """Where a run's checkpoint and cost are kept."""
        return self.work / f"{name}-{self.start}-{seed}"

    def trained(self, name: str, seed: int) -> list[dict[str, Any]]:
        """Train a run, pre-training first, unless that was done; gives what each took."""
        if name == "languages":
            return [self._train("languages", [], self.folder(name, seed), seed)]
        changes = RUNS[name]
        if changes is None:
            return [self._train("dot-scratch", STARTS[self.start], self.folder(name, seed), seed)]
        first = self.folder(f"{name}-pretrain", seed)
        before = self._train("dot-pretrain", [*changes, *STARTS[self.start]], first, seed)
        start = [f'model.start="{first / "best"}"']
        return [before, self._train("dot", start, self.folder(name, seed), seed)]

    def _train(self, recipe: str, changes: Sequence[str], out: Path, seed: int) -> dict[str, Any]:
        brief = BRIEF.get(recipe, _TWO_STEPS) if self.brief else []
        own = [change for change in self.changes if recipe != "dot" or not change.startswith("model.")]
        return train_once(recipe, [*changes, f"seed={seed}", "data.val=[]", *brief, *own], out)

    def opened(self, name: str, seed: int) -> TorchModel:
        """Open a trained run."""
        model = TorchModel.open(self.folder(name, seed) / "best")
        model.name = f"{name}-{self.start}-{seed}"
        return model


class Galleries:
    """The test set by itself, among all splits, and among all images at hand; and in other languages."""

    def __init__(self) -> None:
        data = os.environ["SIGHTLINE_DATA"]
        self.splits = read_all([f"{data}/flickr8k-{split}.tar" for split in ("train-*", "val", "test")])
        self.test = [record for record in self.splits if record.split == "test"]
        self.others = read_all([f"{data}/coco-{part}.tar" for part in ("train-*", "val", "distractors")])

    def measured(self, model: TorchModel) -> dict[str, Evaluation]:
        """Measure by dot product in each gallery; every picture is encoded once."""
        shared = SharedImages.of(model, [record.image for record in (*self.splits, *self.others)], Needs(), _BATCH)
        options: dict[str, Any] = {"data": "flickr8k", "batch_size": _BATCH, "shared": shared}
        return {
            "test": evaluate(model, self.test, **options),
            "full": evaluate(model, self.splits, protocol="full", **options),
            "everything": evaluate(model, self.splits, protocol="full", distractors=self.others, **options),
        }

    def in_languages(self, model: TorchModel, languages: Sequence[str], translate: str = "") -> dict[str, Any]:
        """Measure on the test set in several languages, as they are or through a translator."""
        options: dict[str, Any] = {"translate": command_translator(translate)} if translate else {}
        return evaluate_languages(model, self.test, languages, data="flickr8k", batch_size=_BATCH, **options).to_json()


def with_more_recalls(found: Evaluation) -> dict[str, Any]:
    """A result with R@20 and R@50, which papers give for large galleries."""
    result = found.to_json()
    to_image, _, to_text, _ = found.ranks()
    for way, ranks in (("text_to_image", to_image), ("image_to_text", to_text)):
        result[way] |= {f"R@{k}": round(recall(ranks, k), 3) for k in (20, 50)}
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", default="none,cmr,mlm-mrm,vmlm-smrm", help=f"among {', '.join(RUNS)}, languages")
    parser.add_argument("--start", default="scratch", choices=STARTS, help="what both transformers begin with")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--translate", default="", help="a command that translates from {lang}, for translate-test")
    parser.add_argument("--set", action="append", default=[], dest="changes", help="a change to every recipe")
    parser.add_argument("--brief", action="store_true", help="two steps of a few images, to see that it runs")
    parser.add_argument("--work", type=Path, default=Path("runs/paper4"), help="where checkpoints are kept")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/paper4"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    bench = Bench(arguments.start, arguments.changes, arguments.brief, arguments.work)
    galleries = Galleries()
    for seed in map(int, arguments.seeds.split(",")):
        tests: dict[str, Evaluation] = {}
        for name in arguments.runs.split(","):
            costs, model = bench.trained(name, seed), bench.opened(name, seed)
            found: dict[str, Any] = {}
            if name == "languages":
                found["result"] = galleries.in_languages(model, LANGUAGES)
            else:
                by_gallery = galleries.measured(model)
                tests[name] = by_gallery["test"]
                found = {gallery: with_more_recalls(one) for gallery, one in by_gallery.items()}
                found["gain_over"] = {other: gain(one, tests[name]) for other, one in tests.items() if other != name}
                if arguments.translate:
                    found["translated"] = galleries.in_languages(model, LANGUAGES[1:], arguments.translate)
            about = {"experiment": "paper4", "run": name, "start": arguments.start, **provenance(seed, DATA[name])}
            path = arguments.out / f"{name}-{arguments.start}-seed{seed}.json"
            written = json.dumps({**about, "training": costs, **found}, indent=1, ensure_ascii=False)
            path.write_text(written + "\n", encoding="utf-8")
            told = {part: one["mR"] for part, one in found.items() if "mR" in one}
            print(path.name, told, found.get("gain_over"), [cost["seconds"] for cost in costs], "s", flush=True)
    if torch.cuda.is_available():
        print("peak GPU memory", torch.cuda.max_memory_allocated() >> 20, "MiB")


if __name__ == "__main__":
    main()
