"""Encoded items as stored: embeddings in float16 and as sign codes, fragments and states in int8."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sightline.arrays import BoolArray, Float32Array, FloatArray
from sightline.bundle.encoded import Encoded
from sightline.errors import StoreError
from sightline.stores.base import Ids, Part, Shape
from sightline.stores.sign_codes import sign_codes

Records = npt.NDArray[Any]


class Packed(NamedTuple):
    """Packed items: ids [items], embeddings float16 [items, dim], codes uint8 [items, bytes], and their parts.

    lengths: [items], the number of vectors of each part per item. parts: for each stored part, the records
    [all vectors of all items], concatenated without padding. is_fast: [items], whether the fast graph encoded them.
    """

    ids: Ids
    embeddings: npt.NDArray[np.float16]
    codes: npt.NDArray[np.uint8]
    lengths: Ids
    parts: Mapping[str, Records]
    is_fast: BoolArray


def pack(ids: Ids, encoded: Encoded, shape: Shape, *, fast: bool = False) -> Packed:
    """Check encoded items against the shape of a store, and pack them. fast: whether the fast graph encoded them."""
    ids = checked_ids(ids)
    if len(ids) != len(encoded):
        raise StoreError(f"there are {len(ids)} ids for {len(encoded)} items")
    if len(ids) != len(np.unique(ids)):
        raise StoreError("an id occurs twice", "Give every item a unique id.")
    embeddings = unit(encoded.embedding, shape.embedding).astype(np.float16)
    parts = {
        name: _records(getattr(encoded, name), encoded.mask, width, name) for name, width in kept_parts(shape).items()
    }
    lengths = encoded.mask.sum(axis=1, dtype=np.int64)
    return Packed(ids, embeddings, sign_codes(embeddings), lengths, parts, np.full(len(ids), fast))


def kept_parts(shape: Shape) -> dict[str, int]:
    """Return the parts that a store of this shape has besides the embedding, with their dimensions."""
    widths = {"fragments": shape.fragments, "states": shape.states}
    return {name: width for name, width in widths.items() if width}


def record_type(width: int) -> np.dtype[Any]:
    """Return the dtype of a record, which is one vector of a part: int8 numbers from -127 to 127, and their scale."""
    return np.dtype([("scale", "<f4"), ("values", "i1", (width,))])


def unpack(records: Records) -> Float32Array:
    """Convert records [n] to float32 vectors [n, width]; each number is within half a scale of the original."""
    vectors: Float32Array = records["values"].astype(np.float32)
    vectors *= records["scale"][:, None]
    return vectors


def unit(vectors: FloatArray, width: int) -> Float32Array:
    """Scale vectors [n, width] to unit length; raises an error for other widths and zero vectors."""
    if vectors.ndim != 2 or vectors.shape[1] != width:
        raise StoreError(f"vectors have shape {vectors.shape}, but the store's embeddings have {width} dimensions")
    singles: Float32Array = vectors.astype(np.float32)
    _refuse_strange(singles, "embedding")
    largest = np.abs(singles).max(axis=1, keepdims=True, initial=0.0)
    if len(largest) and largest.min() == 0:
        raise StoreError(f"embedding {int(largest.argmin())} is all zeros", "Leave the item out.")
    singles /= largest  # so that squares do not overflow
    singles /= np.linalg.norm(singles, axis=1, keepdims=True)
    return singles


def check_rows(part: Part, first: int | None) -> None:
    """Raise an error for embeddings, which are not quantised, and for a limit below one."""
    if part == "embedding":
        raise StoreError("embeddings are not quantised", "Use fetch instead.")
    if first is not None and first < 1:
        raise StoreError(f"cannot fetch the first {first} {part} of each item", "Fetch at least one.")


def checked_ids(ids: Ids) -> Ids:
    """Convert ids to int64 [n]; raises an error unless they are a one-dimensional list of integers from 0."""
    ids = np.asarray(ids)
    if ids.ndim != 1 or (len(ids) and (ids.dtype.kind not in "iu" or ids.min() < 0)):
        raise StoreError("ids must be a 1-D array of non-negative integers", f"Found {ids.dtype} of shape {ids.shape}.")
    return ids.astype(np.int64)


def _records(batch: FloatArray | None, mask: npt.NDArray[np.bool_], width: int, name: str) -> Records:
    """Pack a padded batch [items, n, width], dropping the padding."""
    if batch is None:
        raise StoreError(
            f"the items have no {name}, but this store needs them", "Use the model that the store was created with."
        )
    if batch.ndim != 3 or batch.shape[:2] != mask.shape or batch.shape[2] != width:
        raise StoreError(
            f"{name} have shape {batch.shape} and their mask {mask.shape}, but the store has width {width}"
        )
    vectors = batch[mask].astype(np.float32)
    _refuse_strange(vectors, name)
    records = np.empty(len(vectors), dtype=record_type(width))
    scales = np.abs(vectors).max(axis=1, initial=0.0) / np.float32(127)
    records["scale"] = scales
    vectors /= np.maximum(scales, np.finfo(np.float32).tiny)[:, None]
    records["values"] = np.rint(vectors, out=vectors)
    return records


def _refuse_strange(vectors: Float32Array, name: str) -> None:
    if not np.isfinite(vectors).all():
        raise StoreError(
            f"{name}: a vector contains a number that is not finite",
            "The model failed on this item: leave it out, or encode it again.",
        )
