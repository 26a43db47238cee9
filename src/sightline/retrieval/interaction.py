"""Late interaction with items as a store keeps them: whole numbers, unpadded, one side at a time.

Each word looks for the patch it is most alike, and the words' best cosines are summed (paper 3, equation 5). Only what
is stored is rounded: products and sums are made in float32.
"""

import numpy as np

from sightline.errors import ModelError
from sightline.stores.base import Ids, QuantizedRows, Singles

# OpenBLAS makes a product of up to so many multiplications in the thread that asks for it. Beyond, its threads wait for
# one another by spinning: on a busy machine, a product of one millisecond has then taken two hundred.
_TILE = 2**18
_LEAST = 8  # vectors in a tile


def words_with_images(words: Singles, images: QuantizedRows) -> Singles:
    """Late interaction of one text, its words [words, dim], with the patches of many images: [images]."""
    _refuse_empty(words, images, "image")
    best = np.maximum.reduceat(_products(words, images), _starts(images.lengths), axis=1)
    scores: Singles = best.sum(axis=0)
    return scores


def patches_with_texts(patches: Singles, texts: QuantizedRows) -> Singles:
    """Late interaction of one image, its patches [patches, dim], with the words of many texts: [texts]."""
    _refuse_empty(patches, texts, "text")
    best = _products(patches, texts).max(axis=0)
    scores: Singles = np.add.reduceat(best, _starts(texts.lengths))
    return scores


def _products(vectors: Singles, rows: QuantizedRows) -> Singles:
    """The product of every vector [m, dim] with every stored one [n, dim], in tiles of stored ones: [m, n]."""
    count, dim = rows.values.shape
    tile = max(_LEAST, _TILE // (len(vectors) * dim))
    tiles = -(-count // tile)
    stored = np.empty((tiles * tile, dim), dtype=np.float32)
    stored[:count], stored[count:] = rows.values, 0
    products = np.empty((len(vectors), tiles, tile), dtype=np.float32)
    np.matmul(vectors, stored.reshape(tiles, tile, dim).transpose(0, 2, 1), out=products.transpose(1, 0, 2))
    scaled: Singles = products.reshape(len(vectors), tiles * tile)[:, :count]
    scaled *= rows.scales
    return scaled


def _starts(lengths: Ids) -> Ids:
    """Where each item begins in the vectors of all."""
    starts: Ids = np.cumsum(lengths) - lengths
    return starts


def _refuse_empty(asked: Singles, items: QuantizedRows, kind: str) -> None:
    """Refuse a question or an item without fragments: there is nothing to compare."""
    if not len(asked):
        raise ModelError("the question has no fragments", "Leave out late.")
    if len(items.lengths) and items.lengths.min() < 1:
        raise ModelError(f"a stored {kind} has no fragments", "Leave out late, or index anew with another model.")
