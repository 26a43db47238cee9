"""The interface of vector stores, common to all engines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from sightline.arrays import Float32Array
from sightline.bundle.encoded import Encoded

Ids = npt.NDArray[np.int64]
Part = Literal["embedding", "fragments", "states"]
Partition = Literal["year", "month", "folder"]


@dataclass(frozen=True, slots=True)
class Shape:
    """Dimensions of a store's vectors; 0 means that the store has no such part."""

    embedding: int
    fragments: int = 0
    states: int = 0


class Neighbors(NamedTuple):
    """The nearest items of each query, best first: ids [queries, k] and cosines [queries, k].

    If there are fewer than k items, ids are -1 and cosines -inf at the end of the row.
    """

    ids: Ids
    scores: Float32Array


class PaddedVectors(NamedTuple):
    """Vectors of some items: float32 [items, n, width], and a mask [items, n] that is false for padding."""

    values: Float32Array
    mask: npt.NDArray[np.bool_]


class QuantizedRows(NamedTuple):
    """Vectors of some items, usually quantised, concatenated without padding.

    values: int8 or float32 [n, width]. scales: float32 [n], the factor for each vector. lengths: [items], the number of
    vectors of each item.
    """

    values: npt.NDArray[np.int8] | Float32Array
    scales: Float32Array
    lengths: Ids


@dataclass(frozen=True, slots=True)
class Stats:
    """Number of items in a store, their size in bytes, and how it searches them."""

    items: int
    bytes: int
    index: str


class Note(NamedTuple):
    """Data stored with an item besides its vectors, so that machines without the catalog can show and filter it.

    partition_key: the item's partition. columns: values of the store's columns. about: everything else, as JSON.
    """

    partition_key: str
    columns: Mapping[str, str | float]
    about: Mapping[str, Any]


class Store(Protocol):
    """Stores the vectors of items by id, and finds nearest neighbours.

    Ids are integers from 0, assigned by the caller and never reused. Changes are visible to the next search of the
    same store, and on disk once `flush` has returned. After a crash, a store is in the state of the last flush or a
    later one, and never contains a partial item.
    """

    @property
    def shape(self) -> Shape:
        """Dimensions of its vectors."""
        ...

    def add(self, ids: Ids, encoded: Encoded) -> None:
        """Add items; raises an error and adds nothing if an id already exists."""
        ...

    def delete(self, ids: Ids) -> None:
        """Delete items; unknown ids are ignored."""
        ...

    def ids(self) -> Ids:
        """All ids, in ascending order."""
        ...

    def search(self, vectors: Float32Array, k: int, where: Ids | None = None) -> Neighbors:
        """Find the k items with the highest cosine to each of the vectors [queries, dim].

        Ties are ordered by id, lowest first.

        where: search only these ids. The filter is applied before ranking, so there are k results if enough items pass.
        """
        ...

    def fetch(self, ids: Ids, part: Part) -> PaddedVectors:
        """Vectors of items, in the order of `ids`; an embedding is a part with one vector. Unknown ids are an error."""
        ...

    def rows(self, ids: Ids, part: Part, first: int | None = None) -> QuantizedRows:
        """Fragments or states of items like `fetch`, but still quantised, which is several times faster.

        first: return at most this many vectors per item.
        """
        ...

    def flush(self) -> None:
        """Make all changes so far survive a crash."""
        ...

    def refresh(self) -> bool:
        """Load what another process has written since; False if nothing has changed."""
        ...

    def compact(self) -> None:
        """Reclaim the space of deleted items."""
        ...

    def stats(self) -> Stats:
        """Size of the store."""
        ...

    def close(self) -> None:
        """Flush, and close files and connections."""
        ...


@runtime_checkable
class AnnotatedStore(Store, Protocol):
    """A store with a note for each item, so that machines without the catalog can search it."""

    @property
    def partition(self) -> Partition | None:
        """What the store is partitioned by, if anything."""
        ...

    def add(self, ids: Ids, encoded: Encoded, notes: Sequence[Note] | None = None) -> None:
        """Add items, each with a note."""
        ...

    def annotate(self, ids: Ids, notes: Sequence[Note]) -> None:
        """Replace the notes of items; unknown ids are ignored."""
        ...
