"""The matching loss: binary classification of text-image pairs."""

from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from sightline.errors import ModelError
from sightline.losses.base import Loss, Pairs, check_chunk
from sightline.losses.negative_sampling import draw, uniform
from sightline.losses.precision import full
from sightline.models.retriever import Retriever


def match_logits(pairs: Pairs, model: Retriever, texts: Tensor, images: Tensor, chunk: int = 0) -> Tensor:
    """Return the matcher's logits [n], float32, for pairs of texts and images, given by their rows [n] in the batch.

    chunk: match this many pairs at a time, and recompute them in the backward pass; 0 matches all at once.
    """
    text_states, image_states = pairs.texts.states, pairs.images.states
    if text_states is None or image_states is None:
        raise ModelError("the matching loss needs states, but this model has none", "Build it with a matcher.")
    if not len(texts):
        return full(text_states[:0].sum() + image_states[:0].sum()).expand(0)

    def judged(texts: Tensor, images: Tensor) -> Tensor:
        # A row is in many pairs: the backward pass of index_select accumulates, while that of indexing sorts first.
        return model.match(
            text_states.index_select(0, texts),
            pairs.texts.mask[texts],
            image_states.index_select(0, images),
            pairs.images.mask[images],
        )

    if not 0 < chunk < len(texts):
        return full(judged(texts, images))
    parts = zip(torch.split(texts, chunk), torch.split(images, chunk), strict=True)
    return full(torch.cat([checkpoint(judged, *part, use_reentrant=False) for part in parts]))


MatchNegatives = Literal["random", "hard"]
PerPositive = Literal["one", "both"]


class SampledPairs(NamedTuple):
    """Pairs to match: rows of texts [n] and images [n], whether they belong together [n], and weights [n]."""

    texts: Tensor
    images: Tensor
    labels: Tensor
    weights: Tensor


class Matching(Loss):
    """Binary cross-entropy of the matcher's logit (paper 1, section 3.1), with balanced classes.

        L(i, c) = -( y log p(i, c) + (1 - y) log(1 - p(i, c)) )

    y is 1 for a text c with its image i (the first in the batch, if it occurs twice), and 0 if the image or
    the text was replaced by another of the batch. p is the sigmoid of `model.match`.

    negatives: how replacements are drawn: "random", with equal probability from those that belong to other images; or
        "hard", in proportion to the softmax of the bi-encoder's cosines divided by `temperature` (as in ALBEF), because
        the matcher will meet such pairs when it reranks what the bi-encoder retrieved.
    per_positive: "one", as many negatives as positives, as in paper 1: texts in even rows of the batch have the image
        replaced, those in odd rows the text; or "both", two negatives for each positive, which then has twice the
        weight.
    temperature: the temperature of "hard". Lower is harder; far below 0.01, the hardest negative is always drawn, even
        a caption that fits both images.
    chunk: match this many pairs at a time, and again in the backward pass, which takes a third more time but only one
        chunk's memory; 0 matches all at once. The loss and its gradients are the same, except for a matcher's dropout.

    Gradients flow to the states of both sides; "hard" also reads the embeddings, but only to choose negatives.

    A positive weighs as much as its negatives together, so a positive without a negative in the batch is ignored.

    Distributed: a pair belongs to the process that owns its text or, if the text was replaced, the original text.
    Weights add up to one over the whole batch.

    >>> from types import SimpleNamespace
    >>> from sightline.models import EncodedTensors
    >>> model = SimpleNamespace(match=lambda text, _, image, __: (text * image).sum((1, 2)))
    >>> states, mask = torch.eye(2)[:, None], torch.ones(2, 1, dtype=torch.bool)
    >>> sides = EncodedTensors(torch.eye(2), states, mask, states)
    >>> pairs = Pairs(sides, sides, torch.tensor([7, 8]), torch.tensor([7, 8]))
    >>> matching = Matching(negatives="random")
    >>> matching(pairs, model, torch.Generator())  # half softplus(-1) for logits of 1, half softplus(0) for those of 0
    tensor(0.5032)
    """

    needs = frozenset({"states"})
    trains_matcher = True

    def __init__(
        self,
        negatives: MatchNegatives = "hard",
        per_positive: PerPositive = "both",
        temperature: float = 0.07,
        chunk: int = 0,
    ) -> None:
        super().__init__()
        if negatives not in get_args(MatchNegatives):
            raise ModelError(
                f"matching.negatives cannot be {negatives!r}", f"Choose one of {', '.join(get_args(MatchNegatives))}."
            )
        if per_positive not in get_args(PerPositive):
            raise ModelError(
                f"matching.per_positive cannot be {per_positive!r}",
                f"Choose one of {', '.join(get_args(PerPositive))}.",
            )
        if temperature <= 0:
            raise ModelError(f"matching.temperature cannot be {temperature}", "Use a number above 0.")
        self.negatives = negatives
        self.per_positive = per_positive
        self.temperature = temperature
        self.chunk = check_chunk(chunk)

    def forward(self, pairs: Pairs, model: Retriever, generator: torch.Generator) -> Tensor:
        """Return this process's contribution to the weighted mean of the cross-entropy."""
        chosen = self.choose(pairs, generator)
        logits = match_logits(pairs, model, chosen.texts, chosen.images, self.chunk)
        return F.binary_cross_entropy_with_logits(logits, chosen.labels.to(logits), chosen.weights, reduction="sum")

    @torch.no_grad()
    def choose(self, pairs: Pairs, generator: torch.Generator) -> SampledPairs:
        """Choose the pairs of this process's own texts: positives, then replaced images, then replaced texts."""
        positive, negative = pairs.own, pairs.negative
        rows = torch.arange(len(positive), device=positive.device)
        numbers = uniform((2, len(rows)), generator, positive.device)
        image = positive.int().argmax(1)
        replace_image = positive.any(1) & negative.any(1)
        replace_text = positive.any(1) & negative.any(0)[image]
        if self.per_positive == "one":
            replace_image, replace_text = replace_image & (rows % 2 == 0), replace_text & (rows % 2 == 1)
        negatives = replace_image.int() + replace_text.int()
        everything = (2 * negatives.sum()).clamp(min=1)

        own = rows[pairs.own_texts]
        kept, lose_image, lose_text = own[negatives[own] > 0], own[replace_image[own]], own[replace_text[own]]
        hard = self.negatives == "hard"
        likely = pairs.cosines() / self.temperature if hard else torch.zeros(positive.shape, device=own.device)
        other_image = draw(likely[lose_image], negative[lose_image], numbers[0, lose_image])
        alone = image[lose_text]
        other_text = draw(likely.T[alone], negative.T[alone], numbers[1, lose_text])
        weights = torch.cat([negatives[kept], torch.ones_like(lose_image), torch.ones_like(lose_text)])
        return SampledPairs(
            texts=torch.cat([kept, lose_image, other_text]),
            images=torch.cat([image[kept], other_image, alone]),
            labels=(torch.arange(len(weights), device=own.device) < len(kept)).float(),
            weights=weights / everything,
        )
