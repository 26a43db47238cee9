"""List the images in uncompressed tar archives, such as WebDataset shards, without reading them."""

import tarfile
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from sightline.errors import MediaError
from sightline.media.file_types import IMAGE_SUFFIXES

SHARD_SUFFIX = ".tar"
_FAULTS = (tarfile.TarError, OSError, EOFError, ValueError)  # what `tarfile` may raise for a damaged archive


class ArchiveMember(NamedTuple):
    """An image in an archive: `size` bytes from `offset`, under the name `member`."""

    member: str
    offset: int
    size: int


class StrictMember(tarfile.TarInfo):
    """A tar member whose header must be valid: `tarfile` silently treats a damaged header as the end of the archive."""

    @classmethod
    def fromtarfile(cls, tar: tarfile.TarFile) -> "StrictMember":
        """Read the next header."""
        try:
            return super().fromtarfile(tar)
        except tarfile.HeaderError as error:
            if isinstance(error, tarfile.EOFHeaderError):  # type: ignore[attr-defined]  # the regular end of an archive
                raise
            raise tarfile.ReadError(f"{error} at byte {tar.offset}") from error


def images_in(file: BinaryIO, name: str) -> Iterator[ArchiveMember]:
    """Yield every image in an archive, in order, recognised by its suffix; reads only the headers.

    name: the archive's name in errors. A damaged or truncated archive raises a `MediaError` at the damaged part.
    """
    try:
        with tarfile.open(fileobj=file, mode="r:", tarinfo=StrictMember) as tar:
            while (member := tar.next()) is not None:
                # tarfile keeps every member it has read, which takes too much memory for a long archive.
                tar.members.clear()  # type: ignore[attr-defined]
                if member.size < 0:
                    raise tarfile.ReadError(f"{member.name!r} declares a size of {member.size} bytes")
                if member.isfile() and not member.issparse() and _is_image(member.name):
                    yield ArchiveMember(_below(member.name), member.offset_data, member.size)
    except _FAULTS as error:
        raise MediaError(name, f"the archive is damaged or cut off: {error}", "Copy or download it again.") from error


def _below(name: str) -> str:
    """Return a member's name as a path inside the archive, even if the name begins with `/` or contains `..`."""
    names = [part for part in name.split("/") if part not in ("", ".")]
    return "/".join("_" if part == ".." else part for part in names)


def _is_image(member: str) -> bool:
    base = member.rpartition("/")[2]
    return not base.startswith(".") and f".{base.rpartition('.')[2].lower()}" in IMAGE_SUFFIXES
