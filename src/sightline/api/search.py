"""Index, search and explain: `load`, `open`, `index`, `search`, `explain` and `explain_codes`."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sightline.errors import CollectionError, OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np

    from sightline.bundle.model import Model
    from sightline.collection.collection import Collection
    from sightline.collection.indexing.report import Report
    from sightline.explanations.explain import CodesExplained, Explanation
    from sightline.fusion_names import FusionRule
    from sightline.media import ImageLike, ImageSource
    from sightline.retrieval.results import SearchResult


def load(model: str | Path = "default", *, prefer_gpu: bool = False) -> Model:
    """Open a model, ready to encode and match.

    model: `default` (the one that ships with Sightline), `fast` (the same with a smaller, faster image graph), the
        folder of a bundle, of a checkpoint or of a published model such as CLIP (the latter two need the extra
        `train`), or `hf:NAME` (any of these on the Hugging Face hub, downloaded once). A bundle's folder or
        `hf:NAME` may end in `:fast`.
    prefer_gpu: run a bundle on the GPU, if there is one and torch is installed; worthwhile for jobs that take minutes.

    >>> import sightline
    >>> model = sightline.load()
    >>> model.encode_texts(["a dog on a beach"]).embedding.shape
    (1, 512)
    """
    from sightline.registry.loader import load

    return load(model, prefer_gpu=prefer_gpu)


def open(at: str | Path | None = None, *, model: str | Path | Model | None = None) -> Collection:
    r"""Open a collection for searching.

    at: the collection's folder, or the folder of images that contains it; by default the collection nearest to
        the current folder. On a machine that did not index the collection, the URL of its store.
    model: the model that indexed the collection, if that model has moved and is not the default one.

    >>> import sightline, tempfile
    >>> from pathlib import Path
    >>> notes = Path(tempfile.mkdtemp()) / "notes.txt"
    >>> _ = notes.write_text("two cats\na red bus\n")
    >>> at = sightline.index(notes).at
    >>> with sightline.open(at) as collection:
    ...     print(len(collection), [hit.text for hit in collection.search("a bus", k=1)])
    2 ['a red bus']
    """
    from sightline.collection.collection import Collection

    return Collection.open(at, model)


def index(
    folders: Sequence[str | Path] | str | Path = (),
    *,
    at: str | Path | None = None,
    model: str | Path | Model | None = None,
    progress: Callable[[int, int], None] | None = None,
    wait: bool | float = True,
    notify: Callable[[str], None] | None = None,
    prune: bool = False,
    retry: bool = False,
    workers: str | None = None,
    store: str | None = None,
    quick: bool = False,
    refine: bool = False,
) -> Report:
    """Index folders of images, or text files, into a collection; unchanged files are not read again.

    folders: one or several; if empty, everything that the collection at `at` contains. Images may also be in shards
        (`.tar`), or at the URLs listed in a `.urls` file. Texts are the lines of a `.txt` file, or of a `.jsonl` file
        with `text` or `caption` and optionally `id`.
    at: the collection's folder; by default `.sightline` in the folder that is indexed. If other files are in the folder
        that you name, a new collection goes into `.sightline` inside it.
    model: as for `load`; by default the model that indexed the collection, and `default` for a new one.
    progress: called with the number of files done, and the number of files to read.
    wait: whether to wait if another process is indexing the same collection, or for how many seconds.
    notify: called with a message if indexing has to wait, or finds damage; by default, messages are logged.
    prune: remove missing files, even when a whole folder is missing.
    retry: try again to read files that could not be read before.
    workers: `ray` or `ray://HOST:PORT` to read and encode on a Ray cluster.
    store: `milvus://HOST:PORT/NAME` or `postgresql://USER@HOST:PORT/DATABASE/NAME` to keep the vectors of a new
        collection on a server.
    quick: encode new images with the model's fast image graph; they can be refined later.
    refine: afterwards, use the full graph to re-encode the images that the fast one encoded, newest first.

    Unreadable files are listed in the report and do not stop the run. Ctrl-C raises `IndexingInterrupted` with the
    report so far; finished work is kept, and the next run continues.

    >>> import sightline, tempfile
    >>> from PIL import Image
    >>> folder = tempfile.mkdtemp()
    >>> Image.new("RGB", (40, 30), "red").save(f"{folder}/red.png")
    >>> sightline.index(folder).new
    1
    """
    from sightline.collection.indexing.sync import index

    return index(
        folders,
        at=at,
        model=model,
        progress=progress,
        wait=wait,
        notify=notify,
        prune=prune,
        retry=retry,
        workers=workers,
        store=store,
        quick=quick,
        refine=refine,
    )


def search(
    text: str | None = None,
    *,
    at: str | Path | Sequence[str | Path] | None = None,
    model: str | Path | Model | None = None,
    image: ImageLike | None = None,
    image_weight: float = 0.5,
    not_: str | Sequence[str] = (),
    where: str | None = None,
    k: int = 10,
    start: int = 0,
    late: int | Literal["all"] | None = None,
    late_fragments: int | None = None,
    rerank: int | None = None,
    fusion: FusionRule | None = None,
    weight: float | None = None,
    min_relevance: float | None = None,
    budget_ms: float | None = None,
    duplicates: Literal["fold", "show"] = "fold",
    lang: str | None = None,
) -> SearchResult:
    """Open a collection, or several, search once, and close.

    at, model: as for `open`; a list of several is searched as one collection, if the same model indexed all of them.
    For the options see `Collection.search`. To search more than once, `open` a collection.

    >>> import sightline, tempfile
    >>> from PIL import Image
    >>> folder = tempfile.mkdtemp()
    >>> for colour in ("red", "green", "blue"):
    ...     Image.new("RGB", (40, 30), colour).save(f"{folder}/{colour}.png")
    >>> _ = sightline.index(folder)
    >>> sightline.search("something green", at=folder)[0].path
    'green.png'
    >>> sightline.search(image=Image.new("RGB", (50, 50), "red"), at=folder)[0].path
    'red.png'
    """
    from sightline.collection.group import check_group, search_group
    from sightline.collection.locate import resolve_location
    from sightline.retrieval.options import SearchOptions

    options = SearchOptions(
        text=text,
        image=image,
        image_weight=image_weight,
        not_=not_,
        where=where,
        k=k,
        start=start,
        late=late,
        late_fragments=late_fragments,
        rerank=rerank,
        fusion=fusion,
        weight=weight,
        min_relevance=min_relevance,
        budget_ms=budget_ms,
        duplicates=duplicates,
        lang=lang,
    )
    several = [at] if at is None or isinstance(at, str | Path) else at
    if not several:
        raise OptionError("at", "names no collection", "Leave it out to search the nearest one.")
    with ExitStack() as opened:
        places = dict.fromkeys(resolve_location(place) for place in several)
        collections = [opened.enter_context(open(place, model=model)) for place in places]
        check_group(collections)
        return search_group(collections, options).flat()


def explain(
    text: str,
    image: ImageLike | int | np.integer[Any],
    *,
    at: str | Path | None = None,
    model: str | Path | Model | None = None,
    lang: str | None = None,
) -> Explanation:
    """Compare each word of a text with each part of an image; `explanations.heatmap.draw` draws the result.

    image: a path, bytes, a binary file, a PIL image or an array; or the id of an item of the collection `at`.
    model: as for `load`. By default the collection's model for an item, and the default model for an image.
    lang: the language of the text, such as `de`; by default it is recognised.

    >>> import sightline
    >>> from PIL import Image
    >>> found = sightline.explain("a red square", Image.new("RGB", (40, 30), "red"))
    >>> [match.word for match in found.words], found.words[0].grid.shape
    (['a', 'red', 'square'], (7, 7))
    """
    import numpy as np

    from sightline.collection.item_ids import check_id
    from sightline.explanations.explain import explain_image, image_encoder, stored_image
    from sightline.media import image_source
    from sightline.retrieval.language import in_language
    from sightline.retrieval.query import check_readable

    check_readable(text)
    if not isinstance(image, int | np.integer):
        return explain_image(text, image_source(image), in_language(_opened(model or "default"), lang, text)[0])
    with open(at, model=model) as collection:
        image = check_id(image)
        source = _source(collection, image)
        reader, _ = in_language(collection.model, lang, text)
        encoder = image_encoder(collection.store, image, collection.model)
        return explain_image(text, source, reader, stored_image(collection.store, image), encoder)


def explain_codes(
    text: str, image: ImageLike | int | np.integer[Any], *, at: str | Path | None = None, model: str | Path | Model
) -> CodesExplained:
    """Show what each code of a checkpoint attends to in a text and in an image; `explanations.heatmap.draw` draws it.

    Needs torch: `pip install 'sightline-search[train]'`.

    image: a path, bytes, a binary file, a PIL image or an array; or the id of an item of the collection `at`.
    model: a checkpoint with codes.

    >>> import sightline, tempfile
    >>> from PIL import Image
    >>> from sightline.demo.training import tiny_recipe
    >>> folder = tempfile.mkdtemp()
    >>> trained = sightline.train(tiny_recipe(folder, codes=2), f"{folder}/run")
    >>> found = sightline.explain_codes("a red square", Image.new("RGB", (16, 16), "red"), model=trained.folder)
    >>> found.to_words.shape
    (2, 3)
    """
    import numpy as np

    from sightline.collection.item_ids import check_id
    from sightline.explanations.explain import explain_codes
    from sightline.media import image_source

    opened = _opened(model)
    if not isinstance(image, int | np.integer):
        return explain_codes(text, image_source(image), opened)
    with open(at) as collection:
        return explain_codes(text, _source(collection, check_id(image)), opened)


def _source(collection: Collection, id: int) -> ImageSource:
    """Return the source to read an item's image from; raises an error if the collection contains texts."""
    from sightline.collection.indexing.shards_and_urls import source_of  # imports all readers of captioned images

    if collection.kind != "images":
        raise CollectionError(
            f"{collection.at}: contains texts, and only images can be explained",
            "Pass an image, or the id of an item in a collection of images.",
        )
    return source_of(collection.item(id).files[0])


def _opened(model: str | Path | Model) -> Model:
    return load(model) if isinstance(model, str | Path) else model
