"""A model that many requests use at once: texts are encoded together, and one match runs after another."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, TypeVar

import numpy as np

from sightline.arrays import BoolArray, Float32Array, FloatArray
from sightline.bundle.encoded import Encoded, stacked
from sightline.bundle.model import Ability, Calibration, Defaults, Graph, Model
from sightline.bundle.relevance import PairRelevance
from sightline.bundle.tokenizer import Tokenizer
from sightline.bundle.words import Words
from sightline.device import Device
from sightline.media import ImageInput
from sightline.parallel import usable_cpus
from sightline.server.batcher import Batcher
from sightline.server.limits import Limits
from sightline.server.worker_pool import stop_if_cancelled

R = TypeVar("R")

_PROBES = ("two dogs run along a beach", "a beach along two run dogs")  # of one length, however it is counted
_TOLERANCE: dict[Device, float] = {"cpu": 1e-5, "gpu": 2e-3}  # how a GPU cuts up a product changes its last digits


class SharedModel(Model):
    """A model whose callers are threads that each wait for their own answer.

    encoder: for callers with many texts. most: how many texts it may get at once. workers: how many such batches may
    run at the same time; each has its share of the CPUs, so that none waits for another.

    Texts of callers with few go to the encoder in batches of about the same length. Matching and encoding images gain
    nothing from larger batches; they take turns, first come, first served, each with all CPUs. Texts are encoded
    while a match is running.
    """

    def __init__(self, model: Model, limits: Limits, note: Callable[[int], None] | None = None) -> None:
        self._model = model.prefer_gpu()
        per_thread = self._model.with_threads(1)
        self.workers = limits.encoders or per_thread.concurrency
        self.encoder = self._model.with_threads(max(1, usable_cpus() // self.workers))
        self.most = limits.batch if limits.batch > 1 and _rows_are_independent(self.encoder) else 1
        self._texts: Batcher[str, Encoded] = Batcher(
            self._encode_together,
            most=self.most,
            gather_seconds=limits.gather_ms / 1000,
            workers=self.workers,
            size=len,
            note=note,
        )
        self._turns = {
            name: ThreadPoolExecutor(1, thread_name_prefix=f"sightline-{name}") for name in ("image", "match")
        }

    @property
    def name(self) -> str:
        """The name of the model that is shared."""
        return self._model.name

    @property
    def sha256(self) -> str:
        """Identifies the model that is shared."""
        return self._model.sha256

    @property
    def abilities(self) -> frozenset[Ability]:
        """What the model can do."""
        return self._model.abilities

    @property
    def preprocess(self) -> ImageInput:
        """How its images are sized and normalised."""
        return self._model.preprocess

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of its texts."""
        return self._model.tokenizer

    @property
    def defaults(self) -> Defaults:
        """The stages and the fusion of a search that does not name them."""
        return self._model.defaults

    @property
    def relevance(self) -> PairRelevance | None:
        """How likely an image shows what a text asks for."""
        return self._model.relevance

    @property
    def calibration(self) -> Mapping[str, Calibration]:
        """The relevance of older bundles, by stage."""
        return self._model.calibration

    @property
    def words(self) -> Words:
        """The words it was trained on."""
        return self._model.words

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages it reads."""
        return self._model.languages

    @property
    def grid(self) -> tuple[int, int] | None:
        """Rows and columns of an image's first fragments."""
        return self._model.grid

    @property
    def device(self) -> Device:
        """Where it runs."""
        return self._model.device

    def prepare(self, *graphs: Graph, wait: bool = False) -> None:
        """Begin to load graphs; that of texts was loaded by the encoder."""
        self._model.prepare(*(graph for graph in graphs if graph != "text"), wait=wait)

    def encode_texts(self, texts: Sequence[str]) -> Encoded:
        """Encode texts, together with those of others who ask at the same time."""
        stop_if_cancelled()
        futures = [self._texts.submit(text) for text in texts]
        return stacked([future.result() for future in futures])

    def encode_images(self, pixels: Float32Array) -> Encoded:
        """Encode normalised pixels [batch, 3, size, size], when it is their turn."""
        return self._in_turn("image", self._model.encode_images, pixels)

    def match(
        self, text_states: FloatArray, text_mask: BoolArray, image_states: FloatArray, image_mask: BoolArray
    ) -> Float32Array:
        """Logit [batch] that text i and image i belong together, when it is their turn."""
        return self._in_turn("match", self._model.match, text_states, text_mask, image_states, image_mask)

    def warm_up(self) -> None:
        """Load what every search needs, before the first does."""
        self.encode_texts(["a"])
        if "match" in self.abilities:
            self.prepare("match", wait=True)

    def close(self) -> None:
        """Finish what was begun, and end the threads."""
        self._texts.close()
        for pool in self._turns.values():
            pool.shutdown()

    def _encode_together(self, texts: list[str]) -> list[Encoded]:
        encoded = self.encoder.encode_texts(texts)
        return [encoded.row(number) for number in range(len(texts))]

    def _in_turn(self, name: str, work: Callable[..., R], *arguments: Any) -> R:
        def unless_cancelled() -> R:
            stop_if_cancelled()
            return work(*arguments)

        return self._turns[name].submit(copy_context().run, unless_cancelled).result()


def _rows_are_independent(model: Model) -> bool:
    """Whether a text gets the same numbers in a batch as alone; some ways of quantising mix them up."""
    together = model.encode_texts(_PROBES).embedding
    alone = np.concatenate([model.encode_texts([probe]).embedding for probe in _PROBES])
    return bool(np.abs(together - alone).max() < _TOLERANCE[model.device])
