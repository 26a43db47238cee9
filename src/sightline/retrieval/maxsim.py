"""Late interaction: the sum, over the words of a text, of the best cosine with a patch of an image (paper 3, eq. 5).

Products and sums are computed in float32, even if fragments are stored in float16 or as integers.
"""

import numpy as np

from sightline.arrays import Float32Array, Int64Array
from sightline.errors import ModelError
from sightline.retrieval.product import product
from sightline.stores.base import QuantizedRows

_FEW = 16  # columns; up to this many, numpy's reduceat is fast


def words_with_images(words: Float32Array, images: QuantizedRows) -> Float32Array:
    """Score one text, its words [words, dim], by late interaction with the stored patches of many images: [images]."""
    _refuse_empty(words, images, "image")
    products, lengths = _products(words, images), images.lengths
    if len(words) > _FEW and len(lengths) and lengths.min() == lengths.max():
        best = products.reshape(len(lengths), -1, len(words)).max(axis=1)
    else:
        best = np.maximum.reduceat(products, _starts(lengths), axis=0)
    scores: Float32Array = best.sum(axis=1)
    return scores


def patches_with_texts(patches: Float32Array, texts: QuantizedRows) -> Float32Array:
    """Score one image, its patches [patches, dim], by late interaction with the stored words of many texts: [texts]."""
    _refuse_empty(patches, texts, "text")
    best = _products(patches, texts).max(axis=1)
    return np.add.reduceat(best, _starts(texts.lengths))


def _products(vectors: Float32Array, rows: QuantizedRows) -> Float32Array:
    """Return the dot product of every stored row [n, dim] with every vector [m, dim]: [n, m]."""
    products = product(rows.values.astype(np.float32, copy=False), np.ascontiguousarray(vectors.T, np.float32))
    products *= rows.scales[:, None]
    return products


def _starts(lengths: Int64Array) -> Int64Array:
    """Return the start of each segment, for consecutive segments of these lengths."""
    return np.cumsum(lengths, dtype=np.int64) - lengths


def _refuse_empty(query: Float32Array, items: QuantizedRows, kind: str) -> None:
    if not len(query):
        raise ModelError("the query has no fragments", "Leave out `late`.")
    if len(items.lengths) and items.lengths.min() < 1:
        raise ModelError(f"a stored {kind} has no fragments", "Leave out `late`, or index again with another model.")
