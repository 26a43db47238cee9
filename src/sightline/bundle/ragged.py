"""The rows of items of different lengths, concatenated without padding, in half precision.

25,000 captions padded to 64 tokens of 384 numbers would take 2.4 GB in float32; stored here, their real tokens take a
tenth of that. Arithmetic is done in float32 on the few items in use, never in half precision.
"""

from dataclasses import dataclass, field

import numpy as np

from sightline.arrays import BoolArray, Float32Array, FloatArray, Int64Array
from sightline.errors import ModelError


@dataclass(frozen=True, slots=True)
class Ragged:
    """Item i is `rows[starts[i] : starts[i] + lengths[i]]`; rows: [all rows, dim]."""

    rows: FloatArray
    starts: Int64Array
    lengths: Int64Array

    def __len__(self) -> int:
        return len(self.starts)

    def reordered(self, order: Int64Array) -> "Ragged":
        """Reorder the items: item i becomes the former item `order[i]`; rows are not moved."""
        return Ragged(self.rows, self.starts[order], self.lengths[order])

    def joined(self, items: Int64Array) -> tuple[Float32Array, Int64Array]:
        """Concatenate the rows of these items: float32 [rows, dim], and the number of rows of each item."""
        lengths = self.lengths[items]
        ends = np.cumsum(lengths, dtype=np.int64)
        total = int(ends[-1]) if len(ends) else 0
        where = np.arange(total) + np.repeat(self.starts[items] - (ends - lengths), lengths)
        return self.rows[where].astype(np.float32), lengths

    def padded(self, items: Int64Array) -> tuple[Float32Array, BoolArray]:
        """Pad these items into a batch, float32 [items, longest, dim], which is zero where the mask is false."""
        starts, lengths = self.starts[items], self.lengths[items]
        mask = np.arange(lengths.max(initial=1)) < lengths[:, None]
        stacked = np.zeros((*mask.shape, self.rows.shape[1]), dtype=np.float32)
        for own, start, length in zip(stacked, starts.tolist(), lengths.tolist(), strict=True):
            own[:length] = self.rows[start : start + length]  # many times faster than copying row by row
        return stacked, mask


@dataclass(slots=True)
class RaggedBuilder:
    """Collects batches; `what` (fragments, states) names the rows in messages."""

    what: str
    _rows: list[FloatArray] = field(default_factory=list)
    _lengths: list[Int64Array] = field(default_factory=list)

    def add(self, batch: FloatArray | None, mask: BoolArray) -> None:
        """Append the rows of a padded batch [items, longest, dim] where the mask [items, longest] is true."""
        if batch is None or batch.ndim != 3 or batch.shape[:2] != mask.shape:
            shape = None if batch is None else batch.shape
            raise ModelError(f"the model returned {self.what} of shape {shape} with a mask of shape {mask.shape}")
        self._rows.append(_half(batch[mask]))
        self._lengths.append(mask.sum(axis=1, dtype=np.int64))

    def build(self) -> Ragged:
        """Join all batches; the builder is empty afterwards."""
        lengths = np.concatenate(self._lengths) if self._lengths else np.zeros(0, dtype=np.int64)
        rows = np.concatenate(self._rows) if self._rows else np.zeros((0, 0), dtype=np.float16)
        self._rows, self._lengths = [], []
        return Ragged(rows, np.cumsum(lengths) - lengths, lengths)


def _half(rows: FloatArray) -> FloatArray:
    """Convert rows to half precision, unless a number is too large for it."""
    largest = np.abs(rows).max(initial=0.0)
    return rows.astype(np.float16) if largest < np.finfo(np.float16).max else rows
