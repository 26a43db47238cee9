"""The part of docs/results.md on relevance: tables, and a plot of observed against stated probabilities."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.markdown import MISSING, sources, table
from benchmarks.pages.plots import style

PLOT = Path("plots", "relevance.svg")
KINDS = {"noun": "nouns", "phrase": "phrases", "sentence": "sentences", "name": "names"}
_COLOURS = {"noun": "#0072b2", "phrase": "#e69f00", "sentence": "#009e73", "name": "#cc79a7"}


def relevance_values(result: Mapping[str, Any]) -> dict[str, str]:
    """The values for the page's template."""
    return {
        "relevance errors": _errors(result),
        "relevance matches": _matches(result),
        "relevance collection": _collection(result.get("collection")),
        "relevance plot": f"![Stated and observed probabilities]({PLOT.as_posix()})",
        "relevance weights": ", ".join(f"{name} {value:.2f}" for name, value in result["weights"].items()),
        "relevance line": f"{result['line']:.2f}",
        "relevance sources": sources([result], "relevance.json"),
    }


def _errors(result: Mapping[str, Any]) -> str:
    heads = ["fitted on", "tested on", "images", *KINDS.values()]
    rows = []
    for test in result["tests"]:
        kinds = test["kinds"]
        found = [_points(kinds.get(kind)) for kind in KINDS]
        rows.append([test["fitted_on"], test["tested_on"], f"{test['images']:,}", *found])
    return table(heads, rows, words=2)


def _matches(result: Mapping[str, Any]) -> str:
    heads = ["fitted on", "tested on", "images", "threshold", "shown by one", "shown by three", "balanced accuracy"]
    rows = []
    for test in result["tests"]:
        noun = test["kinds"].get("noun", {})
        figures = (noun.get(key) for key in ("present_above_line", "shown_by_three_above_line", "balanced_accuracy"))
        shown = [MISSING if one is None else f"{one:.2f}" for one in figures]
        rows.append([test["fitted_on"], test["tested_on"], f"{test['images']:,}", f"{test['line']:.2f}", *shown])
    return table(heads, rows, words=2)


def _collection(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return "Not measured."
    hidden, wrong = (", ".join(found[key]) or "none" for key in ("not_found", "found"))
    return (
        f"In a collection of {found['images']} photos from Flickr8k test and COCO val, {len(found['not_found'])} of "
        f"{found['common']} common nouns shown by at least three photos have no match ({hidden}), and "
        f"{len(found['found'])} of {found['absent']} things shown by none have one ({wrong})."
    )


def _points(figures: Mapping[str, Any] | None) -> str:
    """The calibration error for all queries, and for those with an answer in the collection."""
    if figures is None:
        return MISSING
    both = (figures["error"], figures["error_of_present"])
    return " / ".join(MISSING if error is None else f"{100 * error:.1f}" for error in both)


def draw(result: Mapping[str, Any], path: Path) -> None:
    """Plot how often images of each stated relevance show what was asked for, over all held-out tests."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    path.parent.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(style()):
        figure = Figure(figsize=(5.0, 4.2), layout="constrained")
        axes = figure.subplots()
        axes.plot([0, 1], [0, 1], color="#b0b0b0", linewidth=1)
        for kind, name in KINDS.items():
            stated, observed = _pooled(result, kind)
            if len(stated):
                axes.plot(stated, observed, marker="o", markersize=4, label=name, color=_COLOURS[kind])
        axes.set_xlabel("stated relevance")
        axes.set_ylabel("share that shows it")
        axes.legend()
        figure.savefig(path, metadata={"Date": None, "Creator": None})


def _pooled(result: Mapping[str, Any], kind: str, least: int = 20) -> tuple[list[float], list[float]]:
    """The mean stated and observed probability in each bin, over all tests; bins with few pairs are left out."""
    bins: dict[int, list[list[float]]] = {}
    for test in result["tests"]:
        for one in test["kinds"].get(kind, {}).get("bins", ()):
            bins.setdefault(min(9, int(10 * one[1])), []).append(one)
    stated, observed = [], []
    for _, rows in sorted(bins.items()):
        counts, said, seen = np.array(rows, dtype=np.float64).T
        if counts.sum() >= least:
            stated.append(float(np.average(said, weights=counts)))
            observed.append(float(np.average(seen, weights=counts)))
    return stated, observed
