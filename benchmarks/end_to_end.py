"""How long an answer takes from end to end: a command from the prompt on, and a server that runs, stage by stage.

    python -m benchmarks.end_to_end

Needs SIGHTLINE_DATA, a bundle (the bundled one) and the extras `serve` and `train`. The collection is made up (see
searching.py) and queries are real captions, none asked twice.

Beside it stands what one would write instead, plain_search.py: a text tower of the same shape as the
bundled one, in float32 under torch, and a dot product of numpy over as many vectors (of 384 numbers, where Sightline
has 512). It is started anew for each answer, as the command is, or kept open, as the server is. It does not match,
and knows nothing of files, so Sightline is measured with and without matching 20. All take turns. What the server
takes besides the stages of a search is called http: both ends of the connection, and finding the names of what was
found.
"""

import http.client
import json
import os
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

from benchmarks.plain_search import PlainSearch
from benchmarks.searching import command, encoded_photos, make
from benchmarks.serve import Server, running
from benchmarks.timing import in_turns, options, write
from sightline.bundle import Bundle
from sightline.datasets import read_all
from sightline.registry.loader import locate

TOWER = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
K = 20
SCRIPT = Path(__file__).with_name("plain_search.py")
PLAIN = "plain script"
SIGHTLINE = {0: "sightline, none matched", K: f"sightline, {K} matched"}
STAGES = ("encode", "retrieve", "interact", "match", "http")


def make_plain(folder: Path, bundle: Bundle, items: int) -> None:
    """Write what the plain script reads: a tower with random weights, and vectors of random directions."""
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    own = str(bundle.folder / bundle.spec.text.tokenizer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=own, unk_token="[UNK]", pad_token="[PAD]")
    tokenizer.save_pretrained(folder)
    BertModel(BertConfig(vocab_size=len(tokenizer), **TOWER)).save_pretrained(folder)
    vectors = np.random.default_rng(0).standard_normal((items, TOWER["hidden_size"]), dtype=np.float32)
    np.save(folder / "vectors.npy", vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
    (folder / "names.txt").write_text("".join(f"{number:07}.jpg\n" for number in range(items)))


def cold(at: Path, plain: Path, model: str, texts: Iterator[str], runs: int) -> list[dict[str, Any]]:
    """Seconds from the prompt to the answer, each in a process of its own."""

    def started(of: Callable[[str], list[str]]) -> None:
        subprocess.run(of(next(texts)), check=True, capture_output=True)

    ways: dict[str, Callable[[], None]] = {
        name: partial(started, partial(command, at, model, rerank=rerank)) for rerank, name in SIGHTLINE.items()
    }
    ways[PLAIN] = partial(started, lambda text: [sys.executable, str(SCRIPT), str(plain), text])
    found = in_turns(ways, runs)
    return [{"start": "cold", "way": way, "p50_seconds": median(seconds)} for way, seconds in found.items()]


def answer(connection: http.client.HTTPConnection, text: str, rerank: int) -> dict[str, float]:
    """Milliseconds of each stage of an answer, as the server says, and of everything around them."""
    began = time.perf_counter()
    connection.request("GET", f"/v1/search?q={quote(text)}&k={K}&rerank={rerank}&duplicates=show")
    response = connection.getresponse()
    body = response.read()
    whole = 1000 * (time.perf_counter() - began)
    if response.status != 200:
        raise SystemExit(f"the server answered {response.status}: {body[:200].decode()}")
    took: dict[str, float] = json.loads(body)["took_ms"]
    return {**took, "http": whole - sum(took.values())}


def warm(server: Server, plain: Path, texts: Iterator[str], rounds: int) -> list[dict[str, Any]]:
    """Milliseconds of answers of a server, by stage, and of the plain way in this process."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    kept: dict[str, list[dict[str, float]]] = {name: [] for name in SIGHTLINE.values()}
    opened = PlainSearch(plain)

    def asked(rerank: int) -> float:
        kept[SIGHTLINE[rerank]].append(answer(connection, next(texts), rerank))
        return sum(kept[SIGHTLINE[rerank]][-1].values()) / 1000

    def searched() -> None:
        opened.search(next(texts), K)

    ways: dict[str, Callable[[], float | None]] = {name: partial(asked, rerank) for rerank, name in SIGHTLINE.items()}
    rows = []
    for way, seconds in in_turns(ways | {PLAIN: searched}, rounds).items():
        p99 = 1000 * float(np.percentile(seconds, 99))
        row: dict[str, Any] = {"start": "warm", "way": way, "p50_ms": 1000 * median(seconds), "p99_ms": p99}
        if way in kept:
            parts = kept[way][1:]  # the first was before the rounds
            row["stages_ms"] = {stage: median(part.get(stage, 0.0) for part in parts) for stage in STAGES}
        rows.append(row)
    connection.close()
    return rows


def ratios(rows: list[dict[str, Any]]) -> dict[str, float]:
    """What the rows come to."""
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
    parser.add_argument("--runs", type=int, help="cold ones")
    parser.add_argument("--rounds", type=int, help="warm ones")
    parser.add_argument("--model", default="default")
    arguments = parser.parse_args()
    bundle = Bundle.open(locate(arguments.model))
    records = read_all([os.environ["SIGHTLINE_DATA"] + "/flickr8k-test.tar"])
    texts = cycle([caption for record in records for caption in record.captions_in("en")])
    runs, rounds = (3, 20) if arguments.quick else (9, 100)
    with tempfile.TemporaryDirectory(prefix="sightline-end-to-end-") as name:
        at, plain = Path(name) / "photos" / ".sightline", Path(name) / "plain"
        make(at, bundle, encoded_photos(bundle, records[: arguments.photos]), arguments.items)
        make_plain(plain, bundle, arguments.items)
        rows = cold(at, plain, arguments.model, texts, arguments.runs or runs)
        with running(at, arguments.model, {}) as server:
            rows += warm(server, plain, texts, arguments.rounds or rounds)
    write("end_to_end", arguments, ["flickr8k-test"], rows, ratios(rows), model=bundle.name, items=arguments.items)


if __name__ == "__main__":
    main()
