"""Paper 3 (inflate and shrink) at our scale: train its models and measure them, one JSON file per run.

    python -m replication.paper3 --part temperatures --variant kl --split val     choose temperatures on val
    python -m replication.paper3 --part table1 --seeds 0,1,2                      I16, I32, I64
    python -m replication.paper3 --part table2 --seeds 0,1,2 --variant paper      then kl, contrastive and printed
    python -m replication.paper3 --part table6 --seeds 0,1,2 --variant kl         fewer fragments; Figure 3
    python -m replication.paper3 --part table8 --seeds 0,1,2 --variant kl         a cross-encoder as teacher (C-F)

A run trains its teacher first; all are trained for 60 epochs, or until the score on val stops rising (the models that
see one caption of each image in a batch for 12 longer ones). Variants: `paper` has triplets and equation 6 as printed;
`kl` has triplets and the usual distillation; `contrastive` has a contrastive loss and the usual distillation;
`printed` has a contrastive loss and equation 6 as printed. With one fragment, the model is F, as in the paper. C is
paper 1's CE: --cross names its checkpoint. Needs SIGHTLINE_DATA, SIGHTLINE_PRETRAINED and preferably a GPU. The same
command continues an interrupted run.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.provenance import provenance
from replication.ranks import gain, ranked
from replication.training_runs import Measured, measure_once, options, parsed, train_once, write_results
from sightline.datasets import read_all
from sightline.evaluation import Evaluation, evaluate
from sightline.evaluation.test_set import Questions
from sightline.models.torch_model import TorchModel


@dataclass(frozen=True, slots=True)
class Run:
    """A model of the paper: its recipe, the changes to the recipe, and the run that is its teacher.

    codes, fragments: per side, the number of codes, and of fragments used for scoring (1 means the embedding).
    temperatures: those of the teacher and the student, instead of the variant's. epochs: the most it is trained for.
    """

    recipe: str
    codes: int = 0
    fragments: int = 32
    changes: tuple[str, ...] = ()
    teacher: str = ""
    temperatures: tuple[float, float] | None = None
    epochs: int = 60

    @property
    def by_embedding(self) -> bool:
        """Whether the model scores by one vector per item."""
        return self.fragments == 1


def _first(count: int, teacher: str = "") -> Run:
    """Return the base model with only the first `count` words and clusters."""
    recipe = "shrink-inflated-base" if teacher else "inflate-base"
    return Run(recipe, fragments=count, changes=(f"model.fragments={count}",), teacher=teacher)


_ONE_CAPTION = Run("shrink-base-fast", fragments=1, changes=('data.draw="unique"',), epochs=12)
_SHRUNKEN = {
    "B-F": Run("shrink-base-fast", fragments=1, teacher="B"),
    "B-F-unique": replace(_ONE_CAPTION, teacher="B"),
    "I-F": Run("shrink-inflated-fast", fragments=1, teacher="I32"),
    "I-B-F": Run("shrink-twice", fragments=1, teacher="I-B"),
    "C-F": replace(_ONE_CAPTION, teacher="C"),
}
RUNS: dict[str, Run] = {
    "F": Run("inflate-fast", fragments=1),
    "B": Run("inflate-base"),
    **{f"I{codes}": Run("inflate-codes", codes, 32 + codes, (f"model.codes={codes}",)) for codes in (16, 32, 64)},
    **_SHRUNKEN,
    "I-B": Run("shrink-inflated-base", teacher="I32"),
    **{f"L{count}": _first(count) for count in (2, 4, 8, 16)},
    **{f"B-L{count}": _first(count, "B") for count in (2, 4, 8, 16)},
    **{
        f"{name}@{teacher:g}x{student:g}": replace(run, temperatures=(teacher, student), epochs=run.epochs // 3)
        for name, run in _SHRUNKEN.items()
        for teacher in (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
        for student in (0.02, 0.04, 0.08, 0.16, 0.32)
    },
}
"""Runs by the paper's names; L8 is the base model with the first 8 fragments, B-L8 the same, shrunk from the base.

C matches every text of a batch with every image, so for C-F each image of a batch has only one of its captions. An
epoch then has five times as many steps, so it takes 12 epochs for the steps of the others. B-F-unique is B-F with the
same batches, to compare C-F with.
"""
PARTS = {
    "temperatures": tuple(name for name in RUNS if "@" in name),
    "table1": ("F", "B", "I16", "I32", "I64"),
    "table2": ("F", "B", "I32", "B-F", "I-F", "I-B", "I-B-F"),
    "table6": ("F", "L2", "L4", "L8", "L16", "B", "B-F", "B-L2", "B-L4", "B-L8", "B-L16"),
    "table8": ("F", "B", "B-F-unique", "C-F"),
}
VARIANTS = {"paper": ("triplet", "printed"), "kl": ("triplet", "all"), "contrastive": ("contrastive", "all"),
            "printed": ("contrastive", "printed")}  # fmt: skip
"""For each variant, the loss of models without a teacher, and equation 6 as printed or over all pairs."""
CHOSEN = {"B": (2.0, 0.16), "I32": (2.0, 0.02), "I-B": (0.5, 0.08), "C": (1.0, 0.04)}
"""Temperatures of the variant `kl` for models with one vector, by teacher: chosen on val. C's scores are logits."""
BRIEF = ("schedule.epochs=0", "schedule.steps=2", "data.batch_size=4", "data.limit=16", "data.val=[]",
         "validation.late=0")  # fmt: skip
_PLATEAU = ("validation.every=230", "validation.patience=4")  # 230 steps are five epochs


def loss_of(run: Run, variant: str) -> str:
    """Return the changes to the loss in a run's recipe; empty to keep the recipe's own loss."""
    loss, distillation = VARIANTS[variant]
    on = "embedding" if run.by_embedding else "fragments"
    if run.teacher:
        teacher, student = run.temperatures or temperatures(run, variant)
        both = f"teacher_temperature = {teacher:.4g}, student_temperature = {student:.4g}"
        over = "positives" if distillation == "printed" else "all"
        return f"losses.shrink={{ loss = 'distill', on = '{on}', over = '{over}', {both} }}"
    if loss == "triplet":
        return ""
    name, temperature = "embed" if run.by_embedding else "late", of_a_sum(run.fragments)
    return f"losses.{name}={{ loss = 'contrastive', on = '{on}', temperature = {temperature:.4g} }}"


def temperatures(run: Run, variant: str) -> tuple[float, float]:
    """Return the temperature for the teacher's scores, and that for the student's."""
    loss, distillation = VARIANTS[variant]
    printed = (2.0 if run.fragments == 1 else 12.0), 12.0
    if distillation == "printed":
        return printed
    student = 0.08 if run.fragments == 1 else of_a_sum(run.fragments)
    if run.teacher == "C" or (loss == "triplet" and run.fragments == 1):
        return CHOSEN[run.teacher]
    return (1 / printed[0], 1 / printed[1]) if loss == "triplet" else (of_a_sum(32), student)


def of_a_sum(fragments: int) -> float:
    """Return the temperature for a sum of cosines: 0.05 for each, up to ten, because captions have about ten words."""
    return 0.05 * min(fragments, 10)


class Bench:
    """A test set, and the folders for models and results."""

    def __init__(self, variant: str, split: str, changes: Sequence[str], work: Path, cross: str) -> None:
        self.variant, self.changes, self.work, self.data = variant, tuple(changes), work, f"flickr8k-{split}"
        self.cross = cross
        self.records = read_all([f"{os.environ['SIGHTLINE_DATA']}/{self.data}.tar"])
        self.questions = Questions.of(self.records, "en")

    def folder(self, name: str, seed: int) -> Path:
        """Return the folder of a run's checkpoint and cost."""
        return self.work / f"{self.label(name)}-{seed}"

    def file(self, name: str, seed: int) -> Path:
        """Return the file with a run's ranks."""
        return self.folder(name, seed) / f"{self.data}.npz"

    def label(self, name: str) -> str:
        """Return a run's name and variant: the first of the variants that train it and its teachers in the same way."""
        chain = [name]
        while chain[-1] in RUNS and RUNS[chain[-1]].teacher in RUNS:
            chain.append(RUNS[chain[-1]].teacher)
        losses = {variant: [loss_of(RUNS[one], variant) for one in chain] for variant in VARIANTS}
        return f"{name}-{next(variant for variant, same in losses.items() if same == losses[self.variant])}"

    def system(self, name: str) -> str:
        """Return the name of a run in claims and tables, followed by its variant unless that is `paper`."""
        run, _, variant = self.label(name).rpartition("-")
        return run if variant == "paper" else f"{run} {variant}"

    def trained(self, name: str, seed: int) -> dict[str, Any]:
        """Train a run, after its teacher, unless they have already been trained; returns the cost."""
        run, out = RUNS[name], self.folder(name, seed)
        if run.teacher in RUNS:
            self.trained(run.teacher, seed)
        return train_once(run.recipe, self.changes_of(run, seed), out)

    def changes_of(self, run: Run, seed: int) -> list[str]:
        """Return the changes to the recipe of a run."""
        losses = filter(None, [loss_of(run, self.variant)])
        teacher = [f'teacher.model="{self.folder(run.teacher, seed) / "best"}"'] if run.teacher in RUNS else []
        if run.teacher == "C":
            teacher = [f'teacher.model="{self.cross.format(seed=seed)}"', 'teacher.by="match"']
        return [
            *losses,
            *run.changes,
            *teacher,
            f"seed={seed}",
            f"schedule.epochs={run.epochs}",
            *_PLATEAU,
            *self.changes,
        ]

    def measured(self, name: str, seed: int) -> Evaluation:
        """Return the evaluation of a trained run on the test set, by the kind of score it was trained for."""
        found = self.kept(name, seed).arrays
        stage = "embed" if RUNS[name].by_embedding else "late@all"
        ranks = found["to_image"], found["to_text"]
        return ranked(self.questions, ranks, f"{self.label(name)}-{seed}", self.data, stages=(stage,))

    def kept(self, name: str, seed: int) -> Measured:
        """Return a trained run's ranks on the test set, by one vector per item or late interaction; computed once."""

        def rank() -> Measured:
            model, late = TorchModel.open(self.folder(name, seed) / "best"), len(self.questions.captions)
            found = evaluate(model, self.records, late=0 if RUNS[name].by_embedding else late)
            to_image, _, to_text, _ = found.ranks()
            return Measured(provenance(seed, [self.data]), {"to_image": to_image, "to_text": to_text})

        return measure_once(self.file(name, seed), rank)


def result_of(bench: Bench, name: str, seed: int) -> dict[str, Any]:
    """Train whatever a run needs, measure the run, and build its result file."""
    cost, run = bench.trained(name, seed), RUNS[name]
    found = bench.measured(name, seed)
    others = [other for other in RUNS if other != name and bench.file(other, seed).exists()]
    return {
        "experiment": "paper3",
        "run": name,
        "variant": bench.label(name).rpartition("-")[2],
        "codes": run.codes,
        "fragments": run.fragments,
        "teacher": run.teacher or None,
        **bench.kept(name, seed).about,
        "training": cost,
        "result": found.to_json(),
        "gain_over": {bench.system(other): gain(bench.measured(other, seed), found) for other in others},
    }


def main() -> None:
    parser = options(__doc__, "paper3", "F,B", list(RUNS), PARTS)
    parser.add_argument("--cross", default="runs/paper1/ce-towers-full-{seed}/best", help="the checkpoint of C")
    parser.add_argument("--variant", default="paper", choices=VARIANTS)
    parser.add_argument("--split", default="test", choices=("test", "val"), help="what to measure on")
    arguments = parsed(parser)
    changes = [*(BRIEF if arguments.brief else ()), *arguments.changes]
    bench = Bench(arguments.variant, arguments.split, changes, arguments.work, arguments.cross)
    write_results(arguments, PARTS, arguments.split, partial(result_of, bench))


if __name__ == "__main__":
    main()
