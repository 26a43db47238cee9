"""The masked-fragments loss: predict hidden parts of an image from the rest of it and from the text."""

from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sightline.errors import ModelError
from sightline.losses.base import Loss, Pairs, check_chunk
from sightline.losses.masking import (
    PredictionHead,
    check_share,
    hide,
    in_chunks,
    mean_of_items,
    others_of,
    own_inputs,
)
from sightline.losses.negative_sampling import uniform
from sightline.losses.precision import full
from sightline.models.fragments import clusters
from sightline.models.masking import (
    Images,
    check_same_width,
    feature_width,
    frozen_features,
    looked,
    may_hide,
    output_width,
    see_with_gaps,
    two_towers,
)
from sightline.models.retriever import Retriever

MaskTarget = Literal["features", "classes"]


class MaskedFragments(Loss):
    """Predicts hidden fragments of an image from its other fragments and, if fused, from its text.

    Paper 4, equation 4 (SMRM) or, if not fused, equation 3 (MRM), averaged over the images of the batch:

        L(i, t) = 1/M Σ_k D(v_k, h_k + z_0)        L(i) = 1/M Σ_k D(v_k, h_k)

    v_k are the M hidden fragments of image i, regions or the frozen features of patches, h_k the outputs of the image
    side at their positions, and z_0 the [CLS] of i's text t (the first in the batch), both as the last layers return
    them. See `models.masking` for what a fragment is, and where it is hidden.

    target: "features" (SMRFR): D is the squared L2 distance between v_k and g(h_k + z_0), divided by their width, so
        that predicting zero costs 1; g is a linear layer, GELU, a norm and a linear layer.
        "classes" (SMRC-kl): D is KL(c(v_k) ‖ g(h_k + z_0)). The paper's c is the class distribution of its detector;
        for features without classes, spherical k-means finds `classes` clusters of the fragments of some training
        images, and c(v) is the softmax of v's mean-centred cosines with these clusters, divided by `temperature`.
    classes, temperature: the number of clusters and the temperature of their softmax, for target = "classes".
    fused: whether z_0 is added; if so, both sides must have the same width.
    share: the probability of hiding a fragment; at least one fragment of each image is hidden.
    chunk: encode this many images at a time, and again in the backward pass; 0 encodes all at once.

    Needs a two-tower model, and targets that do not change in training (see `models.masking`). Runs the image side
    itself; if fused, gradients also flow to the texts' [CLS]. An image whose text is needed but missing contributes
    nothing.

    Distributed: each process computes the terms of its own images; the mean is over all images of the batch.
    """

    needs_inputs = True
    trains_ability = False
    sends_to = frozenset({"texts"})
    middle: Tensor
    centres: Tensor

    def __init__(
        self,
        target: MaskTarget = "features",
        fused: bool = True,
        share: float = 0.15,
        classes: int = 256,
        temperature: float = 0.1,
        chunk: int = 0,
    ) -> None:
        super().__init__()
        if target not in get_args(MaskTarget):
            raise ModelError(
                f"masked_fragments.target cannot be {target!r}", f"Choose one of {', '.join(get_args(MaskTarget))}."
            )
        if classes < 2:
            raise ModelError(f"masked_fragments.classes cannot be {classes}", "Use at least 2.")
        if temperature <= 0:
            raise ModelError(f"masked_fragments.temperature cannot be {temperature}", "Use a number above 0.")
        self.needs = frozenset({"pooled"}) if fused else frozenset()
        self.target = target
        self.fused = fused
        self.share = check_share("masked_fragments", share)
        self.classes = classes
        self.temperature = temperature
        self.chunk = check_chunk(chunk)
        self.needs_features = target == "classes"

    def fit(self, model: Retriever) -> None:
        """Create the prediction head, and allocate the classes."""
        dual = two_towers(model, "masked_fragments")
        dim = check_same_width(dual, "masked_fragments") if self.fused else output_width(dual)
        width = feature_width(dual)
        out = width if self.target == "features" else self.classes
        self.guess = nn.Sequential(PredictionHead(dim, dim), nn.Linear(dim, out))
        if self.target == "classes":
            self.register_buffer("middle", torch.zeros(width))
            self.register_buffer("centres", torch.zeros(self.classes, width))

    @torch.no_grad()
    def init_from_features(self, features: Tensor) -> None:
        """Compute the classes: clusters of features [fragments, width]."""
        if len(features) < self.classes:
            raise ModelError(
                f"cannot form {self.classes} classes from {len(features)} fragments",
                "Use fewer classes, or more training images.",
            )
        self.middle.copy_(features.mean(0))
        around = features - self.middle
        shares, _ = clusters(around[None], self.classes)
        self.centres.copy_(F.normalize(shares[0] @ F.normalize(around, dim=-1), dim=-1))

    def forward(self, pairs: Pairs, model: Retriever, generator: torch.Generator) -> Tensor:
        """Return this process's contribution to the mean over images."""
        dual, images = two_towers(model, "masked_fragments"), own_inputs("masked_fragments", pairs).images
        count = len(pairs.image_ids)
        device = pairs.image_ids.device
        allowed = may_hide(dual, images)
        numbers = uniform((count, allowed.shape[1]), generator, device)[pairs.own_images]
        hidden = hide(allowed, numbers, self.share)
        positive = pairs.own.T[pairs.own_images]
        counts = positive.any(1) if self.fused else torch.ones_like(positive[:, 0])
        texts = others_of(pairs.texts, positive) if self.fused else None

        def share(rows: Tensor) -> Tensor:
            some, gaps = looked(dual, _rows(images, rows)), hidden[rows]
            found = see_with_gaps(dual, some, gaps)
            if texts is not None:
                found = found + texts[rows][:, None]
            losses = self._distance(frozen_features(dual, some)[gaps], full(self.guess(found[gaps])))
            return mean_of_items(losses, gaps, counts[rows], count)

        return in_chunks(share, len(hidden), self.chunk, device)

    def _distance(self, features: Tensor, guess: Tensor) -> Tensor:
        """Compute D [n] between predictions [n, width or classes] and the features [n, width] of hidden fragments."""
        if self.target == "features":
            return (features - guess).square().mean(1)
        with torch.autocast(features.device.type, enabled=False):
            cosines = F.normalize(features - self.middle, dim=-1) @ self.centres.T
        right, found = (cosines / self.temperature).log_softmax(1), guess.log_softmax(1)
        return (right.exp() * (right - found)).sum(1)


def _rows(images: Images, rows: Tensor) -> Images:
    if isinstance(images, Tensor):
        return images[rows]
    return type(images)(*(None if part is None else part[rows] for part in images))  # type: ignore[arg-type]
