"""Reading captioned images in any supported format."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sightline.datasets.formats import READERS, Reader, format_of
from sightline.datasets.paths import files_of
from sightline.datasets.record import BrokenRecordError, OnProblem, Problem, Record, stop_at
from sightline.datasets.splits import canonical_split
from sightline.errors import DataError
from sightline.plugins import READER_PREFIX, find


class Keys:
    """The keys used so far in one read.

    Different images from two files may share a key, because many tools number every shard from zero: the later one is
    prefixed with its file name, `shard-001/000017`. A key that occurs twice in one file, or twice for the same
    image, is rejected: that image would be in the gallery twice, or in both train and test.
    """

    def __init__(self) -> None:
        self._given: dict[str, tuple[Path, str]] = {}

    def admit(self, record: Record, file: Path) -> Record:
        """Return the record with a unique key, or raise `BrokenRecordError`."""
        here = (file, record.image.name)
        there = self._given.setdefault(record.key, here)
        if there is here:
            return record
        renamed = f"{file.name.partition('.')[0]}/{record.key}"
        same_file, same_image = there[0] == file, there[1] == here[1]
        if same_file or same_image or renamed in self._given:
            raise BrokenRecordError(
                f"the key {record.key!r} ({here[1]}) is already used by {there[1]} in {there[0]}; "
                "list each image once, with all its captions, or give it its own key"
            )
        self._given[renamed] = here
        return replace(record, key=renamed)


def read(
    path: str | Path,
    *,
    split: str | None = None,
    images: str | Path | None = None,
    on_problem: OnProblem | None = None,
) -> Iterator[Record]:
    """Yield the records of the data set at `path`, in its order.

    path: a file, a folder, or several files by pattern (`dir/coco-train-*.tar`) or range (`dir/coco-{000..004}.tar`).
    split: read only this split: `train`, `val`, `test` or the data set's own name for a split.
    images: the image folder, for formats that store only file names. Images are not checked until they are opened.
    on_problem: called for each broken record, which is then skipped; by default the first one raises `DataError`.

    Raises `DataError` at once for a path that is missing or not recognised, and at the end if there were no records.
    Keys are unique within one read; see `Keys`.

    >>> for record in read("photos.jsonl", split="test"):          # doctest: +SKIP
    ...     print(record.key, record.captions_in("en"))
    """
    return _read(path, split, images, on_problem or stop_at, Keys())


def read_all(
    paths: str | Path | Sequence[str | Path],
    *,
    split: str | None = None,
    images: str | Path | None = None,
    on_problem: OnProblem | None = None,
) -> list[Record]:
    """Read several data sets into one list, in the order given; the options of `read` apply to each.

    Keys are unique over all of them: where two data sets use the same key for different images, the later record is
    renamed after its file (`other/key`); an image listed twice is a problem, as it is within one data set.
    """
    listed = [paths] if isinstance(paths, str | Path) else paths
    found = read_each(listed, split=split, images=images, on_problem=on_problem)
    return [record for records in found for record in records]


def read_each(
    paths: Sequence[str | Path],
    *,
    split: str | None = None,
    images: str | Path | None = None,
    on_problem: OnProblem | None = None,
) -> list[list[Record]]:
    """Read several data sets, as `read_all` does, each into its own list."""
    keys = Keys()
    return [list(_read(path, split, images, on_problem or stop_at, keys)) for path in paths]


def read_test(
    paths: str | Path | Sequence[str | Path], split: str | None = None, protocol: str = "karpathy", **options: Any
) -> list[Record]:
    """Read the records to evaluate on: one split, or by default the test split if there is one, otherwise all.

    protocol: `full` needs the records of all splits. options: the options of `read_all`.
    """
    records = read_all(paths, split=split, **options)
    test = [record for record in records if record.split == "test"]
    return test if test and split is None and protocol != "full" else records


def _read(
    path: str | Path, split: str | None, images: str | Path | None, report: OnProblem, keys: Keys
) -> Iterator[Record]:
    """Check the paths eagerly, so that mistakes raise errors early; then read lazily."""
    root = Path(images) if images is not None else None
    if root is not None and not root.is_dir():
        raise DataError(f"{root}: no such image folder", "Specify the folder that contains the images.")
    if str(path).startswith(READER_PREFIX):
        files = [own_reader(str(path))]
    else:
        files = [(file, READERS[format_of(file)]) for file in files_of(path)]
    records = _unique(files, root, report, keys)
    return _of_split(records, canonical_split(split) if split is not None else None, path)


def own_reader(path: str) -> tuple[Path, Reader]:
    """Return the file and the reader named by `py:MODULE:FUNCTION:FILE`; call it like the readers in `READERS`."""
    module, _, rest = path.removeprefix(READER_PREFIX).partition(":")
    function, separator, file = rest.partition(":")
    if not separator:
        raise DataError(f"{path}: must name a reader and a file", "Use the form py:MODULE:FUNCTION:FILE.")
    return Path(file), find(f"{module}:{function}")


def _unique(files: list[tuple[Path, Reader]], images: Path | None, report: OnProblem, keys: Keys) -> Iterator[Record]:
    for file, reader in files:
        for record in reader(file, images, report):
            try:
                yield keys.admit(record, file)
            except BrokenRecordError as error:
                report(Problem(f"{file}:{record.key}", str(error)))


def _of_split(records: Iterator[Record], split: str | None, path: str | Path) -> Iterator[Record]:
    """Yield the records of one split; if there are none, the error lists the splits that exist."""
    passed = False
    others: set[str | None] = set()
    for record in records:
        if split is None or record.split == split:
            passed = True
            yield record
        else:
            others.add(record.split)
    if passed:
        return
    if not others:
        raise DataError(f"{path}: no records", "Check that it is the right file and complete.")
    named = ", ".join(sorted(other for other in others if other is not None))
    there = f"available: {named}" if named else "its records name no split"
    raise DataError(f"{path}: no records in split {split!r}; {there}", "Choose another split, or read without one.")
