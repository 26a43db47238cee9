"""Recall on special queries: those similar to many wrong answers, and those similar to few (paper 2, Table 4).

The average similarity of a query is the mean over all wrong items of the other modality. Queries with
the highest average are the hardest, because many wrong answers are close. Those with the lowest are the most
infrequent: hardly anything is similar to them. (The paper says that the average is high for both, which cannot be right
for the infrequent ones.)
"""

import numpy as np

from sightline.arrays import Float64Array, FloatArray, Int64Array
from sightline.evaluation.metrics import Ranks, query_images, summary
from sightline.evaluation.result import Evaluation

Recalls = dict[str, dict[str, dict[str, float]]]
"""Recalls by kind ("hardest", "infrequent"), by percentage ("20%") and by cutoff ("R@1")."""


def average_similarities(
    texts: FloatArray, images: FloatArray, image_of: Int64Array
) -> tuple[Float64Array, Float64Array]:
    """Return the average similarity of each caption to other images, and of each query image to other images' captions.

    texts: [captions, dim]; images: [images, dim]; image_of: [captions], as in `metrics`. Since similarities are dot
    products, each average is a single product with a sum of vectors.
    """
    texts, images = np.asarray(texts, dtype=np.float64), np.asarray(images, dtype=np.float64)
    known, asked = image_of >= 0, query_images(image_of)
    own_image = np.where(known[:, None], images[image_of], 0.0)
    of_texts = np.einsum("td,td->t", texts, images.sum(0) - own_image) / np.maximum(len(images) - known, 1)
    own_texts, own_count = np.zeros_like(images), np.bincount(image_of[known], minlength=len(images))
    np.add.at(own_texts, image_of[known], texts[known])
    rest = texts.sum(0) - own_texts[asked]
    of_images = np.einsum("id,id->i", images[asked], rest) / np.maximum(len(texts) - own_count[asked], 1)
    return of_texts, of_images


def special_recalls(evaluation: Evaluation, of_texts: Float64Array, of_images: Float64Array) -> dict[str, Recalls]:
    """R@K for the hardest and the most infrequent fifth of the queries, in both directions.

    of_texts: [captions], of_images: [query images], in the order of `Evaluation.ranks`. To compare two models, use the
    averages from one of them for both, so that the same queries are selected.
    """
    to_image, _, to_text, _ = evaluation.ranks()
    return {"text_to_image": _recalls(to_image, of_texts), "image_to_text": _recalls(to_text, of_images)}


def _recalls(ranks: Ranks, averages: Float64Array) -> Recalls:
    order = np.argsort(averages, kind="stable")
    count = max(1, round(len(order) / 5))
    kinds = {"hardest": order[-count:], "infrequent": order[:count]}
    return {kind: {"20%": summary(ranks[chosen])} for kind, chosen in kinds.items()}
