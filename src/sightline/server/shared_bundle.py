"""A bundle that many requests use at once: texts are encoded together, and one match runs after another."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from sightline.bundle import Bundle
from sightline.bundle.encoded import Encoded, Floats, stacked
from sightline.bundle.engines import Device, preferred_device
from sightline.bundle.runtime import Mask
from sightline.bundle.spec import Graph
from sightline.parallel import usable_cpus
from sightline.server.batcher import Batcher
from sightline.server.limits import Limits
from sightline.server.worker_pool import stop_if_cancelled

R = TypeVar("R")

_PROBES = ("two dogs run along a beach", "a beach along two run dogs")  # of one length, however it is counted
_TOLERANCE: dict[Device, float] = {"cpu": 1e-5, "gpu": 2e-3}  # how a GPU cuts up a product changes its last digits
_GPU_WORKERS = 2  # one that computes, and one that gets ready


class SharedBundle(Bundle):
    """A bundle whose callers are threads that each wait for their own answer.

    encoder: for callers with many texts. most: how many texts it may get at once. workers: how many such batches may
    run at the same time; each has its share of the processors, so that none waits for another.

    Texts of callers with few go to the encoder in batches of about the same length. Matching and encoding pictures gain
    nothing from larger batches; they take turns, first come, first served, each with all processors. Texts are encoded
    while a match is running.
    """

    def __init__(self, bundle: Bundle, limits: Limits, note: Callable[[int], None] | None = None) -> None:
        device = preferred_device()
        super().__init__(bundle.folder, bundle.spec, bundle.threads, device)
        self.workers = limits.encoders or (_GPU_WORKERS if device == "gpu" else usable_cpus())
        self.encoder = Bundle(bundle.folder, bundle.spec, max(1, usable_cpus() // self.workers), device)
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
        stop_if_cancelled()
        futures = [self._texts.submit(text) for text in texts]
        return stacked([future.result() for future in futures])

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
        return [encoded.row(number) for number in range(len(texts))]

    def _in_turn(self, name: str, work: Callable[..., R], *arguments: Any) -> R:
        def unless_cancelled() -> R:
            stop_if_cancelled()
            return work(*arguments)

        return self._turns[name].submit(copy_context().run, unless_cancelled).result()


def _rows_are_independent(bundle: Bundle) -> bool:
    """Whether a text gets the same numbers in a batch as alone; some ways of quantising mix them up."""
    together = bundle.encode_texts(_PROBES).embedding
    alone = np.concatenate([bundle.encode_texts([probe]).embedding for probe in _PROBES])
    return bool(np.abs(together - alone).max() < _TOLERANCE[bundle.device])
