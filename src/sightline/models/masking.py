"""Texts and pictures read with gaps: what a two-tower model makes of words and fragments that it was not shown.

What is hidden is replaced before any trained weight reads it. All answers are where embeddings are compared: projected
as an item's embedding is, and of unit length, so that a word and a picture can be added whatever the towers' widths.

Fragments are hidden, and have features to be guessed, in one of two ways:

- A model with an `image_reader`: fragments are what the frozen image tower saw. They are hidden from the reader.
- A model without: fragments are all patches of the image tower, which has frozen lower layers. Hidden patches are zero
  (the mean colour) in the picture itself, and what the frozen layers make of the whole picture is to be guessed.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from sightline.errors import ModelError
from sightline.models import towers
from sightline.models.dual_stream import DualStream
from sightline.models.retriever import Retriever, Seen, Tokens


def two_towers(model: Retriever, asked: str) -> DualStream:
    """Refuse a model that is not made of two towers, or whose embeddings are no projections."""
    if not isinstance(model, DualStream):
        raise ModelError(
            f"{asked} reads texts and pictures each with a tower of its own, and this is a {type(model).__name__}",
            'Choose a model with kind = "dual_stream".',
        )
    if model.config.relations is not None:
        raise ModelError(
            f"{asked} projects each word and fragment as an embedding, and relations make one embedding of them all",
            "Leave out model.relations.",
        )
    return model


def looked(model: DualStream, images: Tensor | Seen) -> Tensor | Seen:
    """What fragments are hidden from: pictures, or, with an `image_reader`, what the image tower saw in them."""
    return images if model.image_reader is None else _seen(model, images)


def places(model: DualStream) -> int:
    """How many fragments of a picture may be hidden."""
    return model.image.places if model.image_reader is not None else model.image.rows**2


def read_with_gaps(model: DualStream, tokens: Tokens, hidden: Tensor, blank: Tensor) -> Tensor:
    """Read texts whose hidden words [batch, n] are `blank` [width]: every word, [batch, n, embedding_dim]."""
    words = torch.where(hidden[:, :, None], blank, model.text.words(tokens.ids))
    read = model.text.read(words, tokens.mask, None, None, model.text_codes)
    return model.text_embedding(read[:, : hidden.shape[1]])  # type: ignore[no-any-return]


def see_with_gaps(model: DualStream, images: Tensor | Seen, hidden: Tensor) -> Tensor:
    """Look at pictures without their hidden fragments [batch, places]: every one, [batch, places, embedding_dim].

    images: pixels [batch, 3, size, size], or, for a model with an `image_reader`, what its image tower saw in them.
    """
    if model.image_reader is not None:
        read = model.image_reader(_seen(model, images).patches, hidden)[:, 1:]
    else:
        rows = model.image.rows
        square = hidden.view(-1, 1, rows, rows)
        pixels = _pixels(images)
        side = pixels.shape[-1] // rows
        covered = square.repeat_interleave(side, 2).repeat_interleave(side, 3)
        covered = F.pad(covered, (0, pixels.shape[-1] - rows * side, 0, pixels.shape[-2] - rows * side))
        read = model.image.patches(torch.where(covered, 0.0, pixels))
    return model.image_embedding(read)  # type: ignore[no-any-return]


@torch.no_grad()
def frozen_features(model: DualStream, images: Tensor | Seen) -> Tensor:
    """What frozen weights make of every fragment, to be guessed: [batch, places, hidden], mean 0 and variance 1 each.

    Refused where they would change while the model trains, and where nothing of what reads them does.
    """
    if model.image_reader is not None:
        if any(parameter.requires_grad for parameter in model.image.parameters()):
            raise ModelError(
                "hidden fragments are guessed as the image tower saw them, and it is trained: they would change",
                "Freeze it: optimizer.rates.image = 0.",
            )
        seen = _seen(model, images).patches.float()
        return F.layer_norm(seen, seen.shape[-1:])
    frozen = towers.frozen_layers(model.image.encoder)
    if not 0 < frozen < len(towers.layers(model.image.encoder)):
        raise ModelError(
            "hidden patches are guessed as the frozen layers of the image tower see them, by the layers above, and "
            + ("all of it is frozen" if frozen else "none of it is"),
            "Set optimizer.frozen_layers.image to some of its layers, or give the model an image_reader.",
        )
    was_training = model.image.encoder.training
    model.image.encoder.eval()  # what is to be guessed has no dropout
    features = model.image.patches(_pixels(images), frozen)
    model.image.encoder.train(was_training)
    return features.float()


def _seen(model: DualStream, images: Tensor | Seen) -> Seen:
    return images if isinstance(images, Seen) else model.look(images)


def _pixels(images: Tensor | Seen) -> Tensor:
    if isinstance(images, Seen):
        raise ModelError("patches cannot be hidden from a frozen image tower that looked already")
    return images
