"""Collections opened for a server, and servers on a port of this machine that can be stopped and started again."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import uvicorn
from fastapi import FastAPI

from server.samples import LIMITS
from sightline.server.limits import Limits
from sightline.server.run import ServedCollection, listen, uvicorn_config


class Served:
    """Serves an application from a thread; `address` stays the same however often it is started."""

    def __init__(self, app: FastAPI, limits: Limits = LIMITS) -> None:
        self._app, self._limits = app, limits
        self._port = 0
        self._listener: socket.socket | None = None
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> Self:
        self._listener = listen("127.0.0.1", self._port)
        self._port = self._listener.getsockname()[1]
        server = self._server = uvicorn.Server(uvicorn_config(self._app, self._limits))
        listener = self._listener
        self._thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])), daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        assert self._server
        assert self._thread
        assert self._listener
        self._server.should_exit = True
        self._thread.join(timeout=60)
        self._listener.close()
        assert not self._thread.is_alive()


@contextmanager
def served(app: FastAPI, limits: Limits = LIMITS) -> Iterator[str]:
    """Serve an application for a while; gives its address."""
    server = Served(app, limits).start()
    try:
        yield server.address
    finally:
        server.stop()


@contextmanager
def opening(at: Path | list[Path], limits: Limits = LIMITS) -> Iterator[ServedCollection]:
    """Open one or several collections as a server does, for a while."""
    opened = ServedCollection.open(at, None, limits)
    try:
        yield opened
    finally:
        opened.close()
