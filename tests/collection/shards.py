"""Shards of small pictures, and a web server that gives parts of files."""

import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from pathlib import Path

from collection.made_up import LONG_AGO, picture
from tar_files import write_tar


def write_shard(path: Path, numbers: Iterable[int], mtime_ns: int = LONG_AGO) -> Path:
    """A shard with a picture and a caption for each number, written as if long ago."""
    files = (((f"{number:06}.png", picture(number)), (f"{number:06}.txt", b"a caption")) for number in numbers)
    write_tar(path, chain.from_iterable(files))
    os.utime(path, ns=(mtime_ns, mtime_ns))
    return path


@contextmanager
def served(files: dict[str, bytes], slow: threading.Event | None = None) -> Iterator[str]:
    """Serve these over HTTP, whole or in parts; give the address. What is called slow waits for an event."""

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer()

        def do_GET(self) -> None:
            self.wfile.write(self._answer())

        def _answer(self) -> bytes:
            if slow is not None and "slow" in self.path:
                slow.wait(60)
            data = files.get(self.path)
            if data is None:
                self.send_error(404)
                return b""
            asked = self.headers["Range"]
            if asked:
                first, last = (int(bound) for bound in asked.removeprefix("bytes=").split("-"))
                data = data[first : last + 1]
            self.send_response(206 if asked else 200)
            self.send_header("Content-Length", str(len(data)))
            self.send_header("ETag", f'"{hash(data)}"')
            self.end_headers()
            return data

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
