"""Run the server: open a collection, bind, and serve until interrupted."""

import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from sightline.bundle import Model
from sightline.collection import Collection
from sightline.collection.group import check_group
from sightline.collection.locate import resolve_location
from sightline.errors import ServeError
from sightline.media.ocr import is_installed
from sightline.server.access import check_exposure
from sightline.server.app import create_app
from sightline.server.connections import allowed_connections, limited_protocol
from sightline.server.current_collection import CurrentCollection
from sightline.server.library import MOST, Library
from sightline.server.limits import Limits
from sightline.server.log_limits import limit_logs
from sightline.server.metrics import Metrics
from sightline.server.service import Service
from sightline.server.shared_model import SharedModel
from sightline.server.updater import CollectionUpdater

_BACKLOG = 256  # connections that may be accepted at once, before any of them is counted
_GRACE_SECONDS = 5


def serve(
    at: str | Path | Sequence[str | Path] | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    model: str | Path | None = None,
    watch: bool = False,
    read_text: bool | None = None,
    limits: Limits | None = None,
    notify: Callable[[str], None] = print,
    force_exit: bool = False,
) -> None:
    """Serve collections until the process is interrupted or terminated; requests in progress are finished first.

    at: the collection's folder, or the folder of images that contains it; by default, the collection nearest
        to the current folder. Several collections indexed with the same model are searched as one.
    port: 0 for any free port. token: required for a host that other machines can reach.
    watch: index changes in the collection's folders.
    read_text: read the text in images in the background; by default if the extra `ocr` is installed.
    notify: called with one line of text when serving starts, and whenever something has been indexed.
    force_exit: end the process if its threads do not finish soon after the server has stopped.
    """
    check_exposure(host, token)
    limits = limits or Limits()
    limits = replace(limits, connections=allowed_connections(limits))
    limit_logs()
    with closing(listen(host, port)) as listener, threadpool_limits(1, user_api="blas"):  # batches share the CPUs
        opened = ServedCollection.open(at, model, limits)
        updaters = opened.updaters(watch, notify, is_installed() if read_text is None else read_text)

        def start() -> None:
            for updater in updaters:
                updater.start()
            opened.service.decoders.start()

        def stop() -> None:
            for updater in updaters:
                updater.close()

        own_port = listener.getsockname()[1]
        app = create_app(
            opened.service,
            host=host,
            port=own_port,
            token=token,
            start=start,
            stop=stop,
            is_ready=lambda: all(updater.is_healthy for updater in updaters),
        )
        places = " and ".join(addresses(host, own_port))
        notify(f"Serving {opened.summary} at {places}. Press Ctrl-C to stop.")
        try:
            uvicorn.Server(uvicorn_config(app, limits)).run(sockets=[listener])
        finally:
            if force_exit:
                _exit_after(_GRACE_SECONDS + limits.decode_seconds)
            opened.close()


def _exit_after(seconds: float) -> None:
    """End the process if it is still running after this time, because a thread is stuck."""

    def end() -> None:
        time.sleep(seconds)
        print("sightline: a request did not finish in time; stopped without it", file=sys.stderr, flush=True)
        os._exit(1)

    threading.Thread(target=end, name="sightline-exit", daemon=True).start()


@dataclass(frozen=True, slots=True)
class ServedCollection:
    """One or several collections and their model, ready to serve."""

    places: tuple[Path | str, ...]
    model: Model
    library: Library
    service: Service

    @classmethod
    def open(
        cls, at: str | Path | Sequence[str | Path] | None, model: str | Path | None, limits: Limits
    ) -> "ServedCollection":
        """Open everything that a server needs, and load the model graphs that every search uses."""
        given: list[str | Path | None] = [at] if at is None or isinstance(at, str | Path) else list(at) or [None]
        places = tuple(dict.fromkeys(resolve_location(one) for one in given))
        if len(places) > MOST:
            raise ServeError(f"cannot serve {len(places):,} collections: the limit is {MOST:,}", "Serve fewer.")
        with ExitStack() as stack:
            collections = [stack.enter_context(Collection.open(place, model)) for place in places]
            check_group(collections)
            opened = collections[0].model
        metrics = Metrics()
        shared = SharedModel(opened, limits, metrics.batch)
        shared.warm_up()
        library = Library([CurrentCollection(place, shared) for place in places])
        return cls(places, opened, library, Service(library, shared, limits, metrics))

    @property
    def at(self) -> Path | str:
        """The folder of the first collection, or the URL of its store."""
        return self.places[0]

    @property
    def current(self) -> CurrentCollection:
        """The first collection."""
        return self.library.parts[0]

    @property
    def summary(self) -> str:
        """A one-line summary of the collections."""
        with self.library.use() as members:
            items = sum(len(member.collection) for member in members)
            several = f" of {len(members)} collections" if len(members) > 1 else ""
            return f"{items:,} {members[0].collection.kind}{several}"

    def updaters(self, watch: bool, notify: Callable[[str], None], read_text: bool = False) -> list[CollectionUpdater]:
        """Return the updaters that keep the collections in step with their folders."""
        found = []
        for place, current in zip(self.places, self.library.parts, strict=True):
            if watch and isinstance(place, str):
                raise ServeError(
                    f"{place}: its folders are on another machine, so they cannot be watched here",
                    "Serve it there, with --at DIR --watch.",
                )
            reads = read_text and not isinstance(place, str)
            found.append(
                CollectionUpdater(current, Path(place), self.model, watch=watch, read_text=reads, notify=notify)
            )
        return found

    def close(self) -> None:
        """Finish requests in progress, and close everything."""
        self.service.close()
        for current in self.library.parts:
            current.close()


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens at an address; raises an error with a hint if that fails."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(_BACKLOG)
        except BaseException:
            listener.close()
            raise
    except OSError as error:
        raise ServeError(
            f"cannot serve at {host}:{port}: {error.strerror or error}",
            "Choose another address with --host and --port; port 0 picks a free one.",
        ) from error
    return listener


def uvicorn_config(app: FastAPI, limits: Limits) -> uvicorn.Config:
    """Return the configuration of the HTTP server."""
    return uvicorn.Config(
        app,
        http=limited_protocol(limits),
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # clients could forge these headers to evade the limits per address
        backlog=_BACKLOG,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=int(limits.seconds) + _GRACE_SECONDS,
    )


def addresses(host: str, port: int) -> list[str]:
    """Return the URLs of the server; if it listens on all interfaces, those of this machine's own addresses."""
    if host not in ("0.0.0.0", "::"):
        return [_url(host, port)]
    return [_url("127.0.0.1", port), *(_url(own, port) for own in own_addresses())]


def own_addresses() -> list[str]:
    """Return the address of this machine on its network; empty without a network.

    No packet is sent: connecting a UDP socket only selects the local address to use.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # reserved for documentation, so never in use
            found = probe.getsockname()[0]
        except OSError:
            return []
    return [] if found.startswith("127.") or found == "0.0.0.0" else [found]


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
