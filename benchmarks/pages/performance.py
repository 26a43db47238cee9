"""Generate docs/performance.md from its template, performance.md, and the files in benchmarks/results."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.bench import SCRIPTS, TARGETS
from benchmarks.evaluation import PAPER
from benchmarks.markdown import MISSING, fill, machine_of
from benchmarks.provenance import RESULTS, read_result
from benchmarks.vector_search.indexes import OURS
from benchmarks.vector_search.steps import EQUAL, LEAST

TEMPLATE, PLOTS = Path(__file__).with_name("performance.md"), Path("plots", "speed")
Results = Mapping[str, Mapping[str, Any]]
Rows = list[dict[str, Any]]
USED = (*SCRIPTS, "previews", "gpu", "scan-gpu", "training-gpu")


def read(folder: Path = RESULTS) -> dict[str, dict[str, Any]]:
    """Return the result files that the page uses, by name."""
    return {name: read_result(folder / f"{name}.json") for name in USED}


def page(results: Results, drawn: Mapping[str, str]) -> str:
    """Return the complete page; drawn: descriptions of the plots, by file name."""
    saves, builds = _graphs(results["retrieval"]["rows"], 100_000)
    gpu = results["gpu"]["rows"]
    values = {
        "targets": _targets(results),
        "plots": "\n\n".join(f"![{title}]({(PLOTS / name).as_posix()})" for name, title in drawn.items()),
        "photos": _photos(results["indexing"]["rows"]),
        "previews": results["previews"],
        "thumbnails": results["previews"]["rows"],
        "retrieval": _retrieval(results["retrieval"]["rows"]),
        "graph saves": f"{min(saves):.1f} to {max(saves):.1f}",
        "graph builds": f"{min(builds):.0f} to {max(builds):.0f}",
        "warm": {row["way"]: row["p50_ms"] for row in results["end_to_end"]["rows"] if row["start"] == "warm"},
        "gpu": machine_of(results["gpu"]),
        "scan": _scan(results["scan-gpu"]["rows"]),
        "gpu times": [row for row in gpu if "p50_ms" in row],
        "gpu batches": [row for row in gpu if "pictures_per_second" in row],
        "growth": results["growing"]["rows"],
        "rates": results["evaluation"]["rates"],
        "evaluation": _evaluation(results),
        "training": [
            row | {"of": f" of {row['chunk']}" if "chunk" in row else ""}
            for row in (*results["training"]["rows"], *results["training-gpu"]["rows"])
        ],
        "sources": [{**result, "name": name, "machine": machine_of(result)} for name, result in results.items()],
    }
    return fill(TEMPLATE, values)


def _targets(results: Results) -> Rows:
    found = {target: results[target.experiment]["ratios"].get(target.ratio) for target in TARGETS}
    return [
        {"target": target, "value": value, "met": "yes" if target.is_met(value) else "**no**"}
        for target, value in found.items()
        if value is not None
    ]


def _photos(rows: Rows) -> Rows:
    """Return the photos per second for each way of indexing, by kind of photos."""
    kinds: dict[str, dict[str, Any]] = {}
    for row in rows:
        if "photos" in row:
            kinds.setdefault(row["photos"], {"kind": row["photos"]})[row["way"]] = row["photos_per_second"]
    return list(kinds.values())


def _retrieval(rows: Rows) -> Rows:
    """Return a row for every index and size, with both target recalls, each with one core and with two."""
    found = []
    for row in rows:
        if "cores" in row:
            both = [row["cores"][count] for count in ("1", "2")]
            least, equal = ([one.get(aim, one[EQUAL]) for one in both] for aim in (LEAST, EQUAL))
            found.append(row | {"least": least, "equal": equal})
    return found


def _graphs(rows: Rows, size: int) -> tuple[list[float], list[float]]:
    """Return how many milliseconds graph indexes save over Sightline, and how much longer they take to build."""
    ways = {row["way"]: row for row in rows if row["items"] == size}
    ours, graphs = ways[OURS.name], [row for way, row in ways.items() if "HNSW" in way]
    saves = [
        own[aim]["p50_ms"] - graph["cores"][cores][aim]["p50_ms"]
        for graph in graphs
        for cores, own in ours["cores"].items()
        for aim in (LEAST, EQUAL)
    ]
    return saves, [graph["build_seconds"] / ours["build_seconds"] for graph in graphs]


def _scan(rows: Rows) -> Rows:
    """Return the rows of exact searches, each with the time of the same query with a filter."""
    filtered = {(row["vectors"], row["dtype"], row["given"]): row["p50_ms"] for row in rows if "filter" in row}
    found = []
    for row in rows:
        if "plain_torch" in row and row["batch"] in (1, 64):
            ways = [filtered.get((row["vectors"], row["dtype"], given)) for given in ("anew", "again")]
            filters = [MISSING if ms is None or row["batch"] > 1 else f"{ms:.2f}" for ms in ways]
            found.append(row | {"filtered": filters})
    return found


def _evaluation(results: Results) -> Rows:
    """Return Table 4 of paper 1, calculated from rates on the CPU and measured on a GPU."""
    took = {
        (machine_of(results["evaluation"]), row["images"], system): seconds
        for row in results["evaluation"]["table4"]
        for system, seconds in row["seconds"].items()
    }
    for row in results["gpu"]["rows"]:
        if row["what"] == "evaluate":
            of = machine_of(results["gpu"]), row["images"]
            took |= {(*of, "embed"): row["seconds"] - row["parts"]["match"], (*of, "rerank 20"): row["seconds"]}
    return [
        {"on": on, "images": images, "system": system, "here": _long(here), "paper": _long(PAPER[images][system])}
        for (on, images, system), here in took.items()
    ]


def _long(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 2 * 3600 else f"{seconds / 3600:.1f} h"
