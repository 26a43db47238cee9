"""Measure the end-to-end time of a search: as a command (cold), and on a running server (warm), by stage.

    python -m benchmarks.end_to_end

Needs the extras `serve` and `train`. The baseline is what you would write instead, plain_search.py: a text tower of the
bundled model's shape, in float32 in torch, and a NumPy dot product over the same number of vectors. It is started for
each query, like the command, or kept running, like the server. It has no matcher, so Sightline is measured both with
and without matching 20 candidates. All take turns; no query is repeated. `http` is the time that the server spends
outside the stages of a search.
"""

import http.client
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import quote

import numpy as np

from benchmarks import samples
from benchmarks.baseline import TEXT_TOWER, tokenizer
from benchmarks.plain_search import PlainSearch
from benchmarks.serve import Server, running
from benchmarks.timing import in_turns, options, percentiles, save
from sightline.bundle import Bundle

TOWER, K = TEXT_TOWER, 20
SCRIPT = [sys.executable, "-m", "benchmarks.plain_search"]
PLAIN = "plain script"
SIGHTLINE = {0: "sightline, none matched", K: f"sightline, {K} matched"}
STAGES = ("encode", "retrieve", "interact", "match", "http")


def make_plain(folder: Path, bundle: Bundle, items: int) -> None:
    """Write what plain_search.py reads: a tower with random weights, and random vectors."""
    from transformers import BertConfig, BertModel

    words = tokenizer(bundle)
    words.save_pretrained(folder)
    BertModel(BertConfig(vocab_size=len(words), **TOWER)).save_pretrained(folder)
    np.save(folder / "vectors.npy", samples.units(np.random.default_rng(0), items, TOWER["hidden_size"]))
    (folder / "names.txt").write_text("".join(f"{number:07}.jpg\n" for number in range(items)))


def command(at: Path, model: str, text: str, rerank: int) -> list[str]:
    """Return the command line of a search."""
    words = [str(Path(sys.executable).with_name("sightline")), "search", text, "--at", str(at)]
    words += ["--rerank", str(rerank), "--duplicates", "show", "--json"]
    return words + (["--model", model] if model != "default" else [])


def cold(at: Path, plain: Path, model: str, texts: Iterator[str], runs: int) -> list[dict[str, Any]]:
    """Measure how many seconds each command takes from start to result, with every search in its own process."""

    def started(words: Callable[[str], list[str]]) -> None:
        subprocess.run(words(next(texts)), check=True, capture_output=True)

    ways = {name: partial(started, partial(command, at, model, rerank=rerank)) for rerank, name in SIGHTLINE.items()}
    ways[PLAIN] = partial(started, lambda text: [*SCRIPT, str(plain), text])
    found = in_turns(ways, runs)
    return [{"start": "cold", "way": way, "p50_seconds": median(seconds)} for way, seconds in found.items()]


def answer(connection: http.client.HTTPConnection, text: str, rerank: int) -> dict[str, float]:
    """Return the milliseconds that each stage of a request took, as reported by the server, and the remaining time."""
    began = time.perf_counter()
    connection.request("GET", f"/v1/search?q={quote(text)}&k={K}&rerank={rerank}&duplicates=show")
    response = connection.getresponse()
    body = response.read()
    whole = 1000 * (time.perf_counter() - began)
    if response.status != 200:
        raise SystemExit(f"the server responded with {response.status}: {body[:200].decode()}")
    took: dict[str, float] = json.loads(body)["took_ms"]
    return {**took, "http": whole - sum(took.values())}


def warm(server: Server, plain: Path, texts: Iterator[str], rounds: int) -> list[dict[str, Any]]:
    """Time requests to the server, by stage, and searches by the running plain script, in milliseconds."""
    connection, opened = http.client.HTTPConnection("127.0.0.1", server.port), PlainSearch(plain)
    stages: dict[str, list[dict[str, float]]] = {name: [] for name in SIGHTLINE.values()}

    def asked(rerank: int) -> float:
        stages[SIGHTLINE[rerank]].append(answer(connection, next(texts), rerank))
        return sum(stages[SIGHTLINE[rerank]][-1].values()) / 1000

    ways: dict[str, Callable[[], object]] = {name: partial(asked, rerank) for rerank, name in SIGHTLINE.items()}
    ways[PLAIN] = lambda: opened.search(next(texts), K)
    rows = []
    for way, seconds in in_turns(ways, rounds).items():
        row: dict[str, Any] = {"start": "warm", "way": way, **percentiles([1000 * one for one in seconds])}
        if way in stages:
            parts = stages[way][1:]  # leave out the warm-up
            row["stages_ms"] = {stage: median(part.get(stage, 0.0) for part in parts) for stage in STAGES}
        rows.append(row)
    connection.close()
    return rows


def ratios(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return the seconds that a command takes, and the times of command and server relative to the plain script."""
    seconds = {row["way"]: row["p50_seconds"] for row in rows if row["start"] == "cold"}
    ms = {row["way"]: row["p50_ms"] for row in rows if row["start"] == "warm"}
    bare, matched = SIGHTLINE[0], SIGHTLINE[K]
    return {
        f"seconds of a cold command, {K} matched": seconds[matched],
        "cold command, none matched, times as quick as a plain script": seconds[PLAIN] / seconds[bare],
        f"cold command, {K} matched, times as quick as a plain script": seconds[PLAIN] / seconds[matched],
        "warm server, none matched, times as quick as the script kept open": ms[PLAIN] / ms[bare],
    }


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--photos", type=int, default=16, help="that the collection is made of")
    parser.add_argument("--runs", type=int, help="of the command")
    parser.add_argument("--rounds", type=int, help="of the server")
    arguments = parser.parse_args()
    bundle, records = samples.bundle(arguments.model), samples.records(200, distinct=200)
    texts, (runs, rounds) = cycle(samples.captions(records)), (3, 20) if arguments.quick else (9, 100)
    with tempfile.TemporaryDirectory(prefix="sightline-end-to-end-") as name:
        at, plain = Path(name) / "photos" / ".sightline", Path(name) / "plain"
        photos = samples.encode(bundle, records[: arguments.photos])
        samples.make_collection(at, bundle, photos, arguments.items)
        make_plain(plain, bundle, arguments.items)
        rows = cold(at, plain, arguments.model, texts, arguments.runs or runs)
        with running(at, arguments.model, {}) as server:
            rows += warm(server, plain, texts, arguments.rounds or rounds)
    more = {"model": bundle.name, "items": arguments.items}
    save("end_to_end", arguments, [samples.data()], rows, ratios(rows), **more)


if __name__ == "__main__":
    main()
