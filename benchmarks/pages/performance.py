"""Write docs/performance.md from its template, performance.md, and the files of benchmarks/results.

python -m benchmarks.pages.performance
"""

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.evaluation import PAPER
from benchmarks.markdown import MISSING, fill, machine_of, table
from benchmarks.pages import plots
from benchmarks.pages.targets import TARGETS
from benchmarks.provenance import RESULTS, ROOT, read_result

TEMPLATE, PLOTS = Path(__file__).with_name("performance.md"), Path("plots", "speed")
Results = Mapping[str, Mapping[str, Any]]
USED = (
    *("indexing", "encoding", "retrieval", "late", "matching", "end_to_end", "evaluation", "training", "growing"),
    *("floors", "gpu", "scan-gpu", "late-gpu", "training-gpu"),
)


def read(folder: Path = RESULTS) -> dict[str, dict[str, Any]]:
    """The result files that the page uses, by name."""
    return {name: read_result(folder / f"{name}.json") for name in USED}


def page(results: Results, drawn: Mapping[str, str]) -> str:
    """The whole page; drawn: what each plot shows, by the name of its file."""
    rates, floors = results["evaluation"]["rates"], results["floors"]
    values = {
        "targets": _targets(results),
        "plots": "\n\n".join(f"![{title}]({(PLOTS / name).as_posix()})" for name, title in drawn.items()),
        "gpu": machine_of(results["gpu"]),
        "scan": _scan(results["scan-gpu"]["rows"]),
        "late gpu": _late(results["late-gpu"]["gpu"]),
        "bundle gpu": _bundle(results["gpu"]["rows"]),
        "pictures gpu": _pictures(results["gpu"]["rows"]),
        "bandwidth": f"{floors['bytes_per_second'] / 1e9:.0f} GB/s",
        "operations": f"{floors['operations_per_second'] / 1e9:.0f} GFLOP/s",
        "floors": _floors(results),
        "growth": _growth(results["growing"]["rows"]),
        "rates": f"{rates['images']:.2f} images, {rates['captions']:.0f} captions and {rates['pairs']:.0f} pairs",
        "evaluation": _evaluation(results),
        "training": _training([*results["training"]["rows"], *results["training-gpu"]["rows"]]),
        "sources": _sources(results),
    }
    return fill(TEMPLATE, values)


def _targets(results: Results) -> str:
    ratios = {name: result.get("ratios", {}) for name, result in results.items()}
    rows = []
    for target in TARGETS:
        value = target.value_in(ratios)
        shown = MISSING if value is None else f"{value:.3g}{target.unit}"
        rows.append([target.what, shown, target.bound, MISSING if value is None else _yes(target.is_met(value))])
    return table(["what", "measured", "target", "met"], rows, words=4)


def _yes(is_so: bool) -> str:
    return "yes" if is_so else "**no**"


def _scan(rows: list[dict[str, Any]]) -> str:
    """Exact searches; below 1 in the last column, plain torch is faster."""
    filtered = {
        (row["vectors"], row["dtype"], row["given"]): row["p50_ms"]
        for row in rows
        if "filter" in row and row["told"] == "rows"
    }
    cells = []
    for row in rows:
        if "plain_torch" in row and row["batch"] in (1, 64):
            ways = [filtered.get((row["vectors"], row["dtype"], given)) for given in ("anew", "again")]
            with_filter = [MISSING if ms is None or row["batch"] > 1 else f"{ms:.2f}" for ms in ways]
            cells.append(
                [f"{row['vectors']:,}", f"{row['batch']}", row["dtype"], f"{row['p50_ms']:.2f}",
                 f"{row['floor_ms']:.3f}", f"{row['plain_torch']['p50_ms']:.2f}", f"{row['times_as_quick']:.2f}x",
                 *with_filter]
            )  # fmt: skip
    heads = ["vectors", "queries", "stored as", "ms", "floor, ms", "plain torch, ms", "speed-up"]
    return table([*heads, "new filter, ms", "same filter, ms"], cells, words=3)


def _late(rows: list[dict[str, Any]]) -> str:
    cells = [
        [f"{row['images']:,}", f"{row['words']} x {row['fragments']}", row["dtype"],
         *(f"{row[of]:.3f}" for of in ("ms", "floor_ms", "with_top_20_ms"))]
        for row in rows
    ]  # fmt: skip
    return table(["images", "words x fragments", "stored as", "ms", "floor, ms", "with top 20, ms"], cells, words=3)


def _bundle(rows: list[dict[str, Any]]) -> str:
    cells = [
        [row["what"], *(f"{row[of]:.3g}" for of in ("p50_ms", "floor_ms", "launched_p50_ms"))]
        for row in rows
        if "launched_p50_ms" in row
    ]
    for row in rows:
        if row["what"] == "retrieve and rerank":
            cells.append([f"search {row['vectors']:,} vectors, match 20", f"{row['p50_ms']:.3g}", MISSING, MISSING])
    return table(["what", "ms", "floor, ms", "without a CUDA graph, ms"], cells)


def _pictures(rows: list[dict[str, Any]]) -> str:
    ways = ("pictures_per_second", "on_device_per_second", "graph_per_second", "floor_per_second")
    cells = [[f"{row['batch']}", *(f"{row[way]:,.0f}" for way in ways)] for row in rows if "floor_per_second" in row]
    return table(["batch", "images a second", "pixels on the GPU", "graph alone", "floor"], cells)


def _floors(results: Results) -> str:
    cells = []
    for row in results["floors"]["rows"]:
        name, find = _MEASURED[row["path"]]
        found = find(results[name])
        shown = [f"{row['floor_ms']:,.1f} ({row['bound_by']})", f"{found:,.1f}", f"{found / row['floor_ms']:.1f}x"]
        cells.append([row["path"], f"{row['bytes'] / 1e6:,.1f}", f"{row['operations'] / 1e9:,.2f}", *shown])
    return table(["path", "MB", "GFLOP", "floor, ms", "measured, ms", "times the floor"], cells)


def _stage(matched: str, stage: str) -> Callable[[Mapping[str, Any]], float]:
    """A stage of a warm search, with `none` or `20` matched."""
    way = f"sightline, {matched} matched"
    return lambda result: next(
        float(row["stages_ms"][stage]) for row in result["rows"] if row["start"] == "warm" and row["way"] == way
    )


_MEASURED: dict[str, tuple[str, Callable[[Mapping[str, Any]], float]]] = {
    "encode a picture": ("indexing", lambda result: 1000 / result["ways"]["index"]["photos_per_second"]),
    "encode a query": ("end_to_end", _stage("none", "encode")),
    "retrieve from 10,000 items": ("end_to_end", _stage("none", "retrieve")),
    "retrieve from 1,000,000 items": (
        "retrieval",
        lambda result: next(
            plots.retrieval_ms(row) for row in result["rows"] if (row["way"], row["items"]) == ("Sightline", 10**6)
        ),
    ),
    "interact with 200 candidates": ("late", lambda result: float(result["candidates"][1]["late"]["p50_ms"])),
    "match 20 candidates": ("end_to_end", _stage("20", "match")),
    "rank 5,000 images and 25,000 captions": (
        "evaluation",
        lambda result: 1000 * result["rows"][-1]["cpu_seconds"] / result["machine"]["cores"],
    ),
}
"""The result file that says how long a path took, and where in it."""


def _growth(rows: list[dict[str, Any]]) -> str:
    cells = [
        [row["stage"], row["of"], ", ".join(f"{size:,}" for size in row["sizes"]), f"{row['exponent']:.2f}"]
        for row in rows
    ]
    return table(["stage", "in", "measured at", "exponent"], cells, words=3)


def _evaluation(results: Results) -> str:
    """Table 4 of paper 1: calculated from rates on the CPU, measured on a GPU."""
    took = {
        (machine_of(results["evaluation"]), row["images"], system): seconds
        for row in results["evaluation"]["table4"]
        for system, seconds in row["seconds"].items()
    }
    for row in results["gpu"]["rows"]:
        if row["what"] == "evaluate":
            of = machine_of(results["gpu"]), row["images"]
            took |= {(*of, "embed"): row["seconds"] - row["parts"]["match"], (*of, "rerank 20"): row["seconds"]}
    cells = [
        [f"{images:,}", system, machine, _long(seconds), _long(PAPER[images][system])]
        for (machine, images, system), seconds in took.items()
    ]
    return table(["images", "system", "on", "here", "paper 1, on a V100"], cells, words=3)


def _long(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 2 * 3600 else f"{seconds / 3600:.1f} h"


def _training(rows: list[dict[str, Any]]) -> str:
    cells = [
        [row["model"], f"{row['batch']:,} {row['encoded']}" + (f" of {row['chunk']}" if "chunk" in row else ""),
         row.get("note") or f"{row['steps_per_second']:.2f}", f"{row['MB']:,.0f}" if "MB" in row else MISSING]
        for row in rows
    ]  # fmt: skip
    return table(["model", "batch", "steps a second", "MB"], cells, words=2)


def _sources(results: Results) -> str:
    rows = [
        [f"[{name}.json](../benchmarks/results/{name}.json)", f"`{result['command']}`", result["commit"][:10],
         machine_of(result)]
        for name, result in results.items()
    ]  # fmt: skip
    return table(["file", "command", "commit", "machine"], rows, words=4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "docs", help="folder to write into")
    out, results = parser.parse_args().out, read()
    (out / "performance.md").write_text(page(results, plots.draw(results, out / PLOTS)), encoding="utf-8")


if __name__ == "__main__":
    main()
