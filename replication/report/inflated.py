"""The tables and the figure of paper 3 beside ours, each with what the paper finds in it and whether we find it too."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

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
from replication.report.paper import Six
from replication.report.paper3 import COCO, FLICKR, TIMES
from replication.report.replica import Section
from replication.report.results import R_SUM, RECALLS, ResultFile
from replication.report.runs import Claims, Measured, Reported, Runs, judged
from replication.report.runs3 import FACTORS, PAPER, TUNED, Variant, fullest, variants
from replication.report.shrunken import in_words, why, with_tower

COMPARABLE = 12.0
"""How much rSum a student may lack of a teacher that it is comparable to: two points of mean recall."""
LENGTHS = (1, 2, 4, 8, 16)
SPEED = "Table 4: time to score"
SHRINKING = "Table 2: shrinking"
FIGURE = "Figure 3: fragments, shrinking and codes"
SETTING = (
    "As in the paper, three layers read the words and three layers 32 regions of the picture, each side begun from the "
    "same text encoder, and F is the cosine of their first outputs, B late interaction of all of them. Regions are "
    "clusters of the patches of a frozen CLIP tower where the paper has those of a frozen detector, the two sides do "
    "not share their weights, and we train on 6,000 pictures, the paper on 29,000 and 113,000."
)


def inflating(m: Measured) -> list[Finding]:
    """Table 1."""
    return [
        Finding("interactions of fragments help: base over fast (rSum)", m.gain("B", "F")),
        *(Finding(f"{k} codes help: inflated over base (rSum)", m.gain(f"I{k}", "B")) for k in (16, 32, 64)),
        Finding("more codes tend to help more: 64 over 16 (rSum)", m.gain("I64", "I16")),
    ]


def shrinking(m: Measured) -> list[Finding]:
    """Table 2."""
    near = f"and comes near its teacher: B->F within {COMPARABLE:g} of B (rSum)"
    return [
        Finding("a shrunken fast model is far better: B->F over F (rSum)", m.gain("B-F", "F")),
        Finding(near, m.gain("B-F", "B"), COMPARABLE),
        Finding("an inflated teacher teaches more: I->F over B->F (rSum)", m.gain("I-F", "B-F")),
        Finding("two steps are better than one: I->B->F over I->F (rSum)", m.gain("I-B-F", "I-F")),
        Finding("all of it over nothing: I->B->F over F (rSum)", m.gain("I-B-F", "F")),
        Finding("the base model gains as well: I->B over B (rSum)", m.gain("I-B", "B")),
    ]


def truncating(m: Measured) -> list[Finding]:
    """Table 6."""
    names = [*(f"L{length}" for length in LENGTHS), "B"]
    told = [*map(str, LENGTHS), "32"]
    pairs = zip(names, names[1:], told, told[1:], strict=False)
    return [Finding(f"more fragments are better: {b} over {a} (rSum)", m.gain(more, few)) for few, more, a, b in pairs]


def figure(m: Measured) -> list[Finding]:
    """Figure 3."""
    at = "at the same cost a shrunken model is better:"
    return [
        *(Finding(f"{at} {n} fragments (rSum)", m.gain(f"B-L{n}", f"L{n}")) for n in LENGTHS),
        Finding("inflating and shrinking is best for one vector: I->B->F over B->F (rSum)", m.gain("I-B-F", "B-F")),
        Finding("and for 32 fragments: I->B over B (rSum)", m.gain("I-B", "B")),
    ]


TABLES: dict[str, tuple[tuple[str, ...], dict[str, Six], str, Claims, str]] = {
    "Table 1: inflating": (
        ("F", "B", "I16", "I32", "I64"),
        FLICKR,
        "One vector an item (F), late interaction of 32 fragments (B), and of 16, 32 and 64 codes more on each side.",
        inflating,
        "F,B,I16,I32,I64 --seeds 0,1,2",
    ),
    SHRINKING: (
        ("B", "F", "B-F", "I32", "I-F", "I-B", "I-B-F"),
        FLICKR,
        "A student learns from its teacher which texts and pictures of a batch are alike: B-F is F taught by B, I-B-F "
        "is F taught by the B that I32 taught.",
        shrinking,
        "F,B,I32,B-F,I-F,I-B,I-B-F --seeds 0,1,2",
    ),
    "Table 6: the first fragments alone": (
        (*(f"L{length}" for length in LENGTHS), "B"),
        COCO,
        "The base model with only the first fragments of either side, neither inflated nor shrunken.",
        truncating,
        "L1,L2,L4,L8,L16,B --seeds 0",
    ),
    FIGURE: (
        tuple(f"B-L{length}" for length in LENGTHS),
        COCO,
        "Text to image R@1 against the number of fragments that an item is scored by; in the table, models shrunken "
        "from the base model. (In the paper this is Table 7.)",
        figure,
        "B-L1,B-L2,B-L4,B-L8,B-L16 --seeds 0",
    ),
}
"""By title: the runs that have a row, the paper's own, what to say, what the paper finds, and which runs make it."""


_VARIANTS = {
    PAPER: "With losses and temperatures as printed.",
    FACTORS: "With the temperatures of shrinking read as factors: scores are multiplied by 2 and 12, not divided.",
    TUNED: "With the contrastive loss in place of the triplet loss, and temperatures that fit it.",
}


def sections(
    files: Sequence[ResultFile], tower: Sequence[ResultFile], speed: Path, root: Path, plots: Mapping[str, str]
) -> list[Section]:
    """All parts, in the order of the paper; each says which command makes it where its runs are not there yet.

    tower: earlier runs, in which the image tower was trained; they come last, and are not among the findings.
    """
    first, second, sixth, figure_3 = (_section(title, files, root, plots) for title in TABLES)
    return [first, second, _speed(speed, root), sixth, figure_3, *with_tower(tower, root)]


def _section(title: str, files: Sequence[ResultFile], root: Path, plots: Mapping[str, str]) -> Section:
    """One part: its table and findings for the paper's own settings, and for every variant that finds other than it."""
    names, paper, words, claims, command = TABLES[title]
    parts = [paragraph(f"{words} {SETTING}" if title == next(iter(TABLES)) else words)]
    findings: list[Finding] = []
    used: list[ResultFile] = []
    for runs in (Variant(files, variant) for variant in variants(files)):
        own = [one for one in judged(claims, runs, Reported(paper)) if one not in findings]
        if own and runs.files_of(*names):
            helped = in_words(runs) if title == SHRINKING else ""
            said = paragraph(f"{_VARIANTS[runs.name]} {helped} {_still_missing(runs, names)}")
            parts += [said, _recalls(runs, names, paper), findings_of_paper(own, "paper 3")]
            findings += own
            used += [file for file in runs.files_of(*names) if file not in used]
    if not findings:
        return Section(title, f"Left out: `python -m replication.paper3 --runs {command}` makes what it needs.")
    if title == SHRINKING and (reasons := why(files)):
        parts.append(paragraph(reasons))
    picture = [f"![{title}](plots/{plots[title]})"] if title in plots else []
    if picture and (drawn := fullest(files, names).name) != PAPER:
        picture.insert(0, f"The figure is of the variant *{drawn}*.")
    return Section(title, "\n\n".join([*parts, *picture, sources(used, root)]), tuple(findings))


def _still_missing(runs: Variant, names: Sequence[str]) -> str:
    """Which rows of a table have no run yet, and what makes them; empty where all have."""
    missing = runs.missing(names)
    if not missing:
        return ""
    command = f"python -m replication.paper3 --runs {','.join(missing)} --variant {runs.name} --seeds 0"
    return f"Not measured yet: {', '.join(missing)}; `{command}` makes them."


def _recalls(runs: Runs, names: Sequence[str], paper: Mapping[str, Six]) -> str:
    """Our six recalls and rSum of each run, and the paper's own rSum."""
    rows = []
    for name in names:
        ours = [with_deviation(runs.estimate(name, metric)) for metric in (*RECALLS, R_SUM)]
        rows.append([name, *ours, number(sum(paper[name])) if name in paper else MISSING])
    recalls = [f"{way} R@{k}" for way in ("t2i", "i2t") for k in (1, 5, 10)]
    return table(["run", *recalls, "rSum", "paper's rSum"], rows)


def _speed(path: Path, root: Path) -> Section:
    """Milliseconds to score a collection on a GPU, beside the paper's and beside what reading the fragments takes."""
    if not path.is_file():
        return Section(SPEED, "Left out: `python -m benchmarks.late --gpu` makes what it needs.")
    file = ResultFile(path, json.loads(path.read_text(encoding="utf-8")))
    rows: list[dict[str, Any]] = file.content["gpu"]
    words = paragraph(
        f"One query over {rows[0]['images']:,} pictures on a GPU; the floor is the time that reading their fragments "
        "takes at the full bandwidth of its memory. Each time is one median, without an interval: a verdict here says "
        "only which is longer."
    )
    cells = [
        [
            f"{row['model']}, {row['dtype']}",
            f"{row['words']} x {row['fragments']}",
            f"{row['ms']:.3f}",
            f"{row['with_top_20_ms']:.3f}",
            f"{row['ratio']:.2f}",
            f"{TIMES[row['model']]:g}" if row["model"] in TIMES else MISSING,
        ]
        for row in rows
    ]
    heads = ["model", "interactions", "ms", "with top 20, ms", "times the floor", "paper's ms"]
    findings = _judged_times(rows)
    parts = [words, table(heads, cells, words=2), findings_of_paper(findings, "paper 3"), sources([file], root)]
    return Section(SPEED, "\n\n".join(parts), tuple(findings))


def _judged_times(rows: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """How many times as long one model takes as another, less one; all in half precision."""
    ours = {row["model"]: row["ms"] for row in rows if row["dtype"] == "float16"}

    def times(slow: str, quick: str) -> tuple[Estimate, float]:
        more = ours[slow] / ours[quick] - 1
        return Estimate({0: more}, {0: (more, more)}), TIMES[slow] / TIMES[quick] - 1

    findings = []
    for slow, quick in (("base", "fast"), ("inflated", "base")):
        here, there = times(slow, quick)
        findings.append(Finding(f"{slow} takes longer than {quick} (times, less one)", here, reported=there))
    return findings
