"""A model shared by many requests: texts are encoded in batches, and matches run one after another."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from copy import copy
from typing import Any, NamedTuple, TypeVar

import numpy as np

from sightline.arrays import BoolArray, Float32Array, FloatArray
from sightline.bundle.encoded import Encoded, stacked
from sightline.bundle.model import Ability, Calibration, Defaults, Graph, Model
from sightline.bundle.relevance_formula import PairRelevance
from sightline.bundle.tokenizer import Tokenizer
from sightline.bundle.words import Words
from sightline.device import Device
from sightline.media import ImageInput
from sightline.parallel import usable_cpus
from sightline.server.batcher import Batcher
from sightline.server.limits import Limits
from sightline.server.worker_pool import stop_if_cancelled

R = TypeVar("R")

_PROBES = ("two dogs run along a beach", "a beach along two run dogs")  # the same length in words and in tokens
_TOLERANCE: dict[Device, float] = {"cpu": 1e-5, "gpu": 2e-3}  # on a GPU, the last digits depend on the batch


class _Text(NamedTuple):
    """A text to encode, and the model that encodes it; texts with the same model are batched."""

    text: str
    encoder: Model


class SharedModel(Model):
    """A model shared by threads that each wait for their own result.

    encoder: the model that encodes batches of texts. most: maximum number of texts per batch. workers: number of
    batches that may run at the same time; each gets its share of the CPUs, so that none waits for another.

    Texts from different callers are batched with others of similar length. Matching and encoding images gain nothing
    from larger batches; they run one at a time, in order of arrival, with all CPUs. Texts can be encoded while a match
    is running.
    """

    def __init__(self, model: Model, limits: Limits, note: Callable[[int], None] | None = None) -> None:
        self._model = model.prefer_gpu()
        per_thread = self._model.with_threads(1)
        self.workers = limits.encoders or per_thread.concurrency
        self.encoder = self._model.with_threads(max(1, usable_cpus() // self.workers))
        self._in_language: dict[str, SharedModel] = {}
        self.most = limits.batch if limits.batch > 1 and _rows_are_independent(self.encoder) else 1
        self._texts: Batcher[_Text, Encoded] = Batcher(
            _encode_together,
            most=self.most,
            gather_seconds=limits.gather_ms / 1000,
            workers=self.workers,
            kind=lambda one: id(one.encoder),
            size=lambda one: len(one.text),
            note=note,
        )
        self._turns = {
            name: ThreadPoolExecutor(1, thread_name_prefix=f"sightline-{name}") for name in ("image", "match")
        }

    @property
    def name(self) -> str:
        """The name of the shared model."""
        return self._model.name

    @property
    def sha256(self) -> str:
        """The hash that identifies the shared model."""
        return self._model.sha256

    @property
    def abilities(self) -> frozenset[Ability]:
        """What the model can do."""
        return self._model.abilities

    @property
    def preprocess(self) -> ImageInput:
        """How to resize and normalise images for the model."""
        return self._model.preprocess

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer for its texts."""
        return self._model.tokenizer

    @property
    def defaults(self) -> Defaults:
        """The default stages and fusion of a search."""
        return self._model.defaults

    @property
    def relevance(self) -> PairRelevance | None:
        """Estimates how likely it is that an image shows what a text describes; None if it was not fitted."""
        return self._model.relevance

    @property
    def fast_relevance(self) -> PairRelevance | None:
        """Like `relevance`, for images that the fast image graph encoded."""
        return self._model.fast_relevance

    @property
    def calibration(self) -> Mapping[str, Calibration]:
        """How older bundles map scores to relevance, by stage."""
        return self._model.calibration

    @property
    def words(self) -> Words:
        """The words that the model was trained on."""
        return self._model.words

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages that the model reads."""
        return self._model.languages

    def for_language(self, lang: str) -> "SharedModel":
        """Return this shared model with the text graph for a language; each batch uses one graph."""
        encoder = self.encoder.for_language(lang)
        if encoder is self.encoder:
            return self
        if lang not in self._in_language:
            other = copy(self)
            other._model, other.encoder = self._model.for_language(lang), encoder
            self._in_language.setdefault(lang, other)
        return self._in_language[lang]

    @property
    def grid(self) -> tuple[int, int] | None:
        """Rows and columns of the grid that an image's first fragments form."""
        return self._model.grid

    @property
    def device(self) -> Device:
        """The device that the model runs on."""
        return self._model.device

    def fast_variant(self) -> Model | None:
        """Return the model with its fast image graph, which is not shared; None if it has none."""
        return self._model.fast_variant()

    def prepare(self, *graphs: Graph, wait: bool = False) -> None:
        """Start loading graphs, except for the text graph, which the encoder has already loaded."""
        self._model.prepare(*(graph for graph in graphs if graph != "text"), wait=wait)

    def encode_texts(self, texts: Sequence[str]) -> Encoded:
        """Encode texts, batched with those of other callers."""
        stop_if_cancelled()
        futures = [self._texts.submit(_Text(text, self.encoder)) for text in texts]
        return stacked([future.result() for future in futures])

    def encode_images(self, pixels: Float32Array) -> Encoded:
        """Encode normalised pixels [batch, 3, size, size] for one caller at a time."""
        return self._in_turn("image", self._model.encode_images, pixels)

    def match(
        self, text_states: FloatArray, text_mask: BoolArray, image_states: FloatArray, image_mask: BoolArray
    ) -> Float32Array:
        """Return the logits [batch] for how well text i and image i match, computed for one caller at a time."""
        return self._in_turn("match", self._model.match, text_states, text_mask, image_states, image_mask)

    def word_cosines(
        self, text_states: FloatArray, text_mask: BoolArray, image_states: FloatArray, image_mask: BoolArray
    ) -> Float32Array | None:
        """Return the matcher's cosines between words and parts of an image, computed for one caller at a time."""
        return self._in_turn("match", self._model.word_cosines, text_states, text_mask, image_states, image_mask)

    def warm_up(self) -> None:
        """Load what every search needs, before the first search."""
        self.encode_texts(["a"])
        if "match" in self.abilities:
            self.prepare("match", wait=True)

    def close(self) -> None:
        """Finish work in progress, and stop the threads."""
        self._texts.close()
        for pool in self._turns.values():
            pool.shutdown()

    def _in_turn(self, name: str, work: Callable[..., R], *arguments: Any) -> R:
        def unless_cancelled() -> R:
            stop_if_cancelled()
            return work(*arguments)

        return self._turns[name].submit(copy_context().run, unless_cancelled).result()


def _encode_together(texts: list[_Text]) -> list[Encoded]:
    encoded = texts[0].encoder.encode_texts([one.text for one in texts])
    return [encoded.row(number) for number in range(len(texts))]


def _rows_are_independent(model: Model) -> bool:
    """Return whether a text gets the same embedding in a batch as alone, which some kinds of quantisation prevent."""
    together = model.encode_texts(_PROBES).embedding
    alone = np.concatenate([model.encode_texts([probe]).embedding for probe in _PROBES])
    return bool(np.abs(together - alone).max() < _TOLERANCE[model.device])
