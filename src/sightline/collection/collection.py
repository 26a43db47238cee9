"""A collection of indexed items, opened for searching."""

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Literal, Self

from sightline.bundle.model import Model
from sightline.collection.albums import Albums
from sightline.collection.catalog.database import Catalog
from sightline.collection.catalog.files import File, Item
from sightline.collection.catalog.timeline import Timeline
from sightline.collection.catalog.where import compile_where
from sightline.collection.image_text.database import TextDatabase
from sightline.collection.image_text.words import MarkedLine, marked, query_words, split_quotes
from sightline.collection.item_ids import check_id, check_ids
from sightline.collection.locate import model_for_collection, resolve_location
from sightline.collection.locks import ReadWriteLock
from sightline.collection.manifest import Manifest, check_model, read_manifest
from sightline.collection.query_text.phrases import Understood, understand
from sightline.collection.search import CollectionSearch
from sightline.collection.vectors import open_vectors
from sightline.errors import CollectionError, OptionError
from sightline.fusion_names import FusionRule
from sightline.media import ImageLike
from sightline.retrieval.cascade import Cascade
from sightline.retrieval.costs import Costs
from sightline.retrieval.duplicates import Duplicates
from sightline.retrieval.language import language_of
from sightline.retrieval.options import SearchOptions, check_whole
from sightline.retrieval.query import Encode, ItemKind, check_readable, encode
from sightline.retrieval.results import SearchResult
from sightline.stores.base import RemoteStore, Store


class Collection:
    """An open collection: `catalog` contains the items, `store` their vectors.

    Any number of processes can read it while another one indexes, without blocking each other. It can be shared
    between threads.
    """

    def __init__(
        self,
        at: Path | str,
        manifest: Manifest,
        catalog: Catalog,
        store: Store,
        model: str | Path | Model | None = None,
        *,
        prefer_gpu: bool = False,
    ) -> None:
        self.at = at
        self.manifest = manifest
        self.catalog = catalog
        self.store = store
        self.costs = Costs(manifest.sha256)
        self._wanted_model, self._prefer_gpu = model, prefer_gpu
        self._model: Model | None = None
        self._timeline: tuple[int | None, Timeline] | None = None  # with the version of the catalog
        self._text: TextDatabase | None = None
        self._cancelled: Callable[[], bool] | None = None
        self._is_open = True
        self._loading = threading.Lock()
        self._lock = ReadWriteLock()

    @classmethod
    def open(
        cls, at: str | Path | None = None, model: str | Path | Model | None = None, *, prefer_gpu: bool = False
    ) -> "Collection":
        """Open a collection for reading.

        at: its folder, or the folder of images that contains it; by default the nearest one, in the current folder or
            one of its parents. On a machine that did not index it, the URL of its store.
        model: the model that indexed it, as an object or as `load` accepts it; by default it is located on first use.
        prefer_gpu: keep a copy of the embeddings on a GPU, if there is one; for collections that are searched often.
        """
        place = resolve_location(at)
        if isinstance(place, str):
            from sightline.collection.remote.access import open_remote
            from sightline.collection.remote.shared_catalog import SharedCatalog

            manifest, remote = open_remote(place)
            return cls(place, manifest, SharedCatalog(remote), remote, model)
        manifest = read_manifest(place)
        catalog, store = _open_files(place, manifest, prefer_gpu)
        return cls(place, manifest, catalog, store, model, prefer_gpu=prefer_gpu)

    def __len__(self) -> int:
        return len(self.catalog)

    def __repr__(self) -> str:
        about = f"{len(self):,} {self.kind}, model {self.manifest.model}" if self._is_open else "closed"
        return f"Collection({str(self.at)!r}: {about})"

    @property
    def kind(self) -> ItemKind:
        """Whether the items are images or texts."""
        return self.manifest.kind

    @property
    def model(self) -> Model:
        """The model that indexed the collection, opened on first use; any other model is refused."""
        with self._loading:
            if self._model is None:
                self._model = model_for_collection(self.at, self.manifest, self._wanted_model)
            return self._model

    def search(
        self,
        text: str | None = None,
        *,
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
        duplicates: Duplicates = "fold",
        lang: str | None = None,
        model: Model | None = None,
    ) -> SearchResult:
        """Find the k items that best match a text, an image or both.

        text, image: what to find. An image is a path, the bytes of a file, an open binary file, a PIL image or an array
            of uint8.
        image_weight: if both are given, how much the image counts, 0 to 1.
        not_: descriptions of what results should not show; one or several.
        where: a filter, such as `taken >= '2023-06-01' and path like 'holiday/%'`.
        k, start: number of results, and number of results to skip.
        late: rescore this many of the best items by late interaction, or `all` of them. The model sets the default.
        late_fragments: use only the first fragments of the query and of each item, at most this many.
        rerank: rescore this many of the best items with the matcher; 0 is fastest. The model sets the default.
        fusion, weight: how the matcher's score and the cosine are combined. The model sets the defaults.
        min_relevance: hide results below this relevance, 0 to 1.
        budget_ms: how long the search may take; `late` and `rerank` are then upper limits.
        duplicates: `fold` combines images that look the same into one result, `show` shows all of them.
        lang: the language of the text, such as `de`, one of `model.languages`; by default it is recognised.
        model: the collection's model, if already open.

        If the text in the images was read, a result must contain the phrases of `text` that are in "quotes". Without
        quotes, images that contain the words are merged with images that look like what they describe.

        Images are matched with texts, and texts with images. If the query is of the same kind as the items,
        they are ranked by embeddings alone, and the relevance is unknown.
        """
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
        return self.run(options, model)

    def run(self, options: SearchOptions, model: Model | None = None, encode: Encode = encode) -> SearchResult:
        """Search with prepared options; see `search`. encode: encodes the query."""
        with self._lock.read():
            return self._search(model, encode).run(options)

    @property
    def image_text(self) -> TextDatabase | None:
        """The text read from the collection's images; None if it was not read."""
        if self._text is None and isinstance(self.at, Path) and self.kind == "images":
            with self._loading:
                if self._text is None:
                    self._text = TextDatabase.open(self.at)
                    if self._text and self._cancelled:
                        self._text.stop_when(self._cancelled)
        return self._text

    def stop_when(self, cancelled: Callable[[], bool]) -> None:
        """Interrupt running database queries when `cancelled`, which is called in their threads, returns True."""
        self._cancelled = cancelled
        self.catalog.stop_when(cancelled)

    def text_in(self, id: int, query: str = "") -> list[MarkedLine]:
        """Return the lines of text in an image, with the words of a query marked; empty if no text was read."""
        database, hash = self.image_text, self.catalog.hash_of(check_id(id))
        if database is None or hash is None:
            return []
        words, quoted = split_quotes(query)
        return marked(query_words(words), quoted, database.lines_of(hash))

    def search_together(
        self,
        texts: Sequence[str],
        *,
        k: int = 10,
        min_relevance: float | None = None,
        duplicates: Duplicates = "fold",
        lang: str | None = None,
        model: Model | None = None,
    ) -> list[SearchResult]:
        """Search for many texts at once: like `search` with `rerank=0` for each, but faster.

        The texts are encoded in one batch. A bundle returns the same numbers as for single texts; a checkpoint
        pads the texts to the same length, so its numbers differ slightly.
        """
        if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
            raise OptionError("texts", f"must be several texts, not {texts!r}", "For one text, pass [text].")
        options = [
            SearchOptions(text, k=k, min_relevance=min_relevance, duplicates=duplicates, lang=lang) for text in texts
        ]
        with self._lock.read():
            return self._search(model).together(options)

    def _search(self, model: Model | None = None, encode: Encode = encode) -> CollectionSearch:
        """Return a search with the given model, which must match the collection, by default the collection's own."""
        if model is not None:
            self.check_model(model)

        def cascade() -> Cascade:
            fast = self.manifest.fast.relevance if self.manifest.fast else None
            return Cascade(model or self.model, self.store, self.kind, self.costs, fast_relevance=fast, encode=encode)

        return CollectionSearch(self.catalog, self.kind, cascade, self.image_text)

    def check_model(self, model: Model) -> None:
        """Raise an error if a model is not the one that indexed the collection."""
        if isinstance(model, str | Path):
            raise OptionError("model", f"must be an open model, not {str(model)!r}", "Pass it to `open` instead.")
        check_model(self.at, self.manifest, model)

    def item(self, id: int) -> Item:
        """Return the item with this id; raises an error if it does not exist."""
        id = check_id(id)
        found = self.items([id])
        if id not in found:
            raise CollectionError(f"{self.at}: no item has the id {id}", "It may have been deleted; search again.")
        return found[id]

    def items(self, ids: Sequence[int], where: str | None = None) -> dict[int, Item]:
        """Return the items with these ids; ids that do not exist or no longer have a file are left out.

        where: a filter; of an item with several files, those that match come first.
        """
        return self.catalog.items(check_ids(ids), None if where is None else compile_where(where))

    def stored_image(self, id: int) -> bytes | None:
        """Return the image that the store keeps of an item: a thumbnail or the file; None if there is none."""
        return self.store.picture(check_id(id)) if isinstance(self.store, RemoteStore) else None

    def understand(
        self, text: str, *, literal: Sequence[str] = (), today: date | None = None, lang: str | None = None
    ) -> Understood:
        """Extract dates, file names, folders and albums from a query; search for the result's `words` with its `where`.

        literal: phrases to keep as words. today: the reference date for phrases such as "last summer".
        lang: the language of the query, in which its words are then searched for, one of `model.languages`; by default
            it is recognised. Phrases that contain words, such as "last summer", are recognised only in English.
        """
        check_readable(text)
        if lang is not None:
            self.model.for_language(lang)  # raises an error if the model does not read it
        words, quoted = split_quotes(text)
        if quoted:  # quoted parts are searched for as they are
            left = self.understand(words, literal=literal, today=today, lang=lang) if words else Understood("")
            return replace(left, words=" ".join([left.words, *(f'"{part}"' for part in quoted)]).strip())

        def found(is_english: bool) -> Understood:
            return understand(
                text,
                today=today or date.today(),
                folders=self.catalog.folders(),
                albums=self.albums.all() if isinstance(self.at, Path) else (),
                matches=lambda where: len(self.catalog.ids_where(where)) > 0,
                literal=literal,
                is_english=is_english,
            )

        english = found(lang in (None, "en"))
        if lang is None and english.phrases and english.words:  # otherwise the language, and the model, do not matter
            lang = language_of(text, self.model)
        return replace(english if lang in (None, "en") else found(False), lang=lang)

    def timeline(self, where: str | None = None) -> Timeline:
        """Return all items, or those that match a filter, by time, newest first."""
        with self._lock.read():
            return self._by_time(where)

    def _by_time(self, where: str | None) -> Timeline:
        version, known = self.catalog.version(), self._timeline
        if isinstance(self.store, RemoteStore) and self.store.refresh():
            known = None
        if known is None or known[0] != version:
            known = self._timeline = version, Timeline.of(self.catalog)
        return known[1] if where is None else known[1].only(self.catalog.ids_where(where))

    def browse(self, where: str | None = None, *, k: int = 10, start: int = 0) -> list[Item]:
        """Return up to k items by time, newest first, after skipping `start`; with a filter, only those that match."""
        check_whole("k", k, 0)
        check_whole("start", start, 0)
        with self._lock.read():
            ids = [int(id) for id in self._by_time(where).ids[start : start + k]]
            found = self.items(ids, where)
        return [found[id] for id in ids if id in found]

    @property
    def albums(self) -> Albums:
        """The collection's albums; only collections in a folder have them."""
        if not isinstance(self.at, Path):
            raise CollectionError(
                f"{self.at}: has no albums", "Open the collection by its folder, on the machine that indexes it."
            )
        return Albums(self.at)

    def add_to_album(self, name: str, ids: Sequence[int]) -> list[int]:
        """Add items to an album, creating it if needed; returns the ids that no item has.

        To filter by it: `album = 'NAME'`.
        """
        ids = check_ids(ids)
        hashes = self.catalog.hashes_of(ids)
        self.albums.add(name, hashes.values())
        return [id for id in dict.fromkeys(ids) if id not in hashes]

    def remove_from_album(self, name: str, ids: Sequence[int]) -> list[int]:
        """Remove items from an album, and delete the album if it is then empty; returns the ids that no item has.

        Files are not deleted.
        """
        ids = check_ids(ids)
        hashes = self.catalog.hashes_of(ids)
        self.albums.remove(name, hashes.values())
        return [id for id in dict.fromkeys(ids) if id not in hashes]

    def delete_album(self, name: str) -> None:
        """Delete an album. Files are not deleted."""
        if not self.albums.delete(name):
            raise CollectionError(f"{self.at}: there is no album {name!r}", "Check its name: `sightline status`.")

    def album_sizes(self) -> dict[str, int]:
        """Return the number of items in each album, by its name; those whose files are missing do not count."""
        return {name: self.catalog.count_of(hashes) for name, hashes in self.albums.all().items()}

    def files(self) -> list[File]:
        """Return every readable file, ordered by root and path."""
        return self.catalog.files("ready")

    def broken(self) -> list[File]:
        """Return every file that could not be read, with the reason."""
        return self.catalog.files("broken")

    def to_refine(self) -> int:
        """Return the number of items that the model's fast image graph encoded; a video is one item."""
        return len(self.catalog.items_to_refine(self.store))

    def refresh(self) -> bool:
        """Load what was indexed since the collection was opened; False if nothing has changed.

        This includes a collection that was deleted and indexed again, whose items have other ids. If another model
        indexed it, an error is raised.
        """
        with self._lock.write():
            self._timeline = None
            if not isinstance(self.at, Path):
                return self.store.refresh()
            manifest = self._current_manifest(self.at)
            if self.catalog.is_replaced():
                self._reopen(self.at, manifest)
                return True
            has_changed = self.store.refresh()
            if has_changed:
                self.manifest = replace(self.manifest, fast=self._current_manifest(self.at).fast)
            return has_changed

    def _current_manifest(self, at: Path) -> Manifest:
        """Read the manifest again; raises an error if it belongs to a different collection."""
        manifest = read_manifest(at)
        if not manifest.is_like(self.manifest):
            raise CollectionError(
                f"{at}: was replaced by a collection of {manifest.kind} of the model {manifest.model} "
                f"({manifest.sha256[:12]}…)",
                "Open it again.",
            )
        return manifest

    def _reopen(self, at: Path, manifest: Manifest) -> None:
        """Open all files again. Threads that are still reading the old catalog finish with it; it is then closed."""
        catalog, store = _open_files(at, manifest, self._prefer_gpu)
        if self._cancelled:
            catalog.stop_when(self._cancelled)
        self.store.close()
        self.manifest, self.catalog, self.store, self._text = manifest, catalog, store, None

    def close(self) -> None:
        """Close the collection's files."""
        with self._lock.write():
            self._is_open = False
            self.store.close()
            self.catalog.close()
            if self._text is not None:
                self._text.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _open_files(at: Path, manifest: Manifest, prefer_gpu: bool) -> tuple[Catalog, Store]:
    """Open the catalog and the vectors of a collection for reading."""
    with ExitStack() as opened:
        catalog = opened.enter_context(closing(Catalog.open(at, trusted=manifest.is_trusted)))
        store = opened.enter_context(closing(open_vectors(at, manifest, prefer_gpu)))
        if catalog.is_replaced():
            raise CollectionError(f"{at}: was replaced while it was being opened", "Open it again.")
        opened.pop_all()
    return catalog, store
