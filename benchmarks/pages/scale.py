"""Generate docs/scale.md, the estimate for a billion images, from its template, scale.md, and benchmarks/results."""

import math
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from benchmarks.markdown import fill, table
from benchmarks.provenance import RESULTS, read_result

TEMPLATE = Path(__file__).with_name("scale.md")
IMAGES, SHARD = 1_000_000_000, 1_000_000
LOAD = 0.5
CORES, MEMORY_GB, IMAGE_BYTES = 64, 512, 1e5  # assumed, for a machine and for an image file
PRECISIONS = {"float32": (4, 0), "float16": (2, 0), "int8": (1, 4)}  # bytes per number, and per vector for its scale
STORED = {"embedding": ("float16", "1 bit"), "fragments": ("int8",), "states": ("int8",)}


@dataclass(frozen=True, slots=True)
class Measured:
    """The measured numbers that the page uses; see Measurements in scale.md.

    pair_rate: photos indexed per second by two cores. scan_ms_small: the time of a query over a tenth of a shard.
    """

    widths: dict[str, tuple[int, int]]
    core_rate: float
    pair_rate: float
    written: float
    item_bytes: float
    scan_ms: float
    scan_ms_small: float
    query_ms: float
    rerank_ms: float
    late_ms: float

    @classmethod
    def read(cls, results: Path) -> "Measured":
        """Read the numbers from the result files."""
        files = ("scale", "indexing", "late", "serve")
        scale, indexing, late, served = (read_result(results / f"{name}.json") for name in files)
        small, large = scale["services"]
        runs = {run["rerank"]: run for run in served["runs"] if not run["other_clients"]}
        return cls(
            widths={name: (count, width) for name, (count, width) in scale["widths"].items()},
            core_rate=indexing["ways"]["one core"]["photos_per_second"],
            pair_rate=indexing["ways"]["index"]["photos_per_second"],
            written=scale["collection"]["items"] / scale["collection"]["make_seconds"],
            item_bytes=scale["collection"]["bytes"] / scale["collection"]["items"],
            scan_ms=mean(large["processor_ms"]),
            scan_ms_small=mean(small["processor_ms"]),
            query_ms=runs[0]["server_cpu_ms_per_query"],
            rerank_ms=runs[20]["server_cpu_ms_per_query"],
            late_ms=late["candidates"][-1]["late"]["cpu_p50_ms"],
        )

    def bytes_of(self, part: str, precision: str) -> float:
        """Return the bytes per item: vectors x (numbers x bytes per number + bytes per scale)."""
        count, width = self.widths[part]
        if precision == "1 bit":
            return count * width / 8
        number, scale = PRECISIONS[precision]
        return count * (width * number + scale)

    @property
    def core_hours(self) -> float:
        """The core hours needed to encode everything."""
        return IMAGES / self.core_rate / 3600

    @property
    def query_core_seconds(self) -> float:
        """The core seconds needed to scan every shard for one query."""
        return IMAGES / SHARD * self.scan_ms / 1000

    @property
    def memory_gb(self) -> float:
        """The memory for the embeddings and their signs, which a scan reads."""
        return IMAGES * sum(self.bytes_of("embedding", kind) for kind in STORED["embedding"]) / 1e9

    def machines(self, rate: float) -> tuple[int, int, int]:
        """Return the cores for scanning, cores for matching, and machines needed for this many queries per second."""
        scan, match = (math.ceil(rate * seconds / LOAD) for seconds in (self.query_core_seconds, self.rerank_ms / 1000))
        return scan, match, math.ceil(max((scan + match) / CORES, self.memory_gb / (0.8 * MEMORY_GB)))


def page(results: Path = RESULTS) -> str:
    """Return the complete page."""
    m, scale = Measured.read(results), read_result(results / "scale.json")
    writing = IMAGES / m.written / 3600
    stored = sum(m.bytes_of(part, kind) for part, kinds in STORED.items() for kind in kinds)
    values = {
        "m": m,
        "scale": scale,
        "store": read_result(results / "index_choice.json")["store"][-1],
        "disk": _tera(IMAGES * m.item_bytes),
        "storage": _storage(m),
        "stored bytes": stored,
        "catalog bytes": m.item_bytes - stored,
        "two cores": m.pair_rate / m.core_rate,
        "hours": [{"cores": cores, "hours": m.core_hours / cores} for cores in (64, 512, 4096)],
        "writing": writing,
        "writing 10": writing / 10,
        "held up": m.written / m.core_rate,
        "read": 512 * m.core_rate * IMAGE_BYTES / 1e6,
        "machines": [{"rate": rate, "needs": m.machines(rate)} for rate in (1, 10, 100)],
        "match ms": m.rerank_ms - m.query_ms,
    }
    return fill(TEMPLATE, values)


def _storage(m: Measured) -> str:
    kinds = [*PRECISIONS, "1 bit"]
    rows = []
    for part, (count, width) in m.widths.items():
        sizes = {kind: _tera(IMAGES * m.bytes_of(part, kind)) for kind in kinds}
        shown = [f"**{size}**" if kind in STORED[part] else size for kind, size in sizes.items()]
        rows.append([part, f"{count} x {width}", *shown])
    return table(["part", "n x d", *kinds], rows, words=2)


def _tera(count: float) -> str:
    return f"{count / 1e12:.2f} TB" if count < 1e13 else f"{count / 1e12:.1f} TB"
