"""Read the text in a collection's images after indexing, in the background, resuming where the last run stopped."""

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sightline.collection.catalog.database import Catalog
from sightline.collection.catalog.files import Item
from sightline.collection.image_text.database import TEXT_FOLDER, TextDatabase, TextRead
from sightline.collection.indexing.report import FileProblem
from sightline.collection.indexing.shards_and_urls import source_of
from sightline.collection.manifest import read_manifest
from sightline.errors import CollectionError, MediaError, SightlineError
from sightline.files import FolderLock
from sightline.media.decoder import DecoderProcess
from sightline.media.ocr import INSTALL, is_installed, parse_lines
from sightline.media.open import MAX_PIXELS
from sightline.media.remote import ImageURL

TextProgress = Callable[[int, int], None]
"""Called with the number of images done and the total; it may raise an error to stop."""

_LARGEST_FILE = 256 << 20
_DECODE_BYTES = 1 << 30
_CPU_SECONDS, _SECONDS = 60.0, 600.0  # seconds per image; the process has low priority, and may have to wait
_COMMIT_SECONDS = 2.0
_LOCK_FILE = "lock"


@dataclass(slots=True)
class TextReport:
    """The result of reading text: images read, those with text, those that failed, and the time it took."""

    read: int = 0
    with_text: int = 0
    failed: list[FileProblem] = field(default_factory=list)
    seconds: float = 0.0

    def __str__(self) -> str:
        failed = f", {len(self.failed):,} failed" if self.failed else ""
        return f"{self.with_text:,} of {self.read:,} images have text{failed}; {self.seconds:.1f} s"


def pending(at: Path) -> int:
    """Return the number of images whose text has not been read yet."""
    with closing(Catalog.open(at)) as catalog:
        database = TextDatabase.open(at)
        known = database.hashes() if database else set[bytes]()
        if database:
            database.close()
        return len(_pending(catalog, known))


def read_text_in_images(at: Path, progress: TextProgress | None = None, *, retry: bool = False) -> TextReport:
    """Read the text in all images of a collection that have not been read before, newest first.

    retry: also retry images that could not be read before.

    The text is saved every few seconds, and searches find it from then on. The text of images that are no longer in the
    collection is removed. Only one process may read at a time; if another is reading, a `CollectionError` is raised.
    """
    if not is_installed():
        raise SightlineError("reading text in images needs another package", INSTALL)
    manifest = read_manifest(at)
    report, began = TextReport(), time.monotonic()
    if manifest.kind != "images":
        return report
    with _lock(at), closing(Catalog.open(at, trusted=manifest.is_trusted)) as catalog:
        database = TextDatabase.open(at, write=True)
        assert database is not None
        with closing(database):
            known = database.hashes()
            failed = {hash for hash, _ in database.problems()} if retry else set[bytes]()
            database.remove(known.difference(catalog.hashes()) | failed)
            known -= failed
            try:
                _read_all(catalog, database, _pending(catalog, known), report, progress)
            finally:
                report.seconds = time.monotonic() - began
    return report


def _read_all(
    catalog: Catalog,
    database: TextDatabase,
    work: list[tuple[int, bytes]],
    report: TextReport,
    progress: TextProgress | None,
) -> None:
    found: list[TextRead] = []
    saved = time.monotonic()
    done = 0

    def check() -> None:
        if progress:
            progress(done, len(work))

    decoder = DecoderProcess(check)  # one image may take minutes, so reading also stops in the middle of it
    try:
        for place, (id, hash) in enumerate(work):
            done = place
            check()
            item = catalog.items([id]).get(id)
            one = _read_one(item, hash, decoder) if item else None
            if one is None:
                continue
            found.append(one)
            report.read += 1
            report.with_text += bool(one.lines)
            if one.problem and item:
                report.failed.append(FileProblem(item.files[0].path, one.problem))
            if time.monotonic() - saved >= _COMMIT_SECONDS:
                database.add(found)
                found, saved = [], time.monotonic()
    finally:
        decoder.close()
        database.add(found)
    if progress and work:
        progress(len(work), len(work))


def _read_one(item: Item, hash: bytes, decoder: DecoderProcess) -> TextRead | None:
    """Read one image; None if it is missing or has changed, so that the next run tries again."""
    for file in item.files:
        source = source_of(file)
        if isinstance(source, ImageURL):
            continue  # it would have to be downloaded again
        try:
            data = source.read()
        except MediaError:
            continue
        if len(data) > _LARGEST_FILE or hashlib.blake2b(data, digest_size=32).digest() != hash:
            continue
        task = {"task": "text", "name": file.path, "max_pixels": MAX_PIXELS, "max_bytes": _DECODE_BYTES}
        try:
            answer, _ = decoder.request({**task, "seconds": _SECONDS, "cpu_seconds": _CPU_SECONDS}, data, _SECONDS)
        except MediaError as error:
            return TextRead(hash, problem=error.reason)
        if "missing" in answer:
            raise SightlineError(f"text in images {answer['reason']}", answer["way_out"])
        if "lines" not in answer:
            return TextRead(hash, problem=answer.get("reason", "takes too much memory to decode"))
        return TextRead(hash, parse_lines(answer["lines"]))
    return None


def _pending(catalog: Catalog, known: set[bytes]) -> list[tuple[int, bytes]]:
    """Return the ids and hashes of the images to read, newest first; blank images and videos are left out."""
    rows = catalog.everything().execute(
        "SELECT id, hash FROM contents WHERE text IS NULL AND is_blank IS NOT 1 AND moment IS NULL"
        " AND id IN (SELECT content FROM files) ORDER BY taken DESC, id DESC"
    )
    return [(id, bytes(hash)) for id, hash in rows if bytes(hash) not in known]


@contextmanager
def _lock(at: Path) -> Iterator[None]:
    folder = at / TEXT_FOLDER
    if folder.is_symlink():
        raise CollectionError(f"{folder}: is a symbolic link, which is not followed", "Delete it.")
    try:
        folder.mkdir(exist_ok=True)
        lock = FolderLock(folder / _LOCK_FILE)
    except OSError as error:
        raise CollectionError(
            f"{folder}: cannot be written: {error.strerror or error}",
            "Give yourself write permission there, or do without: --no-text.",
        ) from error
    try:
        if not lock.acquire():
            raise CollectionError(f"{at}: another process is reading the text in its images", "Wait for it to finish.")
        yield
    finally:
        lock.close()
