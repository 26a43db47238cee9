"""Write changes to a collection in an order that is safe against crashes.

Vectors are written before the rows that refer to them, and deleted after them. At worst, a crash leaves vectors
without a row, which the next writer deletes.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from sightline.bundle.encoded import Encoded
from sightline.collection.albums import Albums
from sightline.collection.catalog.database import Catalog
from sightline.collection.catalog.files import Facts
from sightline.collection.catalog.rows import Row
from sightline.collection.indexing.readers import Outcome
from sightline.collection.indexing.report import FileProblem, Report
from sightline.collection.remote.notes import build_notes
from sightline.errors import CollectionError
from sightline.stores.base import AnnotatedStore, RefinableStore, RemoteStore, Store, StoredImages

_log = logging.getLogger(__name__)
_NOT_ENCODED = "the model returned NaN or infinite numbers for it"
_WORTH_COMPACTING = 4  # compact when deleted items exceed a quarter of the remaining ones


@dataclass(slots=True)
class EncodedBatch:
    """The data for one transaction: new contents with their vectors, and the files that were read.

    truncated: how many of the contents are texts that exceed the model's input length.
    """

    contents: list[tuple[Sequence[Facts], Encoded]] = field(default_factory=list)
    files: list[Outcome] = field(default_factory=list)
    truncated: int = 0

    def add(self, other: "EncodedBatch") -> None:
        """Add the contents of another batch."""
        self.contents += other.contents
        self.files += other.files
        self.truncated += other.truncated


class Writer:
    """Writes batches, and counts the changes in `report`. fast: whether the fast graph encodes them."""

    def __init__(self, catalog: Catalog, store: Store, report: Report, *, fast: bool = False) -> None:
        self.catalog = catalog
        self.store = store
        self.report = report
        self._fast = fast
        self._missing: dict[int, Row] = {}
        self._missing_with: dict[int, list[Row]] = {}
        self._touched: set[int] = set()
        self._changed: dict[bytes, bytes] = {}
        self._annotated = store if isinstance(store, AnnotatedStore) else None

    @property
    def stored_images(self) -> StoredImages:
        """What the store keeps of each image."""
        return self.store.pictures if isinstance(self.store, RemoteStore) else "none"

    def mark_missing(self, rows: Iterable[Row]) -> None:
        """Mark rows whose files are missing; if a new file has the same content, the missing one counts as moved."""
        for row in rows:
            self._missing[row.id] = row
            if row.content is not None:
                self._missing_with.setdefault(row.content, []).append(row)

    def write(self, batch: EncodedBatch) -> None:
        """Write a batch; it is on disk once this returns."""
        with self.catalog.transaction():
            added = [(self.catalog.add_contents(facts), encoded) for facts, encoded in batch.contents]
            images = [_stored_images_of(facts, batch.files) for facts, _ in batch.contents]
            for outcome in batch.files:
                self._write_file(outcome)
            self._follow_changes()
            for (ids, encoded), own in zip(added, images, strict=True):
                self._add(ids, encoded, own)
                self.report.encoded += len(ids)
            self._annotate(self._touched.difference(*(ids for ids, _ in added)))
            self.store.flush()
        self.report.truncated += batch.truncated

    def finish(self) -> None:
        """Delete missing files, and the contents that no longer have a file."""
        with self.catalog.transaction():
            self.catalog.delete_files(self._missing)
            unused = self.catalog.delete_unused()
            self.catalog.delete_empty_roots()
            self._touched.update(row.content for row in self._missing.values() if row.content is not None)
            self._annotate(self._touched.difference(unused))
        self.report.deleted += len(self._missing)
        self.store.delete(np.array(unused, dtype=np.int64))
        self.store.flush()
        if unused and len(unused) * _WORTH_COMPACTING > len(self.store.ids()):
            self.store.compact()

    def _add(self, ids: Sequence[int], encoded: Encoded, images: Sequence[bytes]) -> None:
        """Add new contents to the store, with notes from the catalog if other machines search the store."""
        numbers = np.array(ids, dtype=np.int64)
        if self._fast:
            assert isinstance(self.store, RefinableStore), "open_to_write refuses others"
            self.store.add(numbers, encoded, fast=True)
        elif self._annotated is None:
            self.store.add(numbers, encoded)
        else:
            notes = build_notes(self.catalog, ids, self._annotated.partition)
            noted = [note._replace(picture=image) for note, image in zip(notes, images, strict=True)]
            self._annotated.add(numbers, encoded, noted)

    def _annotate(self, ids: Iterable[int]) -> None:
        """Update the notes of contents whose files have changed, in a store that other machines search."""
        if self._annotated is not None and (existing := sorted(self.catalog.items(sorted(ids)))):
            notes = build_notes(self.catalog, existing, self._annotated.partition)
            self._annotated.annotate(np.array(existing, dtype=np.int64), notes)
        self._touched.clear()

    def _write_file(self, outcome: Outcome) -> None:
        found = outcome.found
        content = self.catalog.content(outcome.facts.hash) if outcome.facts else None
        before = self.catalog.row(found.root, found.raw)
        self._touched.update(id for id in (content, before.content if before else None) if id is not None)
        if content is None:
            reason = outcome.problem or _NOT_ENCODED
            self.catalog.write(found if outcome.permanent else replace(found, stamp=None), None, reason)
            self.report.broken.append(FileProblem(found.name, reason))
            return
        moved = self._moved(content) if before is None else None
        self.catalog.write(found, content, replaces=moved)
        if moved is not None:
            self.report.moved += 1
        elif before is None:
            self.report.new += 1
        elif before.content == content:
            self.report.unchanged += 1
        else:
            self.report.changed += 1
            old = None if before.content is None else self.catalog.hash_of(before.content)
            if old is not None and outcome.facts is not None:
                self._changed[old] = outcome.facts.hash

    def _follow_changes(self) -> None:
        """Keep changed files in their albums; done before the changes are committed, so that a crash loses nothing."""
        try:
            Albums(self.catalog.at).follow(self._changed)
        except CollectionError as error:  # damaged, or being changed by another process for long
            _log.warning("changed files were not kept in their albums: %s", error)
        self._changed.clear()

    def _moved(self, content: int) -> int | None:
        """Return the row of a missing file that had this content, which then no longer counts as missing."""
        rows = self._missing_with.get(content)
        if not rows:
            return None
        row = rows.pop()
        del self._missing[row.id]
        return row.id


def _stored_images_of(facts: Sequence[Facts], files: Iterable[Outcome]) -> list[bytes]:
    """Return the image to store with each of these rows of `contents`, in order; empty if the store keeps none."""
    found = {outcome.facts.hash: outcome.stored_image for outcome in files if outcome.facts and outcome.stored_image}
    return [found.get(fact.hash, b"") for fact in facts]


def repair(catalog: Catalog, store: Store) -> None:
    """Make catalog and store consistent after a crash or damage.

    Vectors without a row are deleted, and their ids are never reused. Rows without vectors, which can only result from
    damage to the store, are deleted together with the rows of their files, so that the files are read again. If one
    moment of a video has lost its vectors, all moments are deleted.
    """
    known, stored = np.array(catalog.ids(), dtype=np.int64), store.ids()
    surplus, lost = np.setdiff1d(stored, known), np.setdiff1d(known, stored)
    if not len(surplus) and not len(lost):
        return
    moments = catalog.moments()
    unread = lost.tolist() if moments is None else moments.families(lost.tolist())
    with catalog.transaction():
        catalog.skip_ids(int(stored.max(initial=0)))
        catalog.delete_contents(unread)
    store.delete(np.union1d(surplus, np.array(unread, dtype=np.int64)))
    store.flush()
