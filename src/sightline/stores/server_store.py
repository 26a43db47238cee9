"""Code common to all stores on servers: how long to wait, checks for misuse, and reading the parts of items."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import numpy as np

from sightline.arrays import Float32Array
from sightline.errors import StoreError
from sightline.stores.base import Columns, Ids, PaddedVectors, Part, QuantizedRows, Shape
from sightline.stores.packing import Records, check_rows, kept_parts, unpack

_READING, _WRITING = 20.0, 300.0


class Connected(Protocol):
    """A connection to a server."""

    def close(self) -> None:
        """Close the connection."""


def seconds_to_wait(*, write: bool) -> float:
    """Return how long to wait for an unreachable server; when writing, long enough for it to restart."""
    return _WRITING if write else _READING


@contextmanager
def closed_on_error(server: Connected) -> Iterator[None]:
    """Close a connection if the block fails."""
    try:
        yield
    except BaseException:
        server.close()
        raise


class ServerStore(ABC):
    """The part of a remote store that does not depend on the kind of server."""

    def __init__(self, address: object, shape: Shape, columns: Columns, write: bool) -> None:
        self._place, self._shape, self._columns, self._write, self._is_open = address, shape, columns, write, True

    @property
    def shape(self) -> Shape:
        """Dimensions of the store's vectors."""
        return self._shape

    def fetch(self, ids: Ids, part: Part) -> PaddedVectors:
        """Return the vectors of items, in the order of `ids`; an embedding is a part with one vector.

        Raises an error for unknown ids.
        """
        if part == "embedding":
            values = self._embeddings(ids).reshape(len(ids), 1, self.shape.embedding)
            return PaddedVectors(values, np.ones((len(ids), 1), dtype=np.bool_))
        records, lengths = self._parts(ids, part)
        mask = np.arange(lengths.max(initial=0)) < lengths[:, None]
        padded = np.zeros((*mask.shape, getattr(self.shape, part)), dtype=np.float32)
        padded[mask] = unpack(records)
        return PaddedVectors(padded, mask)

    def rows(self, ids: Ids, part: Part, first: int | None = None) -> QuantizedRows:
        """Return the fragments or states of items in their stored form, which is much faster than `fetch`.

        first: return at most this many vectors per item.
        """
        check_rows(part, first)
        records, lengths = self._parts(ids, part, first)
        return QuantizedRows(records["values"], records["scale"], lengths)

    def flush(self) -> None:
        """Do nothing: what the server has acknowledged survives a crash."""
        self._check_writable()

    @abstractmethod
    def _embeddings(self, ids: Ids) -> Float32Array:
        """Return the embedding of each item; raises an error for unknown ids."""

    @abstractmethod
    def _records(self, ids: Ids, part: Part, first: int | None) -> tuple[Records, Ids]:
        """The records of one part of these items, at most `first` per item, concatenated; and their number per item."""

    def _parts(self, ids: Ids, part: Part, first: int | None = None) -> tuple[Records, Ids]:
        if part not in kept_parts(self.shape):
            raise StoreError(f"{self._place}: has no {part}", "Use a model that produces them, and index again.")
        return self._records(ids, part, first)

    def _unknown(self, id: int) -> StoreError:
        return StoreError(f"{self._place}: id {id} does not exist")

    def _check_open(self) -> None:
        if not self._is_open:
            raise StoreError(f"{self._place}: the store was closed", "Open it again.")

    def _check_writable(self) -> None:
        self._check_open()
        if not self._write:
            raise StoreError(f"{self._place}: was opened for reading only", "Open it with write=True.")
