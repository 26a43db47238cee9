"""The part of docs/bundled-model.md on relevance: tables, and a plot of observed against stated probabilities."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.markdown import MISSING, sources

PLOT = Path("plots", "relevance.svg")
_FEWEST = 10  # absent nouns, for the balanced accuracy
_SHIPPED = "all validation sets"  # what the bundle's fit is fitted on
KINDS = {"noun": "nouns", "phrase": "phrases", "sentence": "sentences", "name": "names"}
_COLOURS = {"noun": "#0072b2", "phrase": "#e69f00", "sentence": "#009e73", "name": "#cc79a7"}


def values(result: Mapping[str, Any], fresh: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values for the page's template; fresh: tests on other images and words."""
    lists = {key: result["collection"][key] for key in ("not_found", "found")}
    shipped = [one for one in _tests(fresh) if one["fitted_on"] == _SHIPPED]
    return {
        "relevance tests": _tests(result),
        "fresh tests": shipped,
        "line tests": shipped,
        "collection": {**result["collection"], **{key: ", ".join(found) or "none" for key, found in lists.items()}},
        "counts": {key: len(found) for key, found in lists.items()},
        "relevance plot": f"![Stated and observed probabilities]({PLOT.as_posix()})",
        "relevance line": result["line"],
        "relevance sources": sources([result], "relevance.json"),
        "fresh phrases": _phrases(fresh),
        "fresh sources": sources([fresh], "relevance-fresh.json"),
    }


def _tests(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return each test, with its errors by kind of query, and how well present and absent nouns are told apart."""
    keys = ("present_above_line", "shown_by_three_above_line", "balanced_accuracy")
    tests = []
    for test in result["tests"]:
        figures = dict(test["kinds"].get("noun", {}))
        if figures.get("absent", 0) < _FEWEST:
            figures["balanced_accuracy"] = None
        nouns = [MISSING if figures.get(key) is None else f"{figures[key]:.2f}" for key in keys]
        errors = [_points(test["kinds"].get(kind)) for kind in KINDS]
        tests.append(test | {"asked": test.get("nouns"), "errors": errors, "nouns": nouns})
    return tests


def _phrases(fresh: Mapping[str, Any]) -> dict[str, float]:
    """Return the mean stated and observed probability of the bundle's fit, for phrases with other nouns."""
    asked = (_SHIPPED, "coco-test", "other nouns")
    tests = [one for one in fresh["tests"] if (one["fitted_on"], one["tested_on"], one["nouns"]) == asked]
    bins = max(tests, key=lambda one: one["images"])["kinds"]["phrase"]["bins"]
    counts, stated, observed = np.array(bins, dtype=np.float64).T
    means = {"stated": stated, "observed": observed}
    return {name: float(np.average(values, weights=counts)) for name, values in means.items()}


def _points(figures: Mapping[str, Any] | None) -> str:
    """Return the calibration error for all queries, and for those with an answer in the collection."""
    if figures is None:
        return MISSING
    both = (figures["error"], figures["error_of_present"])
    return " / ".join(MISSING if error is None else f"{100 * error:.1f}" for error in both)


def plot(result: Mapping[str, Any]) -> Any:
    """Plot how often images of each stated relevance show what was asked for, over all held-out tests."""
    from matplotlib.figure import Figure

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
    return figure


def _pooled(result: Mapping[str, Any], kind: str, least: int = 20) -> tuple[list[float], list[float]]:
    """Return the mean stated and observed probability in each bin, over all tests; bins with few pairs are left out."""
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
