"""At the same time in a server: files are replaced while they are read, collections reopened, threads stopped."""

import itertools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import sightline
from server.samples import fill, picture
from server.served import opening
from sightline.bundle import Bundle, Model
from sightline.collection import Collection
from sightline.collection.image_text import reading
from sightline.collection.indexing.decoders import FileDecoders
from sightline.collection.indexing.video_files import DecodedVideo
from sightline.errors import MediaError, SightlineError
from sightline.server import actions, current_collection, image_files, updater
from sightline.server.current_collection import CurrentCollection
from sightline.server.decoders import DecoderPool
from sightline.server.library import Library
from sightline.server.problems import RefusedError
from sightline.server.run import ServedCollection
from sightline.server.updater import CollectionUpdater


def test_a_slower_thread_does_not_bring_back_an_older_state(
    tmp_path: Path, tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos = fill(tmp_path / "photos", 2)
    at = sightline.index(photos, model=tiny_bundle).at
    current = CurrentCollection(at, Bundle.open(tiny_bundle))
    opened = current_collection._opened
    has_opened, may_go_on = threading.Event(), threading.Event()

    def slow(at: Path, model: Model) -> Collection:
        found = opened(at, model)
        if not has_opened.is_set():
            has_opened.set()
            may_go_on.wait(1)  # in vain, if the other waits for its turn
        return found

    monkeypatch.setattr(current_collection, "_opened", slow)
    fill(photos, 3)
    sightline.index(photos, model=tiny_bundle)
    with ThreadPoolExecutor(1) as other:
        first = other.submit(current.renew)
        assert has_opened.wait(20)
        fill(photos, 4)
        sightline.index(photos, model=tiny_bundle)
        current.renew()
        may_go_on.set()
        first.result(20)
    with current.use() as collection:
        assert len(collection.store.ids()) == 4
    current.close()


def test_an_album_is_changed_in_a_collection_that_stays_open(tmp_path: Path, tiny_bundle: Path) -> None:
    photos = fill(tmp_path / "photos", 2)
    at = sightline.index(photos, model=tiny_bundle).at
    current = CurrentCollection(at, Bundle.open(tiny_bundle))

    counts = itertools.count(3)

    def reopen() -> None:
        fill(photos, next(counts))
        sightline.index(photos, model=tiny_bundle)
        assert current.renew()

    class Changing(Library):
        """Changes after the first use, as another process may do at any time."""

        uses = 0

        def use(self) -> Any:
            self.uses += 1
            if self.uses == 2:
                reopen()
            return super().use()

    def add(collection: Collection, name: str, ids: Sequence[int]) -> None:
        reopen()
        collection.add_to_album(name, ids)

    assert actions._change(Changing([current]), add, "Trip", [1]) == {"albums": [{"name": "Trip", "items": 1}]}
    current.close()


def test_similar_items_of_a_collection_that_is_being_deleted_are_called_unavailable(
    tmp_path: Path, tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = [fill(tmp_path / name, 2) for name in ("one", "two")]
    for place in places:
        sightline.index(place, model=tiny_bundle)
    with opening(places) as opened:
        first, asked = opened.library.parts[0], [True, False]
        is_available = CurrentCollection.is_available.fget
        assert is_available
        monkeypatch.setattr(
            CurrentCollection,
            "is_available",
            property(lambda self: asked.pop(0) if self is first and asked else is_available(self)),
        )
        with pytest.raises(RefusedError) as refused:
            opened.service.similar(1, 3)
    assert refused.value.status == 503


def test_no_thumbnail_is_kept_of_an_image_that_is_overwritten_while_it_is_read(
    tmp_path: Path, tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIGHTLINE_CACHE", str(tmp_path / "cache"))
    photos = fill(tmp_path / "photos", 1)
    sightline.index(photos, model=tiny_bundle)
    (path,) = photos.rglob("*.png")
    before = path.read_bytes()
    open_content = image_files.open_content

    def and_then_overwritten(*arguments: Any) -> Any:
        found = open_content(*arguments)
        path.write_bytes(picture(77))  # in place: the open file changes
        return found

    monkeypatch.setattr(image_files, "open_content", and_then_overwritten)
    with opening(photos) as opened:
        for asked in (
            lambda: opened.service.thumbnail(1, None, None, 160, lambda tag: False),
            lambda: opened.service.image(1, None, None, lambda tag: False),
        ):
            path.write_bytes(before)
            with pytest.raises(RefusedError, match="not available"):
                asked()
        assert not list((tmp_path / "cache").rglob("*.jpg"))


def test_no_frame_is_kept_of_a_video_that_is_replaced_while_it_is_read(
    tmp_path: Path, tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("av", reason="the extra video is not installed")
    from media.video_files import film, scene

    monkeypatch.setenv("SIGHTLINE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "videos").mkdir()
    film(tmp_path / "videos" / "film.mp4", [scene(1, (160, 120))], 1)
    film(tmp_path / "other.mp4", [scene(2, (160, 120))], 1)
    sightline.index(tmp_path / "videos", model=tiny_bundle)
    frame = DecoderPool.frame

    def replaced(self: DecoderPool, path: Path, *arguments: Any) -> bytes:
        (tmp_path / "other.mp4").replace(path)
        return frame(self, path, *arguments)

    monkeypatch.setattr(DecoderPool, "frame", replaced)
    with opening(tmp_path / "videos") as opened, pytest.raises(RefusedError, match="not available"):
        opened.service.thumbnail(1, None, None, 160, lambda tag: False)
    assert not list((tmp_path / "cache").rglob("*.jpg"))


@pytest.fixture
def served_photos(tmp_path: Path, tiny_bundle: Path) -> Any:
    photos = fill(tmp_path / "photos", 2)
    sightline.index(photos, model=tiny_bundle)
    with opening(photos) as opened:
        yield opened


def updating(opened: ServedCollection, notify: Callable[[str], None], **options: bool) -> CollectionUpdater:
    return CollectionUpdater(opened.current, Path(opened.at), opened.model, notify=notify, seconds=0.01, **options)


def test_watching_goes_on_when_messages_cannot_be_shown(
    served_photos: ServedCollection, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = threading.Semaphore(0)

    def fails(**options: object) -> None:
        runs.release()
        raise SightlineError("the disk is full")

    def closed(message: str) -> None:
        raise OSError("the terminal was closed")

    monkeypatch.setattr(updater, "index", fails)
    watching = updating(served_photos, closed, watch=True)
    watching.start()
    try:
        assert all(runs.acquire(timeout=20) for _ in range(6))
    finally:
        watching.close()


def test_a_server_that_stops_does_not_wait_for_the_text_of_an_image(
    served_photos: ServedCollection, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_reading, ended = threading.Event(), []

    class Slow(reading.DecoderProcess):
        """Reads until it is told to stop."""

        def request(self, *arguments: Any) -> Any:
            for _ in range(1000):
                is_reading.set()
                self._check()
                if threading.Event().wait(0.01):
                    break
            ended.append("in vain")
            return {"lines": []}, b""

    monkeypatch.setattr(reading, "DecoderProcess", Slow)
    monkeypatch.setattr(reading, "is_installed", lambda: True)
    reader = updating(served_photos, print, watch=False, read_text=True)
    reader.start()
    assert is_reading.wait(20)
    reader.close()
    assert not ended


def test_a_server_that_stops_does_not_wait_for_a_video(
    tmp_path: Path, served_photos: ServedCollection, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("av", reason="the extra video is not installed")
    is_reading, killed = threading.Event(), threading.Event()
    was_killed: list[bool] = []

    def slow(*arguments: object) -> DecodedVideo:
        killed.clear()  # of an earlier run
        is_reading.set()
        was_killed.append(killed.wait(10))
        raise MediaError("film.mp4", "the process was killed")

    monkeypatch.setattr(FileDecoders, "moments", slow)
    monkeypatch.setattr(FileDecoders, "close", lambda self: killed.set())
    watching = updating(served_photos, print, watch=True)
    watching.start()
    (tmp_path / "photos" / "film.mp4").write_bytes(b"a long film")
    assert is_reading.wait(20)
    watching.close()
    assert False not in was_killed
