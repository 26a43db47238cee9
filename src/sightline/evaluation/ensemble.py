"""Two models as one: the mean of the similarities that they find (the "Full" rows of paper 2)."""

from collections.abc import Sequence

import numpy as np

from sightline.bundle.encoded import Model
from sightline.errors import EvaluationError
from sightline.evaluation.encoding import Encodings, Needs, Progress, encode_images, encode_texts
from sightline.evaluation.plan import Plan
from sightline.media import ImageSource


def check_partner(partner: Model, plan: Plan) -> None:
    """Refuse to rescore what two models retrieved: a mean of late interactions or of logits is another thing."""
    if plan.longest:
        raise EvaluationError(
            f"{', '.join(plan.names[1:])} with a second model, {partner.name}, whose embeddings alone can join",
            "Leave out late and rerank, or the second model.",
        )


def join_partner(
    partner: Model,
    images: Encodings,
    texts: Encodings,
    sources: Sequence[ImageSource],
    captions: Sequence[str],
    batch_size: int,
    progress: Progress | None = None,
) -> tuple[Encodings, Encodings]:
    """Encode the same with a second model as well; gives images and texts as both see them.

    images, texts: as the first model encoded `sources`, as far as they can be read, and `captions`.
    """
    more_images, _ = encode_images(partner, sources, Needs(), batch_size, progress)
    more_texts, _ = encode_texts(partner, captions, Needs(), batch_size, progress)
    return beside(images, more_images), beside(texts, more_texts)


def beside(first: Encodings, second: Encodings) -> Encodings:
    """The same items by two models, side by side: the dot product of two items is the mean of the models' own."""
    if not np.array_equal(first.names, second.names):
        raise EvaluationError("one model could read images that the other could not", "Mend or remove them.")
    joined = np.concatenate([first.embedding, second.embedding], axis=1) / np.sqrt(2)
    return Encodings(first.names, joined.astype(np.float32), None, None)
