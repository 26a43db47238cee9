"""Read files in threads, slightly ahead of encoding: hash them, and decode and resize new images."""

import hashlib
from collections import deque
from collections.abc import Callable, Container, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sightline.collection.catalog.exif import place, taken
from sightline.collection.catalog.files import Facts, PendingFile, Stamp
from sightline.collection.indexing.decoders import FileDecoders
from sightline.collection.indexing.report import FileProblem
from sightline.collection.indexing.texts import text_hash
from sightline.collection.indexing.video_files import file_digest, is_video_file
from sightline.errors import MediaError, MissingDecoderError, ModelError
from sightline.media import ImageBytes, ImageFile, ImageInput, RegionConfig, require_pixels, to_input
from sightline.media.decoder import LOOK_SECONDS
from sightline.media.file_types import RAW, detect_type
from sightline.media.jpeg import to_jpeg
from sightline.media.memory import decoding
from sightline.media.pixels import framed_to_pixels, is_blank, open_for_model
from sightline.media.raw import camera_exif
from sightline.media.remote import ImageURL
from sightline.parallel import usable_cpus
from sightline.stores.base import StoredImages

_AHEAD = 32
_THUMBNAIL_SIDE, _THUMBNAIL_QUALITY = 640, 80


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of reading a file: its `facts`, or the `problem` with it.

    payload: input for the model: pixels, regions or text; for a video, uint8 [moments, size, size, 3]. None if the
        content is already known.
    moments: the facts of a video's moments except the first, whose facts are `facts`.
    gone: the file disappeared before it was read.
    permanent: the problem is in the file itself, and persists until the file changes.
    stored_image: for a new image, the file that a store on a server will keep.
    """

    found: PendingFile
    facts: Facts | None = None
    payload: npt.NDArray[np.float32] | npt.NDArray[np.uint8] | str | None = None
    moments: tuple[Facts, ...] = ()
    problem: str = ""
    gone: bool = False
    permanent: bool = True
    stored_image: bytes = b""


def vanished_file(outcome: Outcome) -> FileProblem:
    """Return the entry in a report for a file that disappeared before it was read."""
    return FileProblem(outcome.found.name, "vanished while indexing")


def read_texts(work: Iterable[PendingFile], known: Container[bytes]) -> Generator[Outcome, None, None]:
    """Yield every text with its facts; those with a known hash have no payload."""
    for found in work:
        if found.problem or not found.text:
            yield Outcome(found, problem=found.problem)
        else:
            facts = Facts(text_hash(found.text), text=found.text)
            yield Outcome(found, facts, None if facts.hash in known else found.text)


def read_images(
    work: Iterable[PendingFile],
    preprocess: ImageInput,
    known: Container[bytes],
    workers: int | None = None,
    stored_images: StoredImages = "none",
    check: Callable[[], None] = lambda: None,
) -> Generator[Outcome, None, None]:
    """Yield every image with its facts, in order; images with a known hash are not decoded.

    stored_images: what to store of each new image, if the store keeps images.
    check: called often while waiting for a file, such as a long video; it ends the run by raising an error.

    Threads suffice because reading, hashing, decoding and resampling release the GIL. Only a few images are in
    progress at once, so memory does not grow with their number.
    """
    files, decoders = iter(work), FileDecoders()
    read = partial(_read, preprocess=preprocess, known=known, stored_images=stored_images, decoders=decoders)
    pool = ThreadPoolExecutor(workers or usable_cpus(), thread_name_prefix="sightline-read")
    try:
        waiting: deque[Future[Outcome]] = deque()
        for found in islice(files, _AHEAD):
            waiting.append(pool.submit(read, found))
        while waiting:
            first = waiting.popleft()
            while not first.done():
                wait([first], LOOK_SECONDS)
                check()
            outcome = first.result()
            for found in islice(files, 1):
                waiting.append(pool.submit(read, found))
            yield outcome
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        decoders.close()


def _read(
    found: PendingFile,
    preprocess: ImageInput,
    known: Container[bytes],
    stored_images: StoredImages,
    decoders: FileDecoders,
) -> Outcome:
    source = found.source or ImageFile(found.where)
    if found.source is None and is_video_file(found.where):
        return _read_video(found, preprocess, known, decoders)
    try:
        data = source.read()
    except MediaError as error:
        return _unread(found, error, is_local=not isinstance(source, ImageURL))
    digest = hashlib.blake2b(data, digest_size=32).digest()
    if digest in known:
        return Outcome(found, Facts(digest))
    try:
        with decoding.scope():
            original = ImageBytes(source.name, data)
            image = decoders.preview(original) if detect_type(data) is RAW else original
            outcome = _decode(found, image, original, digest, preprocess)
            is_stored = stored_images != "none" and not isinstance(preprocess, RegionConfig)
            return (
                replace(outcome, stored_image=_stored_image(image, original, stored_images)) if is_stored else outcome
            )
    except MediaError as error:
        return Outcome(found, problem=error.reason, permanent=not isinstance(error, MissingDecoderError))


def _unread(found: PendingFile, error: MediaError, *, is_local: bool = True) -> Outcome:
    """Return the outcome for a file whose bytes cannot be read; the next run tries again."""
    gone = is_local and isinstance(error.__cause__, FileNotFoundError | NotADirectoryError)
    return Outcome(found, problem=error.reason, gone=gone, permanent=False)


def _read_video(found: PendingFile, preprocess: ImageInput, known: Container[bytes], decoders: FileDecoders) -> Outcome:
    before = _stamp(found.where)
    try:
        digest = file_digest(found.where)
    except MediaError as error:
        return _unread(found, error)
    if digest in known:
        return Outcome(found, Facts(digest))
    try:
        video = decoders.moments(found.where, found.name, require_pixels(preprocess))
    except (MediaError, ModelError) as error:
        reason = error.reason if isinstance(error, MediaError) else error.what
        return Outcome(found, problem=reason, permanent=not isinstance(error, MissingDecoderError))
    if before is None or before != _stamp(found.where):  # the moments may not be those of the content with this hash
        return Outcome(found, problem="changed while it was read", permanent=False)
    first, *others = video.facts(digest)
    return Outcome(found, first, video.moments.pixels, tuple(others))


def _stamp(path: Path) -> Stamp | None:
    """Return a file's size and times; None if it is missing."""
    try:
        return Stamp.of(path.stat())
    except OSError:
        return None


def _decode(
    found: PendingFile, source: ImageBytes, original: ImageBytes, digest: bytes, preprocess: ImageInput
) -> Outcome:
    """Decode an image. original: the file that `source` is a preview of, or `source` itself."""
    if isinstance(preprocess, RegionConfig):
        return Outcome(found, Facts(digest), to_input(source, preprocess))
    image = open_for_model(source, preprocess)
    exif = image.exif if source is original else camera_exif(original.data, image.exif)
    width, height = image.sides
    facts = Facts(digest, width, height, taken(exif), place(exif), is_blank=is_blank(image))
    return Outcome(found, facts, framed_to_pixels(image, preprocess))


def _stored_image(image: ImageBytes, original: ImageBytes, kind: StoredImages) -> bytes:
    """Return what a store will keep of an image: a thumbnail, or the bytes of the file."""
    return original.data if kind == "originals" else to_jpeg(image, _THUMBNAIL_QUALITY, _THUMBNAIL_SIDE)
