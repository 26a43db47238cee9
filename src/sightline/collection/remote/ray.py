"""Indexing on a Ray cluster: workers read and encode blocks of files, and this process writes the results.

Blocks are returned in the order they were sent, so items get the same ids as on one machine. If a worker is lost,
Ray reruns its unfinished blocks elsewhere.
"""

import errno
import logging
import os
import shutil
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from sightline.bundle import Model
from sightline.bundle.layout import CHECKPOINT_FILE
from sightline.cache import cache_folder
from sightline.collection.catalog.files import PendingFile
from sightline.collection.indexing.batches import encode_in_batches, without_known
from sightline.collection.indexing.commits import commit_queue
from sightline.collection.indexing.encode import IndexProgress
from sightline.collection.indexing.readers import read_images, read_texts, vanished_file
from sightline.collection.indexing.report import Report
from sightline.collection.indexing.writer import EncodedBatch, Writer
from sightline.collection.locate import model_at
from sightline.errors import CollectionError, SightlineError
from sightline.packages import install_extra
from sightline.registry.loader import load, locate
from sightline.retrieval.query import ItemKind
from sightline.stores.base import StoredImages

RAY = "ray"
"""The `workers` value for the cluster that this machine belongs to or, if there is none, for all of its own CPUs."""

_CLIENT = "ray://"
_BLOCK: dict[ItemKind, int] = {"images": 64, "texts": 2048}
_AHEAD = 2  # blocks queued for each block that can be processed at once
_HASH = np.dtype("V32")
_Hashes = npt.NDArray[np.void]
_models: dict[str, Model] = {}


def check_workers(workers: str) -> None:
    """Raise an error if this is not a valid `workers` value."""
    if workers != RAY and not workers.startswith(_CLIENT):
        raise CollectionError(f"unknown value for workers: {workers!r}", f"Use {RAY} or {_CLIENT}HOST:PORT.")


def folder_of(given: str | Path | Model, opened: Model) -> Path:
    """Return the folder of the model, which will be copied to the workers."""
    if opened.folder:
        return opened.folder
    if isinstance(given, str | Path):
        return locate(given)
    raise CollectionError(
        f"{opened.name} is loaded only in this process", "Workers need a model from a bundle or checkpoint folder."
    )


def encode_on_ray(
    workers: str,
    model: tuple[Path, str],
    work: Sequence[PendingFile],
    writer: Writer,
    known: set[bytes],
    progress: IndexProgress | None = None,
) -> None:
    """Read all files and encode new contents on a cluster, write the results, then delete missing files.

    model: its folder and sha256. known: hashes of all contents so far; new ones are added.
    """
    with commit_queue(writer) as commits:
        if work:
            with (
                _joined(workers) as ray,
                closing(_blocks(ray, work, commits.report.kind, model, known, writer.stored_images)) as blocks,
            ):
                done = 0
                for block in blocks:
                    commits.take(without_known(_counted(block, commits.report), known))
                    if commits.is_due():
                        commits.write()
                    done += len(block.files)
                    if progress:
                        progress(done, len(work))
        commits.finish()


@contextmanager
def _joined(workers: str) -> Iterator[Any]:
    """Return the ray module, connected to the workers by the caller's existing connection or by address."""
    ray = _library()
    if ray.is_initialized():
        yield ray
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # send no statistics about users' machines
    try:
        ray.init(None if workers == RAY else workers, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError, ImportError) as error:
        raise CollectionError(
            f"{workers}: cannot connect to the Ray cluster: {error}", "Start one with: ray start --head"
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _library() -> ModuleType:
    try:
        return import_module("ray")
    except ImportError as error:
        raise SightlineError(f"--workers needs a package: {error}", install_extra("scale")) from error


def _blocks(
    ray: Any,
    work: Sequence[PendingFile],
    kind: ItemKind,
    model: tuple[Path, str],
    known: Iterable[bytes],
    stored_images: StoredImages,
) -> Generator[EncodedBatch, None, None]:
    """Yield the encoded blocks in order, queuing a few more than the workers can process at once."""
    folder, sha256 = model
    shares = _shares(ray, folder)
    task = ray.remote(encode_block).options(max_retries=-1, scheduling_strategy="SPREAD", **shares)
    packed = [ray.put(_files(folder))]  # in a list, so that Ray fetches it only when needed
    hashes = ray.put(np.sort(np.frombuffer(b"".join(known), dtype=_HASH)))
    sent: deque[Any] = deque()
    try:
        for start in range(0, len(work), _BLOCK[kind]):
            block = list(work[start : start + _BLOCK[kind]])
            sent.append(task.remote(str(folder), sha256, packed, kind, block, hashes, stored_images))
            while len(sent) > _AHEAD * _room(ray, shares):
                yield _received(ray, sent.popleft())
        while sent:
            yield _received(ray, sent.popleft())
    finally:
        for left in sent:
            ray.cancel(left)


def _shares(ray: Any, folder: Path) -> dict[str, Any]:
    """Return the resources for a block: a GPU for a checkpoint if the cluster has any, or else a CPU core."""
    if (folder / CHECKPOINT_FILE).is_file() and ray.cluster_resources().get("GPU", 0) >= 1:
        return {"num_gpus": 1, "max_calls": 0}  # 0: keep the process and its loaded model
    return {"num_cpus": 1}


def _room(ray: Any, shares: dict[str, Any]) -> int:
    """Return the number of blocks that the cluster can process at once."""
    resource = "GPU" if "num_gpus" in shares else "CPU"
    return max(1, int(ray.cluster_resources().get(resource, 1)))


def _received(ray: Any, sent: Any) -> EncodedBatch:
    try:
        found: EncodedBatch = ray.get(sent)
        return found
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, SightlineError):
            raise error.cause from None
        raise
    except (ray.exceptions.RayError, ConnectionError) as error:
        raise CollectionError(
            f"the Ray cluster was lost: {error}", "Finished work is kept. Run the same command again to continue."
        ) from error


def _counted(block: EncodedBatch, report: Report) -> EncodedBatch:
    """Count a block, and drop files that disappeared; raises an error if a file is missing only on the worker."""
    gone = [outcome for outcome in block.files if outcome.gone]
    for outcome in gone:
        if outcome.found.where.exists():
            raise CollectionError(
                f"{outcome.found.name}: exists here, but not on a worker",
                "Workers need the same folders at the same paths. Mount them there, or index a list of URLs.",
            )
    report.read += len(block.files)
    report.skipped += [vanished_file(outcome) for outcome in gone]
    return EncodedBatch(block.contents, [outcome for outcome in block.files if not outcome.gone], block.truncated)


def encode_block(
    folder: str,
    sha256: str,
    packed: list[Any],
    kind: ItemKind,
    block: list[PendingFile],
    known: _Hashes,
    stored_images: StoredImages = "none",
) -> EncodedBatch:
    """Read files and encode new contents on a worker."""
    if sha256 not in _models:
        _models[sha256] = _loaded(_place_of(folder, sha256, packed), sha256).with_threads(1)
    model = _models[sha256]
    hashes = Hashes(known)
    is_texts = kind == "texts"
    outcomes = read_texts(block, hashes) if is_texts else read_images(block, model.preprocess, hashes, 1, stored_images)
    with closing(outcomes):
        return encode_in_batches(model, kind, outcomes)


class Hashes:
    """A sorted array of hashes, shared by all processes on a machine."""

    def __init__(self, ordered: _Hashes) -> None:
        self._ordered = ordered

    def __contains__(self, hash: object) -> bool:
        wanted = np.frombuffer(hash, dtype=_HASH)  # type: ignore[call-overload]
        place = int(np.searchsorted(self._ordered, wanted)[0])
        return place < len(self._ordered) and bool(self._ordered[place] == wanted[0])


def _files(folder: Path) -> dict[str, bytes]:
    """Return the files of a model, by relative path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def _loaded(place: Path, sha256: str) -> Model:
    """Load the model from a folder on a worker; raises an error if it is not the one that is asked for."""
    model = load(model_at(str(place), sha256) or place)
    if model.sha256 != sha256:
        raise CollectionError(
            f"{place} on a worker: contains {model.name} ({model.sha256[:12]}…), not the model of the collection "
            f"({sha256[:12]}…)",
            "The model was changed while it was copied, or the worker has another version of Sightline. Delete that "
            "folder on the worker, then run the same command again.",
        )
    return model


def _place_of(folder: str, sha256: str, packed: list[Any]) -> Path:
    """Return the model's folder on a worker: `folder` if the model is there too, or else a copy in its cache."""
    copy = cache_folder() / "models" / sha256
    if model_at(folder, sha256):
        return Path(folder)
    if not copy.is_dir():
        files = _library().get(packed[0])
        try:
            _write_folder(files, copy)
        except OSError as error:
            raise CollectionError(
                f"the model cannot be copied to {copy} on a worker: {error.strerror or error}",
                "Make room there, or set SIGHTLINE_CACHE to another folder before you start the worker.",
            ) from error
    return copy


def _write_folder(files: Mapping[str, bytes], folder: Path) -> None:
    """Write files into a new folder, all or none; if another process was first, its folder is kept."""
    draft = folder.with_name(f"{folder.name}.{os.getpid()}.new")
    try:
        for name, data in files.items():
            (draft / name).parent.mkdir(parents=True, exist_ok=True)
            (draft / name).write_bytes(data)
        try:
            draft.rename(folder)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
