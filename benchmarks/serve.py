"""Measure the server under load from many clients, and the gain from encoding waiting queries in one batch.

    python -m benchmarks.serve

Serves a synthetic collection (see samples.py) and sends queries over one connection per client, each with one request
in flight; clients share the machine with the server. Queries are synthetic, of 2 to 15 words, none repeated. The gain
from batching is measured in short blocks that alternate between three ways to encode: waiting queries in one batch (as
the server does), each query alone on the same number of threads, and one query at a time. Then come the long runs:
without reranking, with it, and both at once. `make results` writes them to docs/serve.md.
"""

import argparse
import asyncio
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from benchmarks import samples
from benchmarks.timing import options, percentiles, save
from sightline.server.limits import Limits
from sightline.server.run import serve

WARM_UP, LONG_WARM_UP = 1.0, 5.0  # seconds of load at the start of a block, and of a long run, that do not count
PHOTOS, RERANK, BLOCK_SECONDS = 32, 20, 5.0
EDGE = 10.0  # seconds at each end of a long run whose memory is compared
TOGETHER, ALONE, ONE = "together", "each alone", "one at a time"
WAYS: dict[str, dict[str, int]] = {TOGETHER: {}, ALONE: {"batch": 1}, ONE: {"batch": 1, "encoders": 1}}


def queries(seed: int) -> Iterator[str]:
    """Yield distinct queries of 2 to 15 words, endlessly."""
    chosen, asked = random.Random(seed), set()
    while True:
        text = " ".join(chosen.choices(samples.WORDS, k=chosen.randint(2, 15)))
        if text not in asked:
            asked.add(text)
            yield text


@dataclass
class Load:
    """The responses that clients received, failures, and the server's resource use, each with its time."""

    seconds: float
    warm_up: float
    began: float = field(default_factory=time.perf_counter)
    answers: list[tuple[float, float]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    usage: list[tuple[float, float, float]] = field(default_factory=list)

    def now(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.began

    def is_over(self) -> bool:
        """Return whether the time is up."""
        return self.now() >= self.warm_up + self.seconds

    def row(self) -> dict[str, Any]:
        """Return all measurements after the warm-up; memory growth compares the last seconds with the first."""
        times = [1000 * took for at, took in self.answers if at >= self.warm_up]
        usage = [one for one in self.usage if one[0] >= self.warm_up]
        (began, before, _), (ended, after, _) = usage[0], usage[-1]
        edge = min(EDGE, self.seconds / 2)
        first = np.mean([memory for at, _, memory in usage if at < self.warm_up + edge])
        last = np.mean([memory for at, _, memory in usage if at >= self.warm_up + self.seconds - edge])
        return {
            "answers": len(times),
            "errors": len(self.errors),
            "first_errors": self.errors[:3],
            "queries_per_second": len(times) / self.seconds,
            "server_cpu_ms_per_query": 1000 * (after - before) / sum(began <= at <= ended for at, _ in self.answers),
            **percentiles(times),
            "memory_growth": float(last / first - 1),
        }


@dataclass(frozen=True)
class Server:
    """A server in its own process."""

    port: int
    process: "subprocess.Popen[str]"

    def usage(self) -> tuple[float, float]:
        """Return the CPU seconds so far and the bytes of memory in use, including pages of the collection's files."""
        ticks = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK"), memory(self.process.pid)


def memory(pid: int) -> float:
    """Return the memory in use by a process, in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def running(at: Path, model: str, changes: dict[str, int]) -> AbstractContextManager[Server]:
    """Serve a collection within a `with` block, with some limits changed."""
    command = [sys.executable, "-m", "benchmarks.serve", "--serve", str(at), "--model", model]
    return started([*command, "--limits", json.dumps(changes)])


@contextmanager
def started(command: list[str]) -> Iterator[Server]:
    """Run a command that serves a collection, within a `with` block."""
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        said = process.stderr.readline()
        found = re.search(r":(\d+)/", said)
        if not found:
            raise SystemExit(said + process.stderr.read())
        yield Server(int(found[1]), process)
    finally:
        process.terminate()
        process.communicate()


async def get(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str) -> tuple[int, bytes]:
    """Send one request over a keep-alive connection."""
    writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: (\d+)", head)
    body = await reader.readexactly(int(length[1]) if length else 0)
    return int(head.split(None, 2)[1]), body


async def client(server: Server, texts: Iterator[str], rerank: int, load: Load) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    while not load.is_over():
        path = f"/v1/search?q={quote(next(texts))}&k=20&rerank={rerank}&duplicates=show"
        began = time.perf_counter()
        try:
            status, body = await get(reader, writer, path)
        except (OSError, asyncio.IncompleteReadError) as error:
            load.errors.append(repr(error))
            return
        load.answers.append((load.now(), time.perf_counter() - began))
        if status != 200 or b'"rank":20' not in body:
            load.errors.append(f"{status}: {body[:200].decode()}")
    writer.close()


async def watch(server: Server, load: Load) -> None:
    while not load.is_over():
        load.usage.append((load.now(), *server.usage()))
        await asyncio.sleep(0.25)


async def put_under_load(
    server: Server, texts: Iterator[str], seconds: float, clients: dict[int, int], warm_up: float = WARM_UP
) -> list[Load]:
    """Send queries for `seconds`; clients: the number of clients by rerank depth. Returns the load at each depth."""
    loads = [Load(seconds, warm_up) for _ in clients]
    groups = zip(clients.items(), loads, strict=True)
    asking = [client(server, texts, rerank, load) for (rerank, count), load in groups for _ in range(count)]
    await asyncio.gather(*(watch(server, load) for load in loads), *asking)
    return loads


def in_turns(at: Path, model: str, clients: int, blocks: int) -> list[dict[str, Any]]:
    """Put each kind of server under load, in alternating blocks."""
    texts, rows = queries(0), []
    with ExitStack() as stack:
        servers = {way: stack.enter_context(running(at, model, changes)) for way, changes in WAYS.items()}
        for number in range(-1, blocks):  # the first round is a warm-up
            for way in WAYS if number % 2 else reversed(WAYS):
                (load,) = asyncio.run(put_under_load(servers[way], texts, BLOCK_SECONDS, {0: clients}))
                rows.append({"block": number, "way": way, **load.row()})
                print(rows[-1], flush=True)
    return [row for row in rows if row["block"] >= 0]


def gains(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return the gain in responses per second from batching: the median over the blocks, and its spread."""
    rates = {way: np.array([row["queries_per_second"] for row in rows if row["way"] == way]) for way in WAYS}
    ratios = {way: rates[TOGETHER] / rates[way] for way in (ALONE, ONE)}
    return {
        way: {"median": float(np.median(found)), "lowest": float(found.min()), "highest": float(found.max())}
        for way, found in ratios.items()
    }


def long_runs(at: Path, model: str, clients: int, seconds: float) -> Iterator[dict[str, Any]]:
    """Run without reranking, with it, and with both kinds of query; every run has its own server and queries."""
    runs = [{0: clients}, {RERANK: clients}, {0: clients - clients // 4, RERANK: clients // 4}]
    for number, groups in enumerate(runs, 1):
        with running(at, model, {}) as server:
            loads = asyncio.run(put_under_load(server, queries(number), seconds, groups, LONG_WARM_UP))
        for (rerank, count), load in zip(groups.items(), loads, strict=True):
            run = {"rerank": rerank, "clients": count, "other_clients": clients - count, "seconds": seconds}
            row = {**run, **load.row()}
            if count < clients:
                del row["server_cpu_ms_per_query"]  # cannot be attributed to one of the two loads
            print(row, flush=True)
            yield row


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each long run")
    parser.add_argument("--blocks", type=int, default=8, help="in turns")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--limits", type=json.loads, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.clients < 4:  # a quarter of them asks for reranking
        parser.error("--clients must be at least 4")
    if arguments.serve:
        limits = replace(Limits(), **arguments.limits)
        say = partial(print, file=sys.stderr, flush=True)
        serve(arguments.serve, port=0, model=arguments.model, limits=limits, notify=say)
        return
    bundle = samples.bundle(arguments.model)
    load = (arguments.model, arguments.clients)
    with tempfile.TemporaryDirectory(prefix="sightline-serve-") as folder:
        at, photos = Path(folder) / "photos" / ".sightline", samples.encode(bundle, samples.records(PHOTOS))
        samples.make_collection(at, bundle, photos, arguments.items)
        blocks = in_turns(at, *load, arguments.blocks)
        runs = list(long_runs(at, *load, arguments.seconds))
    gained = gains(blocks)
    ratios = {f"answers a second together, times {way}": gain["median"] for way, gain in gained.items()}
    more = {"model": bundle.name, "items": arguments.items, "clients": arguments.clients}
    more |= {"gain_of_together_over": gained, "blocks": blocks, "runs": runs}
    save("serve", arguments, [samples.data()], [], ratios, **more)


if __name__ == "__main__":
    main()
