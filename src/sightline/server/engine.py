"""A bundle that many requests use at once: texts are encoded together, and one match runs after another."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from sightline.bundle import Bundle
from sightline.bundle.encoded import Encoded, Floats
from sightline.bundle.runtime import Mask, text_encoded
from sightline.bundle.spec import Graph
from sightline.media.loading import usable_cpus
from sightline.search.query import row_of
from sightline.server.batching import Batcher
from sightline.server.lanes import stop_if_given_up
from sightline.server.limits import Limits

R = TypeVar("R")

_PROBES = ("two dogs run along a beach", "a beach along two run dogs")  # of one length, however it is counted
_TOLERANCE = 1e-5


class Encoder(Bundle):
    """A bundle that never pads: of a batch of texts, those with the same number of tokens are run together.

    Padding costs what words cost, and it changes what it should not: sums over more numbers are rounded differently in
    their last digit, and where the next layer quantises its inputs, some fall on another step. Without it, a text of an
    int8 model gets the same numbers in a batch as alone, to the last digit.
    """

    def encode_texts(self, texts: Sequence[str]) -> Encoded:
        """Encode a batch of texts."""
        tokens = self.tokenizer(texts)
        lengths = tokens.mask.sum(axis=1)
        rows: dict[int, Encoded] = {}
        for length in np.unique(lengths):
            places = np.flatnonzero(lengths == length)
            mask = tokens.mask[places, :length]
            out = self._run("text", {"ids": tokens.ids[places, :length], "mask": mask})
            encoded = text_encoded(out, mask, tokens.truncated[places])
            rows |= {int(place): row_of(encoded, number) for number, place in enumerate(places)}
        return _stacked([rows[place] for place in range(len(texts))])


class SharedBundle(Bundle):
    """A bundle whose callers are threads that each wait for their own answer.

    encoder: for callers with many texts. most: how many texts it may get at once. workers: how many such batches may
    run at the same time; each has its share of the processors, so that none waits for another.

    Texts of callers with few go to the encoder in batches of about the same length. Matching and encoding pictures gain
    nothing from larger batches; they take turns, first come, first served, each with all processors. Texts are encoded
    while a match is running.
    """

    def __init__(self, bundle: Bundle, limits: Limits, note: Callable[[int], None] | None = None) -> None:
        super().__init__(bundle.folder, bundle.spec, bundle.threads)
        self.workers = limits.encoders or usable_cpus()
        self.encoder = Encoder(bundle.folder, bundle.spec, threads=max(1, usable_cpus() // self.workers))
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

    def begin(self, *graphs: Graph) -> None:
        """Begin to load graphs; that of texts is loaded already, by the encoder."""
        super().begin(*(graph for graph in graphs if graph != "text"))

    def encode_texts(self, texts: Sequence[str]) -> Encoded:
        """Encode texts, together with those of others who ask at the same time."""
        stop_if_given_up()
        futures = [self._texts.submit(text) for text in texts]
        return _stacked([future.result() for future in futures])

    def encode_images(self, pixels: npt.NDArray[np.float32]) -> Encoded:
        """Encode normalised pixels [batch, 3, size, size], when it is their turn."""
        return self._in_turn("image", super().encode_images, pixels)

    def match(
        self, text_states: Floats, text_mask: Mask, image_states: Floats, image_mask: Mask
    ) -> npt.NDArray[np.float32]:
        """Logit [batch] that text i and image i belong together, when it is their turn."""
        return self._in_turn("match", super().match, text_states, text_mask, image_states, image_mask)

    def warm_up(self) -> None:
        """Load what every search needs, before the first does."""
        self.encode_texts(["a"])
        if "match" in self.abilities:
            self.prepare("match")

    def close(self) -> None:
        """Finish what was begun, and end the threads."""
        self._texts.close()
        for pool in self._turns.values():
            pool.shutdown()

    def _encode_together(self, texts: list[str]) -> list[Encoded]:
        encoded = self.encoder.encode_texts(texts)
        return [row_of(encoded, number) for number in range(len(texts))]

    def _in_turn(self, name: str, work: Callable[..., R], *arguments: Any) -> R:
        def unless_given_up() -> R:
            stop_if_given_up()
            return work(*arguments)

        return self._turns[name].submit(copy_context().run, unless_given_up).result()


def _rows_are_independent(bundle: Bundle) -> bool:
    """Whether a text gets the same numbers in a batch as alone; some ways of quantising mix them up."""
    together = bundle.encode_texts(_PROBES).embedding
    alone = np.concatenate([bundle.encode_texts([probe]).embedding for probe in _PROBES])
    return bool(np.abs(together - alone).max() < _TOLERANCE)


def _stacked(rows: list[Encoded]) -> Encoded:
    """One batch of texts that were encoded apart, padded to the longest."""
    if len(rows) == 1:
        return rows[0]
    n = max(row.mask.shape[1] for row in rows)
    return Encoded(
        np.concatenate([row.embedding for row in rows]),
        np.concatenate([_padded(row.mask, n) for row in rows]),
        _stacked_parts([row.fragments for row in rows], n),
        _stacked_parts([row.states for row in rows], n),
        np.concatenate([row.truncated for row in rows if row.truncated is not None]),
    )


def _stacked_parts(parts: "list[Floats | None]", n: int) -> Floats | None:
    there = [_padded(part, n) for part in parts if part is not None]
    return np.concatenate(there) if there else None


def _padded(values: npt.NDArray[Any], n: int) -> npt.NDArray[Any]:
    """Lengthen [1, words, …] to [1, n, …] with zeros."""
    padding = [(0, 0), (0, n - values.shape[1])] + [(0, 0)] * (values.ndim - 2)
    return np.pad(values, padding)
