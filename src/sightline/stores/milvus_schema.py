"""The Milvus schema: a searchable row per item, and rows for fragments and states, which are only fetched."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sightline.errors import StoreError
from sightline.stores.base import Columns, Shape
from sightline.stores.milvus_address import AUTO, INDEXES, PREFERRED, Address
from sightline.stores.milvus_filter import MILVUS_PARTITION_KEY
from sightline.stores.milvus_server import RefusedError, Server, client_package

if TYPE_CHECKING:
    from pymilvus import CollectionSchema

ID, EMBEDDING, LENGTH, NOTE = "id", "embedding", "length", "note"
KEY, PIECE, NOWHERE = "key", "piece", "nowhere"
LONGEST = 65_535
"""The maximum size of a text in Milvus, in bytes."""

_PARTITIONS = 64


def parts_name(name: str) -> str:
    """Return the name of the collection for the fragments and states of items."""
    return f"{name}_parts"


def make(server: Server, address: Address, shape: Shape, columns: Columns, description: str) -> None:
    """Create the missing collections of a store, each with its index; the searched one is created last.

    A collection without an index, which a crash may have left, gets one. If the server refuses the index, the
    collection is not created.
    """
    client_package()  # if it is missing, the error says what to install
    parts = {"index_type": "FLAT", "metric_type": "L2", "params": {}}
    _make(server, parts_name(address.name), _parts_schema(), NOWHERE, [parts], address)
    wanted = [INDEXES[name] for name in (PREFERRED if address.index == AUTO else (address.index,))]
    indexes = [{"index_type": one.kind, "metric_type": "IP", "params": one.building(shape.embedding)} for one in wanted]
    schema = _items_schema(address, shape, columns, description)
    _make(server, address.name, schema, EMBEDDING, indexes, address)


def _make(
    server: Server,
    name: str,
    schema: "CollectionSchema",
    field: str,
    indexes: Sequence[Mapping[str, Any]],
    address: Address,
) -> None:
    """Create a collection with the first of the indexes that the server supports."""

    def create(client: Any) -> bool:
        if client.has_collection(name, timeout=server.timeout):
            return False
        client.create_collection(name, schema=schema, consistency_level=address.consistency, timeout=server.timeout)
        return True

    is_new = server.ask(create)
    if not is_new and _index_types(server, name):
        return
    for index in indexes:
        try:
            _add_index(server, name, field, index)
        except RefusedError as error:
            refused = error
        else:
            return
    if is_new:
        server.ask(lambda client: client.drop_collection(name, timeout=server.timeout))
    raise refused


def _add_index(server: Server, name: str, field: str, index: Mapping[str, Any]) -> None:
    params = client_package().MilvusClient.prepare_index_params()
    params.add_index(field, **index)
    server.ask(lambda client: client.create_index(name, params, timeout=server.timeout))


def _index_types(server: Server, name: str) -> list[str]:
    """Return the types of a collection's indexes, as Milvus names them."""

    def call(client: Any) -> list[str]:
        found = client.list_indexes(name, timeout=server.timeout)
        return [str(client.describe_index(name, one, timeout=server.timeout)["index_type"]) for one in found]

    return server.ask(call)


def built_index(server: Server, address: Address) -> str:
    """Return the type of a store's index, one of `INDEXES`; raises an error if the store is incomplete."""
    types = _index_types(server, address.name)
    found = [name for name, index in INDEXES.items() if index.kind in types]
    if not found or not _index_types(server, parts_name(address.name)):
        raise StoreError(
            f"{address}: incomplete, because it has no index",
            "Index again on the machine that has the collection's folder: sightline index --at DIR",
        )
    return found[0]


def read_description(server: Server, name: str) -> str | None:
    """Return the description of a collection; None if it does not exist."""

    def call(client: Any) -> str | None:
        if not client.has_collection(name, timeout=server.timeout):
            return None
        return str(client.describe_collection(name, timeout=server.timeout)["description"])

    return server.ask(call)


def load(server: Server, name: str) -> None:
    """Load a store into the servers' memory if it is not loaded: both collections at once."""

    def load_both(client: Any) -> None:
        for is_async in (True, False):
            for own in (parts_name(name), name):
                client.load_collection(own, timeout=server.timeout, _async=is_async)

    server.ask(load_both)


def _items_schema(address: Address, shape: Shape, columns: Columns, description: str) -> "CollectionSchema":
    from pymilvus import DataType, MilvusClient

    is_divided = (
        {"partition_key_field": MILVUS_PARTITION_KEY, "num_partitions": _PARTITIONS} if address.partition else {}
    )
    schema = MilvusClient.create_schema(description=description, **is_divided)
    schema.add_field(ID, DataType.INT64, is_primary=True)
    schema.add_field(EMBEDDING, DataType.FLOAT_VECTOR, dim=shape.embedding)
    schema.add_field(LENGTH, DataType.INT64)
    schema.add_field(MILVUS_PARTITION_KEY, DataType.VARCHAR, max_length=LONGEST)
    for name, kind in columns.items():
        if kind == "number":
            schema.add_field(name, DataType.DOUBLE)
        else:
            schema.add_field(name, DataType.VARCHAR, max_length=LONGEST)
    schema.add_field(NOTE, DataType.JSON)
    return schema


def _parts_schema() -> "CollectionSchema":
    """Return the schema for rows of pieces, which have an unused vector because Milvus requires one in every row.

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
    if taken := columns.keys() & {ID, EMBEDDING, LENGTH, MILVUS_PARTITION_KEY, NOTE}:
        raise StoreError(f"a column cannot be called {min(taken)}")
