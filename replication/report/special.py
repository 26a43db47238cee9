"""Two smaller parts of paper 2: its special queries, and what relations among instances cost a training step."""

import json
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
from replication.report.paper2 import SPECIAL
from replication.report.replica import Section
from replication.report.results import WAYS, ResultFile
from replication.report.runs import Runs

TITLE = "Table 4: the hardest and the most infrequent queries"
COST = "What relations among instances cost"
MOST = 35.0
"""Per cent of a training step that relations may take."""


def special_queries(runs: Runs, root: Path) -> Section:
    """R@1 of the hardest and the most infrequent queries, by the base model and with relations among instances."""
    files = [file for file in runs.files_of("fusion") if file.content["special"]]
    if not files:
        return Section(TITLE, "Left out: `python -m replication.paper2 --runs base,fusion` makes what it needs.")
    words = (
        "R@1 of the queries whose average similarity with all wrong answers is highest (hardest) or lowest "
        "(infrequent), as the base model finds it. The paper's gains are on Flickr30k."
    )
    rows, findings = [], []
    for (kind, part), paper in SPECIAL.items():
        cells = [kind, part]
        for way, name, (without, having) in zip(WAYS, ("t2i", "i2t"), (paper[:2], paper[2:]), strict=True):
            base, run = (_estimate(files, which, way, kind, part) for which in ("base", "run"))
            gain = run.minus(base)
            cells += [with_deviation(base), with_deviation(run), number(having - without)]
            if part == "20%":
                claim = f"relations help the {kind} fifth: {name} R@1"
                findings.append(Finding(claim, gain, reported=having - without))
        rows.append(cells)
    columns = [f"{way} {what}" for way in ("t2i", "i2t") for what in ("base", "fusion", "paper's gain")]
    shown = table(["queries", "share", *columns], rows, words=2)
    parts = [paragraph(words), shown, findings_of_paper(findings, "paper 2"), sources(files, root)]
    return Section(TITLE, "\n\n".join(parts), tuple(findings))


def _estimate(files: list[ResultFile], which: str, way: str, kind: str, part: str) -> Estimate:
    return Estimate({file.content["seed"]: file.content["special"][which][way][kind][part]["R@1"] for file in files})


def relation_cost(path: Path, root: Path) -> Section:
    """The time of a training step with and without relations among instances."""
    if not path.is_file():
        return Section(COST, "Left out: `python -m replication.paper2 --cost` makes what it needs.")
    file = ResultFile(path, json.loads(path.read_text(encoding="utf-8")))
    told: dict[str, Any] = dict(file.content)
    words = (
        f"Milliseconds of a training step (median) of {told['batch']} pictures and texts, {told['fragments']} "
        f"fragments and {told['words']} words each: with the image tower frozen, so that what it saw is kept; with its "
        "upper three layers trained; and frozen with texts read by an encoder of BERT's size in place of MiniLM, which "
        "is the paper's setting. Searching costs the same with and without: the relations belong to the loss. A step "
        "is bound by the processor that starts its operations one by one, but those of the relations are recorded, and "
        "started all at once; the last share is that of what the GPU computes."
    )
    rows, shares = [], []
    for trained, step in told["steps"].items():
        base = step["seconds"]["base"]
        for name, share in step["share_of_relations"].items():
            times = [f"{1000 * one:.1f}" for one in (base, step["seconds"][name])]
            computing = step.get("share_of_computing", {}).get(name)
            of_computing = MISSING if computing is None else number(100 * computing)
            rows.append([trained, name, *times, number(100 * share), of_computing])
            shares += [100 * one for one in (share, computing) if one is not None]
    heads = ["trained", "mechanism", "base, ms", "with relations, ms", "share, %", "of computing, %"]
    over = sum(share > MOST for share in shares)
    above = f"{over or 'none'} {'is' if over == 1 else 'are'} above"
    verdict = (
        f"Asked for were at most {MOST:g} %: of {len(shares)} shares, {above}. Times are medians of "
        f"{told['repeats']} steps of one run, in turns."
    )
    parts = [paragraph(words), table(heads, rows, words=2), paragraph(verdict), sources([file], root)]
    return Section(COST, "\n\n".join(parts))  # ours, not among the paper's findings
