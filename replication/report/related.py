"""The tables and figures of paper 2 beside ours, each with what the paper finds in it and whether we find it too."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.pages.markdown import (
    MISSING,
    Finding,
    findings_of_paper,
    number,
    paragraph,
    signed,
    sources,
    table,
    with_deviation,
)
from replication.report.estimates import Estimate
from replication.report.findings import ON_PAR
from replication.report.paper2 import COCO, HIERARCHY, INSTANCES, Four
from replication.report.replica import Section
from replication.report.results import R_SUM, RECALLS, Metric, ResultFile
from replication.report.runs import Claims, Measured, Reported, Runs, judged
from replication.report.special import relation_cost, special_queries

TEST = "flickr8k-test"
BESIDE = "paper2-parts"
"""Where the runs of Table 3 and Figure 6 are kept."""
FIGURE_6, FIGURE_7 = "Figure 6: λ, K and τ", "Figure 7: the loss of initial and of enhanced embeddings"
PARAMETERS: dict[str, dict[float, str]] = {
    "λ": {0: "lambda-0", 0.5: "lambda-0.5", 1: "fusion", 1.5: "lambda-1.5", 2: "lambda-2"},
    "K": {1: "k-1", 5: "k-5", 10: "fusion", 15: "k-15", 20: "k-20"},
    "τ": {0.1: "tau-0.1", 0.25: "tau-0.25", 0.5: "fusion", 0.75: "tau-0.75"},
}
"""The run of every value of a parameter; that of the paper's own is fusion."""
_FOUR: tuple[Metric, ...] = tuple(metric for metric in RECALLS if metric[1] != "R@10")


def mechanisms(m: Measured) -> list[Finding]:
    """Tables 1 and 2."""
    return [
        Finding("relations among instances help: fusion over base (rSum)", m.gain("fusion", "base")),
        Finding("so do standalone ones: standalone over base (rSum)", m.gain("standalone", "base")),
        Finding("two models together are better: full over fusion (rSum)", m.gain("full", "fusion")),
        Finding("full over standalone (rSum)", m.gain("full", "standalone")),
        Finding("all of it over nothing: full over base (rSum)", m.gain("full", "base")),
        Finding("and over two models without relations: full over base-twice (rSum)", m.gain("full", "base-twice")),
        Finding("they help texts read by a BiGRU as well: bigru over bigru-base (rSum)", m.gain("bigru", "bigru-base")),
    ]


def hierarchy(m: Measured) -> list[Finding]:
    """Table 3a."""
    redundant = f"those of texts are redundant: without them within {ON_PAR:g} of all (rSum)"
    return [
        Finding("relations among instances help: all over none of them (rSum)", m.gain("fusion", "base")),
        Finding("relations among fragments help: all over none of them (rSum)", m.gain("fusion", "no-fragments")),
        Finding("those of images do: all over all but them (rSum)", m.gain("fusion", "no-visual")),
        Finding(redundant, m.gain("no-textual", "fusion"), ON_PAR),
        Finding("relations between images and texts matter more than within (rSum)", m.gain("inter", "intra")),
        Finding("both are better than between alone (rSum)", m.gain("fusion", "inter")),
    ]


def instances(m: Measured) -> list[Finding]:
    """Table 3b."""
    parts = {
        "no-connection": "the connection matrix",
        "no-relevance": "the relevance matrix",
        "no-consistency": "the loss across initial and enhanced embeddings",
        "no-regularisation": "the regularisation",
        "no-neighbours": "drawing neighbours",
    }
    return [Finding(f"{what} helps (rSum)", m.gain("fusion", name)) for name, what in parts.items()]


def parameters(m: Measured) -> list[Finding]:
    """Figure 6: hardly anything depends on the parameters, in a proper range."""
    proper = {"λ": (0.5, 1.5, 2), "K": (5, 15, 20), "τ": (0.25, 0.75)}
    return [
        Finding(f"{name} = {value:g} is as good, within {ON_PAR:g} (rSum)", m.gain(by_value[value], "fusion"), ON_PAR)
        for name, by_value in PARAMETERS.items()
        for value in proper[name]
    ]


TABLES: dict[str, tuple[Mapping[str, Four], str, Claims, str]] = {
    "Table 3a: relations among fragments and instances": (
        HIERARCHY,
        "The whole model (fusion) and what is left of it without relations among the fragments of images, of texts or "
        "of both, without relations among instances (base), and with those within images and within texts alone "
        "(intra) or between the two alone (inter). Intra is without the regularisation as well, which is of the "
        "relevance between the two.",
        hierarchy,
        "base,fusion,no-fragments,no-visual,no-textual,intra,inter",
    ),
    "Table 3b: the parts of relations among instances": (
        INSTANCES,
        "The whole model (fusion), and each of its parts left out; without the relevance there is no regularisation of "
        "it either.",
        instances,
        "fusion,no-connection,no-relevance,no-consistency,no-regularisation,no-neighbours",
    ),
}
"""By title: the runs that have a row with the paper's own recalls, what to say, what it finds, which runs make it."""
_OF_FOUR = (
    "The paper gives R@1 and R@5 alone: its gains are in the sum of these four recalls, ours in that of all six (rSum)."
)


def sections(
    files: Sequence[ResultFile],
    beside: Sequence[ResultFile],
    results: Path,
    root: Path,
    plots: Mapping[str, str],
) -> list[Section]:
    """All parts, in the order of the paper; each says which command makes it where its runs are not there yet.

    beside: the runs of Table 3 and Figure 6, with those that they are compared with, trained beside them.
    """
    runs, parts = tested(files), tested(beside)
    return [
        _mechanisms(runs, root),
        *(_ablation(title, parts, trained_again(runs, parts), root) for title in TABLES),
        special_queries(runs, root),
        _parameters(parts, root, plots),
        _losses(runs, root, plots),
        relation_cost(results / "cost.json", root),
    ]


def tested(files: Sequence[ResultFile]) -> Runs:
    """The runs among result files that were measured on the test set."""
    return Runs(file for file in files if "run" in file.content and file.content["result"]["data"] == TEST)


def steps_taken(files: Sequence[ResultFile]) -> str:
    """How many steps the runs of a table were trained for: fewer than the recipe's, where time was short."""
    counts = {cost["steps"] for file in files for cost in file.content["training"].values()}
    return f"Trained for {' or '.join(f'{count:,}' for count in sorted(counts))} steps."


def seeds_of(files: Sequence[ResultFile]) -> str:
    """How many seeds the runs of a table were trained with."""
    count = len({file.content["seed"] for file in files})
    return "One seed." if count == 1 else f"{count} seeds."


def lacking(runs: Runs, names: Sequence[str]) -> list[str]:
    """A line that says which runs a table lacks, if any."""
    missing = runs.missing(names)
    return [paragraph(f"Not measured: {', '.join(missing)}.")] if missing else []


def trained_again(runs: Runs, others: Runs) -> str:
    """What the intervals of a table do not cover: how far runs moved that were trained again with the same seed."""
    moved = {}
    for name in ("base", "fusion", "standalone"):
        apart = others.estimate(name).minus(runs.estimate(name)).by_seed
        if apart:
            moved[name] = max(apart.values(), key=abs)
    if not moved:
        return ""
    told = ", ".join(f"{name} by {signed(by)}" for name, by in moved.items())
    return (
        "The intervals are those of the choice of test pictures, not of training, which ends elsewhere each time, "
        "because a GPU adds up in an order of its own: trained again for these tables with the same seed, runs of the "
        f"table above moved in rSum, {told}."
    )


def left_out(title: str, command: str) -> Section:
    """A part without what it is made of."""
    return Section(title, f"Left out: `python -m replication.paper2 --runs {command}` makes what it needs.")


def left_out_beside(title: str, command: str) -> Section:
    """A part without what it is made of, which is kept apart."""
    return left_out(title, f"{command} --set schedule.epochs=10 --work runs/{BESIDE} --out benchmarks/results/{BESIDE}")


def _mechanisms(runs: Runs, root: Path) -> Section:
    title = "Tables 1 and 2: the mechanisms"
    names = ("plain", "base", "base-twice", "fusion", "standalone", "full", "bigru-base", "bigru")
    findings = judged(mechanisms, runs, Reported(COCO))
    if not findings:
        return left_out(title, "plain,base,base-twice,fusion,standalone,full --seeds 0,1,2")
    words = (
        "Two towers without any relations (plain), with relations among fragments (base), and, while training, with "
        "relations among the instances of a batch by two mechanisms (fusion, standalone); full is the mean of those "
        "two, base-twice that of two base models of different seeds. The paper's are of regions and BERT, or a BiGRU, "
        "on 5,000 pictures of COCO: compare rows, not tables."
    )
    rows = [
        [
            name,
            *(with_deviation(runs.estimate(name, metric)) for metric in (*RECALLS, R_SUM)),
            number(sum(COCO[name])) if name in COCO else MISSING,
        ]
        for name in names
    ]
    recalls = [f"{way} R@{k}" for way in ("t2i", "i2t") for k in (1, 5, 10)]
    shown = table(["run", *recalls, "rSum", "the paper's recalls, summed"], rows)
    files = runs.files_of(*names)
    judgement = findings_of_paper(findings, "paper 2")
    told = paragraph(f"{words} {steps_taken(files)}")
    parts = [told, shown, *lacking(runs, names), judgement, sources(files, root)]
    return Section(title, "\n\n".join(parts), tuple(findings))


def _ablation(title: str, runs: Runs, caution: str, root: Path) -> Section:
    paper, words, claims, command = TABLES[title]
    findings = judged(claims, runs, Reported(paper))
    if not findings:
        return left_out_beside(title, command)
    rows = []
    for name, four in paper.items():
        ours = [runs.estimate(name, metric) for metric in _FOUR]
        whole = number(sum(one.mean for one in ours)) if ours[0].by_seed else MISSING
        told = with_deviation(runs.estimate(name))
        rows.append([name, *map(with_deviation, ours), whole, number(sum(four)), told])
    recalls = [f"{way} R@{k}" for way in ("t2i", "i2t") for k in (1, 5)]
    shown = table(["run", *recalls, "their sum", "paper's", "rSum"], rows)
    judgement = findings_of_paper(findings, "paper 2")
    names = list(paper)
    files = runs.files_of(*names)
    said = paragraph(f"{words} {_OF_FOUR} {steps_taken(files)} {seeds_of(files)} {caution}")
    parts = [said, shown, *lacking(runs, names), judgement, sources(files, root)]
    return Section(title, "\n\n".join(parts), tuple(findings))


def _parameters(runs: Runs, root: Path, plots: Mapping[str, str]) -> Section:
    findings = judged(parameters, runs, Reported({}))
    names = list(dict.fromkeys(name for values in PARAMETERS.values() for name in values.values()))
    if not findings:
        return left_out_beside(FIGURE_6, ",".join(names))
    words = (
        "λ is the weight of relevance in attention, K how many matches of fragments it is made of, τ the share of a "
        "batch that an instance is connected with. The paper draws this without numbers, and calls it stable."
    )
    rows = [
        [name, f"{value:g}", with_deviation(runs.estimate(run))]
        for name, values in PARAMETERS.items()
        for value, run in values.items()
    ]
    picture = [f"![{FIGURE_6}](plots/{plots[FIGURE_6]})"] if FIGURE_6 in plots else []
    judgement = findings_of_paper(findings, "paper 2")
    shown = table(["parameter", "value", "rSum"], rows)
    origin = sources(runs.files_of(*names), root)
    parts = [paragraph(words), shown, *lacking(runs, names), *picture, judgement, origin]
    return Section(FIGURE_6, "\n\n".join(parts), tuple(findings))


def _losses(runs: Runs, root: Path, plots: Mapping[str, str]) -> Section:
    files = [file for file in runs.files_of("fusion") if file.content["curve"]]
    if not files:
        return left_out(FIGURE_7, "fusion")
    findings = [_loss_finding(files)]
    words = (
        "Of the fusion model, over the steps with relations among instances; both on the same batches. Compared over "
        "the later half of those steps: to begin with, the attention that enhances them knows nothing."
    )
    picture = [f"![{FIGURE_7}](plots/{plots[FIGURE_7]})"] if FIGURE_7 in plots else []
    parts = [paragraph(words), *picture, findings_of_paper(findings, "paper 2"), sources(files, root)]
    return Section(FIGURE_7, "\n\n".join(parts), tuple(findings))


def _loss_finding(files: Sequence[ResultFile]) -> Finding:
    """How much lower the loss of enhanced embeddings is than that of initial ones, over the later half of the steps."""
    gains = {}
    for file in files:
        later = file.content["curve"][len(file.content["curve"]) // 2 :]
        initial, enhanced = (sum(point[kind] for point in later) for kind in ("initial", "enhanced"))
        gains[file.content["seed"]] = 100 * (initial - enhanced) / initial
    return Finding(
        "enhanced embeddings have the lower loss in the end (per cent of the initial one's)", Estimate(gains)
    )
