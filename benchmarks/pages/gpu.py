"""What a GPU took, beside the least that it could take, and beside plain torch: also where that is quicker."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.pages.markdown import MISSING, paragraph, table

Results = Mapping[str, Mapping[str, Any]]
Row = Mapping[str, Any]


def section(results: Results) -> str:
    """Every table that there are numbers for."""
    scan, late = (_rows(results, name, of) for name, of in (("scan-gpu", "rows"), ("late-gpu", "gpu")))
    bundle = _rows(results, "gpu", "rows")
    parts = [
        _scan(scan),
        _filters(scan),
        _cuts(scan),
        _late(late),
        _bundle(bundle),
        _search(bundle),
        _pictures(bundle),
    ]
    told = [part for part in parts if part]
    if not told:
        return "Not measured yet."
    named = {result["machine"].get("gpu", "a GPU") for name, result in results.items() if name.endswith("gpu")}
    opening = paragraph(
        f"""On {" and ".join(sorted(named))}, medians, from numbers on the processor to an answer there. A floor is what
        reading the bytes takes at the measured pace of the memory, or what the operations take at the rate of a large
        product, whichever is longer."""
    )
    return "\n\n".join([opening, *told])


def _rows(results: Results, name: str, of: str) -> Sequence[Row]:
    found: Sequence[Row] = results.get(name, {}).get(of, [])
    return found


def _scan(rows: Sequence[Row]) -> str:
    """Exact searches; below 1 in the last column, plain torch is quicker."""
    words = paragraph(
        """An exact search for the 20 best, of vectors with 512 numbers. Plain torch is a product in float16 and
        `topk`, which gives what float16 makes of the order; what is found here is what comparing everything in float64
        finds. *Times as quick* is how many times as long plain torch takes: below 1, it is the quicker one."""
    )
    cells = [
        [
            f"{row['vectors']:,}",
            f"{row['batch']}",
            row["dtype"],
            f"{row['p50_ms']:.2f}",
            f"{row['floor_ms']:.3f}",
            f"{row['times_floor']:.1f}",
            f"{row['plain_torch']['p50_ms']:.2f}",
            f"{row['times_as_quick']:.2f}",
        ]
        for row in rows
        if "plain_torch" in row
    ]
    heads = ["vectors", "queries", "kept as", "ms", "floor, ms", "times the floor", "plain torch, ms", "times as quick"]
    return f"{words}\n\n{table(heads, cells, words=3)}" if cells else ""


def _filters(rows: Sequence[Row]) -> str:
    """One query with a filter, beside the same without."""
    without = {(row["vectors"], row["dtype"]): row for row in rows if "plain_torch" in row and row["batch"] == 1}
    cells = [
        [
            f"{row['vectors']:,}",
            row["dtype"],
            f"as {row.get('told', 'a mask')}, {row.get('given', 'anew')}",
            f"{row['p50_ms']:.2f}",
            f"{without[row['vectors'], row['dtype']]['p50_ms']:.2f}",
        ]
        for row in rows
        if "filter" in row
    ]
    heads = ["vectors", "kept as", "a filter of one in ten, given", "ms", "without, ms"]
    return f"One query with a filter:\n\n{table(heads, cells, words=3)}" if cells else ""


def _cuts(rows: Sequence[Row]) -> str:
    """Every way of cutting the scan up: the scan itself, and what comes after it."""
    found: dict[tuple[int, ...], dict[tuple[str, int], Mapping[str, float]]] = {}
    for row in rows:
        if "steps_ms" in row:
            found.setdefault(tuple(row["cut"].values()), {})[row["dtype"], row["batch"]] = row["steps_ms"]
    cases = list(dict.fromkeys(case for steps in found.values() for case in steps))
    words = paragraph(
        """The ways of cutting a search up, over as many vectors as the targets speak of: milliseconds of the scan, and
        of all that comes after it, each step started many times in a row. The steps after the scan depend on the rows
        in a group alone; what they differ by otherwise is noise."""
    )
    cells = [[*map(str, cut), *(_scan_and_rest(steps.get(case)) for case in cases)] for cut, steps in found.items()]
    heads = ["rows in a group", "rows in a tile", "numbers", "warps", "stages"]
    heads += [f"{dtype}, {batch} {'query' if batch == 1 else 'queries'}" for dtype, batch in cases]
    return f"{words}\n\n{table(heads, cells, words=5)}" if cells else ""


def _scan_and_rest(steps: Mapping[str, float] | None) -> str:
    return MISSING if steps is None else f"{steps['scan']:.3f} + {sum(steps.values()) - steps['scan']:.3f}"


def _late(rows: Sequence[Row]) -> str:
    cells = [
        [
            f"{row['images']:,}",
            f"{row['words']} x {row['fragments']}",
            row["dtype"],
            f"{row['ms']:.3f}",
            f"{row['floor_ms']:.3f}",
            f"{row['ratio']:.2f}",
            f"{row['with_top_20_ms']:.3f}",
        ]
        for row in rows
    ]
    heads = ["images", "words x fragments", "kept as", "ms", "floor, ms", "times the floor", "with the 20 best, ms"]
    return f"Late interaction of one text with every image:\n\n{table(heads, cells, words=3)}" if cells else ""


def _bundle(rows: Sequence[Row]) -> str:
    cells = [
        [row["what"], *(f"{row[of]:.3g}" for of in ("p50_ms", "floor_ms", "times_floor", "launched_p50_ms"))]
        for row in rows
        if "launched_p50_ms" in row
    ]
    heads = ["the bundled model", "ms", "floor, ms", "times the floor", "not captured, ms"]
    return table(heads, cells) if cells else ""


def _search(rows: Sequence[Row]) -> str:
    """Whole searches, and what their parts take alone."""
    found = [row for row in rows if row["what"] == "retrieve and rerank"]
    cells = [
        [
            f"{row['vectors']:,}",
            f"{row['p50_ms']:.2f}",
            *(f"{parts[of]:.2f}" if of in parts else MISSING for of in ("encode", "retrieve", "fetch", "match")),
        ]
        for row in found
        for parts in [row.get("parts_ms") or {"retrieve": row["retrieve_p50_ms"]}]
    ]
    heads = ["a search of so many, 20 matched", "ms", "encode", "retrieve", "fetch states", "match"]
    return table(heads, cells) if cells else ""


def _pictures(rows: Sequence[Row]) -> str:
    """Pictures a second by what has to be done for them."""
    ways = ("pictures_per_second", "on_device_per_second", "graph_per_second", "floor_per_second")
    cells = [
        [f"{row['batch']}", *(f"{row[way]:,.0f}" if way in row else MISSING for way in ways)]
        for row in rows
        if "floor_per_second" in row
    ]
    heads = ["pictures at once", "a second, from pixels", "from pixels on the device", "the graph alone", "floor"]
    return table(heads, cells) if cells else ""
