"""Vectors as psycopg sends and reads them, in the binary format of pgvector.

A halfvec consists of its dimension and a zero, 16 bits each, and its numbers in float16; a vector has them in float32.
"""

import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from sightline.arrays import Float16Array, Float32Array

if TYPE_CHECKING:
    import psycopg


class HalfVector:
    """A vector to send as a `halfvec`: float16 [dim]."""

    def __init__(self, values: Float16Array) -> None:
        self.values = values


class SingleVector:
    """A vector to send as a `vector`: float32 [dim]."""

    def __init__(self, values: Float32Array) -> None:
        self.values = values


def register(connection: "psycopg.Connection[Any]") -> None:
    """Make a connection able to send and read vectors, if the database has pgvector."""
    from psycopg.adapt import Dumper, Loader
    from psycopg.pq import Format
    from psycopg.types import TypeInfo

    def dumper(type_oid: int, kind: str) -> type[Dumper]:
        class VectorDumper(Dumper):
            format, oid = Format.BINARY, type_oid

            def dump(self, obj: Any) -> bytes:
                numbers: bytes = obj.values.astype(kind).tobytes()
                return struct.pack(">hh", len(obj.values), 0) + numbers

        return VectorDumper

    class HalfLoader(Loader):
        format = Format.BINARY

        def load(self, data: Any) -> Float16Array:
            return np.frombuffer(data, dtype=">f2", offset=4).astype(np.float16)

    half, single = TypeInfo.fetch(connection, "halfvec"), TypeInfo.fetch(connection, "vector")
    if half is not None and single is not None:
        connection.adapters.register_dumper(HalfVector, dumper(half.oid, ">f2"))
        connection.adapters.register_dumper(SingleVector, dumper(single.oid, ">f4"))
        connection.adapters.register_loader(half.oid, HalfLoader)
