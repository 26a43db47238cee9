"""Run a bundle: encode texts and images as arrays, loading each graph when it is first needed."""

import contextlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np

from sightline.arrays import Arrays, BoolArray, Float32Array, FloatArray, Int64Array
from sightline.bundle.encoded import Encoded, by_length
from sightline.bundle.engines import Engine, gpu_pair_matcher, load_engine
from sightline.bundle.integrity import check_once
from sightline.bundle.languages import FOLDER, LanguagesSpec, languages_of, read_languages, read_words
from sightline.bundle.model import (
    MANY_LANGUAGES,
    Ability,
    Calibration,
    Defaults,
    Graph,
    Model,
    PairMatcher,
    unknown_language,
)
from sightline.bundle.ragged import Ragged
from sightline.bundle.relevance_formula import PairRelevance
from sightline.bundle.spec import BundleSpec, identity, read_spec
from sightline.bundle.tokenizer import TokenBatch, Tokenizer
from sightline.bundle.words import Words
from sightline.device import Device, preferred_device
from sightline.errors import BundleError, ModelError
from sightline.media import ImageInput, blank, check_batch, split_padding
from sightline.parallel import usable_cpus

_GPU_CALLS = 2  # one is computed while the next is prepared
_MATCH_INPUTS = ("text_states", "text_mask", "image_states", "image_mask")


class Bundle(Model):
    """An open bundle. Thread-safe.

    >>> bundle = Bundle.open(tiny_bundle)
    >>> bundle.encode_texts(["a dog on a beach"]).embedding.shape
    (1, 16)
    """

    def __init__(
        self, folder: Path, spec: BundleSpec, threads: int | None = None, device: Device = "cpu", *, fast: bool = False
    ) -> None:
        self.spec = spec.fast_variant() if fast else spec
        self.threads = threads or usable_cpus()
        self._folder, self._device = folder, device
        self._whole, self._is_fast = spec, fast
        self._variant: Bundle | None = None
        self._engines: dict[Graph, Engine] = {}
        self._locks: dict[Graph, threading.Lock] = {graph: threading.Lock() for graph in ("image", "text", "match")}
        self._opening = threading.Lock()
        self._in_language: dict[str, Bundle] = {}

    @classmethod
    def open(cls, folder: str | Path, *, threads: int | None = None, fast: bool = False) -> "Bundle":
        """Open a bundle's folder, after checking every file that it uses against its hash.

        A file that was checked before and has not changed since is not read again. fast: use its fast image graph.
        """
        folder = Path(folder)
        opened = cls(folder, read_spec(folder), threads, fast=fast)
        check_once(folder, opened.spec.without_fast().files)
        return opened

    @property
    def name(self) -> str:
        """The bundle's name in results."""
        return self.spec.name

    @cached_property
    def sha256(self) -> str:
        """A hash that identifies the model, from the hashes of its files and the preprocessing of its inputs."""
        return identity(self.spec)

    @property
    def abilities(self) -> frozenset[Ability]:
        """Which of `embed`, `fragments` and `match` the model supports."""
        return frozenset(self.spec.abilities)

    @property
    def preprocess(self) -> ImageInput:
        """How to resize and normalise images for the model, or the regions that it reads instead of pixels."""
        return self.spec.image.input

    @property
    def defaults(self) -> Defaults:
        """The default stages and fusion of a search."""
        return self.spec.defaults

    @property
    def relevance(self) -> PairRelevance | None:
        """The fitted probability that an image shows what a text asks for."""
        return self.spec.relevance if isinstance(self.spec.relevance, PairRelevance) else None

    @property
    def calibration(self) -> Mapping[str, Calibration]:
        """The older kind of relevance: a mapping of scores to probabilities, by stage."""
        return {} if isinstance(self.spec.relevance, PairRelevance) else self.spec.relevance

    @cached_property
    def words(self) -> Words:
        """The words that the model was trained on, most frequent first."""
        return Words(self.spec.words.split())

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages that the model understands, with those of its add-on."""
        return languages_of(self.spec.text.languages, self._add_on)

    def for_language(self, lang: str) -> "Bundle":
        """Return this bundle with the text graph for a language: its own, or its add-on's, loaded on first use."""
        own = self.spec.text.languages
        if lang in own:
            return self
        if self._add_on is None or lang not in self._add_on.text.languages:
            if MANY_LANGUAGES in own:
                return self
            raise unknown_language(self, lang)
        with self._opening:
            if lang not in self._in_language:
                self._in_language[lang] = _InLanguage(self, self._tower, lang)
            return self._in_language[lang]

    @cached_property
    def _add_on(self) -> LanguagesSpec | None:
        return read_languages(self.folder, identity(self._whole))

    @cached_property
    def _tower(self) -> "Bundle":
        """The add-on's text graph as a bundle, shared by all its languages."""
        if self._add_on is None:
            raise BundleError(f"{self.folder}: has no language add-on")
        check_once(self.folder / FOLDER, self._add_on.files)
        spec = replace(self.spec, text=self._add_on.text, relevance=self._add_on.relevance or {}, words="")
        return Bundle(self.folder / FOLDER, spec, self.threads, self.device)

    @cached_property
    def _words_by_language(self) -> dict[str, Words]:
        return {} if self._add_on is None else read_words(self.folder / FOLDER, self._add_on)

    @property
    def grid(self) -> tuple[int, int] | None:
        """The rows and columns of the grid that an image's first fragments form; None if they do not form one."""
        return self.spec.image.grid

    @property
    def device(self) -> Device:
        """The device that the bundle runs on."""
        return self._device

    @property
    def folder(self) -> Path:
        """The folder that the bundle was opened from."""
        return self._folder

    @property
    def concurrency(self) -> int:
        """The number of concurrent calls that saturates the device."""
        return _GPU_CALLS if self.device == "gpu" else max(1, usable_cpus() // self.threads)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        text = self.spec.text
        return Tokenizer.open(self.folder / text.tokenizer, text.max_length, text.pad_id)

    def prefer_gpu(self) -> "Bundle":
        """Return this bundle for a long job: on the GPU, if there is one and torch is installed.

        A single search stays on the CPU, where it finishes before torch would even be imported.
        """
        return self._changed(self.threads, preferred_device())

    def with_threads(self, threads: int) -> "Bundle":
        """Return this bundle with this number of CPU threads per call, or itself if nothing changes."""
        return self if threads == self.threads else self._changed(threads, self.device)

    def _changed(self, threads: int, device: Device) -> "Bundle":
        return Bundle(self.folder, self._whole, threads, device, fast=self._is_fast)

    def fast_variant(self) -> "Bundle | None":
        """Return this bundle with its fast image graph, loaded once; None if it has none. The file is checked."""
        if self._variant is None and self.spec.fast is not None:
            check_once(self.folder, self.spec.fast_variant().files)
            self._variant = Bundle(self.folder, self.spec, self.threads, self.device, fast=True)
        return self._variant

    @property
    def fast_relevance(self) -> PairRelevance | None:
        """The relevance of images that the fast image graph encoded."""
        return None if self.spec.fast is None else self.spec.fast.relevance

    def prepare(self, *graphs: Graph, wait: bool = False) -> None:
        """Load graphs in threads of their own, or now if `wait` is set. A call waits for the graph that it needs."""
        for graph in graphs:
            if wait:
                self.engine(graph)
            elif graph not in self._engines:
                threading.Thread(target=self._try, args=(graph,), name=f"sightline-load-{graph}").start()

    def engine(self, graph: Graph) -> Engine:
        """Return the engine of a graph, loaded on first use."""
        with self._locks[graph]:
            if graph not in self._engines:
                self._engines[graph] = self._load(graph)
            return self._engines[graph]

    def encode_images(self, pixels: Float32Array) -> Encoded:
        """Encode normalised pixels [batch, 3, size, size]; or regions [batch, n, width], see `media.stack_inputs`."""
        pixels = check_batch(pixels, self.preprocess)
        if not len(pixels):
            return self.encode_images(blank(self.preprocess)).emptied()
        if self.spec.image.regions is not None:
            return self._encode_regions(*split_padding(pixels))
        out = self.engine("image").run({"pixels": pixels})
        parts = out.get("fragments", out.get("states"))
        mask = np.ones((len(pixels), 0 if parts is None else parts.shape[1]), dtype=np.bool_)
        return Encoded(out["embedding"], mask, out.get("fragments"), out.get("states"))

    def encode_texts(self, texts: Sequence[str]) -> Encoded:
        """Encode a batch of texts; those that exceed the length limit are cut, and marked in `truncated`.

        The graph never sees padding: texts with the same number of tokens are run together. Padding costs as much time
        as words, and changes how sums and quantised inputs are rounded. Without it, an int8 model encodes a text to the
        same numbers, bit for bit, in a batch as on its own.
        """
        if not isinstance(texts, str) and not len(texts):
            return self.encode_texts(["a"]).emptied()
        tokens = self.tokenizer(texts)
        return by_length(tokens.mask, lambda places, length: self._encode_alike(tokens, places, length))

    def match(
        self, text_states: FloatArray, text_mask: BoolArray, image_states: FloatArray, image_mask: BoolArray
    ) -> Float32Array:
        """Return how well text i and image i match, as logits [batch]; states [batch, n, hidden], masks [batch, n]."""
        logits: Float32Array = self._matched(text_states, text_mask, image_states, image_mask)["logits"]
        return logits

    def word_cosines(
        self, text_states: FloatArray, text_mask: BoolArray, image_states: FloatArray, image_mask: BoolArray
    ) -> Float32Array | None:
        """Return the matcher's cosines between words and image parts, [batch, words, n]; None if it computes none."""
        return self._matched(text_states, text_mask, image_states, image_mask).get("word_cosines")

    def pair_matcher(self, texts: Ragged, images: Ragged) -> PairMatcher:
        """Match texts and images by their indices; if the bundle is on a GPU, all states are copied there once."""
        sent = gpu_pair_matcher(self.engine("match"), texts, images) if self.device == "gpu" else None
        return sent or super().pair_matcher(texts, images)

    def _matched(self, *states_and_masks: FloatArray | BoolArray) -> Arrays:
        """Run the matcher; the arguments are those of `match`."""
        if "match" not in self.abilities:
            raise ModelError(f"{self.name} has no matcher")
        return self.engine("match").run(dict(zip(_MATCH_INPUTS, states_and_masks, strict=True)))

    def _encode_alike(self, tokens: TokenBatch, places: Int64Array, length: int) -> Encoded:
        """Encode the texts at these indices, which all have `length` tokens."""
        mask = tokens.mask[places, :length]
        out = self.engine("text").run({"ids": tokens.ids[places, :length], "mask": mask})
        real = out.get("fragments_mask", mask)  # the graph returns its own mask if fragments are not just words
        return Encoded(out["embedding"], real, out.get("fragments"), out.get("states"), tokens.truncated[places])

    def _encode_regions(self, regions: Float32Array, mask: BoolArray) -> Encoded:
        """Encode regions [batch, n, width]; like texts, those of equal length are encoded together."""

        def alike(places: Int64Array, count: int) -> Encoded:
            own = mask[places, :count]
            out = self.engine("image").run({"regions": regions[places, :count], "mask": own})
            return Encoded(out["embedding"], out.get("fragments_mask", own), out.get("fragments"), out.get("states"))

        return by_length(mask, alike)

    def _try(self, graph: Graph) -> None:
        """Load a graph ahead of time; errors are raised by the call that needs it."""
        with contextlib.suppress(BundleError):
            self.engine(graph)

    def _load(self, graph: Graph) -> Engine:
        name = self.spec.image_file if graph == "image" else f"{graph}.onnx"
        return load_engine(self.folder / name, self.device, self.threads)


class _InLanguage(Bundle):
    """A bundle that reads texts with its add-on's graph; everything else is the bundle's own."""

    def __init__(self, bundle: Bundle, tower: Bundle, lang: str) -> None:
        super().__init__(bundle.folder, tower.spec, bundle.threads, bundle.device)
        self._bundle, self._text_tower, self._lang = bundle, tower, lang

    @cached_property
    def sha256(self) -> str:
        """The hash of the bundle, because vectors stay comparable."""
        return self._bundle.sha256

    @cached_property
    def words(self) -> Words:
        """The words of the language that the add-on was trained on; empty if it has no list."""
        return self._bundle._words_by_language.get(self._lang, Words())

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The add-on's tokenizer."""
        return self._text_tower.tokenizer

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages of the bundle."""
        return self._bundle.languages

    def for_language(self, lang: str) -> Bundle:
        """Return the bundle with the text graph for another language."""
        return self._bundle.for_language(lang)

    @property
    def fast_relevance(self) -> None:
        """Always None, because it is fitted for texts in the bundle's own languages."""

    def fast_variant(self) -> Bundle | None:
        """Return this model with the bundle's fast image graph; None if it has none."""
        fast = self._bundle.fast_variant()
        return None if fast is None else fast.for_language(self._lang)

    def prefer_gpu(self) -> Bundle:
        """Return this model for a long job: on the GPU, if there is one."""
        return self._bundle.prefer_gpu().for_language(self._lang)

    def with_threads(self, threads: int) -> Bundle:
        """Return this model with this number of CPU threads per call."""
        return self._bundle.with_threads(threads).for_language(self._lang)

    def prepare(self, *graphs: Graph, wait: bool = False) -> None:
        """Load graphs ahead of time."""
        for graph in graphs:
            self._owner(graph).prepare(graph, wait=wait)

    def engine(self, graph: Graph) -> Engine:
        """Return the engine of a graph: the add-on's for texts."""
        return self._owner(graph).engine(graph)

    def _owner(self, graph: Graph) -> Bundle:
        return self._text_tower if graph == "text" else self._bundle
