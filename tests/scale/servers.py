"""Servers that tests start and kill, each shared by all processes that run tests at once."""

import fcntl
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar


class LocalServer(Protocol):
    """A server with its data in a folder."""

    folder: Path

    def __init__(self, folder: Path) -> None: ...

    def url(self, name: str = "") -> str:
        """The URL of a store, by default one that nobody has used."""
        ...

    def start(self) -> None:
        """Start it, or start it again, and wait until it answers."""
        ...

    def kill(self) -> None:
        """End it at once, with all its processes, as a power cut would."""
        ...

    def remove(self) -> None:
        """Delete what it keeps outside its folder, once it has ended."""
        ...


AnyServer = TypeVar("AnyServer", bound=LocalServer)


@contextmanager
def shared(server: AnyServer) -> Iterator[AnyServer]:
    """One server for all processes that run tests at once: the first to come starts it, the last to go ends it."""
    with _counted(server.folder, 1) as users:
        if users == 1:
            server.start()
    try:
        yield server
    finally:
        with _counted(server.folder, -1) as users:
            if users == 0:
                server.kill()
                server.remove()


@contextmanager
def _counted(folder: Path, change: int) -> Iterator[int]:
    """How many there are after a change, while nobody else changes it."""
    with (folder / "users").open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        users = int(file.read() or 0) + change
        yield users
        file.truncate(0)
        file.write(str(users))
        file.flush()


def kept_port(folder: Path, name: str = "port") -> int:
    """A port of the server in a folder: a free one, which it keeps."""
    port = folder / name
    if not port.exists():
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port.write_text(str(free.getsockname()[1]))
    return int(port.read_text())


def is_open(port: int) -> bool:
    """Whether something listens at a port of this machine."""
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0
