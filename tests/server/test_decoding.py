"""Pictures are decoded by processes that take a bounded amount of memory and time, and that can be ended."""

import asyncio
import io
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import tiny
from media.raw_files import cr2
from server.samples import limits, picture
from sightline.errors import MediaError
from sightline.media import ImageBytes, to_pixels
from sightline.server.decoders import DecoderPool
from sightline.server.image_files import ImageContent
from sightline.server.worker_pool import RequestCancelledError, WorkerPool


def encoded(image: Image.Image, format: str = "PNG", **options: object) -> ImageBytes:
    file = io.BytesIO()
    image.save(file, format, **options)
    return ImageBytes("the picture", file.getvalue())


@contextmanager
def pool(**changes: Any) -> Iterator[DecoderPool]:
    made = DecoderPool(limits(**changes), processes=1)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def decoders() -> Iterator[DecoderPool]:
    with pool() as made:
        yield made


@pytest.fixture(scope="module")
def slow() -> ImageBytes:
    """A picture that takes about a second to decode."""
    noise = np.random.default_rng(0).integers(0, 255, (1600, 1600, 3), dtype=np.uint8)
    return encoded(Image.fromarray(noise), "JPEG2000")


def children() -> list[int]:
    """The processes that this one has started and not ended."""
    listed = Path(f"/proc/self/task/{os.getpid()}/children")
    if not listed.exists():
        pytest.skip("this system does not list child processes")
    return [int(one) for one in listed.read_text().split()]


def test_a_raw_photo_is_shown_by_its_preview(decoders: DecoderPool) -> None:
    pytest.importorskip("rawpy", reason="the extra raw is not installed")
    photo = ImageBytes("the picture", cr2())
    for data in (decoders.jpeg(photo, 90), decoders.thumbnail(photo, 160, 80)):
        with Image.open(io.BytesIO(data)) as shown:
            assert (shown.format, shown.size) == ("JPEG", (64, 96))
    assert decoders.camera(photo)["camera"] == "Canon EOS 5D Mark II"


def peak(pid: int) -> int:
    """The most memory that a process has ever had, in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


@pytest.mark.parametrize("format", ["PNG", "JPEG", "WEBP", "TIFF"])
def test_an_upload_becomes_what_the_library_makes_of_it(decoders: DecoderPool, format: str) -> None:
    source = ImageBytes("the picture", picture(3, (400, 300), format))
    assert np.array_equal(decoders.pixels(source, tiny.PREPROCESS), to_pixels(source, tiny.PREPROCESS))


def test_a_transparent_bomb_is_refused_by_its_header(decoders: DecoderPool) -> None:
    bomb = encoded(Image.new("RGBA", (7000, 7000)), compress_level=9)
    assert len(bomb.data) < 300_000
    before = set(children())
    with pytest.raises(MediaError, match="too many pixels"):
        decoders.pixels(bomb, tiny.PREPROCESS)
    (child,) = set(children()) - before
    assert peak(child) < 200 * 2**20


def test_what_a_header_does_not_tell_is_bounded_too() -> None:
    """A picture that takes more memory than its header says cannot take more than the process may have."""
    source = encoded(Image.new("RGB", (3000, 3000)))
    with pool(decode_bytes=200 * 2**20) as strict:
        assert strict.pixels(source, tiny.PREPROCESS).shape == (3, 32, 32)


def test_a_large_picture_of_the_collection_is_shown_all_the_same(decoders: DecoderPool) -> None:
    own = encoded(Image.new("RGBA", (4600, 4600)), compress_level=1)
    made = Image.open(io.BytesIO(decoders.thumbnail(own, 160, 80)))
    assert made.size == (160, 160)


def test_a_picture_that_takes_too_long_ends_its_process_and_the_next_gets_another(slow: ImageBytes) -> None:
    with pool(decode_seconds=0.3) as decoders:
        began = time.monotonic()
        with pytest.raises(MediaError, match="takes longer"):
            decoders.pixels(slow, tiny.PREPROCESS)
        assert time.monotonic() - began < 9
        assert decoders.pixels(ImageBytes("small", picture(1)), tiny.PREPROCESS).shape == (3, 32, 32)


def test_a_request_that_nobody_waits_for_ends_the_process(decoders: DecoderPool, slow: ImageBytes) -> None:
    workers = WorkerPool("test", 1, 0)
    raised: list[type[BaseException]] = []
    decoders.pixels(ImageBytes("small", picture(1)), tiny.PREPROCESS)
    before = children()

    def decode() -> None:
        try:
            decoders.pixels(slow, tiny.PREPROCESS)
        except BaseException as error:
            raised.append(type(error))

    async def leave() -> None:
        task = asyncio.ensure_future(workers.run(decode))
        await asyncio.sleep(0.2)
        task.cancel()

    asyncio.run(leave())
    workers.close()
    assert raised == [RequestCancelledError]
    assert children() != before


@pytest.mark.parametrize("data", [b"", b"no picture", picture(1)[:60]])
def test_what_is_no_picture_is_an_error_and_the_process_stays(decoders: DecoderPool, data: bytes) -> None:
    decoders.pixels(ImageBytes("good", picture(1)), tiny.PREPROCESS)
    before = children()
    with pytest.raises(MediaError):
        decoders.pixels(ImageBytes("bad", data), tiny.PREPROCESS)
    assert children() == before


def test_the_processes_end_with_the_pool(decoders: DecoderPool) -> None:
    before = set(children())
    decoders.start()
    assert set(children()) - before
    decoders.close()
    assert not set(children()) - before


def test_a_module_in_the_current_folder_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "numpy.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    with pool() as decoders:
        assert decoders.pixels(ImageBytes("small", picture(1)), tiny.PREPROCESS).shape == (3, 32, 32)


def test_a_file_opened_for_a_client_that_left_is_closed(tmp_path: Path) -> None:
    (tmp_path / "photo").write_bytes(b"photo")
    opened: list[Any] = []
    began, may_open = threading.Event(), threading.Event()

    def open_late() -> tuple[str, ImageContent]:
        began.set()
        assert may_open.wait(10)
        opened.append((tmp_path / "photo").open("rb"))
        return "tag", ImageContent("image/jpeg", file=opened[0])

    async def leave() -> None:
        asked = asyncio.create_task(workers.run(open_late))
        await asyncio.to_thread(began.wait, 10)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        may_open.set()

    workers = WorkerPool("test", 1, 0)
    asyncio.run(leave())
    workers.close()
    assert opened[0].closed
