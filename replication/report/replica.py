"""The tables and figures of paper 1 beside ours, each with what the paper finds in it and whether we find it too."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

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
from replication.report import findings
from replication.report.findings import kept
from replication.report.paper import JOINT_BE, SYSTEMS, TABLE_1, TABLE_5, TABLE_6, TABLE_8, TABLE_9, Six
from replication.report.results import R_SUM, RECALLS, Replica, System

SIZES = {"1k": 1000, "3k": 3000, "full": 6000}


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page: its title, its text, and the findings that it judged."""

    title: str
    text: str
    findings: tuple[Finding, ...] = ()


def sections(replica: Replica, root: Path, plots: Mapping[str, str]) -> list[Section]:
    """All parts, in the order of the paper's tables; each says so where its runs are not there yet."""
    made = []
    for title, variants, show, claims in (
        ("Table 1: the systems", ("full",), _systems, findings.systems),
        ("Table 5: a larger gallery", ("full",), _gallery, findings.gallery),
        ("Table 6: trained on other pictures", ("coco",), _transfer, findings.transfer),
        ("Table 8: how many to rerank", ("full",), _top_k, findings.top_k),
        ("Table 9: adding the scores", ("full",), _fusions, findings.fusions),
        ("Figure 3: fewer pictures to train on", ("1k", "3k"), _data_size, findings.data_size),
        ("Figure 4: half of the layers", ("half",), _halved, findings.halved),
    ):
        files = replica.files_of(*variants)
        if not files:
            runs = " or ".join(f"`{variant}`" for variant in variants)
            made.append(Section(title, f"Left out: there are no runs of {runs} in `benchmarks/results/paper1` yet."))
            continue
        words, rows = show(replica)
        judged = findings.judged(claims, replica)
        picture = [f"![{title}](plots/{plots[title]})"] if title in plots else []
        origin = sources(files, root)
        parts = [paragraph(words), rows, *picture, findings_of_paper(judged), origin]
        made.append(Section(title, "\n\n".join(parts), judged))
    return made


def _systems(replica: Replica) -> tuple[str, str]:
    words = (
        "CE matches every pair, BE embeds, SEP+COOP reranks the 20 best of BE by CE; JOINT is one set of weights for "
        "both. Ours are small models on Flickr8k, the paper's are OSCAR on Flickr30k: compare rows, not tables."
    )
    return words, _recalls(replica, TABLE_1, ["system"], lambda system: [system.name])


def _gallery(replica: Replica) -> tuple[str, str]:
    counts = {row["distractors"] for system in TABLE_5 for row in replica.rows(system).values()}
    added = " or ".join(f"{count:,}" for count in sorted(counts)) or "no"
    words = (
        f"The gallery of pictures enlarged by {added} that no caption asks for. (The paper adds 19,000 with their "
        "captions, so its text retrieval gets harder too; ours does not.)"
    )
    paper: dict[System, Six | None] = {**TABLE_5, replace(JOINT_BE, enlarged=True): None}
    return words, _recalls(replica, paper, ["system"], lambda system: [system.name])


def _transfer(replica: Replica) -> tuple[str, str]:
    words = "Trained on COCO, tested on Flickr8k; the first row was trained on Flickr8k itself, for comparison."
    names = {"full": "{} trained on Flickr8k", "coco": "{}"}
    return words, _recalls(replica, TABLE_6, ["system"], lambda one: [names[one.variant].format(one.name)])


def _top_k(replica: Replica) -> tuple[str, str]:
    words = "The k best by embedding, reranked. The paper takes k = 20 as the best trade-off of precision and time."
    return words, _recalls(replica, TABLE_8, ["system", "k"], lambda system: [system.name, str(system.k)])


def _fusions(replica: Replica) -> tuple[str, str]:
    words = (
        "The score of the embedding added to that of the matcher, λe + (1 − λ)c, as they are (ADD) or each brought to "
        "0..1 over the candidates (NORM_ADD). Against the matcher alone stands the best λ of each, chosen on the test "
        "set: the choice favours the sum."
    )

    def cells(system: System) -> list[str]:
        if system.weight is None:
            return [system.name, MISSING, MISSING]
        return [system.name, system.fusion.upper(), f"{system.weight:g}"]

    return words, _recalls(replica, TABLE_9, ["system", "sum", "λ"], cells)


def _data_size(replica: Replica) -> tuple[str, str]:
    words = "rSum of models trained on 1,000 and 3,000 pictures of the training set, and on all of it."
    there = [one for one in SYSTEMS.values() if replica.rows(one.of("1k")) or replica.rows(one.of("3k"))]
    cells = [[one.name, *(with_deviation(replica.estimate(one.of(size))) for size in SIZES)] for one in there]
    return words, table(["system", *(f"{count:,}" for count in SIZES.values())], cells)


def _halved(replica: Replica) -> tuple[str, str]:
    """Quality, and the time that training took."""
    words = "Every second layer of the transformer left out before training. In the paper around 90 % remains."
    there = [system for system in SYSTEMS.values() if replica.rows(system.of("half"))]
    quality = [
        [
            system.name,
            with_deviation(replica.estimate(system)),
            with_deviation(replica.estimate(system.of("half"))),
            with_deviation(kept(replica, system, "half")),
        ]
        for system in there
    ]
    time = [
        [run, *(with_deviation(replica.seconds(run, variant)) for variant in ("full", "half"))]
        for run in ("be", "ce", "joint")
    ]
    tables = (
        table(["system", "rSum, all layers", "rSum, half of them", "per cent kept"], quality),
        table(["training", "seconds, all layers", "seconds, half of them"], time),
    )
    return words, "\n\n".join(tables)


def _recalls(
    replica: Replica, paper: Mapping[System, Six | None], heads: Sequence[str], cells: Callable[[System], list[str]]
) -> str:
    """Our six recalls and rSum of each system, and the paper's own rSum; `cells` gives a row's first columns."""
    rows = []
    for system, six in paper.items():
        ours = [with_deviation(replica.estimate(system, metric)) for metric in (*RECALLS, R_SUM)]
        rows.append([*cells(system), *ours, MISSING if six is None else number(sum(six))])
    recalls = [f"{way} R@{k}" for way in ("t2i", "i2t") for k in (1, 5, 10)]
    return table([*heads, *recalls, "rSum", "paper's rSum"], rows, words=len(heads))
