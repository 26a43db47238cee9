"""A second model beside the first: for the mean of their similarities (paper 2), or for its matcher (papers 1, 4)."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sightline.bundle.model import Model
from sightline.errors import EvaluationError
from sightline.evaluation.encodings import Encodings, Needs, Progress, encode_images, encode_texts
from sightline.media import ImageSource
from sightline.retrieval.plan import Plan


def check_partner(partner: Model, plan: Plan) -> None:
    """Refuse to rescore what two models retrieved: a mean of late interactions or of logits is another thing."""
    if plan.longest:
        raise EvaluationError(
            f"{', '.join(plan.names[1:])} with a second model, {partner.name}, whose embeddings alone can join",
            "Leave out late and rerank, or the second model.",
        )


def encode_again(
    second: Model,
    sources: Sequence[ImageSource],
    captions: Sequence[str],
    needs: Needs,
    batch_size: int,
    progress: Progress | None = None,
) -> tuple[Encodings, Encodings]:
    """Encode with a second model what the first has encoded: images, as far as they can be read, and texts."""
    images, _ = encode_images(second, sources, needs, batch_size, progress)
    texts, _ = encode_texts(second, captions, needs, batch_size, progress)
    return images, texts


def beside(first: Encodings, second: Encodings) -> Encodings:
    """The same items by two models, side by side: the dot product of two items is the mean of the models' own."""
    _check_same(first, second)
    joined = np.concatenate([first.embedding, second.embedding], axis=1) / np.sqrt(2)
    return Encodings(first.names, joined.astype(np.float32), None, None)


def with_states(first: Encodings, second: Encodings) -> Encodings:
    """The items as the first model retrieves them, with the states that the second matches by."""
    _check_same(first, second)
    return replace(first, states=second.states)


def _check_same(first: Encodings, second: Encodings) -> None:
    if not np.array_equal(first.names, second.names):
        raise EvaluationError("one model could read images that the other could not", "Mend or remove them.")
