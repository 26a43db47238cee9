"""The command `sightline serve` as it is started, ended and kept in step."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

import sightline
from server.samples import LIMITS, TOKEN, fill, picture
from sightline import cli
from sightline.collection.locks import write_lock
from sightline.errors import ServeError
from sightline.server.current_collection import CurrentCollection
from sightline.server.run import ServedCollection, listen
from sightline.server.updater import CollectionUpdater

SLOW_MATCH = """
import sys, time
from sightline.bundle import Bundle
match = Bundle.match
def slow(*arguments):
    print("matching", flush=True)
    time.sleep(1.0)
    return match(*arguments)
Bundle.match = slow
from sightline.cli import main
main()
"""


@contextmanager
def started(*arguments: str | Path, script: str = "from sightline.cli import main; main()") -> Iterator[Any]:
    """The command in a process of its own, and the address that it says it serves at."""
    command = [sys.executable, "-c", script, "serve", "--port", "0", *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.search(r"at (http://[^\s/]+)/", line)
        assert found, line
        yield process, found[1]
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            stream.close()


def test_the_command_serves_with_a_token_and_ends_when_it_is_interrupted(photos: Path) -> None:
    with started("--at", photos, "--host", "0.0.0.0", "--token", TOKEN) as (process, address):
        address = address.replace("0.0.0.0", "127.0.0.1")
        assert httpx.get(f"{address}/v1/search?q=a").status_code == 401
        shown = {"Authorization": f"Bearer {TOKEN}"}
        answer = httpx.get(f"{address}/v1/search?q=a dog&k=3", headers=shown, timeout=20)
        assert len(answer.json()["hits"]) == 3
        assert "server" not in answer.headers
        session = httpx.post(f"{address}/v1/session", headers=shown)
        assert session.headers["set-cookie"].startswith(f"sightline-{httpx.URL(address).port}=")
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert "Traceback" not in process.stderr.read()


def test_what_is_running_is_finished_when_the_server_is_terminated(photos: Path) -> None:
    with started("--at", photos, script=SLOW_MATCH) as (process, address):
        answers: list[httpx.Response] = []
        asking = threading.Thread(target=lambda: answers.append(httpx.get(f"{address}/v1/search?q=a dog", timeout=20)))
        asking.start()
        assert process.stdout.readline() == "matching\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        asking.join(20)
        assert len(answers[0].json()["hits"]) > 0
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{address}/healthz")


def run(*arguments: str | Path) -> Any:
    return CliRunner().invoke(cli.app, ["serve", *map(str, arguments)])


def test_another_address_is_refused_at_the_start_without_a_token(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sightline.server.run.listen", None)  # so that nothing is ever listen
    for host in ("0.0.0.0", "::", "10.0.0.1"):
        error = run("--at", photos, "--host", host).exception
        assert isinstance(error, ServeError)
        assert "--token" in error.way_out
    monkeypatch.setenv("SIGHTLINE_TOKEN", TOKEN)
    assert isinstance(run("--at", photos, "--host", "0.0.0.0").exception, TypeError)  # got past, to `listen`


def test_an_address_that_cannot_be_had_is_told_with_the_way_out(photos: Path) -> None:
    with listen("127.0.0.1", 0) as taken:
        error = run("--at", photos, "--port", str(taken.getsockname()[1])).exception
    assert isinstance(error, ServeError)
    assert "--port" in error.way_out
    for host in ("203.0.113.1", "no.such.host.invalid"):
        with pytest.raises(ServeError, match="cannot serve"):
            listen(host, 0)


def test_a_folder_without_a_collection_is_told(tmp_path: Path) -> None:
    error = run("--at", tmp_path, "--port", "0").exception
    assert isinstance(error, sightline.errors.CollectionError)
    assert "sightline index" in error.way_out


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def watched(tmp_path: Path, tiny_bundle: Path) -> Iterator[tuple[Path, ServedCollection, CollectionUpdater, list[str]]]:
    """A small collection, served by nobody, and a updater that watches it often."""
    folder = fill(tmp_path / "photos", 3)
    sightline.index(folder, model=tiny_bundle)
    opened = ServedCollection.open(folder, None, LIMITS)
    told: list[str] = []
    updater = CollectionUpdater(opened.current, opened.at, opened.model, watch=True, notify=told.append, seconds=0.05)
    updater.start()
    yield folder, opened, updater, told
    updater.close()
    opened.close()


def paths(current: CurrentCollection) -> set[str]:
    with current.use() as collection:
        return {hit.path for hit in collection.search("a dog", k=50, rerank=0, duplicates="show")}


def test_a_watched_folder_is_kept_in_step(watched: tuple[Path, ServedCollection, CollectionUpdater, list[str]]) -> None:
    folder, opened, _, told = watched
    assert paths(opened.current) == {"town/0.png", "beach/1.png", "town/2.png"}
    (folder / "new.png").write_bytes(picture(50))
    until(lambda: "new.png" in paths(opened.current))
    (folder / "new.png").rename(folder / "moved.png")
    until(lambda: {"moved.png"} == paths(opened.current) - {"town/0.png", "beach/1.png", "town/2.png"})
    (folder / "moved.png").unlink()
    until(lambda: "moved.png" not in paths(opened.current))
    (folder / "half.png").write_bytes(picture(51)[:50])
    (folder / "good.png").write_bytes(picture(52))
    until(lambda: "good.png" in paths(opened.current))
    (folder / "half.png").write_bytes(picture(51))
    until(lambda: "half.png" in paths(opened.current))
    assert any("1 new" in line for line in told)


def test_the_wait_for_the_next_scan_does_not_grow_with_the_time_of_encoding(
    watched: tuple[Path, ServedCollection, CollectionUpdater, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from sightline.bundle import Bundle

    folder, opened, _, _ = watched
    encode = Bundle.encode_images

    def slow(own: Bundle, pixels: Any) -> Any:
        time.sleep(2.0)
        return encode(own, pixels)

    with monkeypatch.context() as patched:
        patched.setattr(Bundle, "encode_images", slow)
        (folder / "slow.png").write_bytes(picture(50))
        until(lambda: "slow.png" in paths(opened.current))
    began = time.monotonic()
    (folder / "next.png").write_bytes(picture(51))
    until(lambda: "next.png" in paths(opened.current))
    assert time.monotonic() - began < 10


def test_watching_goes_on_while_another_process_indexes(
    watched: tuple[Path, ServedCollection, CollectionUpdater, list[str]],
) -> None:
    folder, opened, _, told = watched
    with write_lock(opened.at):
        (folder / "new.png").write_bytes(picture(50))
        until(lambda: any("being written to" in line for line in told))
        time.sleep(0.5)
    until(lambda: "new.png" in paths(opened.current))
    assert sum("being written to" in line for line in told) == 1


def test_a_keeper_stops_in_the_middle_of_indexing(
    watched: tuple[Path, ServedCollection, CollectionUpdater, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from sightline.bundle import Bundle

    folder, opened, updater, _ = watched
    began = threading.Semaphore(0)
    encode = Bundle.encode_images
    batches = 0

    def slow(own: Bundle, pixels: Any) -> Any:
        nonlocal batches
        batches += 1
        began.release()
        time.sleep(0.3)
        return encode(own, pixels)

    monkeypatch.setattr(Bundle, "encode_images", slow)
    with write_lock(opened.at):  # until all are there
        for number in range(100, 160):
            (folder / f"{number}.png").write_bytes(picture(number))
    assert began.acquire(timeout=20)
    updater.close()
    assert batches < 10  # of four pictures each, so that fifteen would have been all
    monkeypatch.undo()
    assert len(sightline.index(folder, model=opened.model).broken) == 0
    opened.current.renew()
    assert len(paths(opened.current)) == 50


def test_without_watch_only_what_others_index_is_shown(tmp_path: Path, tiny_bundle: Path) -> None:
    folder = fill(tmp_path / "photos", 2)
    sightline.index(folder, model=tiny_bundle)
    opened = ServedCollection.open(folder, None, LIMITS)
    updater = CollectionUpdater(opened.current, opened.at, opened.model, watch=False)
    updater.start()
    try:
        (folder / "new.png").write_bytes(picture(50))
        sightline.index(folder, model=tiny_bundle)
        until(lambda: "new.png" in paths(opened.current))
    finally:
        updater.close()
        opened.close()


@pytest.mark.skipif(sys.platform != "linux", reason="threads have priorities of their own on Linux alone")
def test_indexing_gives_way_to_searching() -> None:
    from sightline.server.updater import _give_way

    found: list[int] = []

    def child() -> None:
        found.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

    def parent() -> None:
        _give_way()
        thread = threading.Thread(target=child)
        thread.start()
        thread.join()

    before = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    thread = threading.Thread(target=parent)
    thread.start()
    thread.join()
    assert found[0] > before or before >= 10
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == before


def test_serving_without_its_packages_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sightline.server.run", None)
    error = run().exception
    assert isinstance(error, sightline.errors.SightlineError)
    assert "sightline-search[serve]" in error.way_out


def test_a_vector_file_that_is_cut_off_does_not_end_the_server(tmp_path: Path, tiny_bundle: Path) -> None:
    folder = fill(tmp_path / "photos", 40)
    sightline.index(folder, model=tiny_bundle)
    with started("--at", folder) as (process, address):
        assert httpx.get(f"{address}/v1/search?q=a+dog", timeout=30).status_code == 200
        for path in (folder / ".sightline" / "vectors").iterdir():
            if path.suffix == ".0":
                os.truncate(path, 0)
        for _ in range(3):
            assert httpx.get(f"{address}/v1/search?q=a+cat", timeout=30).status_code == 500
        assert httpx.get(f"{address}/v1/items/1/similar", timeout=30).status_code in (404, 500)
        assert httpx.get(f"{address}/healthz").status_code == 200
        assert process.poll() is None


def test_a_watched_collection_is_refined_when_nothing_is_new(
    tmp_path: Path, quick_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sightline.server.updater._REFINE_SECONDS", -1.0)
    folder = fill(tmp_path / "photos", 3)
    sightline.index(folder, model=quick_bundle, quick=True)
    opened, told = ServedCollection.open(folder, None, LIMITS), list[str]()

    def to_refine() -> int:
        with opened.current.use() as collection:
            return collection.to_refine()

    updater = CollectionUpdater(opened.current, opened.at, opened.model, watch=True, notify=told.append, seconds=0.05)
    updater.start()
    try:
        time.sleep(0.5)  # each pause comes at the first image
        assert to_refine() == 3
        assert updater.is_healthy
        monkeypatch.setattr("sightline.server.updater._REFINE_SECONDS", 60.0)
        until(lambda: any("3 refined" in line for line in told))
        until(lambda: to_refine() == 0)
    finally:
        updater.close()
        opened.close()
