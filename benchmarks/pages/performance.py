"""Generate docs/performance.md from its template, performance.md, and the files in benchmarks/results."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.evaluation import PAPER
from benchmarks.markdown import MISSING, fill, machine_of, table
from benchmarks.pages.targets import TARGETS
from benchmarks.provenance import RESULTS, read_result
from benchmarks.vector_search.indexes import OURS
from benchmarks.vector_search.steps import EQUAL, LEAST

TEMPLATE, PLOTS = Path(__file__).with_name("performance.md"), Path("plots", "speed")
Results = Mapping[str, Mapping[str, Any]]
USED = (
    *("indexing", "retrieval", "late", "matching", "end_to_end", "evaluation", "training", "growing"),
    *("gpu", "scan-gpu", "training-gpu"),
)


def read(folder: Path = RESULTS) -> dict[str, dict[str, Any]]:
    """The result files that the page uses, by name."""
    return {name: read_result(folder / f"{name}.json") for name in USED}


def page(results: Results, drawn: Mapping[str, str]) -> str:
    """The complete page; drawn: descriptions of the plots, by file name."""
    rates = results["evaluation"]["rates"]
    saves, builds = _graphs(results["retrieval"]["rows"], 100_000)
    warm = {row["way"]: row["p50_ms"] for row in results["end_to_end"]["rows"] if row["start"] == "warm"}
    values = {
        "targets": _targets(results),
        "plots": "\n\n".join(f"![{title}]({(PLOTS / name).as_posix()})" for name, title in drawn.items()),
        "photos": _photos(results["indexing"]["rows"]),
        "retrieval": _retrieval(results["retrieval"]["rows"]),
        "graph saves": f"{min(saves):.1f} to {max(saves):.1f}",
        "graph builds": f"{min(builds):.0f} to {max(builds):.0f}",
        "search ms": f"{warm['sightline, none matched']:.0f}",
        "rerank ms": f"{warm['sightline, 20 matched']:.0f}",
        "gpu": machine_of(results["gpu"]),
        "scan": _scan(results["scan-gpu"]["rows"]),
        "bundle gpu": _bundle(results["gpu"]["rows"]),
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
        if value is not None:
            met = "yes" if target.is_met(value) else "**no**"
            rows.append([target.what, f"{value:.3g}{target.unit}", target.bound, met])
    return table(["what", "measured", "target", "met"], rows, words=4)


def _photos(rows: list[dict[str, Any]]) -> str:
    """Photos a second by size of the photos, for each way of indexing."""
    names = {"loop": "plain loop", "rclip": "rclip's method", "index": "`index`", "quick": "`index --quick`"}
    rates = {(row["megapixels"], row["way"]): row["photos_per_second"] for row in rows if "megapixels" in row}
    sizes = sorted({size for size, _ in rates})
    cells = [[f"{size:g} megapixels", *(f"{rates[size, way]:.1f}" for way in names)] for size in sizes]
    return table(["photos of", *names.values()], cells)


def _retrieval(rows: list[dict[str, Any]]) -> str:
    """Every index at every size: milliseconds at each target recall, with one core and with two, and building it."""
    cells = []
    for row in rows:
        if "cores" in row:
            one, two = row["cores"]["1"], row["cores"]["2"]
            aims = [_recall_and_ms(one.get(aim, one[EQUAL]), two.get(aim, two[EQUAL])) for aim in (LEAST, EQUAL)]
            cells.append(
                [f"{row['items']:,}", row["way"], *aims[0], *aims[1], f"{row['build_seconds']:.1f}",
                 f"{row['MB_on_disk']:,.0f}"]
            )  # fmt: skip
    heads = ["recall", "ms, one core", "ms, two cores"]
    return table(["vectors", "index", *heads, *heads, "build s", "MB"], cells, words=2)


def _recall_and_ms(one: Mapping[str, float], two: Mapping[str, float]) -> list[str]:
    return [f"{one['recall@20']:.3f}", f"{one['p50_ms']:.2f}", f"{two['p50_ms']:.2f}"]


def _graphs(rows: list[dict[str, Any]], size: int) -> tuple[list[float], list[float]]:
    """How many milliseconds graph indexes save over Sightline, and how many times as long they take to build."""
    ways = {row["way"]: row for row in rows if row["items"] == size}
    ours, graphs = ways[OURS.name], [row for way, row in ways.items() if "HNSW" in way]
    saves = [
        own[aim]["p50_ms"] - graph["cores"][cores][aim]["p50_ms"]
        for graph in graphs
        for cores, own in ours["cores"].items()
        for aim in (LEAST, EQUAL)
    ]
    return saves, [graph["build_seconds"] / ours["build_seconds"] for graph in graphs]


def _scan(rows: list[dict[str, Any]]) -> str:
    """Exact searches; where the last column is below 1, plain torch is faster."""
    filtered = {(row["vectors"], row["dtype"], row["given"]): row["p50_ms"] for row in rows if "filter" in row}
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


def _bundle(rows: list[dict[str, Any]]) -> str:
    cells = [[row["what"], f"{row['p50_ms']:.2f}"] for row in rows if "p50_ms" in row]
    batches = [row for row in rows if "pictures_per_second" in row]
    cells += [[f"images a second, {row['batch']} at once", f"{row['pictures_per_second']:,.0f}"] for row in batches]
    return table(["what", "ms, or images a second"], cells)


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
