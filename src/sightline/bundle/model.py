"""The `Model` protocol: what search and evaluation need from a bundle, checkpoint or published model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from sightline.arrays import BoolArray, Float32Array, FloatArray, Int64Array
from sightline.bundle.encoded import Encoded
from sightline.bundle.engines import gpu_late_scorer
from sightline.bundle.ragged import Ragged
from sightline.bundle.relevance_formula import PairRelevance
from sightline.bundle.tokenizer import Tokenizer
from sightline.bundle.words import Words
from sightline.device import Device
from sightline.errors import ModelError, OptionError
from sightline.fusion_names import FusionRule
from sightline.media import ImageInput

Ability = Literal["embed", "fragments", "match"]
Graph = Literal["image", "text", "match"]
PairMatcher = Callable[[Int64Array, Int64Array], Float32Array]
"""Computes logits [pairs] for pairs of texts and images, given their indices [pairs]."""

MANY_LANGUAGES = "mul"
"""The entry in `languages` of a model that reads many languages but does not list them."""

DEFAULT_WEIGHT = 0.5
"""The weight of the cosine in a fusion, if neither the user nor the model sets one."""


@dataclass(frozen=True, slots=True)
class Defaults:
    """The default stages and fusion of a model, chosen on validation data.

    late, rerank: how many of the top candidates late interaction and then matching rescore; 0 skips a stage.
    fusion, weight: how the match score and the cosine are combined.
    """

    late: int = 0
    rerank: int = 20
    fusion: FusionRule = "ce"
    weight: float = DEFAULT_WEIGHT


@dataclass(frozen=True, slots=True)
class Calibration:
    """The older kind of relevance: the probability that an item, among all items, is the intended one.

    It is sigmoid(scale x score + bias), fitted on held-out pairs, for the scores of one stage.

    error: the expected calibration error, 0 to 1, on pairs that were not used for fitting.
    items: the size of the gallery it was fitted on. In a larger gallery, more items score high by chance.
    """

    scale: float
    bias: float
    error: float | None = None
    items: int | None = None


class Model(Protocol):
    """A model ready for use, on any engine. Thread-safe.

    Subclasses implement the members that have no default here.
    """

    @property
    def name(self) -> str:
        """The model's name in results."""
        ...

    @property
    def sha256(self) -> str:
        """A hash that identifies the model; vectors of different models are not comparable."""
        ...

    @property
    def abilities(self) -> frozenset[Ability]:
        """Which of `embed`, `fragments` and `match` the model supports; without `embed` it can only match."""
        ...

    @property
    def preprocess(self) -> ImageInput:
        """How to resize and normalise images for the model, or the regions that it reads instead of pixels."""
        ...

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        ...

    def encode_images(self, pixels: Float32Array) -> Encoded:
        """Encode normalised pixels [batch, 3, size, size]; or regions [batch, n, width], see `media.stack_inputs`."""
        ...

    def encode_texts(self, texts: Sequence[str]) -> Encoded:
        """Encode a batch of texts; those that exceed the length limit are cut, and marked in `truncated`."""
        ...

    def match(
        self, text_states: FloatArray, text_mask: BoolArray, image_states: FloatArray, image_mask: BoolArray
    ) -> Float32Array:
        """Return how well text i and image i match, as logits [batch]; states [batch, n, hidden], masks [batch, n]."""
        ...

    def word_cosines(
        self, text_states: FloatArray, text_mask: BoolArray, image_states: FloatArray, image_mask: BoolArray
    ) -> Float32Array | None:
        """Return the matcher's cosines between words and image parts, [batch, words, n]; None if it computes none."""
        return None

    @property
    def defaults(self) -> Defaults:
        """The default stages and fusion of a search."""
        return Defaults()

    @property
    def relevance(self) -> PairRelevance | None:
        """The fitted probability that an image shows what a text asks for; None if it was not fitted."""
        return None

    @property
    def calibration(self) -> Mapping[str, Calibration]:
        """The older kind of relevance, by stage ("embed", "match"): maps scores to probabilities."""
        return {}

    @property
    def words(self) -> Words:
        """The words that the model was trained on, most frequent first; empty if unknown."""
        return Words()

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages that the model understands, its main one first; "mul" for many."""
        return ("en",)

    def for_language(self, lang: str) -> "Model":
        """Return this model for texts in a language, for which an add-on may supply its own text graph and relevance.

        Vectors stay comparable. A language that the model does not read is rejected.
        """
        if lang in self.languages or MANY_LANGUAGES in self.languages:
            return self
        raise unknown_language(self, lang)

    @property
    def grid(self) -> tuple[int, int] | None:
        """The rows and columns of the grid that an image's first fragments form; None if they do not form one."""
        return None

    @property
    def device(self) -> Device:
        """The device that the model runs on."""
        return "cpu"

    @property
    def folder(self) -> Path | None:
        """The bundle's folder, from which another process can open it; None for a model that is not a bundle."""
        return None

    @property
    def concurrency(self) -> int:
        """The number of concurrent calls that saturates the device."""
        return 1

    def prefer_gpu(self) -> "Model":
        """Return this model for a long job: on the GPU, if there is one and torch is installed."""
        return self

    def with_threads(self, threads: int) -> "Model":
        """Return this model with this number of CPU threads per call, if the engine supports that."""
        return self

    @property
    def fast_relevance(self) -> PairRelevance | None:
        """The relevance of images that the model's fast image graph encoded; None if it was not fitted."""
        return None

    def fast_variant(self) -> "Model | None":
        """Return this model with a faster image graph whose vectors are in the same space; None if it has none."""
        return None

    def prepare(self, *graphs: Graph, wait: bool = False) -> None:
        """Start loading these graphs in the background, or load them now if `wait` is set."""
        return

    def pair_matcher(self, texts: Ragged, images: Ragged) -> PairMatcher:
        """Return a function that matches texts and images by their indices; texts, images: the states of all items."""
        return lambda text, image: self.match(*texts.padded(text), *images.padded(image))

    def late_scorer(self, texts: Ragged, images: Ragged) -> PairMatcher | None:
        """Return a function that scores pairs by late interaction on the model's GPU, by index; None without a GPU.

        texts, images: the fragments of all items.
        """
        return gpu_late_scorer(texts, images) if self.device == "gpu" else None


def unknown_language(model: Model, lang: str) -> OptionError:
    """Return the error for a language that a model does not read."""
    return OptionError(
        "lang",
        f"cannot be {lang!r}: {model.name} reads {', '.join(model.languages)}",
        "Choose one of these, or leave it out to detect the language.",
    )


_NOUNS: dict[Ability, str] = {"embed": "embeddings", "fragments": "fragments", "match": "matcher"}


def check_ability(model: Model, ability: Ability, needed_by: str, hint: str = "") -> None:
    """Reject a call that needs an ability the model lacks."""
    if ability not in model.abilities:
        trained = ", ".join(f"`{one}`" for one in sorted(model.abilities))
        raise ModelError(
            f"{model.name} has no {_NOUNS[ability]}, so {needed_by} is unavailable: the model supports only {trained}",
            hint,
        )
