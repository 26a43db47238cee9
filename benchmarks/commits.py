"""Compare the speed of indexing and search with that of another commit; both checkouts take turns on this machine.

    python -m benchmarks.commits ba4ded0

Each checkout indexes the same synthetic photos with the other commit's bundled model, then serves the same queries,
with and without reranking. Text in images is not read. Prints the ratio of the medians, this checkout over the other:
1.05 is 5 % slower.
"""

import http.client
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import quote

import numpy as np
from PIL import Image

from benchmarks.provenance import ROOT
from benchmarks.serve import queries, started
from benchmarks.timing import in_turns, options, save

RERANKS = (0, 20)


def photos(folder: Path, count: int) -> None:
    """Write distinct photos of 12 megapixels."""
    folder.mkdir()
    noise = np.random.default_rng(0)
    for number in range(count):
        small = Image.fromarray(noise.integers(0, 255, (30, 40, 3), dtype=np.uint8))
        small.resize((4000, 3000), Image.Resampling.BICUBIC).save(folder / f"{number}.jpg")


def command(checkout: Path, *arguments: str | Path) -> list[str]:
    """The command line of a checkout's own Sightline, without reading text in images, which some commits cannot do."""
    reads_text = (checkout / "src" / "sightline" / "media" / "ocr.py").exists()
    arguments = (*arguments, "--no-text") if reads_text else arguments
    return ["env", f"PYTHONPATH={checkout / 'src'}", sys.executable, "-P", "-m", "sightline", *map(str, arguments)]


def index(checkout: Path, folder: Path, model: Path) -> float:
    """How many seconds indexing takes, from the start of the command to its exit."""
    with tempfile.TemporaryDirectory() as at:
        began = time.perf_counter()
        subprocess.run(
            command(checkout, "index", folder, "--at", Path(at) / "c", "--model", model),
            check=True, capture_output=True,
        )  # fmt: skip
        return time.perf_counter() - began


@contextmanager
def serving(checkout: Path, at: Path, model: Path) -> Iterator[http.client.HTTPConnection]:
    """Run a checkout's server, and yield a connection to it."""
    with started(command(checkout, "serve", "--at", at, "--port", "0", "--model", model)) as server:
        yield http.client.HTTPConnection("127.0.0.1", server.port)


def search_next(connection: http.client.HTTPConnection, texts: Iterator[str], rerank: int) -> float:
    """How many seconds the server takes to answer the next query."""
    text = next(texts)
    began = time.perf_counter()
    connection.request("GET", f"/v1/search?q={quote(text)}&k=20&rerank={rerank}&duplicates=show")
    answer = connection.getresponse()
    body = answer.read()
    if answer.status != 200 or not json.loads(body)["hits"]:
        raise SystemExit(f"the server answered {answer.status}: {body[:200].decode()}")
    return time.perf_counter() - began


def main() -> None:
    parser = options(__doc__, model=False)
    parser.add_argument("commit")
    parser.add_argument("--photos", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=5, help="of indexing")
    parser.add_argument("--queries", type=int, default=200)
    arguments = parser.parse_args()
    seconds: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory(prefix="sightline-commits-") as name, ExitStack() as stack:
        other = Path(name) / "other"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", other, arguments.commit], cwd=ROOT, check=True)
        remove = ["git", "worktree", "remove", "--force", str(other)]
        stack.callback(lambda: subprocess.run(remove, cwd=ROOT, check=True))
        checkouts, model, folder = {"other": other, "this": ROOT}, other / "bundles" / "default", Path(name) / "photos"
        photos(folder, arguments.photos)
        seconds["index"] = in_turns(
            {each: partial(index, path, folder, model) for each, path in checkouts.items()}, arguments.rounds
        )
        for each, path in checkouts.items():
            made = command(path, "index", folder, "--at", Path(name) / each, "--model", model)
            subprocess.run(made, check=True, capture_output=True)
        servers = {each: stack.enter_context(serving(path, Path(name) / each, model))
                   for each, path in checkouts.items()}  # fmt: skip
        for rerank in RERANKS:
            asked = {each: partial(search_next, servers[each], queries(rerank), rerank) for each in checkouts}
            seconds[f"search, rerank {rerank}"] = in_turns(asked, arguments.queries)
    rows: list[dict[str, Any]] = [
        {"what": what, "commit": each, "median_ms": 1000 * median(times), "times": len(times)}
        for what, ways in seconds.items()
        for each, times in ways.items()
    ]
    ratios = {f"{what}, times {arguments.commit}": median(ways["this"]) / median(ways["other"])
              for what, ways in seconds.items()}  # fmt: skip
    for row in rows:
        print("{what:20} {commit:6} {median_ms:9.1f} ms".format(**row))
    save("commits", arguments, ["made-up photos"], rows, ratios, other=arguments.commit)


if __name__ == "__main__":
    main()
