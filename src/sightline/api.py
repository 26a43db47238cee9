"""The verbs of search, for a line of Python each."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sightline.bundle.model import Model
from sightline.collection.collection import Collection
from sightline.errors import CollectionError
from sightline.media import ImageFile
from sightline.registry.loader import load
from sightline.retrieval.explain import Explanation, explain_picture
from sightline.retrieval.results import SearchResult

if TYPE_CHECKING:
    from sightline.retrieval.codes import CodesExplained


def open(at: str | Path | None = None, *, model: str | Path | Model | None = None) -> Collection:
    """Open a collection to search in.

    at: the collection's folder, or the folder of pictures that it is of; by default the nearest to the current folder.
    model: where the model is that made it, if it is neither where it was nor the bundled one.

    >>> import tempfile, sightline
    >>> from PIL import Image
    >>> photos = Path(tempfile.mkdtemp())
    >>> for colour in ("red", "green", "blue"):
    ...     Image.new("RGB", (40, 30), colour).save(photos / f"{colour}.png")
    >>> sightline.index(photos, model=tiny_bundle).new
    3
    >>> with sightline.open(photos) as collection:
    ...     result = collection.search("a red square", k=2)
    >>> [hit.rank for hit in result]
    [1, 2]
    """
    return Collection.open(at, model)


def search(
    text: str | None = None,
    *,
    at: str | Path | None = None,
    model: str | Path | Model | None = None,
    **options: Any,
) -> SearchResult:
    """Open a collection, search it once, and close it; `options` are those of `Collection.search`.

    >>> import tempfile, sightline
    >>> notes = Path(tempfile.mkdtemp()) / "notes.txt"
    >>> _ = notes.write_text("two cats")
    >>> report = sightline.index(notes, model=tiny_bundle)
    >>> sightline.search("two cats", at=report.at)[0].text
    'two cats'
    """
    with open(at, model=model) as collection:
        return collection.search(text, **options)


def explain(
    text: str,
    picture: str | Path | int,
    *,
    at: str | Path | None = None,
    model: str | Path | Model | None = None,
) -> Explanation:
    """Compare each word of a text with each part of a picture; `search.heat.draw` makes a picture of that.

    picture: a file, or the id of an item of the collection `at`. model: by default, for an item the collection's, and
    for a file the bundled one.

    >>> import tempfile, sightline
    >>> from PIL import Image
    >>> photo = Path(tempfile.mkdtemp()) / "red.png"
    >>> Image.new("RGB", (40, 30), "red").save(photo)
    >>> [match.word for match in sightline.explain("a red square", photo, model=tiny_bundle).words]
    ['a', 'red', 'square']
    """
    from sightline.collection.indexing.shards_and_urls import (
        source_of,  # brings every reader of captioned images, which no search needs
    )

    if not isinstance(picture, int):
        return explain_picture(text, ImageFile(Path(picture)), _opened(model or "default"))
    with open(at, model=model) as collection:
        if collection.kind != "images":
            raise CollectionError(f"{collection.at}: its items are texts, which have no parts", "Give a picture.")
        source = source_of(collection.item(picture).files[0])
        stored = collection.store.fetch(np.array([picture], dtype=np.int64), "fragments")
        return explain_picture(text, source, collection.model, stored.values[0][stored.mask[0]])


def explain_codes(
    text: str, picture: str | Path | int, *, model: str | Path | Model, at: str | Path | None = None
) -> "CodesExplained":
    """Tell what each code of a checkpoint attends to in a text and in a picture; `search.codes.draw` draws it.

    picture: a file, or the id of an item of the collection `at`. model: the checkpoint, of a model that has codes.
    """
    from sightline.retrieval.codes import explain_codes as explain_codes_of

    opened = _opened(model)
    if not isinstance(picture, int):
        return explain_codes_of(text, ImageFile(Path(picture)), opened)
    with open(at) as collection:
        return explain_codes_of(text, ImageFile(collection.item(picture).files[0].where), opened)


def _opened(model: str | Path | Model) -> Model:
    return load(model) if isinstance(model, str | Path) else model
