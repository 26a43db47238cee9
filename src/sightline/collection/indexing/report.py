"""What came of an indexing run: counts, what was left out and why, and how long it took."""

from dataclasses import dataclass, field
from pathlib import Path

from sightline.collection.manifest import Kind


@dataclass(frozen=True, slots=True)
class FileProblem:
    """A file or folder that was left out, as text for people, and why."""

    path: str
    reason: str


@dataclass(slots=True)
class Report:
    """What an indexing run found and did. Every file that was seen is in one of the counts or in `broken`.

    moved: known under another name before, and not encoded again.
    unchanged: of the same content as before, whether or not it had to be read to know.
    deleted: known before, and gone.
    broken: every file that cannot be read, whether it was tried in this run or had not changed since it was.
    skipped: what could not be looked at, and for that reason was neither indexed nor taken for deleted.
    duplicates: files of the collection that are exact copies of another; their content is encoded once.
    truncated: new texts that are longer than the model reads.
    read: files that were read to find all this out. encoded: contents that were new to the collection.
    """

    at: Path
    kind: Kind
    new: int = 0
    changed: int = 0
    moved: int = 0
    deleted: int = 0
    unchanged: int = 0
    duplicates: int = 0
    truncated: int = 0
    read: int = 0
    encoded: int = 0
    seconds: float = 0.0
    broken: list[FileProblem] = field(default_factory=list)
    skipped: list[FileProblem] = field(default_factory=list)

    @property
    def per_second(self) -> float:
        """How many files a second were read, encoded where need be, and stored."""
        return self.read / self.seconds if self.seconds else 0.0

    @property
    def counts(self) -> str:
        """How much there is of each kind, in words; nothing where nothing is counted yet."""
        counts = {
            "new": self.new,
            "changed": self.changed,
            "moved": self.moved,
            "deleted": self.deleted,
            "unchanged": self.unchanged,
            "broken": len(self.broken),
            "skipped": len(self.skipped),
        }
        return ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)

    def __str__(self) -> str:
        copies = f"; {self.duplicates:,} exact copies" if self.duplicates else ""
        pace = f"{self.seconds:.1f} s, {self.per_second:.1f} {self.kind}/s"
        return f"{self.counts or f'no {self.kind} found'}{copies}; {pace}"


class IndexingInterrupted(KeyboardInterrupt):
    """Raised in place of a KeyboardInterrupt: the collection is whole, and `report` tells how far the run came."""

    def __init__(self, report: Report) -> None:
        super().__init__("indexing was interrupted; what is done is kept, and the next run goes on from there")
        self.report = report
