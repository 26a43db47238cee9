"""Decoding training images in threads, if needed ahead of the step that uses them."""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from sightline.datasets import Record
from sightline.errors import MediaError
from sightline.media import Preprocess, fit, open_image
from sightline.parallel import usable_cpus

AHEAD = 2
"""How many batches are drawn and decoded before they are needed."""

T = TypeVar("T")
Pixels = npt.NDArray[np.uint8]


class Decoding:
    """Images that are being decoded."""

    def __init__(self, images: Sequence[Future[Pixels]]) -> None:
        self._images = images

    def result(self) -> Pixels:
        """Wait for all images: [n, size, size, 3]."""
        return np.stack([image.result() for image in self._images])


class Decoder:
    """Opens training images at the same scale as `to_pixels` does in evaluation and search."""

    def __init__(self, preprocess: Preprocess) -> None:
        self._preprocess = preprocess
        self._pool = ThreadPoolExecutor(usable_cpus(), thread_name_prefix="sightline-train")

    def start(self, records: Sequence[Record]) -> Decoding:
        """Start decoding images; `Decoding.result` raises a `MediaError` if one cannot be opened."""
        return Decoding([self._pool.submit(self._opened, record) for record in records])

    def _opened(self, record: Record) -> Pixels:
        try:
            return fit(open_image(record.image, at_least=2 * self._preprocess.size), self._preprocess)
        except MediaError as error:
            way_out = "Repair it, or remove it and its captions from the training data; then continue with --resume."
            raise MediaError(error.name, error.reason, way_out) from error


def ahead(items: Iterator[T], count: int = AHEAD) -> Iterator[T]:
    """Yield items that another thread draws, up to `count` of them before they are needed.

    An exception while drawing an item is raised when that item is due.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="sightline-ahead") as pool:
        waiting = deque(pool.submit(next, items, None) for _ in range(count))
        while (item := waiting.popleft().result()) is not None:
            waiting.append(pool.submit(next, items, None))
            yield item
