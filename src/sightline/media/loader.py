"""Load many images in threads, in order, slightly ahead of the caller."""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from sightline.errors import MediaError
from sightline.media.inputs import ImageInput, to_input
from sightline.media.source import ImageSource
from sightline.parallel import usable_cpus


@dataclass(frozen=True, slots=True)
class Loaded:
    """The result of loading an image: `pixels` float32 [3, size, size], or the `error`.

    For a region model, `pixels` are its regions, [n, width].
    """

    index: int
    source: ImageSource
    pixels: npt.NDArray[np.float32] | None
    error: MediaError | None


def load_pixels(
    sources: Iterable[ImageSource], preprocess: ImageInput, *, workers: int | None = None, ahead: int = 32
) -> Iterator[Loaded]:
    """Load every source, in order; an unreadable image yields its error and does not stop the rest.

    Threads suffice because decoding and resampling release the GIL. At most `ahead` sources are loaded in advance, so
    memory does not grow with their number. Closing the iterator early cancels those that have not been started.
    """
    if ahead < 1 or (workers is not None and workers < 1):
        raise ValueError(f"workers={workers}, ahead={ahead}: both must be at least 1")
    return _run(iter(sources), preprocess, workers or usable_cpus(), ahead)


def _run(sources: Iterator[ImageSource], preprocess: ImageInput, workers: int, ahead: int) -> Iterator[Loaded]:
    pool = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="sightline-load")
    try:
        numbered = enumerate(sources)
        waiting: deque[Future[Loaded]] = deque(
            pool.submit(_load, index, source, preprocess) for index, source in islice(numbered, ahead)
        )
        while waiting:
            loaded = waiting.popleft().result()
            for index, source in islice(numbered, 1):
                waiting.append(pool.submit(_load, index, source, preprocess))
            yield loaded
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _load(index: int, source: ImageSource, preprocess: ImageInput) -> Loaded:
    try:
        return Loaded(index, source, to_input(source, preprocess), None)
    except MediaError as error:
        # The traceback references the image's bytes, which must not accumulate in a long run.
        error.__traceback__ = error.__cause__ = error.__context__ = None
        return Loaded(index, source, None, error)
