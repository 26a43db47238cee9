"""Keep a served collection up to date: reopen it after indexing, index changes with --watch, and read text."""

import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from sightline.bundle.model import Model
from sightline.collection import Report, index
from sightline.collection.image_text.reading import pending, read_text_in_images
from sightline.errors import CollectionInUseError, SightlineError
from sightline.server.current_collection import CurrentCollection

_log = logging.getLogger(__name__)
_LOOK_SECONDS = 1.0
_REFINE_SECONDS = 60.0  # then new images come first again
_REST = 10  # wait this many times as long as a scan took, so that scanning costs little
_NICE = 10
_MOST_FAILURES = 3
Notify = Callable[[str], None]


class _StoppedError(Exception):
    """The server is shutting down; indexed items are kept, and the next run continues."""


class _PausedError(Exception):
    """Refining has run for long enough; refined items are kept, and the next run continues."""


class _Stopwatch:
    """The seconds from its creation to the first call of `stop`."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._seconds: float | None = None

    def stop(self) -> float:
        """Stop if still running; return the seconds."""
        if self._seconds is None:
            self._seconds = time.monotonic() - self._began
        return self._seconds


class CollectionUpdater:
    """Threads that reopen a collection after indexing, index and refine its files, and read the text in images.

    Folders are polled, which works on every disk and needs no extra package. Indexing runs at low priority, and stops
    soon after `close` is called. A failure does not end a thread: it is logged, and the job is retried.
    """

    def __init__(
        self,
        current: CurrentCollection,
        at: Path,
        model: Model,
        *,
        watch: bool,
        read_text: bool = False,
        notify: Notify | None = None,
        seconds: float = 2.0,
    ) -> None:
        """Prepare the threads. watch: whether to index changed files. read_text: whether to read text in new images."""
        self._current, self._at, self._model = current, at, model
        self._notify_user = notify or _log.info
        self._seconds = seconds
        self._stop = threading.Event()
        self._failures = 0  # consecutive failures to reopen the collection
        self._index_failures = 0  # consecutive failures to index changed files
        jobs = [self._show, *([self._index] if watch else []), *([self._read] if read_text else [])]
        self._threads = [threading.Thread(target=job, name=f"sightline{job.__name__}", daemon=True) for job in jobs]

    @property
    def is_healthy(self) -> bool:
        """Whether the threads are running, the collection can be reopened and, with `watch`, changes can be indexed."""
        is_running = all(thread.is_alive() for thread in self._threads) and not self._stop.is_set()
        return is_running and max(self._failures, self._index_failures) < _MOST_FAILURES

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop the threads and wait for them."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _show(self) -> None:
        trouble = ""
        while not self._stop.wait(_LOOK_SECONDS):
            try:
                found = self._renew()
                if found and found != trouble:  # report it once, not every second
                    _log.warning("%s", found)
                trouble = found
            except Exception:
                self._failures += 1
                _log.exception("the collection could not be opened again")

    def _renew(self) -> str:
        """Reopen the collection if it has changed; returns why that is not possible, if so."""
        if not self._current.is_available:  # the server leaves it out, and may still have others
            return f"{self._at}: not searched, because its folder was deleted or moved; put it back"
        try:
            self._current.renew()
        except SightlineError as error:
            self._failures += 1
            return f"continuing with the collection as it was: {error}"
        self._failures = 0
        return ""

    def _index(self) -> None:
        _give_way()
        trouble = ""
        while not self._stop.is_set():
            scan = _Stopwatch()

            def go_on(done: int, total: int, scan: _Stopwatch = scan) -> None:
                scan.stop()
                self._go_on(done, total)

            try:
                report = index(at=self._at, model=self._model, wait=False, progress=go_on)
                scan.stop()
                trouble, self._index_failures = "", 0
                if _has_news(report):
                    self._notify(f"indexed: {report}")
                if report.to_refine:
                    self._refine()
            except _StoppedError:
                return
            except SightlineError as error:
                if self._current.is_available and not isinstance(error, CollectionInUseError):
                    self._index_failures += 1
                if str(error) != trouble:  # report it once, not every two seconds
                    self._notify(f"not indexed: {error}")
                trouble = str(error)
            except Exception:
                self._index_failures += 1
                _log.exception("indexing failed")
            self._stop.wait(max(self._seconds, _REST * scan.stop()))

    def _refine(self) -> None:
        """Re-encode some of the fast graph's images, for at most a minute."""
        began = time.monotonic()

        def go_on(done: int, total: int) -> None:
            self._go_on(done, total)
            if time.monotonic() - began > _REFINE_SECONDS:
                raise _PausedError

        with contextlib.suppress(_PausedError):
            report = index(at=self._at, model=self._model, wait=False, progress=go_on, refine=True)
            self._notify(f"indexed: {report}")

    def _read(self) -> None:
        """Read text whenever there are new images; another process does the work, at the lowest priority."""
        trouble = ""
        while not self._stop.wait(self._seconds):
            try:
                if not pending(self._at):
                    continue
                report = read_text_in_images(self._at, progress=self._go_on)
                trouble = ""
                if report.read:
                    self._notify(f"text read: {report}")
            except _StoppedError:
                return
            except SightlineError as error:
                if str(error) != trouble:
                    self._notify(f"no text read: {error}")
                trouble = str(error)
            except Exception:
                _log.exception("reading text failed")

    def _notify(self, message: str) -> None:
        try:
            self._notify_user(message)
        except Exception:  # such as a terminal that was closed
            _log.exception("could not show: %s", message)

    def _go_on(self, done: int, total: int) -> None:
        if self._stop.is_set():
            raise _StoppedError


def _has_news(report: Report) -> bool:
    return bool(report.new or report.changed or report.moved or report.deleted)


def _give_way() -> None:
    """Lower the priority of this thread and those it starts; only on Linux."""
    if sys.platform == "linux":
        try:
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        except OSError:
            return
