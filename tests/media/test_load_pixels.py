"""Many pictures: in order, bounded, past the broken ones, and stoppable."""

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest
from PIL import Image

from media.sample_pictures import encoded, source
from sightline.errors import MediaError
from sightline.media import ImageBytes, ImageSource, Preprocess, load_pixels, to_pixels
from sightline.parallel import usable_cpus

TINY = Preprocess(4, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))


def numbered(index: int) -> ImageBytes:
    """A picture that shows its number as a gray level."""
    return source(encoded(Image.new("RGB", (4, 4), (index, index, index)), "PNG"), f"{index}.png")


@dataclass(frozen=True)
class Slow:
    """A picture that arrives only when the test lets it."""

    picture: ImageBytes
    go: threading.Event
    begun: threading.Event = field(default_factory=threading.Event)

    @property
    def name(self) -> str:
        return self.picture.name

    def read(self) -> bytes:
        self.begun.set()
        assert self.go.wait(10)
        return self.picture.read()


@pytest.mark.parametrize("workers", [None, 1, 4])
@pytest.mark.parametrize("ahead", [1, 3, 100])
def test_results_come_in_the_order_of_the_sources(workers: int | None, ahead: int) -> None:
    loaded = list(load_pixels((numbered(i) for i in range(40)), TINY, workers=workers, ahead=ahead))
    assert [item.index for item in loaded] == list(range(40))
    assert [item.source.name for item in loaded] == [f"{i}.png" for i in range(40)]
    assert [round(float(item.pixels[0, 0, 0]) * 255) for item in loaded if item.pixels is not None] == list(range(40))


def test_a_slow_picture_does_not_change_the_order() -> None:
    go = threading.Event()
    slow = Slow(numbered(0), go)
    run = load_pixels([slow, numbered(1), numbered(2)], TINY, workers=2)
    threading.Timer(0.05, go.set).start()
    assert [item.source.name for item in run] == ["0.png", "1.png", "2.png"]


def test_pixels_are_those_of_loading_one_by_one() -> None:
    sources = [numbered(i) for i in range(10)]
    for item in load_pixels(sources, TINY):
        assert item.error is None
        assert np.array_equal(item.pixels, to_pixels(sources[item.index], TINY))


def test_a_broken_picture_yields_its_error_and_the_run_goes_on() -> None:
    sources: list[ImageSource] = [
        numbered(0),
        source(b"", "empty.jpg"),
        numbered(2),
        source(b"<html>", "page.jpg"),
        numbered(4),
    ]
    loaded = list(load_pixels(sources, TINY, workers=2))
    assert [item.pixels is not None for item in loaded] == [True, False, True, False, True]
    assert [item.error and item.error.name for item in loaded] == [None, "empty.jpg", None, "page.jpg", None]
    assert isinstance(loaded[1].error, MediaError)


def test_errors_do_not_hold_on_to_the_pictures_bytes() -> None:
    item = next(load_pixels([source(numbered(0).data[:40])], TINY))
    assert item.error is not None
    assert item.error.__traceback__ is item.error.__cause__ is item.error.__context__ is None


@pytest.mark.parametrize(("workers", "ahead"), [(1, 1), (2, 5), (4, 8)])
def test_the_sources_are_consumed_lazily_and_only_so_far_ahead(workers: int, ahead: int) -> None:
    taken = 0

    def endless() -> Iterator[ImageSource]:
        nonlocal taken
        while True:
            taken += 1
            yield numbered(taken % 200)

    run = load_pixels(endless(), TINY, workers=workers, ahead=ahead)
    assert taken == 0
    for received in range(1, 30):
        next(run)
        assert taken <= received + ahead
    run.close()  # type: ignore[attr-defined]


def test_no_sources_give_no_results() -> None:
    assert list(load_pixels([], TINY)) == []


def test_closing_early_drops_what_has_not_begun_and_does_not_wait() -> None:
    go = threading.Event()
    slow = [Slow(numbered(i), go) for i in range(1, 20)]
    run = load_pixels([numbered(0), *slow], TINY, workers=2, ahead=20)
    assert next(run).index == 0
    assert slow[0].begun.wait(5)
    start = time.perf_counter()
    run.close()  # type: ignore[attr-defined]
    assert time.perf_counter() - start < 6  # not for the ten seconds that the slow ones would wait
    go.set()
    deadline = time.monotonic() + 5
    while any(t.name.startswith("sightline-load") for t in threading.enumerate()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(thread.name.startswith("sightline-load") for thread in threading.enumerate())
    assert sum(item.begun.is_set() for item in slow) <= 3


def test_a_failing_iterable_passes_its_error_on_and_stops_the_threads() -> None:
    def failing() -> Iterator[ImageSource]:
        yield numbered(0)
        raise RuntimeError("the list of sources broke")

    with pytest.raises(RuntimeError, match="list of sources"):
        list(load_pixels(failing(), TINY))


@pytest.mark.parametrize("wrong", [{"ahead": 0}, {"workers": 0}, {"workers": -1}])
def test_no_workers_or_no_look_ahead_is_refused_at_once(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="both must be at least 1"):
        load_pixels([], TINY, **wrong)


def test_usable_cpus_is_at_least_one() -> None:
    assert usable_cpus() >= 1
