"""The Milvus schema: a searchable row per item, and rows for fragments and states, which are only fetched."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from sightline.errors import StoreError
from sightline.stores.base import Shape
from sightline.stores.milvus_address import INDEXES, Address
from sightline.stores.milvus_server import Server, client_package

if TYPE_CHECKING:
    from pymilvus import CollectionSchema

Columns = Mapping[str, Literal["text", "number"]]
"""The columns to filter by, besides the id, and their types."""

ID, EMBEDDING, LENGTH, NOTE = "id", "embedding", "length", "note"
PARTITION_KEY = "shelf"  # the name in existing stores
KEY, PIECE, NOWHERE = "key", "piece", "nowhere"
LONGEST = 65_535
"""The maximum size of a text in Milvus, in bytes."""

_PARTITIONS = 64


def parts_name(name: str) -> str:
    """The name of the collection for the fragments and states of items."""
    return f"{name}_parts"


def make(server: Server, address: Address, shape: Shape, columns: Columns, description: str) -> None:
    """Create the missing collections of a store; the searched one is created last."""
    index, client = INDEXES[address.index], client_package().MilvusClient
    params = client.prepare_index_params()
    params.add_index(NOWHERE, index_type="FLAT", metric_type="L2", params={})
    _make(server, parts_name(address.name), _parts_schema(), params, address)
    params = client.prepare_index_params()
    params.add_index(EMBEDDING, index_type=index.kind, metric_type="IP", params=index.building(shape.embedding))
    _make(server, address.name, _items_schema(address, shape, columns, description), params, address)


def _make(server: Server, name: str, schema: "CollectionSchema", params: Any, address: Address) -> None:
    def call(client: Any) -> None:
        if not client.has_collection(name, timeout=server.timeout):
            options = {"consistency_level": address.consistency, "timeout": server.timeout}
            client.create_collection(name, schema=schema, index_params=params, **options)

    server.ask(call)


def read_description(server: Server, name: str) -> str | None:
    """The description of a collection; None if it does not exist."""

    def call(client: Any) -> str | None:
        if not client.has_collection(name, timeout=server.timeout):
            return None
        return str(client.describe_collection(name, timeout=server.timeout)["description"])

    return server.ask(call)


def load(server: Server, name: str) -> None:
    """Load a store into the servers' memory if it is not loaded."""
    for own in (parts_name(name), name):
        server.ask(lambda client, own=own: client.load_collection(own, timeout=server.timeout))  # type: ignore[misc]


def _items_schema(address: Address, shape: Shape, columns: Columns, description: str) -> "CollectionSchema":
    from pymilvus import DataType, MilvusClient

    is_divided = {"partition_key_field": PARTITION_KEY, "num_partitions": _PARTITIONS} if address.partition else {}
    schema = MilvusClient.create_schema(description=description, **is_divided)
    schema.add_field(ID, DataType.INT64, is_primary=True)
    schema.add_field(EMBEDDING, DataType.FLOAT_VECTOR, dim=shape.embedding)
    schema.add_field(LENGTH, DataType.INT64)
    schema.add_field(PARTITION_KEY, DataType.VARCHAR, max_length=LONGEST)
    for name, kind in columns.items():
        if kind == "number":
            schema.add_field(name, DataType.DOUBLE)
        else:
            schema.add_field(name, DataType.VARCHAR, max_length=LONGEST)
    schema.add_field(NOTE, DataType.JSON)
    return schema


def _parts_schema() -> "CollectionSchema":
    """Schema for rows of pieces. Milvus requires a vector in every row, so these have an unused one.

    A piece is JSON because pymilvus checks every character of a text field before sending.
    """
    from pymilvus import DataType, MilvusClient

    schema = MilvusClient.create_schema(description="fragments and states of a Sightline store")
    schema.add_field(KEY, DataType.INT64, is_primary=True)
    schema.add_field(PIECE, DataType.JSON)
    schema.add_field(NOWHERE, DataType.FLOAT_VECTOR, dim=2)
    return schema


def check_columns(columns: Columns) -> None:
    """Refuse columns with reserved names."""
    if taken := columns.keys() & {ID, EMBEDDING, LENGTH, PARTITION_KEY, NOTE}:
        raise StoreError(f"a column may not be called {min(taken)}")
