"""Check an installation and a collection, and report what is wrong and how to fix it."""

import os
import platform
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sightline import __version__
from sightline.errors import CollectionError, SightlineError
from sightline.packages import install_command, install_extra, pip
from sightline.unicode_text import as_unicode

if TYPE_CHECKING:
    from packaging.requirements import Requirement

    from sightline.collection import Collection

State = Literal["good", "warning", "broken"]

_OLDEST_PYTHON = (3, 11)
_MINORS = 40  # Python 3.0 to 3.39 are tried, to say for which of them a package is
_LOW_SPACE = 1e9  # bytes; a thousand images take about 50 MB
_EXTRAS = {
    "heic": "HEIC photos from iPhones",
    "raw": "RAW photos",
    "video": "videos",
    "ocr": "text in images",
    "serve": "the search page in a browser",
    "train": "training and exporting models",
    "scale": "collections on several machines",
    "postgres": "collections in a PostgreSQL database",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check: what was checked, its state, what was found, and how to fix it."""

    subject: str
    state: State
    says: str
    way_out: str = ""

    def to_json(self) -> dict[str, str]:
        """Return the finding as `sightline doctor --json` prints it."""
        return {
            "subject": self.subject,
            "state": self.state,
            "says": as_unicode(self.says),
            "way_out": as_unicode(self.way_out),
        }


def examine(at: str | Path | None = None) -> Iterator[Finding]:
    """Check the installation and a collection; yields each finding as soon as it is available.

    at: the collection's folder, or the URL of its store; by default the collection nearest to the current folder, if
        there is one.
    """
    checks: list[tuple[str, Callable[[], Iterator[Finding]]]] = [
        ("Python", _python),
        ("Packages", _packages),
        ("CPUs", _cpus),
        ("Long jobs", _long_jobs),
        ("ONNX Runtime", _onnxruntime),
        ("FAISS", _faiss),
        ("Bundled model", _model),
        ("Cache", _cache),
        ("Extras", _extras),
    ]
    for subject, check in checks:
        yield from _guarded(subject, check)
    yield from examine_collection(at)


def examine_collection(at: str | Path | None = None) -> Iterator[Finding]:
    """Check only a collection; see `examine`."""
    yield from _guarded("Collection", lambda: _collection(at))


def _guarded(subject: str, check: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """Yield the findings of a check; if it fails, that is reported as a finding, and the other checks continue."""
    try:
        yield from check()
    except SightlineError as error:
        yield Finding(subject, "broken", error.what, error.way_out)
    except Exception as error:  # a broken library may raise anything
        yield Finding(subject, "broken", f"{type(error).__name__}: {error}")


def _python() -> Iterator[Finding]:
    says = f"{platform.python_version()} on {platform.system()} {platform.machine()}, Sightline {__version__}"
    if sys.version_info < _OLDEST_PYTHON:
        yield Finding("Python", "broken", says, "Sightline needs Python {}.{} or newer.".format(*_OLDEST_PYTHON))
    else:
        yield Finding("Python", "good", says)


def _packages() -> Iterator[Finding]:
    """Yield whether the packages that searching needs are installed in suitable versions."""
    try:
        needed = _needed(_requirements(), "")
    except metadata.PackageNotFoundError:
        yield Finding(
            "Packages",
            "warning",
            "Sightline runs from source and is not installed",
            install_command("sightline-search"),
        )
        return
    problems = _problems(needed)
    if problems:
        yield Finding("Packages", "broken", "; ".join(problems), f"{pip()} install --upgrade sightline-search")
    else:
        yield Finding("Packages", "good", ", ".join(f"{one.name} {metadata.version(one.name)}" for one in needed))


def _extras() -> Iterator[Finding]:
    """Yield whether the packages needed by each extra are installed."""
    try:
        requirements = _requirements()
    except metadata.PackageNotFoundError:
        return  # reported by _packages
    for extra, purpose in _EXTRAS.items():
        limits = _python_limits(requirements, extra)
        problems = _problems(_needed(requirements, extra))
        if limits:
            says = "; ".join(f"{name} needs Python {limit}" for name, limit in limits.items())
            way_out = f"To use it, install Sightline with Python {' and '.join(dict.fromkeys(limits.values()))}."
            yield Finding(extra, "warning", f"unavailable ({purpose}): {says}", way_out)
        elif problems:
            says = f"not installed ({purpose}): {'; '.join(problems)}"
            yield Finding(extra, "warning", says, f"To install it: {install_extra(extra)}")
        else:
            yield Finding(extra, "good", f"installed ({purpose})")


def _requirements() -> "list[Requirement]":
    """Return what the installed package requires, for all extras."""
    from packaging.requirements import Requirement

    return [Requirement(line) for line in metadata.requires("sightline-search") or ()]


def _needed(requirements: "Iterable[Requirement]", extra: str) -> "list[Requirement]":
    """Return the requirements of an extra on this machine; those of every installation if `extra` is empty."""
    return [one for one in requirements if _applies(one, extra) and not (extra and _applies(one, ""))]


def _python_limits(requirements: "Iterable[Requirement]", extra: str) -> dict[str, str]:
    """Return the packages of an extra that are not for the running Python, with the versions that they are for."""
    running, found = sys.version_info.minor, {}
    for one in requirements:
        allowed = [minor for minor in range(_MINORS) if _applies(one, extra, minor) and not _applies(one, "", minor)]
        if allowed and running not in allowed:
            newer = [minor for minor in allowed if minor > running]
            found[one.name] = f"3.{newer[0]} or newer" if newer else f"below 3.{allowed[-1] + 1}"
    return found


def _applies(requirement: "Requirement", extra: str, minor: int | None = None) -> bool:
    """Return whether the marker of a requirement holds for an extra, on this Python or on Python 3.`minor`."""
    python = {} if minor is None else {"python_version": f"3.{minor}", "python_full_version": f"3.{minor}.0"}
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra, **python})


def _problems(needed: "Iterable[Requirement]") -> list[str]:
    """Return which of these packages are missing, too old or too new."""
    found = []
    for one in needed:
        try:
            version = metadata.version(one.name)
        except metadata.PackageNotFoundError:
            found.append(f"{one.name} is missing")
        else:
            if not one.specifier.contains(version, prereleases=True):
                found.append(f"{one.name} {version} is installed, but {one.specifier} is needed")
    return found


def _cpus() -> Iterator[Finding]:
    from sightline.parallel import usable_cpus

    yield Finding("CPUs", "good", f"{usable_cpus()} of {os.cpu_count() or 1} usable")


def _long_jobs() -> Iterator[Finding]:
    """Yield which device servers, indexing runs and evaluations use; a single search always uses the CPU."""
    from sightline.device import has_gpu

    if not has_gpu():
        yield Finding("Long jobs", "good", "CPU (no usable GPU)")
        return
    import torch

    torch.ones(2, device="cuda").sum().item()  # torch built for other GPUs imports without error, and fails only here
    yield Finding("Long jobs", "good", f"GPU ({torch.cuda.get_device_name()}, torch {torch.__version__})")


def _onnxruntime() -> Iterator[Finding]:
    import onnxruntime

    if "CPUExecutionProvider" not in onnxruntime.get_available_providers():
        says = f"{onnxruntime.__version__} cannot run on the CPU"
        yield Finding("ONNX Runtime", "broken", says, f"{pip()} install --force-reinstall onnxruntime")
    else:
        yield Finding("ONNX Runtime", "good", f"{onnxruntime.__version__}, runs on the CPU")


def _faiss() -> Iterator[Finding]:
    """Search two vectors: FAISS built for another CPU imports without error, and fails only here."""
    import faiss
    import numpy as np

    index: Any = faiss.IndexFlatIP(2)
    index.add(np.eye(2, dtype=np.float32))
    _, nearest = index.search(np.array([[0.1, 0.9]], dtype=np.float32), 1)
    if nearest[0, 0] == 1:
        yield Finding("FAISS", "good", f"{faiss.__version__}, works")
    else:
        says = f"{faiss.__version__} finds the wrong vector"
        yield Finding("FAISS", "broken", says, f"{pip()} install --force-reinstall faiss-cpu")


def _model() -> Iterator[Finding]:
    """Yield whether the bundled model exists, is unmodified, and can encode a text."""
    from sightline.bundle import Bundle
    from sightline.bundle.spec import check_files, read_spec
    from sightline.registry.loader import locate

    folder = locate("default")
    spec = read_spec(folder)
    check_files(folder, spec)
    Bundle(folder, spec).encode_texts(["a photo"])
    size = sum((folder / name).stat().st_size for name in spec.files) / 1e6
    fast = ", with a fast image graph" if spec.fast else ""
    says = f"{spec.name} ({', '.join(spec.abilities)}; {spec.precision}, {size:.0f} MB{fast}), all files intact"
    yield Finding("Bundled model", "good", says)


def _cache() -> Iterator[Finding]:
    """Yield whether the cache folder is writable; if not, everything works, but starts more slowly."""
    from sightline.cache import cache_folder

    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        says = f"{folder} cannot be written to, so every start takes longer: {error.strerror or error}"
        yield Finding("Cache", "warning", says, "Set SIGHTLINE_CACHE to another folder.")
    else:
        yield Finding("Cache", "good", str(folder))


def _collection(at: str | Path | None) -> Iterator[Finding]:
    from sightline.collection import Collection
    from sightline.collection.locate import find_collection

    if at is None:
        try:
            at = find_collection()
        except CollectionError:
            return
    with Collection.open(at) as collection:
        yield _contents(collection)
        yield _collection_model(collection)
        if isinstance(collection.at, Path):  # a server keeps no catalog
            yield from _manifest(collection.at, collection)
            yield _damage(collection)
            yield _unreadable(collection)
            yield from _to_refine(collection)
            yield _lock(collection.at)
            yield _disk_space(collection.at)


def _contents(collection: "Collection") -> Finding:
    """Return the number of items, and whether each has its vectors."""
    import numpy as np

    says = f"{collection.at}: {len(collection):,} {collection.kind}"
    lost = len(np.setdiff1d(collection.catalog.ids(), collection.store.ids()))
    if lost:
        says += f", {lost:,} of them without vectors"
        return Finding("Collection", "broken", says, _index_again(collection))
    return Finding("Collection", "good", says)


def _manifest(at: Path, collection: "Collection") -> Iterator[Finding]:
    """Yield what is wrong with the manifest or its copy, if anything; one of them was read."""
    from sightline.collection.manifest import manifest_problem

    if problem := manifest_problem(at):
        yield Finding("Its manifest", "warning", problem, f"Restore it: {_index_again(collection)}")


def _damage(collection: "Collection") -> Finding:
    """Verify the checksums of all vectors, and run SQLite's check of the catalog."""
    from sightline.stores.local import LocalStore

    try:
        collection.catalog.quick_check()
        damaged = collection.store.damaged_ids() if isinstance(collection.store, LocalStore) else ()
    except SightlineError as error:
        return Finding("Its data", "broken", error.what, f"{_index_again(collection)} FOLDER")
    if len(damaged):
        says = f"the vectors of {len(damaged):,} items are damaged"
        return Finding("Its data", "broken", says, f"{_index_again(collection)} --retry")
    return Finding("Its data", "good", "intact")


def _collection_model(collection: "Collection") -> Finding:
    """Return whether the model that indexed the collection is on this machine, and intact."""
    try:
        return Finding("Its model", "good", collection.model.name)
    except SightlineError as error:
        return Finding("Its model", "broken", error.what, error.way_out)


def _unreadable(collection: "Collection") -> Finding:
    broken = collection.broken()
    if not broken:
        return Finding("Its files", "good", f"{len(collection.files()):,}, all readable")
    says = f"{len(broken):,} could not be read, such as {broken[0].path}: {broken[0].reason}"
    return Finding("Its files", "warning", says, f"Repair or remove them, then: {_index_again(collection)} --retry")


def _to_refine(collection: "Collection") -> Iterator[Finding]:
    """Yield how many images were indexed with --quick and not refined since, if there are any."""
    count = collection.to_refine()
    if count:
        says = f"{count:,} of {len(collection):,} were indexed with --quick, which makes searches less accurate"
        yield Finding("Its images", "warning", says, f"Refine them: {_index_again(collection)} --refine")


def _index_again(collection: "Collection") -> str:
    return f"sightline index --at {shlex.quote(str(collection.at))}"


def _lock(at: Path) -> Finding:
    """Return whether another process is writing to the collection, checked by briefly taking the lock."""
    from sightline.collection.locks import write_lock

    try:
        with write_lock(at, wait=False):
            return Finding("Its lock", "good", "free")
    except CollectionError as error:
        return Finding("Its lock", "warning", error.what, error.way_out)


def _disk_space(at: Path) -> Finding:
    free = shutil.disk_usage(at).free
    says = f"{free / 1e9:.1f} GB free"
    if free < _LOW_SPACE:
        return Finding("Its disk", "warning", says, "Free up space before you index much more.")
    return Finding("Its disk", "good", says)
