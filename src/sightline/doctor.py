"""What is right and what is wrong with this installation and with a collection, and what to do about it."""

import os
import platform
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sightline import __version__
from sightline.errors import CollectionError, SightlineError

if TYPE_CHECKING:
    from sightline.collection import Collection

State = Literal["good", "warning", "broken"]

_OLDEST_PYTHON = (3, 11)
_LITTLE_SPACE = 1e9  # bytes; a thousand pictures take about 50 MB
_FOR = {
    "heic": "photos of iPhones (HEIC)",
    "serve": "the search page in a browser",
    "train": "training and exporting models",
    "scale": "collections on several machines",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: its name, how it is, what was found, and what to do about it."""

    subject: str
    state: State
    says: str
    way_out: str = ""

    def to_json(self) -> dict[str, str]:
        """What `sightline doctor --json` writes of it."""
        return {"subject": self.subject, "state": self.state, "says": self.says, "way_out": self.way_out}


def examine(at: Path | None = None) -> Iterator[Finding]:
    """Look at the installation and at a collection; each finding as soon as it is known.

    at: the collection's folder; by default the nearest to the current folder, if there is one.
    """
    checks: list[tuple[str, Callable[[], Iterator[Finding]]]] = [
        ("Python", _python),
        ("packages", _packages),
        ("processors", _processors),
        ("lasting work", _lasting_work),
        ("ONNX Runtime", _onnxruntime),
        ("FAISS", _faiss),
        ("bundled model", _model),
        ("cache", _cache),
        ("optional parts", _extras),
        ("collection", lambda: _collection(at)),
    ]
    for subject, check in checks:
        yield from _guarded(subject, check)


def _guarded(subject: str, check: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """What a check finds; one that fails is a finding too, so that the others are still made."""
    try:
        yield from check()
    except SightlineError as error:
        yield Finding(subject, "broken", error.what, error.way_out)
    except Exception as error:  # a broken library may raise anything
        yield Finding(subject, "broken", f"{type(error).__name__}: {error}")


def _python() -> Iterator[Finding]:
    says = f"{platform.python_version()} on {platform.system()} {platform.machine()}, sightline {__version__}"
    if sys.version_info < _OLDEST_PYTHON:
        yield Finding("Python", "broken", says, "Sightline needs Python {}.{} or newer.".format(*_OLDEST_PYTHON))
    else:
        yield Finding("Python", "good", says)


def _packages() -> Iterator[Finding]:
    """The packages that searching needs: there, and new enough."""
    try:
        needed = _requirements()[""]
    except metadata.PackageNotFoundError:
        yield Finding("packages", "warning", "sightline is not installed, only imported", "pip install sightline")
        return
    wrong = _troubles(needed)
    if wrong:
        yield Finding("packages", "broken", "; ".join(wrong), "pip install --upgrade sightline")
    else:
        yield Finding("packages", "good", ", ".join(f"{name} {metadata.version(name)}" for name in needed))


def _extras() -> Iterator[Finding]:
    """The optional parts: whether each has its packages, and how to get it."""
    try:
        requirements = _requirements()
    except metadata.PackageNotFoundError:
        return  # told by _packages
    for extra, purpose in _FOR.items():
        missing = _troubles(requirements.get(extra, {}))
        if missing:
            says = f"not installed; for {purpose} ({'; '.join(missing)})"
            yield Finding(extra, "warning", says, f"If you want it: pip install 'sightline[{extra}]'")
        else:
            yield Finding(extra, "good", f"installed; for {purpose}")


def _requirements() -> dict[str, dict[str, str]]:
    """The packages that this installation was made for with their oldest version, by extra; "" has no extra."""
    found: dict[str, dict[str, str]] = {"": {}}
    for line in metadata.requires("sightline") or ():
        name, oldest = re.match(r"([\w.-]+)(?:\[.*?\])?(?:>=([\w.]+))?", line).groups()  # type: ignore[union-attr]
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", line)
        found.setdefault(extra[1] if extra else "", {})[name] = oldest or "0"
    return found


def _troubles(needed: Mapping[str, str]) -> list[str]:
    """Which of these packages are missing, or older than they may be."""
    found = []
    for name, oldest in needed.items():
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            found.append(f"{name} is missing")
        else:
            if _numbers(version) < _numbers(oldest):
                found.append(f"{name} {version} is older than {oldest}")
    return found


def _numbers(version: str) -> list[int]:
    """The leading numbers of a version, which compare as versions do."""
    leading = re.match(r"\d+(?:\.\d+)*", version)
    return [int(part) for part in leading[0].split(".")] if leading else []


def _processors() -> Iterator[Finding]:
    from sightline.parallel import usable_cpus

    usable, there = usable_cpus(), os.cpu_count() or 1
    yield Finding("processors", "good", f"{usable} of {there} usable, and as many threads")


def _lasting_work() -> Iterator[Finding]:
    """Where a server, an indexing run and an evaluation compute; a single search always does on the processors."""
    from sightline.device import has_gpu

    if not has_gpu():
        yield Finding("lasting work", "good", "on the processors: no GPU that torch can use, or none wanted")
        return
    import torch

    torch.ones(2, device="cuda").sum().item()  # a torch built for other GPUs imports, and fails only here
    yield Finding("lasting work", "good", f"on the {torch.cuda.get_device_name()}, under torch {torch.__version__}")


def _onnxruntime() -> Iterator[Finding]:
    import onnxruntime

    providers = [name.removesuffix("ExecutionProvider") for name in onnxruntime.get_available_providers()]
    if "CPU" not in providers:
        says = f"{onnxruntime.__version__} cannot run on a processor, only on {', '.join(providers)}"
        yield Finding("ONNX Runtime", "broken", says, "pip install --force-reinstall onnxruntime")
    else:
        yield Finding("ONNX Runtime", "good", f"{onnxruntime.__version__}, runs on {', '.join(providers)}")


def _faiss() -> Iterator[Finding]:
    """Let it find one of two vectors: builds for another processor import, and fail only here."""
    import faiss
    import numpy as np

    index: Any = faiss.IndexFlatIP(2)
    index.add(np.eye(2, dtype=np.float32))
    _, nearest = index.search(np.array([[0.1, 0.9]], dtype=np.float32), 1)
    if nearest[0, 0] == 1:
        yield Finding("FAISS", "good", f"{faiss.__version__}, finds what it should")
    else:
        says = f"{faiss.__version__} finds the wrong vector"
        yield Finding("FAISS", "broken", says, "pip install --force-reinstall faiss-cpu")


def _model() -> Iterator[Finding]:
    """The bundled model: there, whole to the byte, and able to read a text."""
    from sightline.bundle import Bundle
    from sightline.bundle.spec import check_files, read_spec
    from sightline.registry.loader import locate

    folder = locate("default")
    spec = read_spec(folder)
    check_files(folder, spec)
    Bundle(folder, spec).encode_texts(["a photo"])
    size = sum((folder / name).stat().st_size for name in spec.files) / 1e6
    says = f"{spec.name} ({', '.join(spec.abilities)}; {spec.precision}, {size:.0f} MB), every file whole"
    yield Finding("bundled model", "good", says)


def _cache() -> Iterator[Finding]:
    """The cache can be written; without it everything works, but each start takes longer."""
    from sightline.cache import cache_folder

    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        says = f"{folder} cannot be written: {error.strerror or error}; every start takes longer for it"
        yield Finding("cache", "warning", says, "Name a folder that can in SIGHTLINE_CACHE.")
    else:
        yield Finding("cache", "good", str(folder))


def _collection(at: Path | None) -> Iterator[Finding]:
    from sightline.collection import Collection
    from sightline.collection.locate import find_collection

    if at is None:
        try:
            at = find_collection()
        except CollectionError:
            return
    with Collection.open(at) as collection:
        yield _contents(collection)
        yield _maker(collection)
        yield _unread(collection)
        if isinstance(collection.at, Path):
            yield _lock(collection.at)
            yield _space(collection.at)


def _contents(collection: "Collection") -> Finding:
    """How much there is, and whether every item has its vectors."""
    import numpy as np

    says = f"{collection.at}: {len(collection):,} {collection.kind}"
    lost = len(np.setdiff1d(collection.catalog.ids(), collection.store.ids()))
    if lost:
        says += f", {lost:,} of them without vectors"
        return Finding("collection", "broken", says, _index_again(collection))
    return Finding("collection", "good", says)


def _maker(collection: "Collection") -> Finding:
    """The model that made it is on this machine, and whole."""
    try:
        return Finding("its model", "good", collection.model.name)
    except SightlineError as error:
        return Finding("its model", "broken", error.what, error.way_out)


def _unread(collection: "Collection") -> Finding:
    broken = collection.broken()
    if not broken:
        return Finding("its files", "good", f"{len(collection.files()):,}, all read")
    says = f"{len(broken):,} could not be read, such as {broken[0].path}: {broken[0].reason}"
    return Finding("its files", "warning", says, f"Mend or remove them, then: {_index_again(collection)} --retry")


def _index_again(collection: "Collection") -> str:
    return f"sightline index --at {shlex.quote(str(collection.at))}"


def _lock(at: Path) -> Finding:
    """Whether somebody writes to it, found out by taking the lock for a moment."""
    from sightline.collection.locks import write_lock

    try:
        with write_lock(at, wait=False):
            return Finding("its lock", "good", "free")
    except CollectionError as error:
        return Finding("its lock", "warning", error.what, error.way_out)


def _space(at: Path) -> Finding:
    free = shutil.disk_usage(at).free
    says = f"{free / 1e9:.1f} GB free"
    if free < _LITTLE_SPACE:
        return Finding("its disk", "warning", says, "Make room before you index much more.")
    return Finding("its disk", "good", says)
