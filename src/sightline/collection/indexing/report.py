"""The result of an indexing run: counts, problems and time."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from sightline.retrieval.query import ItemKind


@dataclass(frozen=True, slots=True)
class FileProblem:
    """A file or folder that was left out, and why."""

    path: str
    reason: str


@dataclass(slots=True)
class Report:
    """The result of an indexing run. Every file found is in one of the counts or in `broken`.

    moved: files that were known under another name; not encoded again.
    unchanged: files with the same content as before, whether or not they were read again.
    deleted: files that no longer exist.
    broken: every unreadable file, including unchanged ones that were not tried again.
    skipped: files and folders that could not be accessed, and were therefore neither indexed nor deleted.
    duplicates: files that are exact copies of another file; their content is encoded once.
    truncated: new texts that exceed the model's input length.
    left_out: RAW photos and videos whose extra is not installed, counted by suffix.
    read: files that were read. encoded: contents that were new to the collection.
    refined: items that the fast image graph had encoded and the full one encoded again. to_refine: those that remain.
    """

    at: Path
    kind: ItemKind
    new: int = 0
    changed: int = 0
    moved: int = 0
    deleted: int = 0
    unchanged: int = 0
    duplicates: int = 0
    truncated: int = 0
    read: int = 0
    encoded: int = 0
    refined: int = 0
    to_refine: int = 0
    seconds: float = 0.0
    broken: list[FileProblem] = field(default_factory=list)
    skipped: list[FileProblem] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)

    @property
    def per_second(self) -> float:
        """Files read per second, including encoding and writing."""
        return self.read / self.seconds if self.seconds else 0.0

    @property
    def counts(self) -> str:
        """The nonzero counts, as text."""
        counts = {
            "new": self.new,
            "changed": self.changed,
            "moved": self.moved,
            "deleted": self.deleted,
            "unchanged": self.unchanged,
            "refined": self.refined,
            "broken": len(self.broken),
            "skipped": len(self.skipped),
        }
        return ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)

    def __str__(self) -> str:
        noun = "copy" if self.duplicates == 1 else "copies"
        copies = f"; {self.duplicates:,} exact {noun}" if self.duplicates else ""
        pace = f"{self.seconds:.1f} s" + (f", {self.per_second:.1f} {self.kind}/s" if self.read else "")
        left = f"; {self.to_refine:,} to refine" if self.to_refine else ""
        return f"{self.counts or f'no {self.kind} found'}{copies}; {pace}{left}"


class IndexingInterrupted(KeyboardInterrupt):
    """Raised instead of KeyboardInterrupt: the collection is consistent, and `report` covers the run so far."""

    def __init__(self, report: Report) -> None:
        super().__init__("indexing was interrupted; finished work is kept, and the next run continues from there")
        self.report = report
