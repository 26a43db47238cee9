"""The operations of the server, without HTTP: each method handles one kind of request in a worker thread."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from sightline.bundle import Model
from sightline.bundle.encoded import Encoded
from sightline.collection import Collection, Item
from sightline.collection.group import merge, search_group
from sightline.collection.query_text.spelling import check_wording
from sightline.errors import ModelError, StoreError
from sightline.explanations.explain import explain, image_encoder, seen_box, stored_image
from sightline.media import ImageBytes, ImageSource, RegionConfig, require_pixels, to_input
from sightline.media.source import PreparedImage
from sightline.parallel import usable_cpus
from sightline.retrieval.fusion import fuse
from sightline.retrieval.language import in_language, language_of
from sightline.retrieval.relevance import relevance
from sightline.retrieval.stages import resolve
from sightline.server import answers
from sightline.server.batcher import Batcher
from sightline.server.current_collection import CurrentCollection
from sightline.server.decoders import DecoderPool
from sightline.server.examples import SHOWN, Examples
from sightline.server.image_files import ImageContent, Thumbnails, camera, content_hash, etag, original_image
from sightline.server.library import Library
from sightline.server.limits import Limits
from sightline.server.metrics import Metrics
from sightline.server.problems import RefusedError, not_found, unavailable
from sightline.server.requests import Embed, Match, Search, decoded
from sightline.server.shared_model import SharedModel
from sightline.server.similar import similar
from sightline.server.videos import VideoFile, nearest_moment, open_video, video_frame
from sightline.server.worker_pool import BatchedPool, WorkerPool
from sightline.stores.base import PaddedVectors, Part

_QUICK, _SLOW = 32, 32
_FRAME_QUALITY = 90
HasTag = Callable[[str], bool]
"""A function that tells whether the client already has the version with a given tag."""


class Service:
    """Collections and their model, and the thread pools that process requests.

    together: searches by text embedding alone, which take milliseconds, and even less in batches.
    quick: other requests that are as fast. slow: everything that uses the matcher or an uploaded image.
    images: files and thumbnails.
    """

    def __init__(
        self, library: Library | CurrentCollection, model: SharedModel, limits: Limits, metrics: Metrics
    ) -> None:
        self.library = library if isinstance(library, Library) else Library([library])
        self.model, self.limits, self.metrics = model, limits, metrics
        self.decoders = DecoderPool(limits)
        self.thumbnails = Thumbnails(limits, self.decoders)
        self._examples = Examples()
        self.together: BatchedPool[Search, dict[str, Any]] = BatchedPool(
            Batcher(
                self._search_together,
                most=model.most,
                gather_seconds=limits.gather_ms / 1000,
                workers=model.workers,
                kind=lambda asked: (asked.k, asked.min_relevance, asked.duplicates, asked.lang),
                size=lambda asked: len(asked.q),
                note=metrics.batch,
            ),
            _QUICK + limits.waiting,
        )
        self.quick = WorkerPool("quick", _QUICK, limits.waiting)
        self.slow = WorkerPool("slow", _SLOW, limits.waiting)
        self.images = WorkerPool("images", usable_cpus(), limits.waiting)

    def close(self) -> None:
        """Finish requests in progress, and stop all threads."""
        for pool in (self.together, self.quick, self.slow, self.images):
            pool.close()
        self.decoders.close()
        self.model.close()

    async def found(self, asked: Search, image: ImageBytes | None = None) -> dict[str, Any]:
        """Search by text, an image or both, in the appropriate pool."""
        pool = self.pool_of(asked, image)
        if pool is self.quick and asked.is_plain:
            lang = asked.lang or language_of(asked.q, self.model)
            return await self.together.run(asked.model_copy(update={"lang": lang}))
        return await pool.run(self.search, asked, image)

    def pool_of(self, search: Search, image: ImageBytes | None = None) -> WorkerPool:
        """Return the pool for a search: slow if it uses a matcher, late interaction or an image."""
        plan = resolve(search.options(image), self.model)
        return self.slow if plan.late or plan.rerank or image else self.quick

    def search(self, asked: Search, image: ImageBytes | None = None) -> dict[str, Any]:
        """Search by text, an image or both."""
        prepared = None if image is None else self._prepared(image)
        with self.library.use() as members:
            items = sum(len(member.collection) for member in members) if asked.late == "all" else 0
            if items > self.limits.late_all:
                raise RefusedError(
                    422, f"late cannot be 'all' for {items:,} items", f"Use a number up to {self.limits.late:,}."
                )
            collections = [member.collection for member in members]
            filters = [member.own_filter(asked.where) for member in members]
            result = search_group(collections, asked.options(prepared), self.model, filters=filters)
            self.metrics.search(result.about.took_ms)
            return answers.search_answer(result, members)

    def _search_together(self, asked: list[Search]) -> list[dict[str, Any]]:
        """Run searches that differ only in their text, and whose language was already recognised if possible."""
        first = asked[0]
        options: dict[str, Any] = {
            "min_relevance": first.min_relevance,
            "duplicates": first.duplicates,
            "lang": first.lang,
        }
        with self.library.use() as members:
            texts = [one.q for one in asked]
            found = [
                member.collection.search_together(texts, k=first.k, model=self.model.encoder, **options)
                for member in members
            ]
            results = [merge(own, one.options()) for own, one in zip(zip(*found, strict=True), asked, strict=True)]
            for result in results:
                self.metrics.search(result.about.took_ms)
            return [answers.search_answer(result, members) for result in results]

    def item(self, id: int) -> dict[str, Any]:
        """Return the metadata of an item."""
        with self.library.holding(id) as (member, own):
            item = _item(member.collection, own)
            found = answers.item_answers([item], member)[0]
            moments = member.collection.catalog.moments() if item.is_video else None
            seconds = {"moments": list(moments.of([item.id])[item.id].values())} if moments else {}
            return {**found, **seconds, **answers.album_names(member.collection, own)}

    def image(self, id: int, version: str | None, at: float | None, known: HasTag) -> tuple[str, ImageContent | None]:
        """Return the tag of an item's image, and the image unless `known` says that the client has it.

        at: for a video, the moment to show, in seconds.
        """
        with self.library.holding(id) as (member, own):
            collection, item = member.collection, _item_at(member.collection, own, version, at)
            tag = etag(collection, item, "image" if item.moment is None else f"image-{item.moment:g}")
            if known(tag):
                return tag, None
            if item.is_video:
                return tag, ImageContent("image/jpeg", self._frame(collection, item)(None, _FRAME_QUALITY))
            return tag, original_image(collection, item, self.limits, self.decoders)

    def thumbnail(
        self, id: int, version: str | None, at: float | None, side: int, known: HasTag
    ) -> tuple[str, ImageContent | None]:
        """Return the tag of an item's thumbnail, and the thumbnail unless `known` says that the client has it."""
        with self.library.holding(id) as (member, own):
            collection, item = member.collection, _item_at(member.collection, own, version, at)
            side = self.thumbnails.longer_side(item, side)
            tag = etag(collection, item, str(side) if item.moment is None else f"{side}-{item.moment:g}")
            frame = self._frame(collection, item) if item.is_video else None
            return tag, None if known(tag) else self.thumbnails.get(collection, item, side, frame)

    def video(self, id: int, version: str | None) -> tuple[str, VideoFile]:
        """Return the tag of a video, and its open file."""
        with self.library.holding(id) as (member, own):
            item = _item_at(member.collection, own, version)
            return etag(member.collection, item, "video"), open_video(member.collection, item, self.limits)

    def _frame(self, collection: Collection, item: Item) -> Callable[[int | None, int], bytes]:
        """Return a function that encodes the video frame at the item's moment as a JPEG."""

        def frame(side: int | None, quality: int) -> bytes:
            return video_frame(collection, item, self.limits, self.decoders, side, quality)

        return frame

    def text(self, id: int, query: str) -> dict[str, Any]:
        """Return the text in an item's image, and the positions of a query's words in it."""
        with self.library.holding(id) as (member, own):
            _item(member.collection, own)
            return {"id": id, "lines": [line._asdict() for line in member.collection.text_in(own, query)]}

    def camera(self, id: int) -> dict[str, str]:
        """Return the camera data in an item's image."""
        with self.library.holding(id) as (member, own):
            item = _item(member.collection, own)
            return {} if item.is_video else camera(member.collection, item, self.limits, self.decoders)

    def similar(self, id: int, k: int) -> dict[str, Any]:
        """Return the items most similar to an item."""
        with self.library.holding(id) as (member, own), self.library.use() as members:
            place = next((place for place, one in enumerate(members) if one.number == member.number), None)
            if place is None:  # its folder has just been deleted
                raise unavailable()
            hits, took_ms = similar([one.collection for one in members], place, own, k)
            shown = answers.group_hit_answers(hits, members)
            spent = {part: round(ms, 2) for part, ms in took_ms.items()}
            return {"query": f"like item {id}", "took_ms": spent, "hits": shown}

    def explain(self, text: str, id: int, lang: str | None = None) -> dict[str, Any]:
        """Return how similar each part of an item's image is to each word of a text."""
        model, _ = in_language(self.model, lang, text)
        with self.library.holding(id) as (member, own):
            collection, item = member.collection, _item(member.collection, own)
            if collection.kind != "images" or not item.width or not item.height:
                raise RefusedError(422, f"item {id} is not an image, so there are no parts to compare")
            stored = _parts(collection, own)
            encoder = image_encoder(collection.store, own, self.model)
            words = explain(text, model.encode_texts([text]), model, stored, encoder)
            box = seen_box(require_pixels(encoder.preprocess), item.width, item.height)
        rows, columns = words[0].grid.shape
        return {
            "query": text,
            "id": id,
            "rows": rows,
            "columns": columns,
            "box": dict(zip(("left", "top", "right", "bottom"), box, strict=True)),
            "words": [word.to_json() for word in words],
        }

    def embed(self, asked: Embed) -> dict[str, Any]:
        """Embed texts and images."""
        model = self._reading(asked.lang)
        texts = model.encode_texts(asked.texts).embedding.tolist() if asked.texts else []
        images = [self._encoded(decoded(data)).embedding[0].tolist() for data in asked.images]
        with self.library.use() as members:
            dim = members[0].collection.store.shape.embedding
        return {"model": self.model.name, "dim": dim, "texts": texts, "images": images}

    def match(self, asked: Match) -> dict[str, Any]:
        """Match texts with images, pair by pair."""
        if "match" not in self.model.abilities:
            raise RefusedError(422, f"{self.model.name} has no matcher", "Use /v1/embed.")
        model, lang = self._reading(asked.lang), asked.lang or next(iter(self.model.languages), None)
        texts = model.encode_texts([pair.text for pair in asked.pairs])
        scores = []
        for row, pair in enumerate(asked.pairs):
            image = self._encoded(decoded(pair.image)) if pair.image else self._stored_item(pair.id or 0)
            scores.append(_score(model, pair.text, texts, row, image, lang))
        return {"model": self.model.name, "scores": scores}

    def _reading(self, lang: str | None) -> Model:
        """Return the model for texts in a language; by default the model's main language."""
        return self.model if lang is None else self.model.for_language(lang)

    def _stored_item(self, id: int) -> Encoded:
        with self.library.holding(id) as (member, own):
            return _stored_item(member.collection, own)

    def _encoded(self, image: ImageBytes) -> Encoded:
        return self.model.encode_images(to_input(self._prepared(image), self.model.preprocess)[None])

    def _prepared(self, image: ImageBytes) -> ImageSource:
        """Return an uploaded image as model input, decoded in another process."""
        wanted = self.model.preprocess
        if isinstance(wanted, RegionConfig):
            return image  # such a model refuses uploaded images without opening them
        return PreparedImage(image.name, self.decoders.pixels(image, wanted))

    def examples(self) -> list[str]:
        """Return a few searches with good results, taken from all collections in turn."""
        with self.library.use() as members:
            found = [self._examples.of(member.collection, self.model.encoder) for member in members]
        longest = max(map(len, found))
        return list(dict.fromkeys(own[place] for place in range(longest) for own in found if place < len(own)))[:SHOWN]

    def about(self) -> dict[str, Any]:
        """Return the collections, and what their model can do."""
        from sightline import __version__

        with self.library.use() as members:
            every = [
                {"name": answers.collection_name(member.collection), "items": len(member.collection)}
                for member in members
            ]
            return {
                "kind": members[0].collection.kind,
                "items": sum(len(member.collection) for member in members),
                "to_refine": sum(member.collection.to_refine() for member in members),
                "model": self.model.name,
                "abilities": sorted(self.model.abilities),
                "languages": list(self.model.languages),
                "version": __version__,
                **({"collections": every} if len(members) > 1 else {}),
                **answers.text_counts(members),
            }


def _score(model: Model, text: str, texts: Encoded, row: int, image: Encoded, lang: str | None) -> dict[str, Any]:
    if texts.states is None or image.states is None:
        raise ModelError(f"{model.name} returned no states to match", "Use /v1/embed.")
    own = slice(row, row + 1)
    logit = model.match(texts.states[own], texts.mask[own], image.states, image.mask)
    cosine = texts.embedding[own] @ image.embedding.T
    found = {"cosine": float(cosine[0, 0]), "logit": float(logit[0])}
    wording = check_wording(text, model.languages, lang=lang, knows_any=model.tokenizer.knows_any)
    chance = _relevance(model, text, cosine[0], logit) if wording.has_content else None
    return found if chance is None else {**found, "relevance": chance}


def _relevance(model: Model, text: str, cosine: Any, logit: Any) -> float | None:
    """Return the probability that an image matches a text, as in search results."""
    if model.relevance is not None:
        return round(float(model.relevance.of(text, cosine, model.words)[0]), 4)
    defaults, calibration = model.defaults, model.calibration.get("match")
    if calibration is None or defaults.fusion == "norm_add":
        return None
    return round(float(relevance(fuse(defaults.fusion, cosine, logit, defaults.weight), calibration)[0]), 4)


def _item(collection: Collection, id: int) -> Item:
    found = collection.items([id])
    if id not in found:
        raise not_found(id)
    return found[id]


def _item_at(collection: Collection, id: int, version: str | None, at: float | None = None) -> Item:
    """Return an item if its content matches its URL's version; for a video, at the moment nearest to `at`."""
    item = _item(collection, id)
    if version is not None and version != answers.version(content_hash(collection, item)):
        raise not_found(id)
    return replace(item, moment=nearest_moment(collection, item, at)) if item.is_video else item


def _stored(collection: Collection, id: int, part: Part) -> PaddedVectors:
    """Return the stored vectors of one part of an item; raises "not found" if it is deleted or not yet searchable."""
    if not getattr(collection.store.shape, part):
        raise RefusedError(422, f"the collection does not store {part}", "Index again with a model that produces them.")
    try:
        return collection.store.fetch(np.array([id], dtype=np.int64), part)
    except StoreError as error:
        raise not_found(id) from error


def _parts(collection: Collection, id: int) -> Encoded:
    """Return the stored parts of an item's image; raises "not found" if it is deleted or not yet searchable."""
    try:
        return stored_image(collection.store, id)
    except StoreError as error:
        raise not_found(id) from error


def _stored_item(collection: Collection, id: int) -> Encoded:
    _item(collection, id)
    if collection.kind != "images":
        raise RefusedError(422, f"item {id} is not an image", "Match it with an image that you send.")
    states = _stored(collection, id, "states")
    return Encoded(_stored(collection, id, "embedding").values[:, 0], states.mask, None, states.values)
