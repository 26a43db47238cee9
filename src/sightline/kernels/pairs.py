"""Scoring pairs of a test set on a GPU; every item is copied there once, no matter how many pairs it is in."""

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sightline.arrays import Int64Array
from sightline.kernels.graphs import TorchGraph

_SHARE = 0.5  # share of the free memory that states or fragments may take
_PAIRS = 4096  # pairs whose cosines are in memory at once


class RaggedStates(Protocol):
    """The concatenated states of many items: item i is `rows[starts[i] : starts[i] + lengths[i]]`."""

    @property
    def rows(self) -> npt.NDArray[np.floating[Any]]:
        """The rows of all items, [all rows, dim]."""
        ...

    @property
    def starts(self) -> Int64Array:
        """The index of the first row of each item, [items]."""
        ...

    @property
    def lengths(self) -> Int64Array:
        """The number of rows of each item, [items]."""
        ...


class DevicePairs:
    """The states of texts and of images on the device of a matcher's graph."""

    def __init__(self, graph: TorchGraph, texts: RaggedStates, images: RaggedStates) -> None:
        self._graph = graph
        self._texts, self._images = _DeviceRows(texts, graph.device), _DeviceRows(images, graph.device)

    @staticmethod
    def fit(graph: TorchGraph, texts: RaggedStates, images: RaggedStates) -> bool:
        """Return whether the states fit in the device's memory."""
        return _fit(graph.device, texts, images)

    def match(self, texts: Int64Array, images: Int64Array) -> npt.NDArray[np.float32]:
        """Return how well texts and images match, as logits [pairs], given their indices [pairs]."""
        with torch.inference_mode():
            text_states, text_mask = self._texts.padded(texts)
            image_states, image_mask = self._images.padded(images)
            found = self._graph.compute(
                {
                    "text_states": text_states,
                    "text_mask": text_mask,
                    "image_states": image_states,
                    "image_mask": image_mask,
                }
            )
        logits: npt.NDArray[np.float32] = found["logits"].numpy()
        return logits


class DeviceLatePairs:
    """The fragments of texts and of images on a device, scored by late interaction."""

    def __init__(self, texts: RaggedStates, images: RaggedStates, device: torch.device) -> None:
        self._texts, self._images = _DeviceRows(texts, device), _DeviceRows(images, device)

    @classmethod
    def on_gpu(cls, texts: RaggedStates, images: RaggedStates) -> "DeviceLatePairs | None":
        """Copy fragments to the GPU, if torch has one; None if they do not fit in its memory."""
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        return cls(texts, images, device) if _fit(device, texts, images) else None

    @torch.inference_mode()
    def score(self, texts: Int64Array, images: Int64Array) -> npt.NDArray[np.float32]:
        """Sum each word's best cosine with a fragment of the image: [pairs], for items given by their indices."""
        scores = np.empty(len(texts), dtype=np.float32)
        for start in range(0, len(texts), _PAIRS):
            some = slice(start, start + _PAIRS)
            words, is_word = self._texts.padded(texts[some])
            patches, is_patch = self._images.padded(images[some])
            cosines = (words @ patches.mT).masked_fill_(~is_patch[:, None], -torch.inf)
            scores[some] = (cosines.amax(2) * is_word).sum(1).cpu().numpy()
        return scores


def _fit(device: torch.device, texts: RaggedStates, images: RaggedStates) -> bool:
    if device.type != "cuda":
        return True
    free, _ = torch.cuda.mem_get_info(device)
    return texts.rows.nbytes + images.rows.nbytes < _SHARE * free


class _DeviceRows:
    """The rows of many items on a device."""

    def __init__(self, items: RaggedStates, device: torch.device) -> None:
        self._lengths = items.lengths
        self._rows = torch.from_numpy(items.rows).to(device)
        self._starts, self._counts = (torch.from_numpy(part).to(device) for part in (items.starts, items.lengths))

    def padded(self, items: Int64Array) -> tuple[Tensor, Tensor]:
        """Pad these items to a batch: float32 [items, longest, dim], zero where the mask [items, longest] is false."""
        chosen = torch.from_numpy(items).to(self._rows.device)
        places = torch.arange(int(self._lengths[items].max(initial=1)), device=chosen.device)
        mask = places < self._counts[chosen, None]
        rows = torch.where(mask, self._starts[chosen, None] + places, 0)
        return torch.where(mask[..., None], self._rows[rows].float(), 0), mask
