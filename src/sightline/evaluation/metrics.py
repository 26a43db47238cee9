"""Recall and rank as pure functions: R@1, R@5, R@10 and medR.

Codebases differ in the following rules, and so do their results:

- `image_of` [captions] is the index of each caption's image. An image may have any number of captions; an image
  without captions is a distractor: it is in the gallery, but never a query. -1 means that a caption's image is not in
  the gallery: as a query, such a caption cannot be answered; in the gallery of captions, it is a wrong answer to every
  image.
- Ranks start at 1 and are infinite for items that are never found. Ties count against the model: the rank is one more
  than the number of wrong items that score at least as high as the right one, so a model that gives everything the same
  score finds nothing.
- Image to text is any-hit: the rank of the image's best caption, not counting the image's other captions.
- Only the order of the scores matters: adding a constant to all of them changes nothing.
"""

import numpy as np

from sightline.arrays import Float64Array, FloatArray, Int64Array
from sightline.errors import EvaluationError

Ranks = Float64Array

CUTOFFS = (1, 5, 10)
RECALLS = tuple(f"R@{k}" for k in CUTOFFS)
DIRECTIONS = {"text_to_image": "text to image", "image_to_text": "image to text"}
"""The directions as fields of results, and their names in tables."""


def text_to_image_ranks(scores: FloatArray, image_of: Int64Array) -> Ranks:
    """Return the rank [captions] of every caption's image among all images, from scores [captions, images]."""
    check_scores(scores)
    check_image_of(image_of, *scores.shape)
    answerable = np.flatnonzero(image_of >= 0)
    right = scores[answerable, image_of[answerable]]
    ranks = np.full(len(scores), np.inf)
    ranks[answerable] = np.count_nonzero(scores[answerable] >= right[:, None], axis=1)
    return ranks


def image_to_text_ranks(scores: FloatArray, image_of: Int64Array) -> Ranks:
    """Return the rank of every query image's best caption among all captions, from scores [captions, images].

    One rank for each image of `query_images(image_of)`, in that order.
    """
    check_scores(scores)
    check_image_of(image_of, *scores.shape)
    images = query_images(image_of)
    own = image_of[:, None] == images
    columns = scores[:, images]
    best = np.where(own, columns, -np.inf).max(axis=0, initial=-np.inf)
    ranks = np.ones(len(images))
    ranks += np.count_nonzero((columns >= best) & ~own, axis=0)
    return ranks


def query_images(image_of: Int64Array) -> Int64Array:
    """Return the images that have captions, in ascending order: the queries of image-to-text."""
    return np.unique(image_of[image_of >= 0]).astype(np.int64)


def recall(ranks: Ranks, k: int) -> float:
    """Return the percentage of queries with a right answer among the first k results."""
    if not len(ranks):
        raise EvaluationError("there are no queries", "Use data with at least one captioned image.")
    return 100.0 * float(np.count_nonzero(ranks <= k)) / len(ranks)


def summary(ranks: Ranks) -> dict[str, float]:
    """Return R@1, R@5 and R@10 in percent, and the median rank: infinite if most queries are never answered."""
    return {**{f"R@{k}": recall(ranks, k) for k in CUTOFFS}, "medR": float(np.median(ranks))}


def check_scores(scores: FloatArray) -> None:
    """Reject scores that are not finite: comparisons with NaN are false, so NaN would look like a perfect rank."""
    finite = np.isfinite(scores)
    if not finite.all():
        row = int(np.argmin(finite.all(axis=1)))
        column = int(np.argmin(finite[row]))
        raise EvaluationError(
            f"the score in row {row}, column {column} is {scores[row, column]}",
            "The model's output for that item is broken; check its weights and the item itself.",
        )


def check_image_of(image_of: Int64Array, captions: int, images: int) -> None:
    """Reject a mapping that does not give an image (or -1) for every caption."""
    if image_of.shape != (captions,):
        raise EvaluationError(f"image_of has shape {image_of.shape}, but there are {captions} captions")
    if captions and not (image_of.min() >= -1 and image_of.max() < images):
        raise EvaluationError(
            f"image_of has values from {image_of.min()} to {image_of.max()}, but there are {images} images",
            "Give each caption the index of its image, or -1 for one that is not in the gallery.",
        )
