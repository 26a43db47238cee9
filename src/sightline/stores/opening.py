"""Open stores on servers: find the class that opens a given URL.

To support another kind of server, write a class that satisfies `base.RemoteStore` and add the scheme of its URLs to
`REMOTE_STORES`.
"""

from sightline.errors import StoreError
from sightline.stores.base import RemoteStore
from sightline.stores.milvus import MilvusStore
from sightline.stores.postgres import PostgresStore

REMOTE_STORES: dict[str, type[RemoteStore]] = {
    "milvus": MilvusStore,
    "postgresql": PostgresStore,
    "postgres": PostgresStore,
}
"""Classes of stores on servers, by the scheme of their URLs."""


def is_store_url(place: object) -> bool:
    """Return whether this is the URL of a store rather than a folder, even if it was converted to a path."""
    return _scheme(place) in REMOTE_STORES


def remote_store(url: str) -> type[RemoteStore]:
    """Return the class that opens the store at a URL.

    >>> remote_store("milvus://localhost/photos").__name__
    'MilvusStore'
    """
    if (scheme := _scheme(url)) not in REMOTE_STORES:
        choices = ", ".join(f"{name}://" for name in REMOTE_STORES)
        raise StoreError(f"{url}: not the URL of a store", f"It must begin with one of {choices}")
    return REMOTE_STORES[scheme]


def _scheme(place: object) -> str:
    scheme, colon, _ = str(place).partition(":/")
    return scheme if colon else ""
