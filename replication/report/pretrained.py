"""The tables of paper 4 beside ours: the tasks of pre-training, larger galleries, and languages."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from benchmarks.pages.markdown import (
    MISSING,
    Finding,
    findings_of_paper,
    number,
    paragraph,
    sources,
    table,
    with_deviation,
)
from replication.report.estimates import Estimate
from replication.report.paper4 import CMR_ALONE, GALLERIES
from replication.report.replica import Section
from replication.report.results import RECALLS, WAYS, ResultFile
from replication.report.runs import Runs

TASKS, LARGER, LANGUAGES = "Table 5: the tasks of pre-training", "Table 2: larger galleries", "Languages"
RUNS = {
    "none": "none",
    "cmr": "CMR",
    "vmlm": "CMR, VMLM",
    "smrm": "CMR, SMRM",
    "mlm-mrm": "CMR, MLM, MRM",
    "vmlm-smrm": "CMR, VMLM, SMRM",
}
"""The tasks of every run, as the paper calls them."""
_STARTS = {
    "scratch": "Both transformers have twelve layers and begin at random.",
    "minilm": "Both transformers begin with the six layers of MiniLM.",
}
_SIZES = {"test": "test", "full": "all splits", "everything": "and COCO"}
_CUTOFFS = (5, 10, 20)
_MR = ("mR",)


def sections(files: Sequence[ResultFile], root: Path) -> list[Section]:
    """All parts; each says which command makes it where its runs are not there yet."""
    return [_tasks(files, root), _larger(files, root), _languages(files, root)]


def claims(runs: Runs) -> list[Finding]:
    """What the paper says of Table 5, and of its Table 4: fused tasks against plain ones."""

    def gain(better: str, worse: str) -> Estimate:
        return runs.gain(better, worse).times(1 / 6)

    made = [
        Finding("pre-training with CMR alone helps: over none (mR)", gain("cmr", "none"), reported=CMR_ALONE),
        Finding("masked words help: CMR and VMLM over CMR (mR)", gain("vmlm", "cmr")),
        Finding("masked regions help: CMR and SMRM over CMR (mR)", gain("smrm", "cmr")),
        Finding("all three tasks are best: over CMR (mR)", gain("vmlm-smrm", "cmr")),
        Finding("and over none (mR)", gain("vmlm-smrm", "none")),
        Finding("to guess with the other side is better than without: over MLM and MRM (mR)",
                gain("vmlm-smrm", "mlm-mrm")),
    ]  # fmt: skip
    return [one for one in made if one.gain.by_seed]


def _begun(files: Sequence[ResultFile], result: str) -> dict[str, Runs]:
    """The runs of Table 5 by what they began with, asked for one of their galleries."""
    found = {start: [f for f in files if f.content["run"] in RUNS and f.content["start"] == start] for start in _STARTS}
    return {start: Runs(some, result) for start, some in found.items() if some}


def _left_out(title: str, command: str) -> Section:
    return Section(title, f"Left out: `python -m replication.paper4 {command}` makes what it needs.")


def _tasks(files: Sequence[ResultFile], root: Path) -> Section:
    parts, findings, used = [], [], []
    for start, runs in _begun(files, "test").items():
        own = claims(runs)
        if not own:
            continue
        rows = [
            [tasks, *(with_deviation(runs.estimate(name, metric)) for metric in (*RECALLS, _MR))]
            for name, tasks in RUNS.items()
        ]
        heads = ["tasks", *(f"{way} R@{k}" for way in ("t2i", "i2t") for k in (1, 5, 10)), "mR"]
        missing = [RUNS[name] for name in runs.missing(list(RUNS))]
        lacking = [paragraph(f"Not measured: {'; '.join(missing)}.")] if missing else []
        parts += [paragraph(_STARTS[start]), table(heads, rows), *lacking, findings_of_paper(own, "paper 4")]
        findings += own
        used += runs.files
    if not findings:
        return _left_out(TASKS, f"--runs {','.join(RUNS)} --seeds 0,1,2")
    words = (
        "Pre-trained on COCO with some of the tasks, then fine-tuned on Flickr8k with CMR, all alike; measured by dot "
        "product on the 1,000 test pictures. The paper pre-trains for 30,000 steps on all of COCO and fine-tunes on "
        f"Flickr30k. {_steps(used)}"
    )
    return Section(TASKS, "\n\n".join([paragraph(words), *parts, sources(used, root)]), tuple(findings))


def _steps(files: Sequence[ResultFile]) -> str:
    """How many steps were trained: fewer than the recipes', where time was short."""
    both = [file.content["training"] for file in files if len(file.content["training"]) == 2]
    before, after = (_or({costs[part]["steps"] for costs in both}) for part in (0, 1))
    return f"Ours took {before} steps, and {after} to fine-tune." if both else ""


def _or(counts: set[int]) -> str:
    return " or ".join(f"{count:,}" for count in sorted(counts))


def _larger(files: Sequence[ResultFile], root: Path) -> Section:
    rows, used = [], []
    for start in _begun(files, "test"):
        of_start = [file for file in files if file.content["run"] in RUNS and file.content["start"] == start]
        for name, tasks in RUNS.items():
            own = [file for file in of_start if file.content["run"] == name]
            used += own
            rows += [[start, tasks, *_gallery(own, gallery)] for gallery in _SIZES if own]
    if not rows:
        return _left_out(LARGER, f"--runs {','.join(RUNS)} --seeds 0,1,2")
    words = (
        "The same queries when the answers stand among the pictures and captions of all splits, and among the pictures "
        "of COCO as well. The mean is that of the six recalls shown; the paper's are on Flickr30k and its 31,000 "
        f"pictures. (By itself it reports a mean of R@1, R@5 and R@10, {GALLERIES['test']:g}.)"
    )
    recalls = [f"{way} R@{k}" for way in ("t2i", "i2t") for k in _CUTOFFS]
    shown = table(["start", "tasks", "gallery", "pictures", *recalls, "mean", "paper's"], rows, words=3)
    return Section(LARGER, "\n\n".join([paragraph(words), shown, sources(used, root)]))


def _gallery(files: Sequence[ResultFile], gallery: str) -> list[str]:
    """Cells of one run in one gallery."""
    found = {file.content["seed"]: file.content[gallery] for file in files}
    pictures = {result["images"] + result["distractors"] for result in found.values()}
    metrics = [(way, f"R@{k}") for way in WAYS for k in _CUTOFFS]
    recalls = [Estimate({seed: one[way][recall] for seed, one in found.items()}) for way, recall in metrics]
    mean = Estimate({seed: fmean(recall.by_seed[seed] for recall in recalls) for seed in found})
    is_theirs = gallery == "full" and files[0].content["run"] == "vmlm-smrm"
    theirs = number(GALLERIES["full"]) if is_theirs else MISSING
    return [_SIZES[gallery], _or(pictures), *map(with_deviation, recalls), with_deviation(mean), theirs]


def _languages(files: Sequence[ResultFile], root: Path) -> Section:
    trained = [file for file in files if file.content["run"] == "languages"]
    translated = [file for file in files if "translated" in file.content]
    if not trained and not translated:
        return _left_out(LANGUAGES, "--runs languages")
    words = (
        "Mean recall on Flickr8k's test pictures by language: of a model that was trained on all of them at once, and, "
        "where there was a translator, of models that read English alone through it (translate-test). A language is "
        "asked about the pictures that have captions in it, so compare rows, not columns."
    )
    rows = [_by_language("trained on all", [file.content["result"]["mR_by_language"] for file in trained], trained)]
    for name, start in dict.fromkeys((file.content["run"], file.content["start"]) for file in translated):
        own = [file for file in translated if (file.content["run"], file.content["start"]) == (name, start)]
        label = f"translated, {RUNS[name]}, {start}"
        rows.append(_by_language(label, [file.content["translated"]["mR_by_language"] for file in own], own))
    names = list(dict.fromkeys(lang for row in rows for lang in row[1]))
    cells = [
        [label, *(with_deviation(by.get(lang, Estimate({}))) for lang in names), with_deviation(mean)]
        for label, by, mean in rows
        if by
    ]
    lacking = "" if translated else "Translate-test was not measured: it needs a translator (`--translate COMMAND`)."
    shown = table(["model", *names, "mean"], cells)
    parts = [paragraph(f"{words} {lacking}"), shown, sources([*trained, *translated], root)]
    return Section(LANGUAGES, "\n\n".join(parts))


def _by_language(
    label: str, found: Sequence[dict[str, float]], files: Sequence[ResultFile]
) -> tuple[str, dict[str, Estimate], Estimate]:
    """A row: its label, mR by language over seeds, and the mean over languages."""
    seeds = [file.content["seed"] for file in files]
    langs = found[0] if found else {}
    by = {lang: Estimate({seed: one[lang] for seed, one in zip(seeds, found, strict=True)}) for lang in langs}
    return label, by, Estimate({seed: fmean(one.values()) for seed, one in zip(seeds, found, strict=True)})
