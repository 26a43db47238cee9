"""The contrastive loss (InfoNCE, as in CLIP)."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sightline.errors import ModelError
from sightline.losses.base import Loss, Pairs, Scores, check_scores
from sightline.models.retriever import Retriever


class Contrastive(Loss):
    """InfoNCE in both directions with a learned temperature, for any number of positives.

        L = ½ mean_c L(c) + ½ mean_i L(i),    L(a) = mean over positives p of a of  -log ( e^(s·cos(a,p)) / Z(a, p) ),
        Z(a, p) = e^(s·cos(a,p)) + Σ over negatives n of a  e^(s·cos(a,n)),

    where the scale s is the inverse of the temperature, c runs over the texts with an image in the batch, and i over
    the images with a text.

    Each positive competes with the negatives only, not with the anchor's other positives (SINCERE, Feeney and Hughes
    2024). SupCon's form, with all positives in Z, cannot reach zero, and pushes a positive away as soon as it is
    closer than the others: an image would be pushed away from its best caption. Here, a single positive gives plain
    InfoNCE, the loss can reach zero, and a batch of one image gives zero.

    on: what is used for cos: "embedding", the cosine of one vector each; "fragments", late interaction, whose scores
        are sums over words and so need a temperature about ten times as high; or "states", the cosine of the means
        of the matcher's inputs.
    temperature: the initial value; by default that of the published model that the run starts from, or 0.07 as in CLIP.
    learn_temperature: whether log s is a trained parameter or fixed.
    max_scale: upper bound of s. As in CLIP the parameter is clamped before each use, so that gradients can still
        lower it.
    label_smoothing: the fraction of each target that is spread evenly over p and the negatives, as in
        `F.cross_entropy`.

    Uses the embeddings, the fragments or the states of both sides. The term of an anchor without negatives is zero.

    Distributed: each direction is a sum over the process's own anchors, divided by the number of anchors in the whole
        batch that have a positive.

    >>> from sightline.models import EncodedTensors
    >>> def encoded(vectors):
    ...     return EncodedTensors(vectors, vectors[:, None], torch.ones(len(vectors), 1, dtype=torch.bool), None)
    >>> texts, images = encoded(torch.eye(2)[[0, 0, 1]]), encoded(torch.eye(2))
    >>> pairs = Pairs(texts, images, torch.tensor([7, 7, 8]), torch.tensor([7, 8]))
    >>> contrastive = Contrastive(temperature=1.0)
    >>> loss = contrastive(pairs, None, torch.Generator())  # the model is not used
    >>> round(loss.item(), 4)
    0.3728

    Every text has one negative and so a loss of log(1 + e⁻¹), as does the first image; the second image has two
    negatives and a loss of log(1 + 2e⁻¹).
    """

    def __init__(
        self,
        temperature: float | None = None,
        learn_temperature: bool = True,
        max_scale: float = 100.0,
        label_smoothing: float = 0.0,
        on: Scores = "embedding",
    ) -> None:
        super().__init__()
        self._takes_over = temperature is None
        temperature = 0.07 if temperature is None else temperature
        for key, value in (("temperature", temperature), ("max_scale", max_scale)):
            if value <= 0:
                raise ModelError(f"contrastive.{key} cannot be {value}", "Use a number above 0.")
        if 1 / temperature > max_scale * (1 + 1e-6):
            raise ModelError(
                f"contrastive.temperature {temperature} means a scale of {1 / temperature:.4g}, above {max_scale}",
                f"Use a temperature of at least {1 / max_scale:.4g}, or a larger max_scale.",
            )
        if not 0 <= label_smoothing < 1:
            raise ModelError(
                f"contrastive.label_smoothing cannot be {label_smoothing}", "Use a fraction of at least 0 and below 1."
            )
        self.on = on
        self.needs = check_scores("contrastive", on)
        self.max_scale = max_scale
        self.label_smoothing = label_smoothing
        self.log_scale = nn.Parameter(torch.tensor(-math.log(temperature)), requires_grad=learn_temperature)

    def fit(self, model: Retriever) -> None:
        """Start from the model's own temperature, unless another was given."""
        if self._takes_over and self.on == "embedding" and model.initial_temperature is not None:
            scale = min(1 / model.initial_temperature, self.max_scale)
            with torch.no_grad():
                self.log_scale.fill_(math.log(scale))

    @property
    def learned_temperature(self) -> Tensor | None:
        """The inverse of the scale, if it is learned."""
        return self.log_scale.detach().neg().exp() if self.log_scale.requires_grad else None

    def scale(self) -> Tensor:
        """Return the scale s, limited to `max_scale`; the gradient reaches `log_scale` even at the limit."""
        with torch.no_grad():
            self.log_scale.clamp_(max=math.log(self.max_scale))
        return self.log_scale.exp()

    def forward(self, pairs: Pairs, model: Retriever, generator: torch.Generator) -> Tensor:
        """Return this process's contribution to the mean of both directions."""
        logits, positive, negative = self.scale() * pairs.scores(self.on), pairs.positive, pairs.negative
        texts, images = pairs.own_texts, pairs.own_images
        of_texts = info_nce(logits[texts], positive[texts], self.label_smoothing, negative[texts]).sum()
        of_images = info_nce(logits.T[images], positive.T[images], self.label_smoothing, negative.T[images]).sum()
        text_count, image_count = (positive.any(side).sum().clamp(min=1) for side in (1, 0))
        return 0.5 * (of_texts / text_count + of_images / image_count)


def info_nce(logits: Tensor, positive: Tensor, label_smoothing: float = 0.0, negative: Tensor | None = None) -> Tensor:
    """Compute L(a) for every anchor: [anchors], zero for anchors without a positive or without a negative.

    logits, positive, negative: [anchors, items]; by default, all items that are not positive are negative. With N the
    logsumexp of the negatives, the term of positive p is log(e^p + e^N) - p = softplus(N - p); smoothing adds its
    fraction of the difference between p and the mean of p and the negatives.
    """
    negative = ~positive if negative is None else negative
    lowest = torch.finfo(logits.dtype).min
    rivals = logits.masked_fill(~negative, lowest).logsumexp(1, keepdim=True)
    terms = F.softplus(rivals - logits)
    if label_smoothing:
        middle = (logits + (logits * negative).sum(1, keepdim=True)) / (1 + negative.sum(1, keepdim=True))
        terms = terms + label_smoothing * (logits - middle)
    return (terms * positive).sum(1) / positive.sum(1).clamp(min=1)
