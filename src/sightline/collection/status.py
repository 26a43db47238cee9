"""What a collection contains, and what could not be indexed and why."""

from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from sightline.collection.collection import Collection
from sightline.collection.image_text.database import TextCounts
from sightline.collection.indexing.report import FileProblem
from sightline.unicode_text import as_unicode


@dataclass(frozen=True, slots=True)
class RootStatus:
    """An indexed folder or file: how many of its files are ready and broken, and whether it still exists."""

    path: str
    ready: int
    broken: int
    exists: bool


@dataclass(frozen=True, slots=True)
class CollectionStatus:
    """The state of a collection.

    items, files: number of contents, and of files including copies. broken: files that could not be read, with reasons.
    text: how much text was read from images; None if none was. text_problems: images whose text could not be read.
    bytes: size of the collection on disk, without the indexed files.
    to_refine: items that the model's fast image graph encoded, and that `sightline index --refine` encodes again.
    """

    at: str
    kind: str
    model: str
    items: int
    files: int
    copies: int
    roots: list[RootStatus]
    broken: list[FileProblem]
    albums: dict[str, int]
    text: TextCounts | None
    text_problems: list[FileProblem]
    bytes: int
    suffixes: dict[str, int] = field(default_factory=dict)
    to_refine: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the status as `sightline status --json` prints it."""
        problems = {"broken": self.broken, "text_problems": self.text_problems}
        return {
            "at": as_unicode(self.at),
            "kind": self.kind,
            "model": self.model,
            "items": self.items,
            "files": self.files,
            "copies": self.copies,
            "to_refine": self.to_refine,
            "suffixes": self.suffixes,
            "bytes": self.bytes,
            "roots": [
                {"path": as_unicode(one.path), "ready": one.ready, "broken": one.broken, "exists": one.exists}
                for one in self.roots
            ],
            "albums": self.albums,
            "text": None if self.text is None else self.text._asdict(),
            **{
                name: [{"path": as_unicode(one.path), "reason": as_unicode(one.reason)} for one in found]
                for name, found in problems.items()
            },
        }


def status(at: str | Path | None = None) -> CollectionStatus:
    """Return the state of a collection; no model is loaded.

    at: the collection's folder, or the folder of images that contains it; by default the nearest to the current folder.
    """
    with closing(Collection.open(at)) as collection:
        files = collection.catalog.files()
        ready, broken = Counter[Path](), Counter[Path]()
        for file in files:
            (ready if file.status == "ready" else broken)[file.root] += 1
        roots = [
            RootStatus(str(root), ready[root], broken[root], root.exists())
            for root in collection.catalog.roots().values()
        ]
        is_local = isinstance(collection.at, Path)
        return CollectionStatus(
            at=str(collection.at),
            kind=collection.kind,
            model=collection.manifest.model,
            items=len(collection),
            files=sum(ready.values()),
            copies=collection.catalog.copies() if is_local else 0,
            roots=roots,
            broken=[FileProblem(str(file.where), file.reason) for file in files if file.status == "broken"],
            albums=collection.album_sizes() if is_local else {},
            text=collection.image_text.counts() if collection.image_text else None,
            text_problems=_text_problems(collection),
            bytes=_size(collection.at) if isinstance(collection.at, Path) else 0,
            suffixes=dict(_suffixes(collection).most_common()),
            to_refine=collection.to_refine(),
        )


def _suffixes(collection: Collection) -> Counter[str]:
    if collection.kind != "images":
        return Counter()
    return Counter(PurePosixPath(file.path).suffix.lower() for file in collection.catalog.files("ready"))


def _text_problems(collection: Collection) -> list[FileProblem]:
    database = collection.image_text
    found = []
    for hash, reason in database.problems() if database else ():
        id = collection.catalog.content(hash)
        item = collection.items([id]).get(id) if id is not None else None
        if item is not None:
            found.append(FileProblem(str(item.files[0].where), reason))
    return found


def _size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
