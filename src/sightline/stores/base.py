"""The interface of vector stores, common to all engines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt

from sightline.arrays import Float32Array
from sightline.bundle.encoded import Encoded
from sightline.stores.filters import Filter

Ids = npt.NDArray[np.int64]
Part = Literal["embedding", "fragments", "states"]
Partition = Literal["year", "month", "folder"]
StoredImages = Literal["thumbnails", "originals", "none"]
"""The forms in which a store on a server can keep pictures."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The dimensions of a store's vectors; 0 means that the store does not have that part."""

    embedding: int
    fragments: int = 0
    states: int = 0


class Neighbors(NamedTuple):
    """The items nearest to each query, best first: ids [queries, k] and cosines [queries, k].

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
    """Number of items in a store, their size in bytes, and how the store searches them."""

    items: int
    bytes: int
    index: str


Columns = Mapping[str, Literal["text", "number"]]
"""The columns that a store on a server can filter by, besides the id, and their types."""

LOW_PATH, FILES, PARTITION_KEY = "low_path", "files", "partition_key"
"""Columns that are not filter fields: the path in lower case, the number of an item's files, and its partition."""


class Note(NamedTuple):
    """Data stored with an item in addition to its vectors, so that machines without the catalog can show and filter it.

    partition_key: the item's partition. columns: values of the store's columns, None if unknown. about: everything
    else, as JSON. picture: bytes of its picture, for a new item in a store that keeps pictures.
    """

    partition_key: str
    columns: Mapping[str, str | float | None]
    about: Mapping[str, Any]
    picture: bytes = b""


class Store(Protocol):
    """Stores the vectors of items by id, and finds nearest neighbours.

    Ids are integers from 0, assigned by the caller and never reused. Changes are visible to the next search of the
    same store, and on disk once `flush` has returned. After a crash, a store is in the state of the last flush or a
    later one, and never contains a partial item.
    """

    @property
    def shape(self) -> Shape:
        """Dimensions of the store's vectors."""
        ...

    def add(self, ids: Ids, encoded: Encoded) -> None:
        """Add items; raises an error and adds nothing if an id already exists."""
        ...

    def delete(self, ids: Ids) -> None:
        """Delete items; unknown ids are ignored."""
        ...

    def ids(self) -> Ids:
        """Return all ids, in ascending order."""
        ...

    def search(self, vectors: Float32Array, k: int, where: Ids | None = None) -> Neighbors:
        """Find the k items with the highest cosine to each of the vectors [queries, dim].

        Ties are ordered by id, lowest first.

        where: search only these ids. The filter is applied before ranking, so there are k results if enough items pass.
        """
        ...

    def fetch(self, ids: Ids, part: Part) -> PaddedVectors:
        """Return the vectors of items, in the order of `ids`: one each for embeddings. Unknown ids raise an error."""
        ...

    def rows(self, ids: Ids, part: Part, first: int | None = None) -> QuantizedRows:
        """Like `fetch`, but returns fragments or states still quantised, which is several times faster.

        first: return at most this many vectors per item.
        """
        ...

    def flush(self) -> None:
        """Make all changes so far survive a crash."""
        ...

    def refresh(self) -> bool:
        """Load what another process has written in the meantime; returns False if nothing has changed."""
        ...

    def compact(self) -> None:
        """Reclaim the space of deleted items."""
        ...

    def stats(self) -> Stats:
        """Return the size of the store."""
        ...

    def close(self) -> None:
        """Flush, and close files and connections."""
        ...


@runtime_checkable
class RefinableStore(Store, Protocol):
    """A store that records which items a fast image graph encoded, and can replace their vectors."""

    def add(self, ids: Ids, encoded: Encoded, *, fast: bool = False) -> None:
        """Add items. fast: record that the fast graph encoded them."""
        ...

    def replace(self, ids: Ids, encoded: Encoded) -> None:
        """Replace the vectors of items, which then no longer count as encoded by the fast graph.

        After a crash, an item has either its old vectors or its new ones. Unknown ids are an error.
        """
        ...

    @property
    def is_wasteful(self) -> bool:
        """Whether deleted and replaced items take so much space that `compact` is worthwhile."""
        ...

    def fast_ids(self, among: Ids | None = None) -> Ids:
        """Return the ids of all items that the fast graph encoded, or of those in `among`, in ascending order."""
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


@runtime_checkable
class RemoteStore(AnnotatedStore, Protocol):
    """A store on a server, which machines without the catalog open by its URL; see `opening`."""

    @classmethod
    def normalize_url(cls, url: str) -> str:
        """Check a URL, and return its shortest form. It must not contain a password, as it is stored in files."""
        ...

    @classmethod
    def read_description(cls, url: str) -> str | None:
        """Return the text that was stored with the store at a URL when it was created; None if there is no store."""
        ...

    @classmethod
    def open_url(
        cls, url: str, shape: Shape, *, write: bool, columns: Columns, description: str = "", created_as: str = ""
    ) -> Self:
        """Open the store at a URL; for writing, a missing store is created.

        columns: the columns to filter by. description: text to store with a new store.
        created_as: the URL that an existing store was created with, which determines options that cannot be changed.
        """
        ...

    @property
    def pictures(self) -> StoredImages:
        """The form in which the store keeps pictures, so that machines without the files can show them."""
        ...

    def picture(self, id: int) -> bytes | None:
        """Return the picture stored with an item: its thumbnail, or the bytes of its file; None if there is none."""
        ...

    def notes(self, ids: Ids) -> dict[int, Mapping[str, Any]]:
        """Return the `Note.about` of items, by id; unknown ids are left out."""
        ...

    def notes_where(self, filter: Filter | None = None) -> dict[int, Mapping[str, Any]]:
        """Return the notes of all items that pass a filter, and of others if the server can apply only part of it."""
        ...

    def can_filter(self, filter: Filter) -> bool:
        """Return whether the server can apply all of a filter."""
        ...

    def where(self, filter: Filter) -> "RemoteStore":
        """Return a read-only view of the items that pass a filter, which the server must fully support."""
        ...
