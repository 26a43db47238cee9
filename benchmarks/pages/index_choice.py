"""docs/index-choice.md: the words are here, the numbers in benchmarks/results/index_choice.json."""

from collections.abc import Iterable, Sequence
from typing import Any

from sightline.stores.local_search import Effort


def ours(size: int) -> str:
    """The row of a table that is nearest to what the store does with so many items."""
    effort = Effort()
    if effort.is_exact(size):
        return "exact: float16 in blocks, numpy"
    wanted = effort.candidates_for(size, k=20, dim=512)
    return f"signs, {min(n for n in (512, 1024, 2048, 4096) if n >= wanted)} rescored"


def page(result: dict[str, Any]) -> str:
    """The whole page."""
    sizes = sorted({row["vectors"] for row in result["ways"]})
    return "\n\n".join(
        [
            _opening(result),
            *(_size(result["ways"], size) for size in sizes),
            _decision(result),
            _robustness(result["robustness"]),
            _store(result),
            _origin(result),
        ]
    )


def _opening(result: dict[str, Any]) -> str:
    largest = result["store"][-1]
    return f"""# How the local store searches, and why

Up to 10,000 items, the local store compares a query with every vector. Beyond that, it looks at one bit of each number
first, its sign. Those vectors whose signs differ least from the query's are compared exactly, in the float16 in which
they are stored: 2,048 of them, or one in 256, or 20 times as many as results are wanted, whichever is most. Over
{largest["vectors"]:,} vectors that takes {largest["ms"]} ms with two threads, and finds
{100 * largest["recall@20"]:.1f} % of the true twenty best.

This page is where that choice comes from. `python -m benchmarks.index_choice` measures and writes it.

## What was compared

Vectors of 512 numbers around real ones: the embeddings of Flickr8k's test images, mixed in twos, with noise. The
queries are the embeddings of real captions, because a text lies elsewhere than the images that it describes, and an
index that finds images by images may fail by words. Recall@20 is the share of the exact twenty best that are found.
Times are of one query at a time, with two threads allowed: the median over the queries of the best of up to five
rounds, because the machine was shared. *x* is how many times quicker than the first row of the table. Memory is what
a way needs beyond the float16 vectors on disk; loading is reading that back. `IndexRefine` and "rescored" mean the
same: compressed vectors choose, exact ones decide."""


def _size(ways: list[dict[str, Any]], size: int) -> str:
    rows = [row for row in ways if row["vectors"] == size]
    slowest = rows[0]["ms"]
    lines = [
        (
            f"**{row['way']}**" if row["way"] == ours(size) else row["way"],
            f"{row['recall@20']:.3f}",
            f"{row['ms']:.2f}",
            f"{slowest / row['ms']:.1f}",
            f"{row['megabytes']:,.0f}",
            f"{row['build_seconds']:.1f}",
            f"{row['load_seconds']:.2f}",
        )
        for row in rows
    ]
    return f"## {size:,} vectors\n\n" + _table(
        ("way", "recall@20", "ms", "x", "MB", "build s", "load s"), lines, "lrrrrrr"
    )


def _decision(result: dict[str, Any]) -> str:
    return """## What follows

- **Signs need no training.** The code of a vector depends on that vector alone, so it cannot go stale, adding is
  appending, and an index made in two adds is the index made in one. The others of similar speed learn something from
  the vectors that come first (product quantisers their codebooks, RaBitQ a centre).
- **Signs need no loading.** They are a file next to the vectors, read through a memory map; an interrupted write is
  cut off like that of any other file. The other indices live in memory and would have to be saved whole, or rebuilt.
- **Filters come first.** A mask over the distances is all it takes; a graph loses its way among forbidden vectors.
- **HNSW is the quickest by far** once it is built and in memory, at the price of building, memory, deletions that are
  never quite gone, and filters (the last two are known of it, not measured). It was not built for a million.
  A photo collection is changed more often than it is asked a thousand questions a second.
- **Exact comparison is kept for up to 10,000 items**, where it takes about as long as a search by signs over 100,000.
- Scores are always the exact cosines of the stored vectors: signs decide what is looked at, never what it scores.
- All vectors whose signs differ equally from the query are candidates together, so that an answer depends neither on
  the order in which items were added nor on the number of threads."""


def _robustness(rows: list[dict[str, Any]]) -> str:
    candidates = sorted({row["candidates"] for row in rows})
    kinds = list(dict.fromkeys(row["vectors"] for row in rows))
    found = {(row["vectors"], row["candidates"]): row["recall@20"] for row in rows}
    lines = [(kind, *(f"{found[kind, n]:.3f}" for n in candidates)) for kind in kinds]
    table = _table(("vectors", *(f"{n:,}" for n in candidates)), lines, "l" + "r" * len(candidates))
    return f"""## Where signs could fail

Recall@20 by the number of candidates, over 100,000 vectors of other kinds: with a large constant part that differs
between images and texts (the gap that models such as CLIP show), and with fewer numbers, hence fewer signs. Below 512
numbers the store takes more candidates in proportion: 4,096 for 256, 8,192 for 128. With a gap, a million vectors need
more candidates than a hundred thousand do: that is why the store takes one in 256.

{table}"""


def _store(result: dict[str, Any]) -> str:
    names = {
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
    rows = result["store"]
    lines = [(name, *(f"{row[key]:,}" for row in rows)) for key, name in names.items()]
    table = _table(("", *(f"{row['vectors']:,}" for row in rows)), lines, "l" + "r" * len(rows))
    return f"""## The store as it is

{table}

Fetching 200 items of 49 fragments of 128 numbers takes {result["fetch_200_ms"]} ms."""


def _origin(result: dict[str, Any]) -> str:
    machine = result["machine"]
    loads = [row["load_average"] for row in result["ways"]]
    asked = {row["vectors"]: row["queries"] for row in result["ways"]}
    queries = ", ".join(f"{count} queries over {size:,} vectors" for size, count in asked.items())
    runs = "\n".join(f"- `{run['command']}` (from a checkout of {run['commit'][:10]})" for run in result["runs"])
    return f"""## Where the numbers come from

Runs, each of which went on where the one before had stopped:

{runs}

Seed {result["seed"]}; {queries};
embeddings of {result["model"]}.
Faiss {result["faiss"]}, on a machine with {machine["cores"]} cores ({machine["processor"]}) on which other work ran at
the same time: its load average was between {min(loads)} and {max(loads)}. In a quieter run, of which no
file was kept, `IndexFlat` was quicker than the first row at 10,000 and 100,000 vectors. Compare rows,
not milliseconds, with those of another machine, and measure again on a quiet one before making much of small
differences.

The numbers of candidates were chosen by looking at vectors and queries of the same kinds as those measured here; the
gap is made up, not that of a real model.
"""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], align: str) -> str:
    rule = ["---:" if side == "r" else "---" for side in align]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *rows))
