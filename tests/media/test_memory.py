"""What an image may cost: memory that all readers share, scans, and files that never end."""

import contextlib
import io
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sightline.errors import MediaError
from sightline.media import ImageBytes, ImageFile, ImageSlice, open_image
from sightline.media.limits import MAX_SCANS
from sightline.media.memory import ByteBudget


def test_a_budget_is_never_exceeded_and_everyone_gets_a_turn() -> None:
    budget, lock = ByteBudget(100), threading.Lock()
    used = most = done = 0

    def work(amount: int) -> None:
        nonlocal used, most, done
        for _ in range(20):
            with budget.scope():
                budget.reserve(amount)
                budget.reserve(amount)  # again: nothing more
                with lock:
                    used += min(amount, 100)
                    most = max(most, used)
                time.sleep(0.0005)
                with lock:
                    used -= min(amount, 100)
                    done += 1

    threads = [threading.Thread(target=work, args=(amount,)) for amount in (10, 30, 60, 100, 500)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert done == 100
    assert most <= 100


def test_a_scope_gives_back_what_was_reserved_even_after_an_error() -> None:
    budget = ByteBudget(10)
    for _ in range(3):
        with contextlib.suppress(RuntimeError), budget.scope(), budget.scope():
            budget.reserve(10)
            raise RuntimeError


def jpeg_with_scans(count: int) -> bytes:
    """A progressive JPEG whose last scan comes again and again."""
    file = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(noise).save(file, "JPEG", progressive=True)
    data = file.getvalue()
    last, end = data.rindex(b"\xff\xda"), data.rindex(b"\xff\xd9")
    scans = data.count(b"\xff\xda")
    return data[:end] + data[last:end] * (count - scans) + data[end:]


@pytest.mark.parametrize("before", [b"", b"\xff", b"\xff\x01", b"\xff\xfe\x00\x00", b"\x00"], ids=repr)
def test_no_bytes_before_a_frame_hide_its_scans(before: bytes) -> None:
    """A plain photo in a comment must not pass for the file itself, whatever precedes the frame."""
    data = jpeg_with_scans(MAX_SCANS + 1)
    plain = io.BytesIO()
    Image.new("RGB", (8, 8)).save(plain, "JPEG")
    at = data.index(b"\xff\xc2")
    length = int.from_bytes(data[at + 2 : at + 4], "big")
    hidden = data[:at] + before + data[at : at + 2 + length] + plain.getvalue()[2:] + data[at + 2 + length :]
    for name, file in {"bomb.jpg": data[:at] + before + data[at:], "hidden.jpg": hidden}.items():
        with pytest.raises(MediaError):
            open_image(ImageBytes(name, file))


def test_a_jpeg_with_too_many_scans_is_refused_before_it_is_decoded() -> None:
    assert open_image(ImageBytes("fine.jpg", jpeg_with_scans(MAX_SCANS))).size == (64, 64)
    with pytest.raises(MediaError, match="more than 100 scans"):
        open_image(ImageBytes("bomb.jpg", jpeg_with_scans(MAX_SCANS + 1)))
    began = time.process_time()
    with pytest.raises(MediaError, match="more than 100 scans"):
        open_image(ImageBytes("bomb.jpg", jpeg_with_scans(20_000)))
    assert time.process_time() - began < 2


def test_bytes_that_look_like_scans_in_metadata_are_not_counted() -> None:
    file = io.BytesIO()
    Image.new("RGB", (8, 8)).save(file, "JPEG", comment=b"\xff\xda" * 1000)
    assert open_image(ImageBytes("comment.jpg", file.getvalue())).size == (8, 8)


@pytest.mark.parametrize("source", [ImageFile, lambda path: ImageSlice(path, "a.png", 0, 10)])
def test_a_pipe_is_not_waited_for(source: type[ImageFile], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(MediaError, match="not a regular file"):
        source(tmp_path / "pipe.png").read()


MEASURE = """
import resource, sys
from pathlib import Path
from sightline.collection.catalog.files import PendingFile
from sightline.collection.indexing.readers import read_images
from sightline.media import Preprocess
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
work = [PendingFile(1, path.name.encode(), path.name, path) for path in sorted(Path(sys.argv[1]).iterdir())]
wanted = Preprocess(size=32, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
for outcome in read_images(work, wanted, set(), workers=6):
    assert outcome.facts, outcome.problem
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


def test_large_images_are_decoded_one_after_the_other(tmp_path: Path) -> None:
    first = tmp_path / "0.png"
    Image.new("RGBA", (10_000, 9_000), (1, 2, 3, 128)).save(first, compress_level=1)
    (tmp_path / "1.png").hardlink_to(first)
    done = subprocess.run([sys.executable, "-c", MEASURE, str(tmp_path)], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 1000, "one takes 720 MB"
