"""Bring a collection up to date with the disk: encode new files, and remove missing ones."""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from sightline.bundle.model import Model
from sightline.collection.catalog.files import PendingFile
from sightline.collection.indexing.changed_files import FolderScan, scan_images
from sightline.collection.indexing.create import forget_fast, open_to_write
from sightline.collection.indexing.encode import IndexProgress, encode
from sightline.collection.indexing.readers import read_images, read_texts
from sightline.collection.indexing.refine import Refiner
from sightline.collection.indexing.regions import scan_regions
from sightline.collection.indexing.report import IndexingInterrupted, Report
from sightline.collection.indexing.shards_and_urls import is_container, scan_container
from sightline.collection.indexing.targets import check_exists, kind_of, location, targets
from sightline.collection.indexing.texts import scan_texts
from sightline.collection.indexing.writer import Writer
from sightline.collection.locate import model_for_indexing, named_path
from sightline.collection.locks import Notify
from sightline.collection.manifest import read_manifest
from sightline.datasets.regions.store import is_region_store
from sightline.errors import CollectionError, OptionError
from sightline.registry.loader import load
from sightline.retrieval.query import ItemKind
from sightline.stores.base import RefinableStore, RemoteStore
from sightline.stores.opening import is_store_url

_Encoder = Callable[[Sequence[PendingFile], Writer, set[bytes], IndexProgress | None], None]


def index(
    folders: Sequence[str | Path] | str | Path = (),
    *,
    at: str | Path | None = None,
    model: str | Path | Model | None = None,
    progress: IndexProgress | None = None,
    wait: bool | float = True,
    notify: Notify | None = None,
    prune: bool = False,
    retry: bool = False,
    workers: str | None = None,
    store: str | None = None,
    quick: bool = False,
    refine: bool = False,
) -> Report:
    """Index folders of images, or text files, into a collection; unchanged files are not read again.

    folders: one or several; if empty, everything that the collection at `at` contains. Images may also be in shards
        (`.tar`), or at the URLs in a list (`.urls`): see `shards_and_urls`; a region model reads region stores. A
        text is a line of a `.txt` file, or in a `.jsonl` file a string or an object with `text` or `caption` and
        optionally `id`.
    at: the collection's folder; by default `.sightline` in the folder that is indexed.
    model: by default the model that indexed the collection, and the bundled model for a new one.
    wait, notify: what to do while another process indexes the same collection; see `locks.write_lock`.
    prune: delete the items of a folder that is missing or no longer has images.
    retry: read unreadable files again even if they have not changed, and check all vectors for damage.
    workers: `ray` or `ray://HOST:PORT` to read and encode on a Ray cluster. The result is the same.
    store: where to keep the vectors of a new collection, if not in its folder: `milvus://HOST:PORT/NAME` or
        `postgresql://USER@HOST:PORT/DATABASE/NAME`. The catalog stays in the folder, and other machines open the
        collection by this URL.
    quick: encode new images with the model's fast image graph; `refine` can encode them again later.
    refine: afterwards, use the full graph to re-encode the images that the fast one encoded, newest first. If this is
        interrupted, finished images are kept.

    Unreadable files are listed in the report and do not stop the run. Ctrl-C raises `IndexingInterrupted` with the
    report so far. After that, or after a crash, the collection is consistent and the next run continues.
    """
    places = [named_path(one).resolve() for one in ([folders] if isinstance(folders, str | Path) else folders)]
    for place in places if not prune else ():
        check_exists(place)
    if is_store_url(at):
        raise CollectionError(f"{at}: is the URL of a store, not a folder", "Pass it with --store.")
    at = location(at, places)
    model = model_for_indexing(at, model)
    kind = kind_of(places) if places else read_manifest(at).kind
    opened = (load(model) if isinstance(model, str | Path) else model).with_threads(1)  # one batch per thread
    fast = _fast_variant(opened, kind) if quick else None
    encoder, full_encoder = (_encoder(workers, model, used) for used in (fast or opened, opened))
    report = Report(at, kind)
    began = time.perf_counter()
    opening = open_to_write(
        at, kind, opened, named=places, wait=wait, notify=notify, store=store, verify=retry, fast=fast
    )
    with opening as (catalog, vectors):
        try:
            _sync(Writer(catalog, vectors, report, fast=quick), places, encoder, progress, prune, retry)
            if refine and isinstance(vectors, RefinableStore):
                _refine(Refiner(catalog, vectors, report), full_encoder, progress, notify)
        except KeyboardInterrupt:
            raise IndexingInterrupted(report) from None
        finally:
            report.duplicates = catalog.copies()
            report.to_refine = len(catalog.items_to_refine(vectors))
            report.seconds = time.perf_counter() - began
    return report


def _sync(
    writer: Writer, places: list[Path], encoder: _Encoder, progress: IndexProgress | None, prune: bool, retry: bool
) -> None:
    report = writer.report
    scan = _scan(writer, places, prune, retry)
    report.unchanged += scan.unchanged
    report.broken += scan.broken
    report.skipped += scan.skipped
    report.left_out += scan.left_out
    if scan.ctimes:
        with writer.catalog.transaction():
            writer.catalog.set_ctimes(scan.ctimes)
    writer.mark_missing(scan.missing)
    encoder(scan.work, writer, set(writer.catalog.hashes()), progress)


def _encode_here(
    model: Model, work: Sequence[PendingFile], writer: Writer, known: set[bytes], progress: IndexProgress | None
) -> None:
    is_texts, files = writer.report.kind == "texts", 0

    def note(done: int, total: int) -> None:
        nonlocal files
        files = done
        if progress:
            progress(done, total)

    outcomes = (
        read_texts(work, known)
        if is_texts
        else read_images(
            work,
            model.preprocess,
            known,
            stored_images=writer.stored_images,
            check=lambda: note(files, len(work)),
        )
    )
    with closing(outcomes):
        encode(outcomes, len(work), writer, model, known, note)


def _fast_variant(model: Model, kind: ItemKind) -> Model:
    if kind != "images":
        raise OptionError("quick", f"is only for images, but these items are {kind}", "Leave out --quick.")
    found = model.fast_variant()
    if found is None:
        raise OptionError("quick", f"is unavailable: {model.name} has no fast image graph", "Leave out --quick.")
    return found.with_threads(1)


def _refine(refiner: Refiner, encoder: _Encoder, progress: IndexProgress | None, notify: Notify | None) -> None:
    """Re-encode, with the full graph, the items that the fast graph encoded."""
    work = refiner.work()
    if work and notify:
        notify(
            f"Refining {len(work):,} images; you can search meanwhile. Press Ctrl-C to stop; index --refine continues."
        )
    encoder(work, refiner, set(), progress)
    if not len(refiner.store.fast_ids()):
        forget_fast(refiner.report.at)


def _encoder(workers: str | None, given: str | Path | Model, opened: Model) -> _Encoder:
    if workers is None:
        return partial(_encode_here, opened)
    from sightline.collection.remote.ray import check_workers, encode_on_ray, folder_of

    check_workers(workers)
    return partial(encode_on_ray, workers, (folder_of(given, opened), opened.sha256))


def _scan(writer: Writer, places: list[Path], prune: bool, retry: bool) -> FolderScan:
    """Scan the places that the user named or, if none, everything in the collection."""
    catalog, everything = writer.catalog, FolderScan()
    with catalog.transaction():
        chosen = targets(catalog, places or catalog.roots().values())
    for root, path, within in chosen:
        if writer.report.kind == "texts":
            everything += scan_texts(catalog, root, path, prune=prune)
        elif is_region_store(path):
            everything += scan_regions(catalog, root, path, retry=retry)
        elif is_container(path):
            everything += scan_container(catalog, root, path, prune=prune, retry=retry)
        else:
            videos = not isinstance(writer.store, RemoteStore)
            everything += scan_images(catalog, root, path, within, prune=prune, retry=retry, videos=videos)
    return everything
