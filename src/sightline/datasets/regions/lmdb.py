"""Features in UNITER's databases: an LMDB with an `.npz` per image, or its arrays packed with msgpack."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sightline.datasets.record import BrokenRecordError, OnProblem, Problem
from sightline.datasets.regions.arrays import found_in_arrays, found_in_npz
from sightline.datasets.regions.detections import Found
from sightline.errors import DataError, SightlineError
from sightline.packages import install_extra

DATA_FILE = "data.mdb"
_KEYS = b"__keys__"
_ZIP = b"PK\x03\x04"
_SUFFIX = ".npz"


def read_uniter(path: Path, report: OnProblem) -> Iterator[Found]:
    """Read a database such as `feat_th0.2_max100_min10`, compressed or not, in the order of its keys."""
    try:
        import lmdb
        import msgpack  # noqa: F401  # imported early: otherwise every row would look broken
    except ImportError as error:
        raise SightlineError(
            f"reading UNITER's features needs more packages: {error}", install_extra("regions")
        ) from error
    options = {"readonly": True, "create": False, "lock": False, "readahead": False}
    try:
        with lmdb.open(str(path), **options) as environment, environment.begin() as transaction:
            for key in _names(transaction):
                try:
                    yield _found(key, transaction.get(key))
                except BrokenRecordError as error:
                    report(Problem(f"{path}:{key.decode(errors='replace')}", str(error)))
    except lmdb.Error as error:
        raise DataError(f"{path}: damaged LMDB database: {error}", "Copy or download it again.") from error


def _names(transaction: Any) -> Iterator[bytes]:
    """Yield the names of the images that the database lists or, without a list, its keys."""
    listed = transaction.get(_KEYS)
    if listed is None:
        yield from (key for key in transaction.cursor().iternext(values=False) if key != _KEYS)
        return
    try:
        yield from (str(name).encode() for name in json.loads(listed))
    except (ValueError, TypeError) as error:
        raise DataError(f"the database's list of images is broken: {error}") from error


def _found(key: bytes, data: bytes | None) -> Found:
    if not data:
        raise BrokenRecordError("is listed, but is missing from the database")
    name = key.decode(errors="replace").removesuffix(_SUFFIX)
    if data.startswith(_ZIP):
        return found_in_npz(name, data)
    return found_in_arrays(name, _unpacked(data))


def _unpacked(data: bytes) -> dict[str, npt.NDArray[Any]]:
    """Unpack arrays written by msgpack_numpy; skip pickled ones, which could run code."""
    import msgpack

    try:
        packed = msgpack.unpackb(data, raw=False, strict_map_key=False)
        return {str(key): _array(value) for key, value in packed.items() if _is_array(value)}
    except (ValueError, TypeError, KeyError, AttributeError, msgpack.UnpackException) as error:
        raise BrokenRecordError(f"cannot be unpacked: {error}") from error


def _is_array(value: object) -> bool:
    return isinstance(value, dict) and value.get(b"nd") is True and value.get(b"kind") in (b"", None)


def _array(value: dict[bytes, Any]) -> npt.NDArray[Any]:
    return np.frombuffer(value[b"data"], dtype=np.dtype(value[b"type"])).reshape(value[b"shape"])
