"""A bundle that many requests use at once: texts are encoded together, and one match runs after another."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from sightline.bundle import Bundle
from sightline.bundle.encoded import Encoded, Floats
from sightline.bundle.runtime import Mask
from sightline.bundle.spec import Graph
from sightline.media.loading import usable_cpus
from sightline.server.batching import Batcher
from sightline.server.lanes import stop_if_given_up
from sightline.server.limits import Limits

R = TypeVar("R")

_PROBES = ("a", "two dogs run along a beach")
_TOLERANCE = 1e-3


class SharedBundle(Bundle):
    """A bundle whose callers are threads that each wait for their own answer.

    Texts go to the encoder in batches of about the same length, each on one processor, where nothing waits for another.
    Queries without a rerank are answered while a match is running. Matching and encoding pictures gain nothing
    from larger batches; they take turns, first come, first served, each with all processors.
    """

    def __init__(self, bundle: Bundle, limits: Limits, note: Callable[[int], None] | None = None) -> None:
        super().__init__(bundle.folder, bundle.spec, bundle.threads)
        self._encoder = Bundle(bundle.folder, bundle.spec, threads=1)
        most = limits.batch if limits.batch > 1 and _rows_are_independent(self._encoder) else 1
        self._texts: Batcher[str, Encoded] = Batcher(
            self._encode_together,
            most=most,
            gather_seconds=limits.gather_ms / 1000,
            workers=limits.encoders or usable_cpus(),
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
        encoded = self._encoder.encode_texts(texts)
        return [_row(encoded, number) for number in range(len(texts))]

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


def _row(encoded: Encoded, number: int) -> Encoded:
    """One text of a batch, without the padding that the others made necessary."""
    mask = encoded.mask[number]
    n = int(mask.sum())
    own = slice(number, number + 1)
    return Encoded(
        encoded.embedding[own].copy(),
        encoded.mask[own, :n].copy(),
        None if encoded.fragments is None else encoded.fragments[own, :n].copy(),
        None if encoded.states is None else encoded.states[own, :n].copy(),
        None if encoded.truncated is None else encoded.truncated[own].copy(),
    )


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
