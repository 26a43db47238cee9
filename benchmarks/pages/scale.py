"""Write docs/scale.md: the words and the arithmetic are here, the numbers in the files of benchmarks/results.

python -m benchmarks.pages.scale
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.pages.markdown import paragraph

ROOT = Path(__file__).resolve().parents[2]
RESULTS, PAGE = ROOT / "benchmarks" / "results", ROOT / "docs" / "scale.md"
IMAGES = 1_000_000_000
SHARD = 1_000_000
LOAD = 0.5
CORES, MEMORY_GB = 64, 512
"""Of a machine, for counting machines: assumed."""
PICTURE_BYTES = 1e5
"""Assumed."""
PRECISIONS = {"float32": (4, 0), "float16": (2, 0), "int8": (1, 4)}
"""Bytes of a number, and of the scale that each vector has besides."""
KEPT = {"embedding": "float16", "fragments": "int8", "states": "int8"}
PRICES = {"core_hour": 0.04, "memory_gb_month": 3.0, "disk_gb_month": 0.08, "object_gb_month": 0.023}
"""Assumed, in dollars: round figures of what clouds ask. Nothing here measured them; put in your own."""
HOURS_OF_A_MONTH = 730


@dataclass(frozen=True, slots=True)
class Measured:
    """Every measured number that the page uses, read from the result files.

    core_rate, pair_rate: photos a second indexed by one core, and by two. written: items a second that one writer
    stores. own_bytes: of an item in a collection. scan_ms: processor time of one core for a query over a shard.
    query_ms, rerank_ms: processor time of a server for a query without and with 20 candidates matched, over few items.
    late_ms: late interaction of 200 candidates.
    """

    widths: dict[str, tuple[int, int]]
    core_rate: float
    pair_rate: float
    written: float
    own_bytes: float
    scan_ms: float
    scan_ms_small: float
    query_ms: float
    rerank_ms: float
    late_ms: float
    store_bytes: float

    @classmethod
    def read(cls, results: Path) -> "Measured":
        """Take the numbers out of the files."""
        scale, indexing, searching = (_read(results, name) for name in ("scale", "indexing", "searching"))
        late, served, choice = (_read(results, name) for name in ("late", "serve", "index_choice"))
        largest = [row for row in searching["rows"] if "rerank 20" in row][-1]  # with fragments and states
        small, large = scale["services"]
        runs = {run["rerank"]: run for run in served["runs"] if not run["other_clients"]}
        return cls(
            widths={name: (count, width) for name, (count, width) in scale["widths"].items()},
            core_rate=indexing["ways"]["one core"]["photos_per_second"],
            pair_rate=indexing["ways"]["index"]["photos_per_second"],
            written=largest["items"] / largest["make_seconds"],
            own_bytes=largest["bytes"] / largest["items"],
            scan_ms=mean(large["processor_ms"]),
            scan_ms_small=mean(small["processor_ms"]),
            query_ms=runs[0]["server_cpu_ms_per_query"],
            rerank_ms=runs[20]["server_cpu_ms_per_query"],
            late_ms=late["candidates"][-1]["late"]["p50_ms"],
            store_bytes=1e6 * choice["store"][-1]["megabytes"] / choice["store"][-1]["vectors"],
        )

    def bytes_of(self, part: str, precision: str) -> float:
        """Of one item: vectors x (numbers x bytes of a number + bytes of a scale)."""
        count, width = self.widths[part]
        if precision == "1 bit":
            return count * width / 8
        number, scale = PRECISIONS[precision]
        return count * (width * number + scale)

    @property
    def core_hours(self) -> float:
        """To encode everything."""
        return IMAGES / self.core_rate / 3600

    @property
    def core_seconds_of_a_query(self) -> float:
        """To scan every shard."""
        return IMAGES / SHARD * self.scan_ms / 1000

    def cores_for(self, queries_per_second: float) -> float:
        """To scan, at the load that leaves room for bursts."""
        return queries_per_second * self.core_seconds_of_a_query / LOAD

    @property
    def memory_gb(self) -> float:
        """Of embeddings and their signs, which a scan reads."""
        return IMAGES * (self.bytes_of("embedding", KEPT["embedding"]) + self.bytes_of("embedding", "1 bit")) / 1e9

    @property
    def disk_gb(self) -> float:
        """Of all that a collection keeps."""
        return IMAGES * self.own_bytes / 1e9


def page(results: Path) -> str:
    """The whole page."""
    measured, scale = Measured.read(results), _read(results, "scale")
    parts = [
        _opening(measured),
        _inputs(measured),
        _storage(measured),
        _encoding(measured),
        _searching(measured),
        _fan_out(scale),
        _cost(measured),
        _open_questions(scale),
    ]
    return "\n\n".join(parts) + "\n"


def _opening(m: Measured) -> str:
    words = f"""This page works out what {IMAGES:,} images need: disk, memory, machines, hours, queries a second,
        money. No cluster of that size was at hand. Every number is a measurement on a machine of two small cores,
        kept in `benchmarks/results/`, or follows from such by the arithmetic that stands beside it. `python
        benchmarks/pages/scale.py` writes the page anew from the files. In short: {_tera(IMAGES * m.own_bytes)} on
        disk, {m.core_hours:,.0f} core hours to encode, {m.core_seconds_of_a_query:.1f} core seconds a query where
        every embedding is looked at."""
    return f"# A billion images, on paper\n\n{paragraph(words)}"


def _inputs(m: Measured) -> str:
    rows = [
        ("r", "photos a second that one core indexes", f"{m.core_rate:.2f}", "indexing.json, `ways.one core`"),
        ("r2", "the same, two cores", f"{m.pair_rate:.2f}", "indexing.json, `ways.index`"),
        ("w", "items a second that one writer stores", f"{m.written:,.0f}", "searching.json, `items / make_seconds`"),
        ("b", "bytes of an item, all told", f"{m.own_bytes:,.0f}", "searching.json, `bytes / items`"),
        ("s", f"ms of one core for a query over {SHARD:,} items", f"{m.scan_ms:.2f}", "scale.json, `services`"),
        ("q", "ms of a server for a query, its text encoded", f"{m.query_ms:.1f}", "serve.json, `runs`, rerank 0"),
        ("m", "the same, with 20 candidates matched", f"{m.rerank_ms:.0f}", "serve.json, `runs`, rerank 20"),
        ("l", "ms for late interaction of 200 candidates", f"{m.late_ms:.1f}", "late.json, `candidates`, 32 words"),
    ]
    heads = ("", "what was measured", "here", "where it stands")
    lines = [(name, what, value, where) for name, what, value, where in rows]
    return f"## What is multiplied\n\n{_table(heads, lines, 'llrl')}"


def _storage(m: Measured) -> str:
    kinds = [*PRECISIONS, "1 bit"]
    rows = []
    for part, (count, width) in m.widths.items():
        cells = []
        for kind in kinds:
            size = _tera(IMAGES * m.bytes_of(part, kind))
            cells.append(f"**{size}**" if KEPT[part] == kind or (part == "embedding" and kind == "1 bit") else size)
        rows.append((part, f"{count} x {width}", *cells))
    kept = sum(m.bytes_of(part, kind) for part, kind in KEPT.items()) + m.bytes_of("embedding", "1 bit")
    words = """An item is n vectors of d numbers, and takes n x (d x bytes of a number + 4 bytes for a scale, in int8
        only). Times a billion, with what Sightline keeps in bold; of an embedding it keeps the signs, too:"""
    after = f"""The parts in bold are {kept:,.0f} bytes an item. Measured, with the catalog and all else, an item
        takes b = {m.own_bytes:,.0f}: the catalog's share is the difference, {m.own_bytes - kept:,.0f} bytes. A store
        of embeddings alone takes {m.store_bytes:,.0f} bytes an item (index_choice.json), for {
        m.memory_gb
        * 1e9
        / IMAGES:,.0f} by the formula. Fragments and states are read for candidates only and can lie on disks; the
        embeddings and their signs, {m.memory_gb:,.0f} GB, must be in memory for s to hold."""
    heads = ("part", "n x d", *kinds)
    return f"## Storage\n\n{paragraph(words)}\n\n{_table(heads, rows, 'llrrrr')}\n\n{paragraph(after)}"


def _encoding(m: Measured) -> str:
    cores = (64, 512, 4096)
    rows = [(f"{count:,}", _hours(IMAGES / (m.core_rate * count) / 3600)) for count in cores]
    writers = {count: IMAGES / m.written / 3600 / count for count in (1, 10, 100)}
    gain = m.pair_rate / m.core_rate
    words = f"""Reading, decoding, encoding and storing goes at r photos a second and core, so N cores need
        {IMAGES:,} / (r x N x 3600) hours. Two cores index {gain:.2f} times as quickly as one, and workers of
        `sightline index --workers ray` share nothing but the way to the writer:"""
    after = f"""One writer stores w items a second, {_hours(writers[1])} for all, so a single collection would hold
        up more than {m.written / m.core_rate:,.0f} cores. Ten collections, each with a driver of its own, need
        {_hours(writers[10])} of writing beside the encoding, a hundred {_hours(writers[100])}. If a picture has 100
        kB, {IMAGES * PICTURE_BYTES / 1e12:,.0f} TB are to be read: for {cores[1]} cores {
        cores[1] * m.core_rate * PICTURE_BYTES / 1e6:,.0f} MB a second from the storage."""
    note = """No rate of a graphics processor is in the files; with one of your own, hours = images / (rate x
        processors x 3600)."""
    return (
        f"## Hours of encoding\n\n{paragraph(words)}\n\n{_table(('cores', 'hours'), rows, 'rr')}\n\n"
        f"{paragraph(after)}\n\n{paragraph(note)}"
    )


def _searching(m: Measured) -> str:
    shards = IMAGES // SHARD
    rows = []
    for rate in (1, 10, 100):
        scan, match = math.ceil(m.cores_for(rate)), math.ceil(rate * m.rerank_ms / 1000 / LOAD)
        machines = math.ceil(max((scan + match) / CORES, m.memory_gb / (0.8 * MEMORY_GB)))
        rows.append((f"{rate:,}", f"{scan:,}", f"{match:,}", f"{machines:,}"))
    words = f"""A billion items are {shards:,} shards of {SHARD:,}. The local store compares the query's signs with
        those of every item, then one item in 256 exactly, which takes one core s ms a shard: {shards:,} x s =
        {m.core_seconds_of_a_query:.1f} core seconds a query, on however many machines. Cores must be idle for a part
        of their time or queries queue: Q queries a second take Q x {m.core_seconds_of_a_query:.1f} / {LOAD} cores at
        a load of {LOAD:.0%}. Encoding the query and matching 20 candidates takes another Q x m / 1000 / {LOAD},
        wherever that is done. A machine is taken to have {CORES} cores, and {MEMORY_GB} GB of which a fifth is left
        free; cores or the {m.memory_gb:,.0f} GB of embeddings, whichever needs more, say how many:"""
    after = f"""Over {SHARD // 10:,} items a query takes {m.scan_ms_small:.2f} ms of one core, over ten times as many
        {m.scan_ms:.2f}: {m.scan_ms / m.scan_ms_small:.1f} times as long. Looking at everything needs no training,
        loses next to nothing and makes changes cheap (see [index-choice.md](index-choice.md)), and at this size it
        has its price: for more than a few queries a second, keep the embeddings in an engine whose index does not
        look at everything, `--store milvus://…`, and leave the rest as it is. Late interaction of 200 candidates
        adds l = {m.late_ms:.1f} ms to a query, matching 20 of them {m.rerank_ms - m.query_ms:.0f} ms of a core;
        neither depends on how many items there are."""
    heads = ("queries a second", "cores that scan", "cores that match", "machines")
    return f"## Queries a second\n\n{paragraph(words)}\n\n{_table(heads, rows, 'rrrr')}\n\n{paragraph(after)}"


def _fan_out(scale: dict[str, Any]) -> str:
    rows = scale["simulation"]
    loads = sorted({row["load"] for row in rows})
    found = {(row["clock"], row["shards"], row["load"], row["copies"]): row for row in rows}
    shards = sorted({row["shards"] for row in rows})
    lines = [
        (f"{count:,}", str(copies), *(_tail(found["processor_ms", count, load, copies]) for load in loads))
        for count in shards
        for copies in (1, 2)
    ]
    heads = ("shards asked", "copies", *(f"load {load:.0%}" for load in loads))
    large = scale["services"][-1]
    words = f"""A query is answered when the last shard has answered, so the slowest of many decides. Simulated:
        {scale["simulated_queries"]:,} queries arrive at random; each asks every shard; a machine holds one shard,
        answers one query at a time with one core, and is busy for the given share of its time; how long it takes is
        drawn from the {len(large["wall_ms"])} processor times measured over {large["items"]:,} items. With two
        copies of each shard, a query goes to the one that is free sooner. `benchmarks/fan_out.py` is the simulation;
        tests hold it against the formulas of queueing theory. The median and the 99th percentile of the answer, in
        ms:"""
    single, many = found["processor_ms", 1, LOAD, 1], found["processor_ms", shards[-1], LOAD, 1]
    two = found["processor_ms", shards[-1], LOAD, 2]
    noisy = [found["wall_ms", count, LOAD, 1] for count in (1, shards[-1])]
    after = f"""At a load of {LOAD:.0%}, the median over {shards[-1]:,} shards is {
        many["p50_ms"] / single["p50_ms"]:.1f} times that of one shard, and with a second copy of each {
        two["p50_ms"] / single["p50_ms"]:.1f} times; the 99th percentile goes from {_ms(many["p99_ms"])} to {
        _ms(two["p99_ms"])
    } ms.
        What a crowded machine does: by the clock on the wall, while other work waited for the same cores (load
        average {scale["load_average"]:.1f} on {scale["machine"]["cores"]}), the same queries gave {_tail(noisy[0])}
        ms for one shard and {_tail(noisy[1])} ms for {shards[-1]:,}. Give shards machines of their own."""
    return "\n\n".join(
        [f"## When every shard must answer\n\n{paragraph(words)}", _table(heads, lines, "rrrrr"), paragraph(after)]
    )


def _cost(m: Measured) -> str:
    encode = m.core_hours * PRICES["core_hour"]
    scan = m.cores_for(10) * PRICES["core_hour"] * HOURS_OF_A_MONTH
    rows = [
        ("encode once", f"{m.core_hours:,.0f} core hours x {PRICES['core_hour']}", f"{encode:,.0f}"),
        (
            "keep all on disks",
            f"{m.disk_gb:,.0f} GB x {PRICES['disk_gb_month']}",
            f"{_money(m.disk_gb, 'disk_gb_month')}",
        ),
        (
            "or in object storage",
            f"{m.disk_gb:,.0f} GB x {PRICES['object_gb_month']}",
            f"{_money(m.disk_gb, 'object_gb_month')}",
        ),
        (
            "embeddings in memory",
            f"{m.memory_gb:,.0f} GB x {PRICES['memory_gb_month']}",
            f"{_money(m.memory_gb, 'memory_gb_month')}",
        ),
        (
            "10 queries a second, all scanned",
            f"{m.cores_for(10):,.0f} cores x {HOURS_OF_A_MONTH} h x {PRICES['core_hour']}",
            f"{scan:,.0f}",
        ),
    ]
    words = """Prices are assumed, round figures of what clouds ask, and with the size of a machine and of a picture
        the only numbers of this page that nobody measured: change `PRICES` in `benchmarks/pages/scale.py` and write
        the page anew. All but the first are for a month."""
    return f"## Cost\n\n{paragraph(words)}\n\n{_table(('what', 'arithmetic', 'dollars'), rows, 'llr')}"


def _open_questions(scale: dict[str, Any]) -> str:
    machine = scale["machine"]
    words = f"""The cores measured are two of {machine["processor"]}, shared with other work: a machine of your own
        is likely to be quicker, and the first thing to do is to measure r and s on it (`benchmarks/indexing.py`,
        `benchmarks/scale.py`). Not counted: the network between machines, the pictures themselves, copies for
        safety, and what people cost. The simulation draws service times independently, though a query that is long
        for one shard may be so for others; and it knows no machine that fails."""
    origin = f"""From [scale.json](../benchmarks/results/scale.json) (`{scale["command"]}`, commit
        {scale["commit"][:10]}, seed {scale["seed"]}, model {scale["model"]}) and the other files named above, each
        of which says where it comes from."""
    return f"## What to distrust\n\n{paragraph(words)}\n\n{paragraph(origin)}"


def _read(results: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((results / f"{name}.json").read_text(encoding="utf-8"))
    return found


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], align: str) -> str:
    rule = ["---:" if side == "r" else "---" for side in align]
    return "\n".join("| " + " | ".join(row) + " |" for row in (heads, rule, *rows))


def _tera(count: float) -> str:
    return f"{count / 1e12:.2f} TB" if count < 1e13 else f"{count / 1e12:.1f} TB"


def _hours(hours: float) -> str:
    return f"{hours:,.0f} h" if hours >= 10 else f"{hours:.1f} h"


def _ms(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def _tail(row: dict[str, Any]) -> str:
    return f"{_ms(row['p50_ms'])} / {_ms(row['p99_ms'])}"


def _money(gigabytes: float, price: str) -> str:
    return f"{gigabytes * PRICES[price]:,.0f}"


def main() -> None:
    PAGE.write_text(page(RESULTS), encoding="utf-8")


if __name__ == "__main__":
    main()
