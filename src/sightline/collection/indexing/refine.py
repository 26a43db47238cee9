"""Re-encode, with the full image graph, the items that the fast one encoded.

Only vectors are replaced: items keep their ids, files and facts. The store records which graph encoded an item together
with its vectors, so a crash leaves an item either as it was or refined.
"""

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from sightline.bundle.encoded import Encoded, stacked
from sightline.collection.catalog.database import Catalog
from sightline.collection.catalog.files import Facts, File, PendingFile
from sightline.collection.catalog.timeline import Timeline
from sightline.collection.indexing.report import FileProblem, Report
from sightline.collection.indexing.shards_and_urls import source_of
from sightline.collection.indexing.writer import EncodedBatch, Writer
from sightline.media import ImageFile
from sightline.stores.base import RefinableStore


class Refiner(Writer):
    """Writes the full graph's vectors in place of the fast graph's."""

    store: RefinableStore

    def __init__(self, catalog: Catalog, store: RefinableStore, report: Report) -> None:
        super().__init__(catalog, store, report)
        hashes = catalog.hashes_of(store.fast_ids().tolist())
        self._ids = {hash: id for id, hash in hashes.items()}

    def work(self) -> list[PendingFile]:
        """Return one file of each item to refine, newest first."""
        chosen = Timeline.of(self.catalog).only(self.catalog.items_to_refine(self.store)).ids.tolist()
        items = self.catalog.items(chosen)
        return [_pending(items[id].files) for id in chosen]

    def write(self, batch: EncodedBatch) -> None:
        """Replace the vectors of a batch; they are on disk once this returns.

        If a file was changed, deleted or damaged since it was indexed, its item is not refined; the next run of `index`
        handles the file.
        """
        facts = [fact for own, _ in batch.contents for fact in own]
        encoded = stacked([found for _, found in batch.contents]) if facts else None
        same: list[int] = []
        for first, own in groupby(range(len(facts)), lambda place: facts[place].parent or facts[place].hash):
            if first not in self._ids:
                continue
            places = list(own)
            if facts[places[0]].moment is None or self._has_same_moments([facts[place] for place in places]):
                same += places
            elif encoded is not None:
                self._replace_video([facts[place] for place in places], encoded.taken(np.array(places)))
            self.report.refined += 1
        if encoded is not None and same:
            ids = np.array([self._ids[facts[place].hash] for place in same], dtype=np.int64)
            self.store.replace(ids, encoded.taken(np.array(same)))
            self.store.flush()
        self.report.skipped += [FileProblem(one.found.name, one.problem) for one in batch.files if one.problem]

    def finish(self) -> None:
        """Reclaim the space of the replaced vectors, if that is worthwhile."""
        if self.store.is_wasteful:
            self.store.compact()

    def _has_same_moments(self, facts: list[Facts]) -> bool:
        """Return whether a video was split into the catalog's moments; this can depend on the size of the frames."""
        return {self._ids.get(fact.hash): fact.moment for fact in facts} == self._moments_of(facts)

    def _replace_video(self, facts: list[Facts], encoded: Encoded) -> None:
        """Replace all moments of a video. Vectors are written before the catalog rows, as for new files."""
        video = self._ids[facts[0].hash]
        old = [video, *(id for id in self._moments_of(facts) if id != video)]
        with self.catalog.transaction():
            self.store.add(np.array(self.catalog.replace_contents(old, facts), dtype=np.int64), encoded)
            self.store.flush()
        self.store.delete(np.array(old, dtype=np.int64))
        self.store.flush()

    def _moments_of(self, facts: list[Facts]) -> dict[int, float]:
        video, moments = self._ids[facts[0].hash], self.catalog.moments()
        return {} if moments is None else moments.of([video]).get(video, {})


def _pending(files: Sequence[File]) -> PendingFile:
    """Return the file of an item to read again: of several copies, the first that exists."""
    file = next((copy for copy in files if copy.where.exists()), files[0])
    source = source_of(file)
    return PendingFile(0, b"", file.path, file.where, source=None if isinstance(source, ImageFile) else source)
