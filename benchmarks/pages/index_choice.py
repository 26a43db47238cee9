"""Write docs/index-choice.md from its template, index_choice.md, and benchmarks/results/index_choice.json.

python -m benchmarks.pages.index_choice
"""

from pathlib import Path
from typing import Any

from benchmarks.markdown import fill, machine_of, table
from benchmarks.provenance import RESULTS, ROOT, read_result
from sightline.stores.local_search import Effort

TEMPLATE, PAGE = Path(__file__).with_name("index_choice.md"), ROOT / "docs" / "index-choice.md"
STORE = {
    "fill_seconds": "fill and flush, s",
    "open_ms": "open, ms",
    "first_search_ms": "first search, ms",
    "ms": "search, ms",
    "recall@20": "recall@20",
    "ms_of_half": "search among half of the ids, ms",
    "ms_of_thousand": "search among a thousand ids, ms",
    "ms_with_a_tenth_deleted": "search with a tenth deleted, ms",
    "add_100_and_flush_ms": "add 100 and flush, ms",
    "megabytes": "on disk, MB",
}


def page(result: dict[str, Any]) -> str:
    """The whole page."""
    largest, effort, loads = result["store"][-1], Effort(), [row["load_average"] for row in result["ways"]]
    values = {
        "exact up to": f"{effort.exact_up_to:,}",
        "candidates": f"{effort.candidates:,}",
        "one in": f"{effort.items_per_candidate}",
        "per result": f"{effort.candidates_per_result}",
        "largest": f"{largest['vectors']:,}",
        "largest ms": f"{largest['ms']}",
        "largest recall": f"{100 * largest['recall@20']:.1f} %",
        "ways": "\n\n".join(_size(result["ways"], size) for size in sorted({row["vectors"] for row in result["ways"]})),
        "robustness": _robustness(result["robustness"]),
        "store": table(["", *(f"{row['vectors']:,}" for row in result["store"])],
                       [[name, *(f"{row[key]:,}" for row in result["store"])] for key, name in STORE.items()]),
        "fetch ms": f"{result['fetch_200_ms']}",
        "machine": machine_of(result),
        "faiss": result["faiss"],
        "loads": f"{min(loads)} to {max(loads)}",
    }  # fmt: skip
    return fill(TEMPLATE, values)


def ours(size: int) -> str:
    """The row of a table that is nearest to what the store does with so many items."""
    effort = Effort()
    if effort.is_exact(size):
        return "exact: float16 in blocks, numpy"
    wanted = effort.candidates_for(size, k=20, dim=512)
    return f"signs, {min(n for n in (512, 1024, 2048, 4096) if n >= wanted)} rescored"


def _size(ways: list[dict[str, Any]], size: int) -> str:
    rows = [row for row in ways if row["vectors"] == size]
    cells = [
        [f"**{row['way']}**" if row["way"] == ours(size) else row["way"], f"{row['recall@20']:.3f}",
         f"{row['ms']:.2f}", f"{rows[0]['ms'] / row['ms']:.1f}", f"{row['megabytes']:,.0f}",
         f"{row['build_seconds']:.1f}", f"{row['load_seconds']:.2f}"]
        for row in rows
    ]  # fmt: skip
    shown = table(["way", "recall@20", "ms", "speed-up", "MB", "build s", "load s"], cells)
    return f"## {size:,} vectors\n\n{shown}"


def _robustness(rows: list[dict[str, Any]]) -> str:
    candidates = sorted({row["candidates"] for row in rows})
    found = {(row["vectors"], row["candidates"]): f"{row['recall@20']:.3f}" for row in rows}
    kinds = dict.fromkeys(row["vectors"] for row in rows)
    return table(["vectors", *(f"{n:,}" for n in candidates)], [[k, *(found[k, n] for n in candidates)] for k in kinds])


def main() -> None:
    PAGE.write_text(page(read_result(RESULTS / "index_choice.json")), encoding="utf-8")


if __name__ == "__main__":
    main()
