"""WebDataset shards: tar archives in which the files of one record are adjacent and share a key.

Two layouts are read, and may be mixed: `KEY.webp` with `KEY.json` (`{"captions": {"en": […], …}}`, and a `label` for
classified images), and img2dataset's `KEY.jpg` with `KEY.txt` (one caption) and `KEY.json` (`caption`, `status`, …). An
image with neither is a record without captions. Images are not read: a record holds the slice of the archive that
contains its image, or the bytes if the archive is compressed.
"""

import re
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from sightline.datasets.fields import captions_of, clean_captions, decoded, is_unicode, json_object, label_of, shown
from sightline.datasets.record import DEFAULT_LANGUAGE, BrokenRecordError, OnProblem, Problem, Record
from sightline.datasets.splits import split_in_name
from sightline.media import IMAGE_SUFFIXES, ImageBytes, ImageSlice, ImageSource
from sightline.media.archive import StrictMember

COMPRESSED_SUFFIXES = (".tar.gz", ".tgz")
SHARD_SUFFIXES = (".tar", *COMPRESSED_SUFFIXES)

_MEMBER = re.compile(r"(?:\./)*((?:.*/)?[^./]+)\.([^/]+)", re.DOTALL)
_TEXTS = ("json", "txt")
_HELD_LIMIT = 256 << 20  # largest member that is read into memory; an archive may claim any size
_FAULTS = (tarfile.TarError, OSError, EOFError, ValueError, zlib.error)  # all that a damaged archive may raise


def is_shard(path: Path) -> bool:
    """Return whether a file is a shard, judging by its name."""
    return path.name.lower().endswith(SHARD_SUFFIXES)


def read_shard(path: Path, images: Path | None, report: OnProblem) -> Iterator[Record]:
    """Read the records of one shard in order; `images` is not used.

    A key is the member's path up to the first dot of its base name (WebDataset's rule); members without a key or
    with an unknown suffix are ignored. The split is taken from the file name. A truncated archive yields the records
    before the last one, which may have lost its captions, and reports a problem.
    """
    split = split_in_name(path.name)
    for item in _items(path, report):
        name = item.key.encode(errors="backslashreplace").decode()
        place = f"{path}:{name}.json" if "json" in item.texts else f"{path}:{name}"
        try:
            fields = json_object(item.texts["json"]) if "json" in item.texts else None
            captions = _captions(item, fields, place, report)
            yield Record(item.key, item.image(), captions, split, label_of(fields or {}))
        except BrokenRecordError as error:
            report(Problem(place, str(error)))


@dataclass(slots=True)
class _Item:
    """The members that share a key."""

    key: str
    images: list[ImageSource] = field(default_factory=list)
    texts: dict[str, bytes] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def image(self) -> ImageSource:
        if not is_unicode(self.key):
            raise BrokenRecordError("the member's name is not UTF-8")
        if self.faults:
            raise BrokenRecordError("; ".join(self.faults))
        if not self.images:
            fields = json_object(self.texts["json"]) if "json" in self.texts else {}
            said = f" (status: {shown(fields['status'])})" if "status" in fields else ""
            raise BrokenRecordError(f"no image with this key{said}; files with the same key must be adjacent")
        if len(self.images) > 1:
            names = ", ".join(image.name for image in self.images)
            raise BrokenRecordError(f"more than one image has this key: {names}")
        return self.images[0]


def _items(path: Path, report: OnProblem) -> Iterator[_Item]:
    compressed = path.name.lower().endswith(COMPRESSED_SUFFIXES)
    item: _Item | None = None
    last = ""
    try:
        with tarfile.open(path, "r:gz" if compressed else "r:", tarinfo=StrictMember) as tar:
            while (member := tar.next()) is not None:
                # tarfile keeps every member in memory, too much for a long archive.
                tar.members.clear()  # type: ignore[attr-defined]
                last = f" after {member.name!r}"
                if member.size < 0:
                    raise tarfile.ReadError(f"{member.name!r} declares a size of {member.size} bytes")
                named = _MEMBER.fullmatch(member.name)
                if named is None or member.isdir() or not _matters(named[2]):
                    continue
                if item is None or named[1] != item.key:
                    if item is not None:
                        yield item
                    item = _Item(named[1])
                _take(item, tar, member, named[2].lower(), path, sliced=not compressed)
    except _FAULTS as error:
        report(Problem(str(path), f"the archive is damaged or cut off{last}: {error}"))
    else:
        if item is not None:
            yield item


def _matters(suffix: str) -> bool:
    return suffix.lower() in _TEXTS or f".{suffix.lower()}" in IMAGE_SUFFIXES


def _take(
    item: _Item, tar: tarfile.TarFile, member: tarfile.TarInfo, suffix: str, archive: Path, *, sliced: bool
) -> None:
    """Add a member to its item: as a slice if the archive supports it, otherwise as bytes."""
    if not member.isfile() or member.issparse():
        item.faults.append(f"{member.name} is a link or a sparse file, not a plain file")
    elif suffix not in _TEXTS and sliced:
        item.images.append(ImageSlice(archive, member.name, member.offset_data, member.size))
    elif member.size > _HELD_LIMIT:
        item.faults.append(f"{member.name} has {member.size} bytes, more than {_HELD_LIMIT}")
    elif suffix in item.texts:
        item.faults.append(f"{member.name} occurs twice")
    else:
        stream = tar.extractfile(member)
        data = stream.read() if stream is not None else b""
        if suffix in _TEXTS:
            item.texts[suffix] = data
        else:
            item.images.append(ImageBytes(f"{archive}:{member.name}", data))


def _captions(
    item: _Item, fields: dict[str, object] | None, place: str, report: OnProblem
) -> dict[str, tuple[str, ...]]:
    """Return the captions in the JSON, or else those in the text file (img2dataset writes both)."""
    table = captions_of(fields, place, report) if fields is not None else None
    if not table and "txt" in item.texts:
        captions = clean_captions([decoded(item.texts["txt"])], place, report)
        return {DEFAULT_LANGUAGE: captions} if captions else {}
    if table is None and fields is not None and "status" not in fields:
        raise BrokenRecordError(f"has neither 'captions' nor 'caption' (fields: {', '.join(fields) or 'none'})")
    return table or {}
