"""Late interaction: the sum, over the words of a text, of the best cosine with a patch of an image (paper 3, eq. 5).

Products and sums are computed in float32, even if fragments are stored in float16 or as integers.
"""

import numpy as np

from sightline.arrays import Float32Array, Int64Array
from sightline.errors import ModelError
from sightline.stores.base import QuantizedRows

# OpenBLAS computes a product of up to this many multiplications in the calling thread. For larger ones it uses several
# threads, which spin while they wait for one another: on a busy machine, a one-millisecond product took two hundred.
_TILE = 2**18
_LEAST = 8  # minimum vectors in a tile


def words_with_images(words: Float32Array, images: QuantizedRows) -> Float32Array:
    """Late interaction of one text, its words [words, dim], with the stored patches of many images: [images]."""
    _refuse_empty(words, images, "image")
    best = np.maximum.reduceat(_products(words, images), _starts(images.lengths), axis=1)
    scores: Float32Array = best.sum(axis=0)
    return scores


def patches_with_texts(patches: Float32Array, texts: QuantizedRows) -> Float32Array:
    """Late interaction of one image, its patches [patches, dim], with the stored words of many texts: [texts]."""
    _refuse_empty(patches, texts, "text")
    best = _products(patches, texts).max(axis=0)
    scores: Float32Array = np.add.reduceat(best, _starts(texts.lengths))
    return scores


def _products(vectors: Float32Array, rows: QuantizedRows) -> Float32Array:
    """The dot product of every vector [m, dim] with every stored row [n, dim], one tile of rows at a time: [m, n]."""
    count, dim = rows.values.shape
    tile = max(_LEAST, _TILE // (len(vectors) * dim))
    tiles = -(-count // tile)
    stored = np.empty((tiles * tile, dim), dtype=np.float32)
    stored[:count], stored[count:] = rows.values, 0
    products = np.empty((len(vectors), tiles, tile), dtype=np.float32)
    np.matmul(vectors, stored.reshape(tiles, tile, dim).transpose(0, 2, 1), out=products.transpose(1, 0, 2))
    scaled: Float32Array = products.reshape(len(vectors), tiles * tile)[:, :count]
    scaled *= rows.scales
    return scaled


def _starts(lengths: Int64Array) -> Int64Array:
    """The start of each segment, for consecutive segments of these lengths."""
    starts: Int64Array = np.cumsum(lengths, dtype=np.int64) - lengths
    return starts


def _refuse_empty(query: Float32Array, items: QuantizedRows, kind: str) -> None:
    if not len(query):
        raise ModelError("the query has no fragments", "Leave out late.")
    if len(items.lengths) and items.lengths.min() < 1:
        raise ModelError(f"a stored {kind} has no fragments", "Leave out late, or index again with another model.")
