"""The figures of the results page, as SVG files that come out the same every time."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.pages.style import STYLE
from replication.report.bundled import candidate_rows
from replication.report.inflated import FIGURE, LENGTHS, TABLES
from replication.report.paper import SYSTEMS
from replication.report.related import FIGURE_6, FIGURE_7, PARAMETERS, tested
from replication.report.replica import SIZES
from replication.report.results import T2I_1, Replica, ResultFile
from replication.report.runs import Runs
from replication.report.runs3 import Variant, fullest

# Colours that the colour-blind can tell apart (Okabe and Ito), and a mark of its own for each.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_MARKS = "os^Dv*"
_STYLE = STYLE | {"axes.grid": True, "grid.color": "#e5e5e5", "axes.axisbelow": True}


def draw(
    replica: Replica,
    related: Sequence[ResultFile],
    beside: Sequence[ResultFile],
    inflated: Sequence[ResultFile],
    candidates: Sequence[ResultFile],
    folder: Path,
) -> dict[str, str]:
    """Replace the plots in `folder` by those there is data for; gives their names by the title of their section."""
    import matplotlib as mpl

    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.svg"):
        old.unlink()
    drawn = {}
    with mpl.rc_context(_STYLE):
        if replica.files_of("1k", "3k"):
            _save(_data_size(replica), folder / "data-size.svg")
            drawn["Figure 3: fewer pictures to train on"] = "data-size.svg"
        if candidates:
            _save(_home_and_away(candidates), folder / "home-and-away.svg")
            drawn["Candidates, at home and away"] = "home-and-away.svg"
        relations, parts = tested(related), tested(beside)
        varied = {name for values in PARAMETERS.values() for name in values.values()} - {"fusion"}
        if parts.files_of(*varied):
            _save(_parameters(parts), folder / "relation-parameters.svg")
            drawn[FIGURE_6] = "relation-parameters.svg"
        curves = [file for file in relations.files_of("fusion") if file.content["curve"]]
        if curves:
            _save(_losses(curves[0]), folder / "relation-losses.svg")
            drawn[FIGURE_7] = "relation-losses.svg"
        shrunken = TABLES[FIGURE][0]
        runs = fullest(inflated, shrunken)
        if runs.files_of(*shrunken):
            _save(_fragments(runs), folder / "fragments.svg")
            drawn[FIGURE] = "fragments.svg"
    return drawn


def _axes(across: str, up: str) -> tuple[Any, Any]:
    """A figure and its axes, without a window and without the state of pyplot."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.subplots()
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.margins(0.08)
    return figure, axes


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, metadata={"Date": None, "Creator": None})


def _data_size(replica: Replica) -> Any:
    """R@1 against the number of training pictures, a line a system; bars are standard deviations over seeds."""
    figure, axes = _axes("pictures trained on", "text to image R@1, Flickr8k test")
    for system, colour, mark in zip(SYSTEMS.values(), _COLOURS, _MARKS, strict=True):
        found = {count: replica.estimate(system.of(variant), T2I_1) for variant, count in SIZES.items()}
        there = {count: one for count, one in found.items() if one.by_seed}
        if len(there) > 1:
            heights = [one.mean for one in there.values()]
            spreads = [one.deviation or 0.0 for one in there.values()]
            axes.errorbar(list(there), heights, spreads, color=colour, marker=mark, capsize=3, label=system.name)
    axes.set_xscale("log")
    axes.minorticks_off()
    axes.set_xticks(list(SIZES.values()), [f"{count:,}" for count in SIZES.values()])
    axes.legend(loc="lower right")
    return figure


def _parameters(runs: Runs) -> Any:
    """The rSum against each parameter of relations; bars are standard deviations over seeds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 2.8), layout="constrained")
    for axes, (name, values), colour in zip(
        figure.subplots(1, 3, sharey=True), PARAMETERS.items(), _COLOURS, strict=False
    ):
        found = {value: runs.estimate(run) for value, run in values.items()}
        there = {value: one for value, one in found.items() if one.by_seed}
        spreads = [one.deviation or 0.0 for one in there.values()]
        axes.errorbar(list(there), [one.mean for one in there.values()], spreads, color=colour, marker="o", capsize=3)
        axes.set_xlabel(name)
    figure.axes[0].set_ylabel("rSum, Flickr8k test")
    return figure


def _losses(file: ResultFile) -> Any:
    """The triplet loss of initial and of enhanced embeddings over the steps of one run."""
    figure, axes = _axes("step", "triplet loss")
    curve = file.content["curve"]
    for kind, colour in zip(("initial", "enhanced"), _COLOURS, strict=False):
        axes.plot([point["step"] for point in curve], [point[kind] for point in curve], color=colour, label=kind)
    axes.legend(title="embeddings")
    return figure


def _fragments(runs: Variant) -> Any:
    """R@1 against the fragments that an item is scored by, a line for each way of training."""
    figure, axes = _axes("fragments an item", "text to image R@1, Flickr8k test")
    lines = {
        "as it is": {**{length: f"L{length}" for length in LENGTHS}, 32: "B"},
        "shrunken": {length: f"B-L{length}" for length in LENGTHS},
        "inflated": {32: "B", 48: "I16", 64: "I32", 96: "I64"},
        "inflated and shrunken": {1: "I-B-F", 32: "I-B"},
    }
    for (label, names), colour, mark in zip(lines.items(), _COLOURS, _MARKS, strict=False):
        found = {count: runs.estimate(name, T2I_1) for count, name in names.items()}
        there = {count: one for count, one in found.items() if one.by_seed}
        spreads = [one.deviation or 0.0 for one in there.values()]
        heights = [one.mean for one in there.values()]
        axes.errorbar(list(there), heights, spreads, color=colour, marker=mark, capsize=3, label=label)
    axes.set_xscale("log", base=2)
    ticks = [*LENGTHS, 32, 64, 96]
    axes.set_xticks(ticks, map(str, ticks))
    axes.legend(loc="lower right")
    return figure


def _home_and_away(files: Sequence[ResultFile]) -> Any:
    """The rSum at home against rSum on COCO; the points of one candidate are its shares, joined by a line."""
    figure, axes = _axes("at home: Flickr8k test, rSum", "away: COCO val, rSum")
    by_name: dict[str, list[tuple[float, float, float]]] = {}
    for (name, share), rows in candidate_rows(files).items():
        if {"flickr8k-test", "coco-val"} <= rows.keys():
            by_name.setdefault(name, []).append((share, rows["flickr8k-test"]["rSum"], rows["coco-val"]["rSum"]))
    for place, (name, points) in enumerate(by_name.items()):
        shares, home, away = zip(*sorted(points, reverse=True), strict=True)
        colour, mark = _COLOURS[place % len(_COLOURS)], _MARKS[place % len(_MARKS)]
        axes.plot(home, away, color=colour, marker=mark, linewidth=1, label=name)
        if len(points) > 1:
            for share, x, y in zip(shares, home, away, strict=True):
                beside = {"xytext": (-6, 6), "textcoords": "offset points", "ha": "right"}
                axes.annotate(f"{share:g}", (x, y), fontsize=8, color=colour, **beside)
    axes.legend(title="candidate (number: share)", loc="upper left")
    return figure
