"""The listwise loss: the matcher picks the right image for a text from a list, and the right text for an image."""

import torch
from torch import Tensor

from sightline.errors import ModelError
from sightline.losses.base import Loss, Pairs, check_chunk
from sightline.losses.matching import match_logits
from sightline.losses.negative_sampling import draw_several, uniform
from sightline.models.retriever import Retriever


class Listwise(Loss):
    """Cross-entropy of the matcher's choice between a pair and hard negatives (Gao, Dai and Callan 2021, equation 3).

        L = 1/2 mean_c [ log sum_{j in {i} + N(c)} e^s(j,c) - s(i,c)  +  log sum_{d in {c} + N(i)} e^s(i,d) - s(i,c) ]

    s is the logit of `model.match`, i the image of text c (the first in the batch, if it occurs twice), N(c) are images
    and N(i) texts of other images, drawn without replacement in proportion to the softmax of the bi-encoder's cosines
    divided by `temperature`. Like reranking, this loss compares candidates, whereas `Matching` classifies each pair on
    its own, and does not learn to order two candidates that both score high.

    negatives: how many negative images, and how many negative texts, to draw for each text; each step scores
        1 + 2 × negatives pairs per text. If a batch has fewer negatives, all of them are used.
    temperature, chunk: as in `Matching`.
    cosine: the weight of the embeddings' cosine, which is added to s, so that the matcher learns what the embeddings
        miss; the inverse of the temperature that they were trained with works best. 0 adds nothing.
    texts: use only this many texts of a batch, taken from its first rows; 0 uses all of them.

    Gradients flow to the states of both sides, but not to the embeddings.

    Distributed: a list belongs to the process that owns its text; the mean is over all texts whose image is in the
        batch.

    >>> from types import SimpleNamespace
    >>> from sightline.models import EncodedTensors
    >>> model = SimpleNamespace(match=lambda text, _, image, __: (text * image).sum((1, 2)))
    >>> states, mask = torch.eye(2)[:, None], torch.ones(2, 1, dtype=torch.bool)
    >>> sides = EncodedTensors(torch.eye(2), states, mask, states)
    >>> pairs = Pairs(sides, sides, torch.tensor([7, 8]), torch.tensor([7, 8]))
    >>> Listwise(negatives=1)(pairs, model, torch.Generator())  # softplus(-1): logits of 1 against logits of 0
    tensor(0.3133)
    """

    needs = frozenset({"states"})
    trains_matcher = True

    def __init__(
        self,
        negatives: int = 3,
        temperature: float = 0.07,
        chunk: int = 0,
        cosine: float = 0.0,
        texts: int = 0,
    ) -> None:
        super().__init__()
        for key, value in (("cosine", cosine), ("texts", texts)):
            if value < 0:
                raise ModelError(f"listwise.{key} cannot be {value}", "Use a number of at least 0.")
        if negatives < 1:
            raise ModelError(f"listwise.negatives cannot be {negatives}", "Use at least 1.")
        if temperature <= 0:
            raise ModelError(f"listwise.temperature cannot be {temperature}", "Use a number above 0.")
        self.negatives = negatives
        self.temperature = temperature
        self.chunk = check_chunk(chunk)
        self.cosine, self.texts = cosine, texts

    def forward(self, pairs: Pairs, model: Retriever, generator: torch.Generator) -> Tensor:
        """Return this process's contribution to the mean."""
        positive = pairs.own
        everyone = torch.arange(len(positive), device=positive.device)
        listed = positive.any(1) & (everyone < self.texts if self.texts else True)
        rows = everyone[pairs.own_texts]
        own = rows[listed[rows]]
        images = positive[own].int().argmax(1)
        others, absent_images, rivals, absent_texts = self._drawn(pairs, own, images, generator)
        texts = torch.cat([own, own.repeat_interleave(others.shape[1]), rivals.flatten()])
        candidates = torch.cat([images, others.flatten(), images.repeat_interleave(rivals.shape[1])])
        logits = match_logits(pairs, model, texts, candidates, self.chunk)

        if self.cosine:
            logits = logits + self.cosine * pairs.cosines().detach()[texts, candidates]
        right, by_image, by_text = torch.split(logits, [len(own), others.numel(), rivals.numel()])
        found = _surprise(right, by_image, absent_images) + _surprise(right, by_text, absent_texts)
        return found.sum() / (2 * listed.sum().clamp(min=1))

    @torch.no_grad()
    def _drawn(
        self, pairs: Pairs, own: Tensor, images: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Draw images [n, k] for own texts and texts [n, k] for their images, each with a mask of invalid draws."""
        negative, likely = pairs.negative, pairs.cosines() / self.temperature
        texts, count = len(negative), self.negatives
        for_images = uniform((texts, negative.shape[1]), generator, likely.device)
        for_texts = uniform((texts, texts), generator, likely.device)
        others = draw_several(likely[own], negative[own], for_images[own], count)
        rivals = draw_several(likely.T[images], negative.T[images], for_texts[own], count)
        return others, ~negative[own].gather(1, others), rivals, ~negative.T[images].gather(1, rivals)


def _surprise(right: Tensor, wrong: Tensor, absent: Tensor) -> Tensor:
    """Return the negative log-probability [n] of right items [n] against wrong ones [n * k] that are not `absent`."""
    present = wrong.view(absent.shape).masked_fill(absent, torch.finfo(wrong.dtype).min)
    return torch.cat([right[:, None], present], 1).logsumexp(1) - right
