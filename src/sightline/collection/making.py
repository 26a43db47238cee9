"""A collection opened for writing: made where there is none, mended where a crash left it uneven."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from sightline.bundle import Bundle
from sightline.bundle.encoded import Model
from sightline.collection.catalog import Catalog
from sightline.collection.collection import VECTORS_FOLDER
from sightline.collection.locking import Told, writing
from sightline.collection.manifest import (
    FORMAT,
    MANIFEST_FILE,
    Kind,
    Manifest,
    check_kind,
    check_model,
    read_manifest,
    write_manifest,
)
from sightline.collection.writing import mend
from sightline.errors import CollectionError
from sightline.stores.base import Shape
from sightline.stores.local import LocalStore


@contextmanager
def open_to_write(
    at: Path, kind: Kind, model: Model, wait: bool | float, told: Told | None
) -> Iterator[tuple[Catalog, LocalStore]]:
    """Open a collection for writing, made or mended where need be, by nobody else meanwhile."""
    try:
        at.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CollectionError(
            f"{at}: cannot be made: {error.strerror or error}", "Choose another folder with --at."
        ) from error
    with writing(at, wait=wait, told=told):
        manifest = _manifest(at, kind, model)
        with (
            closing(Catalog.open(at, write=True)) as catalog,
            closing(LocalStore.open(at / VECTORS_FOLDER, manifest.shape, write=True)) as store,
        ):
            mend(catalog, store)
            yield catalog, store


def _manifest(at: Path, kind: Kind, model: Model) -> Manifest:
    """The collection's manifest, written before all else where the collection is new."""
    if (at / MANIFEST_FILE).exists():
        manifest = read_manifest(at)
        check_model(at, manifest, model)
        check_kind(at, manifest, kind)
        if manifest.location == _location(model):
            return manifest
        manifest = replace(manifest, location=_location(model))
    else:
        manifest = Manifest(FORMAT, kind, model.name, model.sha256, _shape(model, kind), _location(model))
    write_manifest(at, manifest)
    return manifest


def _location(model: Model) -> str:
    """The folder of a model that has one, so that a search finds it again."""
    return str(model.folder.resolve()) if isinstance(model, Bundle) else ""


def _shape(model: Model, kind: Kind) -> Shape:
    """How wide the vectors of a model are, as seen from one item."""
    side = model.preprocess.size
    blank = np.zeros((1, 3, side, side), dtype=np.float32)
    encoded = model.encode_texts(["a"]) if kind == "texts" else model.encode_images(blank)
    parts = (encoded.embedding, encoded.fragments, encoded.states)
    return Shape(*(0 if part is None else part.shape[-1] for part in parts))
