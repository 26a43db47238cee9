"""Retrieve with one model and rerank with another's matcher (SEP+COOP of paper 1, re-ranking of paper 4)."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sightline.bundle.encoded import Model
from sightline.errors import EvaluationError
from sightline.evaluation.encoding import Encodings, Needs, Progress, encode_images, encode_texts
from sightline.media import ImageSource


def borrow_states(
    matcher: Model,
    images: Encodings,
    texts: Encodings,
    sources: Sequence[ImageSource],
    captions: Sequence[str],
    batch_size: int,
    progress: Progress | None = None,
) -> tuple[Encodings, Encodings]:
    """Encode the same with the matcher's model as well; gives images and texts with the states that it matches by.

    images, texts: as the first model encoded `sources`, as far as they can be read, and `captions`.
    """
    more_images, _ = encode_images(matcher, sources, Needs(states=True), batch_size, progress)
    more_texts, _ = encode_texts(matcher, captions, Needs(states=True), batch_size, progress)
    if not np.array_equal(images.names, more_images.names):
        raise EvaluationError("one model could read images that the other could not", "Mend or remove them.")
    return replace(images, states=more_images.states), replace(texts, states=more_texts.states)
