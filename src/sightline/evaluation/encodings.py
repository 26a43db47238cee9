"""Encode all images and captions of a test set, batch by batch, keeping only what later stages need."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np
import numpy.typing as npt

from sightline.arrays import Float32Array, Int64Array
from sightline.bundle.encoded import Encoded
from sightline.bundle.model import Model
from sightline.bundle.ragged import Ragged, RaggedBuilder
from sightline.datasets.record import OnProblem, Problem
from sightline.device import Device
from sightline.errors import EvaluationError, MediaError, ModelError
from sightline.media import ImageSource, load_pixels, stack_inputs

Progress = Callable[[str, int, int], None]
"""Called with the name of the part in progress (a key of `seconds`), the number of items done, and the total."""

_AT_ONCE: dict[Device, int] = {"cpu": 32, "gpu": 256}
_LEAST_AHEAD = 32  # minimum number of images decoded ahead, while others are encoded


@dataclass(frozen=True, slots=True)
class Needs:
    """What to keep besides the embedding of each item: fragments for late interaction, states for matching."""

    fragments: bool = False
    states: bool = False


@dataclass(frozen=True, slots=True)
class Encodings:
    """Encoded items: embedding float32 [items, dim]; fragments and states without padding, if needed.

    names: [items], for error messages.
    """

    names: npt.NDArray[np.object_]
    embedding: Float32Array
    fragments: Ragged | None
    states: Ragged | None

    def __len__(self) -> int:
        return len(self.embedding)

    def beside(self, other: "Encodings") -> "Encodings":
        """Combine the embeddings of two models, so that each dot product is the mean of both models' dot products."""
        self._check_same(other)
        joined = np.concatenate([self.embedding, other.embedding], axis=1) / np.sqrt(2)
        return Encodings(self.names, joined.astype(np.float32), None, None)

    def with_states(self, other: "Encodings") -> "Encodings":
        """Return these items with the states of another model, for matching with that model."""
        self._check_same(other)
        return replace(self, states=other.states)

    def _check_same(self, other: "Encodings") -> None:
        if not np.array_equal(self.names, other.names):
            raise EvaluationError("one model could read images that the other could not", "Repair or remove them.")

    def taken(self, items: Int64Array) -> "Encodings":
        """Return some of the items, in this order; fragments and states are shared, not copied."""
        return Encodings(
            self.names[items],
            self.embedding[items],
            self.fragments.reordered(items) if self.fragments else None,
            self.states.reordered(items) if self.states else None,
        )


def usual_batch(model: Model) -> int:
    """Return the default batch size of a model."""
    return _AT_ONCE[model.device]


def encode_images(
    model: Model,
    sources: Sequence[ImageSource],
    needs: Needs,
    batch_size: int,
    progress: Progress | None = None,
    on_problem: OnProblem | None = None,
    shared: "SharedImages | None" = None,
) -> tuple[Encodings, Int64Array]:
    """Encode all readable images; also returns their indices into `sources`, ascending.

    on_problem: called for each unreadable image, which the caller counts as missed. shared: the images, if they are
    already encoded.
    """
    if shared is not None:
        return shared.taken(sources, on_problem)
    gathered = _Gathered(needs)
    readable: list[int] = []
    first: MediaError | None = None
    loading = load_pixels(sources, model.preprocess, ahead=max(batch_size, _LEAST_AHEAD))
    while batch := list(islice(loading, batch_size)):
        pixels = [loaded.pixels for loaded in batch if loaded.pixels is not None]
        if pixels:
            whole = [loaded for loaded in batch if loaded.pixels is not None]
            gathered.add(model.encode_images(stack_inputs(pixels)), [loaded.source.name for loaded in whole])
            readable.extend(loaded.index for loaded in whole)
        for loaded in batch:
            if loaded.error is not None:
                first = first or loaded.error
                if on_problem:
                    on_problem(Problem(loaded.source.name, loaded.error.reason))
        if progress:
            progress("encode_images", batch[-1].index + 1, len(sources))
    if not readable:
        raise EvaluationError(
            f"none of {len(sources)} images can be read{f': {first.what}' if first else ''}",
            (first and first.way_out) or "Check the folder of the images.",
        )
    return gathered.encodings(), np.array(readable, dtype=np.int64)


class SharedImages:
    """Images encoded once for several evaluations of the same records.

    Images are identified by object, not by name, because names need not be unique.
    """

    def __init__(
        self,
        model: Model,
        sources: Sequence[ImageSource],
        needs: Needs,
        batch_size: int,
        progress: Progress | None = None,
    ) -> None:
        self._sources = tuple(sources)  # kept alive, so that Python does not reuse their ids
        problems: list[Problem] = []
        self._encodings, readable = encode_images(model, self._sources, needs, batch_size, progress, problems.append)
        self._row = {id(self._sources[place]): row for row, place in enumerate(readable)}
        unreadable = np.setdiff1d(np.arange(len(sources)), readable)
        self._problem = {id(self._sources[place]): one for place, one in zip(unreadable, problems, strict=True)}

    def taken(
        self, sources: Sequence[ImageSource], on_problem: OnProblem | None = None
    ) -> tuple[Encodings, Int64Array]:
        """Return what `encode_images` would return for some of the images; `on_problem` is called in the same way."""
        for source in sources:
            if id(source) in self._problem:
                if on_problem:
                    on_problem(self._problem[id(source)])
            elif id(source) not in self._row:
                raise EvaluationError(f"{source.name} is not one of the encoded images")
        rows = np.array([self._row.get(id(source), -1) for source in sources], dtype=np.int64)
        readable = np.flatnonzero(rows >= 0)
        return self._encodings.taken(rows[readable]), readable


def encode_texts(
    model: Model, texts: Sequence[str], needs: Needs, batch_size: int, progress: Progress | None = None
) -> tuple[Encodings, int]:
    """Encode all texts, in order, and count those that exceed the model's length limit.

    Texts of similar length share a batch, which keeps padding low.
    """
    gathered = _Gathered(needs)
    truncated = 0
    order = np.array(sorted(range(len(texts)), key=lambda index: len(texts[index])), dtype=np.int64)
    for start in range(0, len(texts), batch_size):
        batch = [texts[index] for index in order[start : start + batch_size]]
        encoded = model.encode_texts(batch)
        gathered.add(encoded, [repr(text) for text in batch])
        truncated += 0 if encoded.truncated is None else int(np.count_nonzero(encoded.truncated))
        if progress:
            progress("encode_texts", start + len(batch), len(texts))
    return gathered.encodings().taken(np.argsort(order)), truncated


@dataclass(slots=True)
class _Gathered:
    """Collects batches into one `Encodings`."""

    needs: Needs
    names: list[str] = field(default_factory=list)
    embeddings: list[Float32Array] = field(default_factory=list)
    fragments: RaggedBuilder = field(default_factory=lambda: RaggedBuilder("fragments"))
    states: RaggedBuilder = field(default_factory=lambda: RaggedBuilder("states"))

    def add(self, encoded: Encoded, names: list[str]) -> None:
        embedding = np.asarray(encoded.embedding, dtype=np.float32)
        if embedding.ndim != 2 or len(embedding) != len(names):
            raise ModelError(f"the model returned embeddings of shape {embedding.shape} for {len(names)} items")
        finite = np.isfinite(embedding).all(axis=1)
        if not finite.all():
            raise EvaluationError(
                f"the embedding of {names[int(finite.argmin())]} is not finite",
                "The model's output is broken; check its weights and its precision.",
            )
        self.names.extend(names)
        self.embeddings.append(embedding)
        if self.needs.fragments:
            self.fragments.add(encoded.fragments, encoded.mask)
        if self.needs.states:
            self.states.add(encoded.states, encoded.mask)

    def encodings(self) -> Encodings:
        return Encodings(
            np.array(self.names, dtype=np.object_),
            np.concatenate(self.embeddings),
            self.fragments.build() if self.needs.fragments else None,
            self.states.build() if self.needs.states else None,
        )
