"""Fragments and states in Milvus: packed as in the local store, base64-encoded, and split into pieces fetched by key.

They have their own collection, so that the searched rows stay small, and are read only for candidates. They are in
Milvus rather than in object storage so that another machine needs only one address.
"""

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from sightline.stores.base import Ids, Shape
from sightline.stores.milvus_schema import KEY, NOWHERE, PIECE
from sightline.stores.milvus_server import Server
from sightline.stores.packing import Packed, Records, kept_parts, record_type

_PIECE = 48_000  # bytes, or 64,000 characters in base64
_PIECES = 64  # the maximum per part of an item
_PARTS = ("fragments", "states")
_DATA = "base64"
_AT_ONCE = 16 * 2**20  # characters per request; servers accept 64 MB


def piece_rows(packed: Packed) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows for the parts of items, in batches that fit into a request."""
    batch, size = list[dict[str, Any]](), 0
    for name, records in packed.parts.items():
        starts = np.cumsum(packed.lengths) - packed.lengths
        for id, start, length in zip(packed.ids.tolist(), starts.tolist(), packed.lengths.tolist(), strict=True):
            for key, piece in _pieces(id, name, records[start : start + length].tobytes()):
                batch.append({KEY: key, PIECE: {_DATA: piece}, NOWHERE: [0.0, 0.0]})
                size += len(piece)
                if size >= _AT_ONCE:
                    yield batch
                    batch, size = [], 0
    if batch:
        yield batch


def read(
    server: Server, collection: str, ids: Ids, lengths: Ids, part: str, width: int, consistency: str
) -> list[Records]:
    """Return the records of one part of each item, given the items' ids [n] and numbers of vectors [n].

    Records of items that are being deleted may be missing.
    """
    record = record_type(width)
    keys = [
        _keys(id, part, length * record.itemsize) for id, length in zip(ids.tolist(), lengths.tolist(), strict=True)
    ]
    wanted = sorted({key for own in keys for key in own})
    found: dict[int, str] = {}
    for start in range(0, len(wanted), _AT_ONCE // _PIECE):
        some = wanted[start : start + _AT_ONCE // _PIECE]
        rows = server.query(collection, f"{KEY} in {some}", (KEY, PIECE), consistency)
        found.update((row[KEY], row[PIECE][_DATA]) for row in rows)
    empty = np.zeros(0, dtype=record)
    return [_joined([found.get(key, "") for key in own], empty) for own in keys]


def keys_of(lengths: Mapping[int, int], shape: Shape) -> list[int]:
    """Return the keys of all pieces of items, given the number of vectors by id."""
    return [
        key
        for part, width in kept_parts(shape).items()
        for id, length in lengths.items()
        for key in _keys(id, part, length * record_type(width).itemsize)
    ]


def _pieces(id: int, part: str, data: bytes) -> Iterator[tuple[int, str]]:
    for number, key in enumerate(_keys(id, part, len(data))):
        yield key, base64.b64encode(data[number * _PIECE : (number + 1) * _PIECE]).decode("ascii")


def _keys(id: int, part: str, size: int) -> range:
    first = (2 * id + _PARTS.index(part)) * _PIECES
    return range(first, first + -(-size // _PIECE))


def _joined(pieces: Sequence[str], empty: Records) -> Records:
    data = b"".join(map(base64.b64decode, pieces))
    return np.frombuffer(data, dtype=empty.dtype)
