"""The formats of published region features, and their detection."""

from collections.abc import Iterator
from pathlib import Path

from sightline.datasets.fields import decoded
from sightline.datasets.files import entries_of, numbered_lines
from sightline.datasets.record import BrokenRecordError, OnProblem, stop_at
from sightline.datasets.regions.arrays import is_precomputed, read_npz_folder, read_precomputed
from sightline.datasets.regions.detections import Found, RegionReader
from sightline.datasets.regions.lmdb import DATA_FILE, read_uniter
from sightline.datasets.regions.tensors import read_m3p, read_oscar_tensors
from sightline.datasets.regions.tsv import read_bottom_up, read_oscar_lines
from sightline.errors import DataError

_LINES = (".tsv", ".tsv.gz")
_OSCAR_FILES = ("features.tsv", "feature.tsv")
_BOTTOM_UP_FIELDS = 6


def read_regions(path: str | Path, on_problem: OnProblem | None = None) -> Iterator[Found]:
    """Yield the regions of all images at `path`, image by image.

    on_problem: called for each broken row, which is then skipped; by default the first one raises `DataError`. A path
    that is missing or not recognised raises it at once.
    """
    place = Path(path)
    if not place.exists():
        raise DataError(f"{place}: no such file or folder", "Check the spelling, and the folder it is relative to.")
    reader, place = _reader_of_folder(place) if place.is_dir() else (_reader_of_file(place), place)
    if reader is None:
        raise DataError(
            f"{path}: not region features in a known format",
            "Use a .tsv from bottom-up attention or Oscar, a .pt from Oscar, an .h5 from M3P, a folder of .npz files "
            "or of *_ims.npy files from VSE++ or SCAN, or the folder of UNITER's data.mdb. For images, use --detector.",
        )
    return reader(place, on_problem or stop_at)


def _reader_of_folder(path: Path) -> tuple[RegionReader | None, Path]:
    if (path / DATA_FILE).is_file():
        return read_uniter, path
    if is_precomputed(path):
        return read_precomputed, path
    for name in _OSCAR_FILES:
        if (path / name).is_file():
            return _reader_of_file(path / name), path / name
    return (read_npz_folder if any(file.suffix == ".npz" for file in entries_of(path)) else None), path


def _reader_of_file(path: Path) -> RegionReader | None:
    name = path.name.lower()
    if name.endswith(".pt"):
        return read_oscar_tensors
    if name.endswith((".h5", ".hdf5")):
        return read_m3p
    if name.endswith(_LINES):
        return read_bottom_up if _fields(path) >= _BOTTOM_UP_FIELDS else read_oscar_lines
    return None


def _fields(path: Path) -> int:
    """Return the number of fields in the first non-empty line."""
    for _, line in numbered_lines(path):
        if line.strip():
            try:
                return decoded(line).count("\t") + 1
            except BrokenRecordError:
                continue
    return 0
