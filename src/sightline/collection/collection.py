"""A user's indexed items, opened to look things up in."""

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from sightline.bundle.encoded import Model
from sightline.collection.catalog import Catalog
from sightline.collection.files import File, Item
from sightline.collection.manifest import Kind, Manifest, check_model, read_manifest
from sightline.errors import CollectionError
from sightline.stores.local import LocalStore

VECTORS_FOLDER = "vectors"


class Collection:
    """An opened collection: `catalog` knows the items, `store` their vectors.

    Any number of processes may have one open while another indexes; none waits for the other. Several threads may
    share one.
    """

    def __init__(self, at: Path, manifest: Manifest, catalog: Catalog, store: LocalStore) -> None:
        self.at = at
        self.manifest = manifest
        self.catalog = catalog
        self.store = store

    @classmethod
    def open(cls, at: str | Path) -> "Collection":
        """Open the collection in a folder, for reading."""
        at = Path(at).resolve()
        manifest = read_manifest(at)
        catalog = Catalog.open(at)
        try:
            return cls(at, manifest, catalog, LocalStore.open(at / VECTORS_FOLDER, manifest.shape, write=False))
        except BaseException:
            catalog.close()
            raise

    def __len__(self) -> int:
        return len(self.catalog)

    @property
    def kind(self) -> Kind:
        """Whether its items are images or texts."""
        return self.manifest.kind

    def check_model(self, model: Model) -> None:
        """Refuse a model other than the one that made the collection, with the way out."""
        check_model(self.at, self.manifest, model)

    def item(self, id: int) -> Item:
        """The item of an id; an error where there is none, or none any more."""
        found = self.items([id])
        if id not in found:
            raise CollectionError(
                f"{self.at}: no item has the id {id}", "It may have been deleted since: search again."
            )
        return found[id]

    def items(self, ids: Sequence[int]) -> dict[int, Item]:
        """The items of these ids; those that are not there, or have no file any more, are left out."""
        return self.catalog.items(ids)

    def files(self) -> list[File]:
        """Every file that can be found, by root and path."""
        return self.catalog.files("ready")

    def broken(self) -> list[File]:
        """Every file that could not be read, with the reason."""
        return self.catalog.files("broken")

    def refresh(self) -> bool:
        """See what has been indexed since it was opened; says whether there was anything."""
        return self.store.refresh()

    def close(self) -> None:
        """Let go of its files."""
        self.store.close()
        self.catalog.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
