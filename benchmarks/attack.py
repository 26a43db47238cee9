"""Attack a server on this machine, over loopback only, and print which attacks it survived.

    python -m benchmarks.attack

Writes benchmarks/results/attack.json, from which `make results` generates the table in docs/security.md.

Serves 40 synthetic images with the bundled model. An attack is survived if every request is rejected or answered, the
server's processes use less than 1.5 GB in total, other clients' searches take at most four times as long as before, and
the server stays up.
"""

import asyncio
import io
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from PIL import Image

import sightline
from benchmarks.pages.blocks import attacks
from benchmarks.samples import write_thumbnails
from benchmarks.serve import Server, memory, started
from benchmarks.timing import options, save

MOST_BYTES = 1.5e9
SLOWER = 4.0
Row = dict[str, Any]
NESTED = "[" * 100_000
LISTS = "[" + "[]," * 6_600_000 + "[]]"
KEYS = "{" + ",".join(f'"{number:x}":0' for number in range(1_000_000)) + "}"
REFUSED: tuple[tuple[str, str, dict[str, str], bytes], ...] = (
    ("GET", "/v1/search?q=a", {"Sec-Fetch-Site": "cross-site"}, b""),
    ("GET", "/v1/items/1/image", {"Sec-Fetch-Site": "same-site"}, b""),
    ("GET", "/v1/items/1/image", {"Origin": "https://evil.example"}, b""),
    ("POST", "/v1/search", {"Origin": "null", "Content-Type": "application/json"}, b'{"q": "a"}'),
    ("GET", "/v1/collection", {"Host": "evil.example"}, b""),
    ("POST", "/v1/search", {"Content-Type": "application/json"}, f'{{"q": {NESTED}'.encode()),
    ("POST", "/v1/embed", {"Content-Type": "application/json"}, NESTED.encode()),
    ("POST", "/v1/match", {"Content-Type": "application/json"}, (NESTED.replace("[", '{"a":')).encode()),
    ("POST", "/v1/search", {"Content-Type": "application/json"}, LISTS[:200_000].encode()),
    ("POST", "/v1/embed", {"Content-Type": "application/json"}, LISTS.encode()),
    ("POST", "/v1/match", {"Content-Type": "application/json"}, KEYS.encode()),
    ("GET", f"/v1/items?where={'folder%20=%20name%20or%20' * 131}folder%20=%20name", {}, b""),
    ("GET", "/v1/items/1/image?v=0123456789abcdef", {}, b""),
    ("GET", "/v1/items/..%2f..%2f..%2fetc%2fpasswd/image", {}, b""),
    ("GET", "/../../../etc/passwd", {}, b""),
)
"""Method, path, headers and body of requests that must be answered with a status of 4xx."""


def main() -> None:
    arguments = options(__doc__, model=False).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        count = 8 if arguments.quick else 32
        at = collection(Path(folder) / "photos")
        with started([sys.executable, "-m", "sightline", "serve", "--at", str(at), "--port", "0"]) as server:
            rows = asyncio.run(Attacks(server).all(count))
    print(attacks(rows))
    survived = sum(row["survived"] for row in rows) / sum(row["tried"] for row in rows)
    save("attack", arguments, ["made-up pictures"], rows, {"survived": survived})
    raise SystemExit(survived < 1)


def collection(folder: Path) -> Path:
    """Index forty small images and one of 30 MB."""
    folder.mkdir()
    write_thumbnails(folder, 40)
    noise = np.random.default_rng(0)
    Image.fromarray(noise.integers(0, 255, (3200, 3200, 3), dtype=np.uint8)).save(folder / "z.png", compress_level=0)
    sightline.index(folder)
    return folder


class Attacks:
    """Attacks on one server, one after another."""

    def __init__(self, server: Server) -> None:
        self.port, self.process = server.port, server.process

    async def all(self, count: int) -> list[Row]:
        """Run all attacks, with this many concurrent uploads; the last attack stops the server."""
        transparent, allowed, slow = bomb(7000), bomb(4400), many_scans(400)
        begun = b"GET / HTTP/1.1\r\nX-A: b"
        return [
            await self.measured("requests that must be refused", self._refused),
            await self.measured("PNGs of 190 KB, 0.9 GB decoded", lambda: self._uploads(transparent, count)),
            await self.measured("PNGs just under the limit", lambda: self._uploads(allowed, count)),
            await self.measured("JPEGs of 400 scans", lambda: self._uploads(slow, count)),
            await self.measured("filters that read every file", lambda: self._filters(2 * count)),
            await self.measured("connections half open", lambda: self._held(begun, 1200 * count // 32)),
            await self.measured("readers that do not read 30 MB", lambda: self._slow_readers(50)),
            await self._ended(slow),
        ]

    async def search(self) -> float:
        """Return the time that a search takes, in ms; infinite if it fails."""
        began = time.perf_counter()
        try:
            async with self._client() as client:
                answer = await client.get("/v1/search?q=a+dog&rerank=0")
        except httpx.HTTPError:
            return float("inf")
        return 1000 * (time.perf_counter() - began) if answer.status_code == 200 else float("inf")

    async def measured(self, name: str, attack: Callable[[], Awaitable[tuple[int, int]]]) -> Row:
        """Run an attack while another client searches; if any condition is violated, the survived count is 0."""
        usual = float(np.median([await self.search() for _ in range(20)]))
        peak, times = 0.0, []
        attacking = asyncio.ensure_future(attack())
        while not attacking.done():
            times.append(await self.search())
            peak = max(peak, memory_of_all(self.process.pid))
            await asyncio.sleep(0.05)
        tried, survived = attacking.result()
        times += [await self.search() for _ in range(3)]
        median = float(np.median(times))
        holds = peak < MOST_BYTES and median <= SLOWER * usual and self.process.poll() is None
        row = {"attack": name, "tried": tried, "survived": survived if holds else 0, "peak": peak, "search_ms": median}
        print(row, file=sys.stderr)
        return {**row, "usual_ms": usual}

    async def _refused(self) -> tuple[int, int]:
        async with self._client() as client:
            answers = [
                await client.request(method, path, headers=headers, content=body)
                for method, path, headers, body in REFUSED
            ]
        return len(answers), sum(400 <= answer.status_code < 500 for answer in answers)

    async def _uploads(self, data: bytes, count: int) -> tuple[int, int]:
        async def upload() -> bool:
            try:
                async with self._client() as client:
                    answer = await client.post("/v1/search", files={"image": ("a.png", data, "image/png")})
            except httpx.HTTPError:
                return False
            return answer.status_code in (200, 422, 503)

        return count, sum(await asyncio.gather(*(upload() for _ in range(count))))

    async def _filters(self, count: int) -> tuple[int, int]:
        where = " or ".join(["folder = name"] * 32)
        async with self._client() as client:
            asked = [client.get("/v1/items", params={"where": where}) for _ in range(count)]
            answers = await asyncio.gather(*asked)
        return len(answers), sum(answer.status_code in (200, 503) for answer in answers)

    async def _slow_readers(self, count: int) -> tuple[int, int]:
        async with self._client() as client:
            items = (await client.get("/v1/items?k=100")).json()["items"]
        path = next(item["image"] for item in items if item["path"] == "z.png")
        return await self._held(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode(), count)

    async def _held(self, data: bytes, count: int) -> tuple[int, int]:
        """Open connections that send these bytes and then stay idle, while other clients search."""

        def connect() -> socket.socket:
            connection = socket.create_connection(("127.0.0.1", self.port), timeout=10)
            connection.sendall(data)
            return connection

        connections = await asyncio.to_thread(lambda: [connect() for _ in range(count)])
        await asyncio.sleep(5)
        answered = [await self.search() < float("inf") for _ in range(10)]
        for connection in connections:
            connection.close()
        return count, count if all(answered) else 0

    def _client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=f"http://127.0.0.1:{self.port}", timeout=90, verify=False)

    async def _ended(self, data: bytes) -> Row:
        """Check that the server stops on request while it is decoding slow images."""
        attacking = asyncio.ensure_future(self._uploads(data, 34))
        await asyncio.sleep(1)
        self.process.send_signal(signal.SIGTERM)
        await attacking
        with suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(self.process.wait, 60)
        return {"attack": "SIGTERM during an attack", "tried": 1, "survived": int(self.process.poll() is not None)}


def bomb(side: int) -> bytes:
    """Make a single-colour PNG that takes kilobytes on disk, but hundreds of megabytes when decoded."""
    file = io.BytesIO()
    Image.new("RGBA", (side, side)).save(file, "PNG", compress_level=9)
    return file.getvalue()


def many_scans(scans: int, side: int = 6000) -> bytes:
    """Make a progressive JPEG with many copies of its last scan: a small file, but each scan covers all pixels."""
    file = io.BytesIO()
    Image.new("RGB", (side, side), "teal").save(file, "JPEG", progressive=True, quality=20)
    data = file.getvalue()
    last = data.rindex(b"\xff\xda")
    return data[:-2] + data[last:-2] * scans + data[-2:]


def memory_of_all(pid: int) -> float:
    """Return the memory used by a process and its children, in bytes."""
    pids = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        pids += map(int, (task / "children").read_text().split())
    total = 0.0
    for one in pids:
        with suppress(OSError):  # the process has exited in the meantime
            total += memory(one)
    return total


if __name__ == "__main__":
    main()
