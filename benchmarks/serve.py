"""How the server bears many clients at once, and what encoding their queries together gains.

    python benchmarks/serve.py --seconds 60

Needs SIGHTLINE_DATA and a bundle (the bundled one). Serves a made-up collection (see searching.py) from a process of
its own, and asks it real captions over as many connections as there are clients, each with one request under way. The
clients share the machine with the server. Made-up items look alike, so duplicates are shown, not folded.

Queries without a rerank are measured in four ways: those that wait together encoded together (as the server does);
each alone but as many at the same time as there are processors; one at a time; and those of a single client, so that
one query is answered before the next is asked. Besides the answers a second there is the processor time that the server
spends on one, which says more where the machine is shared.
"""

import argparse
import asyncio
import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from provenance import provenance
from searching import encoded_photos, make
from sightline.bundle import Bundle
from sightline.datasets import read_all
from sightline.loading import locate
from sightline.server.limits import Limits
from sightline.server.serving import serve

WARM_UP = 5.0  # seconds of load that are not counted
EDGE = 10.0  # seconds at either end whose memory is compared


@dataclass(frozen=True)
class Way:
    """A way to serve, and how many clients ask for how long."""

    encoded: str
    rerank: int
    batch: int
    encoders: int
    clients: int
    seconds: float


@dataclass
class Load:
    """What the clients saw: when each answer came and how long it took, failures, and the server's memory."""

    began: float = field(default_factory=time.perf_counter)
    answers: list[tuple[float, float]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    memory: list[tuple[float, float]] = field(default_factory=list)
    spent: list[tuple[float, float]] = field(default_factory=list)

    def row(self, seconds: float) -> dict[str, Any]:
        """What is written of it: answers and memory after the warm-up."""
        counted = [(at, took) for at, took in self.answers if at >= WARM_UP]
        times = np.array([1000 * took for _, took in counted])
        p50, p99 = (float(np.percentile(times, share)) for share in (50, 99))
        edge = min(EDGE, seconds / 2)
        first = np.mean([size for at, size in self.memory if WARM_UP <= at < WARM_UP + edge])
        last = np.mean([size for at, size in self.memory if at >= WARM_UP + seconds - edge])
        spent = [so_far for at, so_far in self.spent if at >= WARM_UP]
        return {
            "answers": len(counted),
            "errors": len(self.errors),
            "first_errors": self.errors[:3],
            "queries_per_second": len(counted) / seconds,
            "server_cpu_ms_per_query": 1000 * (spent[-1] - spent[0]) / len(counted),
            "p50_ms": p50,
            "p99_ms": p99,
            "p99_over_p50": p99 / p50,
            "memory_mb": float(last) / 1e6,
            "memory_growth": float(last / first - 1),
        }


async def get(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str) -> tuple[int, bytes]:
    """One request over a connection that stays open."""
    writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: (\d+)", head)
    body = await reader.readexactly(int(length[1]) if length else 0)
    return int(head.split(None, 2)[1]), body


async def client(port: int, paths: list[str], load: Load, until: float) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    number = 0
    while time.perf_counter() < until:
        began = time.perf_counter()
        try:
            status, body = await get(reader, writer, paths[number % len(paths)])
        except (OSError, asyncio.IncompleteReadError) as error:
            load.errors.append(repr(error))
            return
        done = time.perf_counter()
        if status != 200 or not json.loads(body)["hits"]:
            load.errors.append(f"{status}: {body[:200].decode()}")
        load.answers.append((done - load.began, done - began))
        number += 1
    writer.close()


async def watch_server(port: int, pid: int, load: Load, until: float) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while time.perf_counter() < until:
        _, body = await get(reader, writer, "/metrics")
        found = re.search(rb"^process_resident_memory_bytes (\S+)", body, re.MULTILINE)
        if found:
            load.memory.append((time.perf_counter() - load.began, float(found[1])))
        ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        load.spent.append((time.perf_counter() - load.began, sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")))
        await asyncio.sleep(1)
    writer.close()


async def put_under_load(port: int, pid: int, captions: list[str], way: Way) -> dict[str, Any]:
    options = f"&k=20&rerank={way.rerank}&duplicates=show"
    paths = [f"/v1/search?q={quote(caption)}{options}" for caption in captions]
    load = Load()
    until = load.began + WARM_UP + way.seconds
    asking = [client(port, paths[n % len(paths) :] + paths[: n % len(paths)], load, until) for n in range(way.clients)]
    await asyncio.gather(watch_server(port, pid, load, until), *asking)
    return load.row(way.seconds)


def measure(at: Path, model: str, captions: list[str], way: Way) -> dict[str, Any]:
    """Serve a collection from a process of its own, and put it under load."""
    batching = ["--batch", str(way.batch), "--encoders", str(way.encoders)]
    command = [sys.executable, __file__, "--serve", str(at), "--model", model, *batching]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        said = process.stderr.readline()
        found = re.search(r":(\d+)/", said)
        if not found:
            raise SystemExit(said + process.stderr.read())
        row = asyncio.run(put_under_load(int(found[1]), process.pid, captions, way))
    finally:
        process.terminate()
        process.wait()
    return {**dataclasses.asdict(way), **row}


def serve_here(at: Path, model: str, batch: int, encoders: int) -> None:
    limits = dataclasses.replace(Limits(), batch=batch, encoders=encoders)
    serve(at, port=0, model=model, limits=limits, told=lambda said: print(said, file=sys.stderr, flush=True))


def ways(reranks: list[int], clients: int, seconds: float) -> list[Way]:
    """What is measured: every rerank as the server does it, and for none the other ways of encoding."""
    usual = Limits()
    found = [Way("together", rerank, usual.batch, usual.encoders, clients, seconds) for rerank in reranks]
    if 0 in reranks:
        found.append(Way("each alone", 0, 1, 0, clients, seconds))
        found.append(Way("one at a time", 0, 1, 1, clients, seconds))
        found.append(Way("one client", 0, 1, 1, 1, seconds))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--photos", type=int, default=32)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--reranks", default="0,20")
    parser.add_argument("--model", default="default")
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/serve.json"))
    for hidden, kind in (("--serve", Path), ("--batch", int), ("--encoders", int)):
        parser.add_argument(hidden, type=kind, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve_here(arguments.serve, arguments.model, arguments.batch, arguments.encoders)
        return
    bundle = Bundle.open(locate(arguments.model))
    records = read_all([os.environ["SIGHTLINE_DATA"] + "/flickr8k-test.tar"])[: arguments.photos]
    captions = [caption for record in records for caption in record.captions_in("en")]
    folder = Path(tempfile.mkdtemp(prefix="sightline-serve-"))
    rows = []
    try:
        make(folder / ".sightline", bundle, encoded_photos(bundle, records), arguments.items)
        for way in ways([int(rerank) for rerank in arguments.reranks.split(",")], arguments.clients, arguments.seconds):
            rows.append(measure(folder / ".sightline", arguments.model, captions, way))
            print(", ".join(f"{name} {value}" for name, value in rows[-1].items()), flush=True)
    finally:
        shutil.rmtree(folder)
    result: dict[str, Any] = {"experiment": "serve", **provenance(0, ["flickr8k-test"]), "model": bundle.name}
    rates = {row["encoded"]: row["queries_per_second"] for row in rows if not row["rerank"]}
    if rates:
        gains = {way: rates["together"] / rate for way, rate in rates.items() if way != "together"}
        print(
            "encoded together, " + ", ".join(f"{gain:.2f} x as many a second as {way}" for way, gain in gains.items())
        )
        result["batching_gain"] = gains
    arguments.json.write_text(json.dumps({**result, "items": arguments.items, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
