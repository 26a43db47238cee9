"""The triplet loss: a positive pair should be closer than any negative by a margin."""

from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from sightline.errors import ModelError
from sightline.losses.base import Loss, Pairs, Scores, check_scores
from sightline.losses.negative_sampling import draw_each, inverse_density, uniform
from sightline.models.retriever import Retriever

TripletNegatives = Literal["hardest", "mean", "sum", "distance"]
Reduction = Literal["mean", "sum"]


class Triplet(Loss):
    """Requires every positive pair (i, c) of the batch to be closer than its negatives by a margin.

    Paper 1, equation 2; paper 2, equation 13; paper 3, equation 4:

        L(i, c) = [cos(i, c') - cos(i, c) + α]⁺ + [cos(i', c) - cos(i, c) + α]⁺

    i is an image and c a text that belongs to it; c' is a text that does not belong to i, i' an image that does not
    belong to c, and [x]⁺ = max(0, x).

    margin: α. Paper 1 uses 0.1, HREM 0.2, paper 3 0.2 for embeddings and 0.6 for fragments.
    negatives: how c' and i' are chosen, for each pair and direction:
        "hardest", the closest of the batch (paper 1's in-batch hard negatives; VSE++, HREM);
        "mean" and "sum", all of the batch, their terms averaged or summed (paper 3 sums). HREM starts with an epoch of
        the mean, because the hardest negatives of an untrained model can collapse all embeddings to one point;
        "distance", one drawn for each pair so that all distances are equally likely (`inverse_density`).
    nearest, farthest: bounds for "distance". Closer negatives are as likely as those at `nearest`; those at `farthest`
        or beyond, whose term is nearly always zero, are never drawn (2 = no bound). HREM's code uses 0.5, and 1.7 for
        Flickr30k or 1.9 for COCO.
    on: what is used for cos: "embedding", the cosine of one vector each, or "fragments", late interaction.
    reduction: "mean" over the positive pairs, as in paper 1, or "sum", as in papers 2 and 3.

    Reads the embeddings, or the fragments, of both sides. If a text or an image has no negative, its term is zero.

    Distributed: the term of i' (a text against images) is computed by the process that owns the text, that of c' by the
    one that owns the image; for the mean, both are divided by the number of positive pairs in the whole batch. Every
    term has one owner and one divisor, so contributions add up.

    >>> from sightline.models import EncodedTensors
    >>> def encoded(vectors):
    ...     return EncodedTensors(vectors, vectors[:, None], torch.ones(len(vectors), 1, dtype=torch.bool), None)
    >>> texts = encoded(torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]]))
    >>> images = encoded(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    >>> pairs = Pairs(texts, images, torch.tensor([7, 7, 8]), torch.tensor([7, 8]))
    >>> triplet = Triplet(margin=0.1)
    >>> triplet(pairs, None, torch.Generator())  # the model is not used
    tensor(0.1000)

    The second text is closer to the other image by 0.2, and so violates the margin by 0.3; the other terms of the three
    pairs are zero.
    """

    def __init__(
        self,
        margin: float = 0.1,
        negatives: TripletNegatives = "hardest",
        nearest: float = 0.5,
        farthest: float = 1.7,
        on: Scores = "embedding",
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__()
        if negatives not in get_args(TripletNegatives):
            raise ModelError(
                f"triplet.negatives cannot be {negatives!r}", f"Choose one of {', '.join(get_args(TripletNegatives))}."
            )
        if reduction not in get_args(Reduction):
            raise ModelError(
                f"triplet.reduction cannot be {reduction!r}", f"Choose one of {', '.join(get_args(Reduction))}."
            )
        if not 0 <= margin < float("inf"):
            raise ModelError(f"triplet.margin cannot be {margin}", "Use a number of at least 0.")
        if not 0 < nearest < farthest <= 2:
            raise ModelError(
                f"triplet.nearest and triplet.farthest cannot be {nearest} and {farthest}",
                "The distance between unit vectors is at most 2: use 0 < nearest < farthest <= 2.",
            )
        self.needs = check_scores("triplet", on)
        if on == "fragments" and negatives == "distance":
            raise ModelError(
                'triplet: on = "fragments" cannot be combined with negatives = "distance"',
                'Only single vectors have distances: choose other negatives, or on = "embedding".',
            )
        self.on = on
        self.margin = margin
        self.negatives = negatives
        self.nearest = nearest
        self.farthest = farthest
        self.reduction = reduction

    def forward(self, pairs: Pairs, model: Retriever, generator: torch.Generator) -> Tensor:
        """Return this process's contribution to the mean or the sum over the positive pairs."""
        cosines = pairs.scores(self.on)
        return self.of(cosines, pairs, self.numbers(pairs, generator))

    def numbers(self, pairs: Pairs, generator: torch.Generator, matrices: tuple[int, ...] = ()) -> Tensor:
        """Draw the random numbers that `of` needs, for this many matrices of cosines: [2, *matrices, texts, 1]."""
        return uniform((2, *matrices, len(pairs.text_ids), 1), generator, pairs.text_ids.device)

    def of(self, cosines: Tensor, pairs: Pairs, numbers: Tensor) -> Tensor:
        """Return the loss for the given cosines [..., texts, images]: one value for each matrix, [...].

        On a GPU, several matrices at once take little longer than one.
        """
        positive, negative, texts, images = pairs.positive, pairs.negative, pairs.own_texts, pairs.own_images
        numbers = numbers.expand(2, *cosines.shape)
        dim = pairs.texts.embedding.shape[1]
        of_texts = self._violations(
            cosines[..., texts, :], positive[texts], negative[texts], numbers[0][..., texts, :], dim
        )
        of_images = self._violations(
            cosines.mT[..., images, :], positive.T[images], negative.T[images], numbers[1].mT[..., images, :], dim
        )
        both = of_texts + of_images
        return both if self.reduction == "sum" else both / positive.sum().clamp(min=1)

    def _violations(self, cosines: Tensor, positive: Tensor, negative: Tensor, numbers: Tensor, dim: int) -> Tensor:
        """Compute one direction, [..., anchors, items], summed over positive pairs; numbers: random, one per pair."""
        if self.negatives == "distance":
            log_weights = inverse_density(cosines.detach(), dim, self.nearest)
            allowed = negative & (cosines.detach() > 1 - self.farthest**2 / 2)
            return drawn(cosines, positive, self.margin, log_weights, allowed, numbers)
        rule = {"hardest": hardest, "mean": mean, "sum": every}[self.negatives]
        return rule(cosines, positive, negative, self.margin)


def hardest(cosines: Tensor, positive: Tensor, negative: Tensor, margin: float) -> Tensor:
    """Return one direction of equation 2, summed over positive pairs, each against its anchor's closest negative.

    cosines: [..., anchors, items]; positive, negative: [anchors, items]; returns [...]. Anchors without positives or
    without negatives contribute nothing.
    """
    closest = cosines.masked_fill(~negative, -torch.inf).amax(-1, keepdim=True)
    return _over_pairs(F.relu(closest - cosines + margin), positive)


def every(cosines: Tensor, positive: Tensor, negative: Tensor, margin: float) -> Tensor:
    """Like `hardest`, but summed over all of the anchor's negatives."""
    return _terms(cosines, positive, negative, margin).sum((-2, -1))


def mean(cosines: Tensor, positive: Tensor, negative: Tensor, margin: float) -> Tensor:
    """Like `hardest`, but averaged over all of the anchor's negatives for each pair."""
    negatives = negative.sum(1)[positive.nonzero(as_tuple=True)[0]]
    return (_terms(cosines, positive, negative, margin).sum(-1) / negatives.clamp(min=1)).sum(-1)


def drawn(
    cosines: Tensor, positive: Tensor, margin: float, log_weights: Tensor, allowed: Tensor, numbers: Tensor
) -> Tensor:
    """Like `hardest`, but against one negative for each pair, drawn in proportion to exp(log_weights).

    log_weights, allowed, numbers: [..., anchors, items]; the number at (anchor, item) draws for that positive pair.
    The other pairs draw too, without effect, because skipping them would make the CPU wait for the GPU.
    """
    rival = draw_each(log_weights, allowed, numbers)
    terms = F.relu(cosines.gather(-1, rival) - cosines + margin)
    return _over_pairs(terms, positive & allowed.any(-1, keepdim=True))


def _over_pairs(terms: Tensor, counted: Tensor) -> Tensor:
    """Sum the terms [..., anchors, items] that count: [...]."""
    return (terms * counted).sum((-2, -1))


def _terms(cosines: Tensor, positive: Tensor, negative: Tensor, margin: float) -> Tensor:
    """Compute the term of each positive pair with each negative of its anchor: [..., pairs, items], zero elsewhere."""
    anchor, item = positive.nonzero(as_tuple=True)
    return F.relu(cosines[..., anchor, :] - cosines[..., anchor, item, None] + margin) * negative[anchor]
