"""Generate docs/bundled-model.md, on how well the bundled model ranks, from its template and benchmarks/results."""

from pathlib import Path
from typing import Any

from benchmarks.markdown import MISSING, fill, sources
from benchmarks.pages import relevance
from benchmarks.provenance import RESULTS, ROOT, read_result, read_results
from bundles.card import results_of
from sightline.bundle.spec import read_spec

TEMPLATE = Path(__file__).with_name("bundled-model.md")


def page(results: Path = RESULTS, bundle: Path = ROOT / "bundles" / "default") -> str:
    """Return the complete page."""
    fitted, fresh = (read_result(results / f"{name}.json") for name in ("relevance", "relevance-fresh"))
    ranking = _bundle(results, bundle) | _alone(results) | _cascade(results) | _fast(results)
    return fill(TEMPLATE, ranking | relevance.values(fitted, fresh))


def _bundle(results: Path, bundle: Path) -> dict[str, Any]:
    spec, measured = read_spec(bundle), read_result(results / "default" / "flickr8k-test.json")
    gains = [
        {"way": way.replace("_", " "), "recall": name, **gain}
        for way, gains in measured["gain_of_reranking"].items()
        for name, gain in gains.items()
    ]
    every = read_results(results / "default")
    unknown = " Some commits were not recorded." if any(one["commit"] == "unknown" for one in every) else ""
    return {
        "bundle results": results_of(spec),
        "bundle gains": gains,
        "bundle sources": sources(every, "default") + unknown,
    }


def _alone(results: Path) -> dict[str, Any]:
    """Return the recalls of the bundled matcher alone, and those of the embeddings and of both."""
    alone = read_result(results / "matcher-alone.json")
    embed, both = read_result(results / "default" / "flickr8k-test.json")["rows"]
    ranked = {"embeddings": embed, "matcher": alone["rows"][0], "weighted sum of both": both}
    return {
        "alone rows": [{"by": by, **row} for by, row in ranked.items()],
        "alone sources": sources([alone], "matcher-alone.json"),
    }


def _cascade(results: Path) -> dict[str, Any]:
    """Return the cascades with the chosen number of matches, and those without late interaction."""
    found = read_result(results / "cascade.json")
    interval = "{value:+z.1f} [{low:+z.1f}, {high:+z.1f}]"
    rows = [
        row | {"gain": interval.format(**row["gain"]) if row["late"] else MISSING}
        for row in found["rows"]
        if not row["late"] or row["rerank"] == found["chosen"]["rerank"]
    ]
    return {"cascade": found, "cascade rows": rows, "cascade sources": sources([found], "cascade.json")}


def _fast(results: Path) -> dict[str, Any]:
    """Compare the fast image graph with the full one, by embeddings alone, and list what each training part adds."""
    rows = []
    for name in ("flickr8k-test", "coco-val", "web-val", "names-val"):
        both = [read_result(results / folder / f"{name}.json")["rows"][0] for folder in ("default", "fast")]
        full, fast = (row["names"]["top1"] if "names" in row else row["rSum"] for row in both)
        measure = "top 1" if "names" in both[0] else "rSum"
        rows.append({"name": name, "measure": measure, "full": full, "fast": fast, "difference": fast - full})
    found = read_result(results / "fast" / "ingredients.json")
    runs, parts = {row["run"]: row for row in found["rows"]}, {}
    for run, row in runs.items():
        gains = [
            f"{row[of]:z.1f} | {row[of] - runs['short'][of]:+z.1f}" for of in ("flickr8k-val rSum", "names-val top1")
        ]
        parts[f"fast {run}"] = " | ".join([f"{row['steps']:,}", *gains])
    measured = [read_result(results / "fast" / "flickr8k-test.json"), found]
    return {"fast results": rows, **parts, "fast sources": sources(measured, "fast")}
