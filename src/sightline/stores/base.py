"""What a store of vectors is: the same few verbs, whichever engine keeps them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from sightline.arrays import Float32Array
from sightline.bundle.encoded import Encoded

Ids = npt.NDArray[np.int64]
Singles = Float32Array  # for callers that still use the old name
Part = Literal["embedding", "fragments", "states"]
Partition = Literal["year", "month", "folder"]


@dataclass(frozen=True, slots=True)
class Shape:
    """How wide the vectors of a store are; a width of 0 means that the store keeps no such part."""

    embedding: int
    fragments: int = 0
    states: int = 0


class Neighbors(NamedTuple):
    """The best of each query, best first: ids [queries, k] and cosines [queries, k].

    Where a query has fewer than k items to choose from, ids are -1 and cosines -inf at the end of its row.
    """

    ids: Ids
    scores: Float32Array


class PaddedVectors(NamedTuple):
    """Vectors of some items: [items, n, width] in float32, and a mask [items, n] that is true where one is real."""

    values: Float32Array
    mask: npt.NDArray[np.bool_]


class QuantizedRows(NamedTuple):
    """Vectors of some items as they are kept, item after item without padding.

    values: int8 [n, width]. scales: float32 [n], what one of a vector's whole numbers is worth. lengths: [items], how
    many of the n vectors each item has.
    """

    values: npt.NDArray[np.int8]
    scales: Float32Array
    lengths: Ids


@dataclass(frozen=True, slots=True)
class Stats:
    """How many items a store has, how many bytes they take where they are kept, and how it searches them."""

    items: int
    bytes: int
    index: str


class Note(NamedTuple):
    """What else is kept of an item: where it stands, what it can be filtered by, and all there is to know.

    shelf: the partition that it belongs to. columns: a value for each of the store's. about: as JSON.
    """

    shelf: str
    columns: Mapping[str, str | float]
    about: Mapping[str, Any]


class Store(Protocol):
    """Keeps the vectors of items by id, and finds the nearest.

    Ids are whole numbers from 0, given by whoever owns the items, and never used twice. What was added or deleted is
    seen by the next search of the same store, and is safe on disk once `flush` has returned: after a crash a store
    holds what it held at some flush, the last or a later point, never half an item.
    """

    @property
    def shape(self) -> Shape:
        """How wide its vectors are."""
        ...

    def add(self, ids: Ids, encoded: Encoded) -> None:
        """Add items; an id that is there already is an error, and then nothing is added."""
        ...

    def delete(self, ids: Ids) -> None:
        """Forget items; ids that are not there are passed over."""
        ...

    def ids(self) -> Ids:
        """Every id that is there, in ascending order."""
        ...

    def search(self, vectors: Float32Array, k: int, where: Ids | None = None) -> Neighbors:
        """Find the k items with the highest cosine to each of the vectors [queries, dim].

        Of equal cosines, the lower id comes first.

        where: only these ids are looked at. The filter comes before the ranking, so it never costs results.
        """
        ...

    def fetch(self, ids: Ids, part: Part) -> PaddedVectors:
        """Give the vectors of items, in the order of `ids`; an embedding is a part with one vector.

        An id that is not there is an error.
        """
        ...

    def rows(self, ids: Ids, part: Part, first: int | None = None) -> QuantizedRows:
        """Give fragments or states of items as `fetch` does, but as they are kept: in a fraction of the time.

        first: only so many of each item, those that come first.
        """
        ...

    def flush(self) -> None:
        """Make everything added and deleted so far survive a crash."""
        ...

    def refresh(self) -> bool:
        """See what another process has written since; says whether there was anything new to see."""
        ...

    def compact(self) -> None:
        """Give the space of deleted items back."""
        ...

    def stats(self) -> Stats:
        """Say how large the store is."""
        ...

    def close(self) -> None:
        """Flush, and let go of files and connections."""
        ...


@runtime_checkable
class AnnotatedStore(Store, Protocol):
    """A store that machines search which have no catalog: what is known of an item is kept beside its vectors."""

    @property
    def partition(self) -> Partition | None:
        """What divides the store, where anything does."""
        ...

    def add(self, ids: Ids, encoded: Encoded, notes: Sequence[Note] | None = None) -> None:
        """Add items, with a note each."""
        ...

    def annotate(self, ids: Ids, notes: Sequence[Note]) -> None:
        """Write other notes to items; those that are not there are passed over."""
        ...
