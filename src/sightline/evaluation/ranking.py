"""Exact ranks and top candidates from embeddings, one block of the score matrix at a time.

5,000 images by 25,000 captions are 125 million scores. Storing and sorting the whole matrix takes gigabytes and
minutes, but a rank is only a count. So each block is computed once, counted along its rows for text-to-image and along
its columns for image-to-text, and discarded. At dimension 256 the counting takes a fifteenth of the time of the
products.
"""

from collections.abc import Iterator

import numpy as np

from sightline.arrays import BoolArray, Float32Array, FloatArray, Int64Array
from sightline.errors import EvaluationError
from sightline.evaluation.metrics import Ranks, check_image_of, query_images
from sightline.retrieval.candidates import Candidates

# Two float32 dot products of the same unit vectors, summed in a different order, differ by up to 1e-6. Scores that
# differ by less than TIE are ties, which count against the model; otherwise rounding would decide between an image and
# its copy.
TIE = 2e-6

# Later stages read states in float16 or fragments in int8, which round the copies of an image apart. Items that tie in
# the first stage therefore tie in later ones too if their scores differ by less than this share of the largest.
_LATER_TIE = 0.01

CHUNK = 1024
_WIDTH = 8  # a block has this many times more columns than rows
_STRIP = 64  # rows counted at a time


def ranks_from_embeddings(
    texts: FloatArray, images: FloatArray, image_of: Int64Array, *, chunk: int = CHUNK
) -> tuple[Ranks, Ranks]:
    """Return the rank of each caption, and of each image of `query_images(image_of)`, by the rules of `metrics`.

    texts: [captions, dim], images: [images, dim], compared by dot product. A block of at most
    `chunk` texts by 8 * `chunk` images is in memory at once.
    """
    texts, images = (np.ascontiguousarray(side, dtype=np.float32) for side in (texts, images))
    check_image_of(image_of, len(texts), len(images))
    tie = TIE * _largest_norm(texts, "text embeddings") * _largest_norm(images, "image embeddings")
    right = _right_scores(texts, images, image_of) - np.float32(tie)
    best = np.full(len(images), -np.inf, dtype=np.float32)
    np.maximum.at(best, image_of[image_of >= 0], right[image_of >= 0])
    wrong_images, wrong_texts = np.zeros(len(texts)), np.zeros(len(images))
    for rows, columns, scores in _blocks(texts, images, chunk, _WIDTH * chunk):
        own = image_of[rows] - columns.start  # each text's own image is not counted
        held = np.flatnonzero((own >= 0) & (own < scores.shape[1]))
        scores[held, own[held]] = -np.inf
        _count_above(scores, right[rows], best[columns], wrong_images[rows], wrong_texts[columns])
    wrong_images[image_of < 0] = np.inf
    return 1 + wrong_images, 1 + wrong_texts[query_images(image_of)]


def candidates_from_embeddings(queries: FloatArray, gallery: FloatArray, k: int, *, chunk: int = CHUNK) -> Candidates:
    """Find the k best gallery items for every query, as candidates [queries, k] for later stages.

    Ties are ordered by index, so that the result is deterministic. A gallery smaller than k is returned in full.
    """
    if k < 1:
        raise EvaluationError(f"k cannot be {k}", "Set `k` to at least 1.")
    queries, gallery = (np.ascontiguousarray(side, dtype=np.float32) for side in (queries, gallery))
    _largest_norm(queries, "query embeddings"), _largest_norm(gallery, "gallery embeddings")
    k, height = min(k, len(gallery)), -(-_WIDTH * chunk * chunk // max(1, len(gallery)))
    ids, scores = np.empty((len(queries), k), dtype=np.int64), np.empty((len(queries), k), dtype=np.float32)
    for rows, _, block in _blocks(queries, gallery, height, max(1, len(gallery))):
        least = np.partition(block, -k, axis=1)[:, -k, None]
        for row, values, is_enough in zip(range(rows.start, rows.stop), block, block >= least, strict=True):
            columns = np.flatnonzero(is_enough)
            ids[row] = columns[np.argsort(-values[columns], kind="stable")][:k]
            scores[row] = values[ids[row]]
    return Candidates.of(ids, scores)


def ranks_after_stages(found: Candidates, right: BoolArray, otherwise: Ranks) -> Ranks:
    """Return the rank [queries] of the best correct candidate or, if there is none, the rank in the first stage.

    right: [queries, k], which candidates are correct; they do not count against each other. otherwise: [queries],
    ranks over the whole gallery in the first stage. Ties with wrong candidates count against the model; a copy of the
    right item ties with it, even if rounding scores the copy a little lower.
    """
    if not right.size:
        return otherwise
    stage = np.cumsum([a != b for a, b in zip(("", *found.stages[:-1]), found.stages, strict=True)])
    column = right.argmax(axis=1)[:, None]
    score, cosine = (np.take_along_axis(values, column, axis=1) for values in (found.scores, found.embed))
    same = np.abs(found.embed - cosine) <= TIE * np.abs(found.embed).max(axis=1, keepdims=True)
    slack = np.where(same, _LATER_TIE * np.abs(found.scores).max(axis=1, keepdims=True), 0.0)
    ahead = (stage < stage[column]) | ((stage == stage[column]) & (found.scores >= score - slack))
    listed: Ranks = 1.0 + np.count_nonzero(ahead & ~right, axis=1).astype(np.float64)
    return np.where(right.any(axis=1), listed, otherwise)


def _blocks(
    texts: Float32Array, images: Float32Array, height: int, width: int
) -> Iterator[tuple[slice, slice, Float32Array]]:
    """Yield the scores of `height` texts with `width` images, block by block; the memory is reused for each block."""
    if height < 1:
        raise EvaluationError("chunk must be at least 1")
    memory = np.empty(min(height, len(texts)) * min(width, len(images)), dtype=np.float32)
    for top in range(0, len(texts), height):
        some_texts = texts[top : top + height]
        for left in range(0, len(images), width):
            some_images = images[left : left + width]
            scores = memory[: len(some_texts) * len(some_images)].reshape(len(some_texts), len(some_images))
            np.matmul(some_texts, some_images.T, out=scores)
            yield slice(top, top + len(some_texts)), slice(left, left + len(some_images)), scores


def _right_scores(texts: Float32Array, images: Float32Array, image_of: Int64Array) -> Float32Array:
    """Score every caption with its own image; infinite if the image is missing, so that no score reaches it."""
    right = np.full(len(texts), np.inf, dtype=np.float32)
    for start in range(0, len(texts), CHUNK):
        known = start + np.flatnonzero(image_of[start : start + CHUNK] >= 0)
        right[known] = np.einsum("td,td->t", texts[known], images[image_of[known]])
    return right


def _count_above(scores: Float32Array, right: Float32Array, best: Float32Array, images: Ranks, texts: Ranks) -> None:
    """Add to `images` how many scores in each row reach `right`, and to `texts` how many in each column reach `best`.

    A strip of rows stays in the cache for both comparisons, and columns are summed in bytes, which cannot overflow
    with fewer than 256 rows: together three times as fast as counting whole blocks in integers.
    """
    above = np.empty((min(_STRIP, len(scores)), scores.shape[1]), dtype=np.bool_)
    for start in range(0, len(scores), _STRIP):
        strip, rows = scores[start : start + _STRIP], slice(start, start + _STRIP)
        reached = above[: len(strip)]
        np.greater_equal(strip, right[rows, None], out=reached)
        images[rows] += [np.count_nonzero(row) for row in reached]
        np.greater_equal(strip, best, out=reached)
        texts += np.add.reduce(reached.view(np.uint8), axis=0, dtype=np.uint8)


def _largest_norm(embeddings: Float32Array, what: str) -> float:
    squares = np.einsum("nd,nd->n", embeddings, embeddings)
    broken = np.flatnonzero(~np.isfinite(squares))
    if len(broken):
        raise EvaluationError(
            f"row {broken[0]} of {what} is not finite",
            f"The model's output is broken for {len(broken)} of {len(embeddings)} items; check its weights.",
        )
    return float(np.sqrt(squares.max(initial=0.0)))
