"""Write docs/performance.md and its plots: numbers from the files of benchmarks/results, words from here and the notes.

    python -m benchmarks.pages.performance

What was not measured yet is said to be so. What each change gained, and why a target is missed, is written by hand in
performance.notes.md, which the page takes in whole.
"""

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.pages import gpu, speed_plots
from benchmarks.pages.markdown import MISSING, paragraph, table
from benchmarks.pages.targets import MET, UNMEASURED, judged
from benchmarks.table4 import PAPER

ROOT = Path(__file__).resolve().parents[2]
RESULTS, DOCS = ROOT / "benchmarks" / "results", ROOT / "docs"
NOTES, PLOTS = ROOT / "benchmarks" / "pages" / "performance.notes.md", Path("plots", "speed")
Results = Mapping[str, Mapping[str, Any]]


def read(folder: Path) -> dict[str, dict[str, Any]]:
    """Every result file that lies in the folder, by its name."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}


def page(results: Results, notes: str, drawn: Mapping[str, str]) -> str:
    """The whole page; drawn: what each plot shows, by the name of its file."""
    parts = [
        "# Performance",
        "<!-- Written by benchmarks/pages/performance.py (make results) from benchmarks/results. Do not edit. -->",
        _opening(results),
        "## What was promised",
        _promised(results),
        *(f"![{title}]({(PLOTS / name).as_posix()})" for name, title in drawn.items()),
        "## On a GPU",
        gpu.section(results),
        "## The floors",
        _floors(results),
        "## How the time grows",
        _growth(results),
        "## Evaluating, as Table 4 of paper 1",
        _table4(results),
        "## Training in chunks",
        _training(results),
        notes.strip(),
        "## Where the numbers come from",
        _origins(results),
    ]
    return "\n\n".join(parts) + "\n"


def _opening(results: Results) -> str:
    verdicts = [target.verdict(value) for target, value in judged(_ratios(results))]
    met, open_ = verdicts.count(MET), verdicts.count(UNMEASURED)
    return paragraph(
        f"""Every number of the processor is a ratio, measured in one run on one machine next to what one would use
        instead. `make bench` measures a smaller case of all of it and prints the ratios of the machine at hand. Of
        {len(verdicts)} targets, met: {met}; missed: {len(verdicts) - met - open_}; not measured yet: {open_}. Where one
        is missed, the notes below say why, and what was tried."""
    )


def _ratios(results: Results) -> dict[str, Mapping[str, float]]:
    return {name: result.get("ratios", {}) for name, result in results.items()}


def _promised(results: Results) -> str:
    rows = [
        [target.what, target.asked, MISSING if value is None else f"{value:.3g}{target.unit}", target.verdict(value)]
        for target, value in judged(_ratios(results))
    ]
    return table(["what", "target", "here", "verdict"], rows, words=4)


def _floors(results: Results) -> str:
    if "floors" not in results:
        return "Not measured yet."
    floors = results["floors"]
    words = paragraph(
        f"""A path can be no quicker than its bytes over the bandwidth of the memory, or its operations over the rate of
        the processors, whichever takes longer. Measured: {floors["bytes_per_second"] / 1e9:.1f} GB a second, and
        {floors["operations_per_second"] / 1e9:.0f} thousand million operations a second in float32, with all
        processors. The graphs of the bundled model compute in int8, which does more operations a second: they go below
        the floor of float32."""
    )
    rows = []
    for row in floors["rows"]:
        found = _taken(results, row["path"])
        rows.append(
            [
                row["path"],
                f"{row['bytes'] / 1e6:,.1f}",
                f"{row['operations'] / 1e9:,.2f}",
                f"{row['floor_ms']:,.1f} ({row['bound_by']})",
                MISSING if found is None else f"{found:,.1f}",
                MISSING if found is None else f"{found / row['floor_ms']:.1f}",
            ]
        )
    heads = ["path", "MB", "10⁹ operations", "floor, ms", "here, ms", "times the floor"]
    return f"{words}\n\n{table(heads, rows)}"


def _taken(results: Results, path: str) -> float | None:
    """Milliseconds that a path was measured to take; None where it was not."""
    way = _MEASURED.get(path)
    return None if way is None or way[0] not in results else way[1](results[way[0]])


def _stage(matched: str, stage: str) -> Callable[[Mapping[str, Any]], float]:
    """A stage of a warm search, with `none` or `20` matched."""

    def found(result: Mapping[str, Any]) -> float:
        way = f"sightline, {matched} matched"
        (row,) = [row for row in result["rows"] if row["start"] == "warm" and row["way"] == way]
        return float(row["stages_ms"][stage])

    return found


def _retrieval(result: Mapping[str, Any]) -> float | None:
    """Sightline's own way over a million vectors, with all cores."""
    rows = {row["items"]: row for row in result["rows"] if row["way"] == "Sightline"}
    return speed_plots.retrieval_ms(rows[1_000_000]) if 1_000_000 in rows else None


_MEASURED: dict[str, tuple[str, Callable[[Mapping[str, Any]], float | None]]] = {
    "encode a picture": ("indexing", lambda result: 1000 / result["ways"]["index"]["photos_per_second"]),
    "encode a query": ("end_to_end", _stage("none", "encode")),
    "retrieve from 10,000 items": ("end_to_end", _stage("none", "retrieve")),
    "retrieve from 1,000,000 items": ("retrieval", _retrieval),
    "interact with 200 candidates": ("late", lambda result: float(result["candidates"][1]["late"]["p50_ms"])),
    "match 20 candidates": ("end_to_end", _stage("20", "match")),
    "rank 5,000 images and 25,000 captions": (
        "evaluation",
        lambda result: 1000 * result["rows"][-1]["cpu_seconds"] / result["machine"]["cores"],
    ),
}
"""Which file says how long a path took, and where in it."""


def _growth(results: Results) -> str:
    if "growing" not in results:
        return "Not measured yet."
    words = paragraph(
        "The exponent is the power of the number that the time follows: 1 is in proportion, 0 is no matter how many."
    )
    rows = [
        [row["stage"], row["of"], ", ".join(f"{size:,}" for size in row["sizes"]), f"{row['exponent']:.2f}"]
        for row in results["growing"]["rows"]
    ]
    return f"{words}\n\n{table(['stage', 'in', 'measured at', 'exponent'], rows, words=3)}"


def _table4(results: Results) -> str:
    """Table 4 of the paper: what follows from rates, and what a GPU took, beside what the paper took on its own."""
    worked_out = results.get("evaluation", {})
    rows = [
        [f"{row['images']:,}", system, _machine(worked_out), _long(row["seconds"][system]), _long(paper)]
        for row in worked_out.get("table4", [])
        for system, paper in row["paper_seconds"].items()
    ]
    for row in results.get("gpu", {}).get("rows", []):
        if row["what"] == "evaluate" and row["images"] in PAPER:
            embed = row["seconds"] - row["parts"]["match"]
            rows += [
                [
                    f"{row['images']:,}",
                    system,
                    _machine(results["gpu"]),
                    _long(took),
                    _long(PAPER[row["images"]][system]),
                ]
                for system, took in (("embed", embed), ("rerank 20", row["seconds"]))
            ]
    if not rows:
        return "Not measured yet."
    told = [paragraph(_arithmetic(worked_out["rates"]))] if "rates" in worked_out else []
    return "\n\n".join([*told, table(["images", "system", "on", "here", "paper 1, on a V100"], rows, words=3)])


def _machine(result: Mapping[str, Any]) -> str:
    machine = result["machine"]
    return machine.get("gpu") or f"{machine['cores']} cores, {machine['processor']}"


def _arithmetic(rates: Mapping[str, Any]) -> str:
    on = rates["measured_on"]
    images, captions, pairs = f"{rates['images']:.2f}", f"{rates['captions']:.0f}", f"{rates['pairs']:.0f}"
    return f"""On the processor the table is worked out from rates, measured by evaluating on {on["images"]} images and
        {on["captions"]} captions: {images} images, {captions} captions and {pairs} pairs a second. For n images with
        five captions each, embedding takes n / {images} + 5 n / {captions} seconds; reranking 20 x 6 n / {pairs} more;
        matching everything 5 n² / {pairs} instead."""


def _long(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 2 * 3600 else f"{seconds / 3600:.1f} h"


def _training(results: Results) -> str:
    found = [row for name in ("training", "training-gpu") for row in results.get(name, {}).get("rows", [])]
    if not found:
        return "Not measured yet."
    rows = [
        [
            row["model"],
            f"{row['batch']:,} {row['encoded']}" + (f" of {row['chunk']}" if "chunk" in row else ""),
            row.get("note") or f"{row['steps_per_second']:.2f}",
            f"{row['MB']:,.0f}" if "MB" in row else MISSING,
        ]
        for row in found
    ]
    return table(["model", "batch", "steps a second", "MB"], rows, words=2)


def _origins(results: Results) -> str:
    rows = []
    for name in _USED:
        if name in results:
            result = results[name]
            link = f"[{name}.json](../benchmarks/results/{name}.json)"
            rows.append([link, f"`{result['command']}`", result["commit"][:10], _machine(result)])
    return table(["file", "command", "commit", "machine"], rows, words=4)


_USED = (
    *("indexing", "encoding", "retrieval", "late", "matching", "end_to_end", "evaluation", "training", "growing"),
    *("floors", "gpu", "scan-gpu", "late-gpu", "training-gpu"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=DOCS, help="folder to write into")
    arguments = parser.parse_args()
    results = read(RESULTS)
    drawn = speed_plots.draw(results, arguments.out / PLOTS)
    made = page(results, NOTES.read_text(encoding="utf-8"), drawn)
    (arguments.out / "performance.md").write_text(made, encoding="utf-8")


if __name__ == "__main__":
    main()
