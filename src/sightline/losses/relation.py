"""The relation loss: embeddings enhanced by related texts and images of the batch, in training only (paper 2, HREM)."""

from typing import get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from sightline.errors import ModelError
from sightline.losses.base import Loss, Pairs
from sightline.losses.cuda_graph import CapturedFunction
from sightline.losses.graph import AssociationGraph, BatchGraph, relevance_loss
from sightline.losses.precision import full
from sightline.losses.relation_mechanisms import MECHANISMS, Among, Fusion, Mechanism, Standalone
from sightline.losses.triplet import Triplet, TripletNegatives
from sightline.models.retriever import EncodedTensors, Retriever

_WORDS = 8
"""Texts are padded to a multiple of this many words before capture: fewer lengths need fewer CUDA graphs."""


class Relation(Loss):
    """Trains embeddings to be consistent with versions enhanced by related items (paper 2, equations 4 to 14).

        L = L(v̄, ū) + [L(v, u) + L(v̄, u) + L(v, ū)] + weight · L_reg

    v and u are the embeddings of images and texts, v̄ and ū the same after the nodes of the batch's association graph
    have attended to each other; L is the triplet loss, summed over the pairs of the batch as in the authors' code, and
    L_reg equation 11. Search needs only v and u: all weights of the graph and of the attention belong to this loss, not
    to the model.

    mechanism: "fusion" (all nodes attend to all nodes at once) or "standalone" (first across modalities, then within).
    margin, negatives, nearest, farthest: settings of L; see `Triplet`.
    connected: τ, the fraction of the batch that a node is connected to.
    matches: K, how many of the best matching fragments determine the relevance of a text and an image to each other.
    relevance: λ, the weight of the relevance in the attention.
    regularisation: the weight of L_reg; the paper has none, the authors' code uses 10.
    layers, heads, dropout: settings of the attention.
    among: "all", or only "intra"-modal or only "inter"-modal relations (Table 3a).
    consistent: whether to include L(v̄, u) + L(v, ū); without them, L(v, u) + L(v̄, ū) remain (Table 3b, following
        the authors' code).
    chunk: match the fragments of this many texts at a time; 0 matches all at once.

    Reads embeddings and fragments of both sides; fragments only decide what is related, and receive no gradient.
    `parts` holds the terms of the loss (Figure 7): "initial" is L(v, u), "enhanced" L(v̄, ū), "crossed" the two others,
    "regularisation" L_reg without its weight.

    Distributed: every process enhances the whole batch, with the same dropout, and computes the terms of its own rows.

    >>> from types import SimpleNamespace
    >>> from sightline.models import EncodedTensors
    >>> sides = EncodedTensors(torch.eye(2), torch.eye(2)[:, None], torch.ones(2, 1, dtype=torch.bool), None)
    >>> pairs = Pairs(sides, sides, torch.tensor([7, 8]), torch.tensor([7, 8]))
    >>> relation = Relation(heads=1)
    >>> relation.fit(SimpleNamespace(embedding_dim=2))
    >>> loss = relation(pairs, None, torch.Generator())
    >>> sorted(relation.parts), relation.parts["initial"]
    (['crossed', 'enhanced', 'initial', 'regularisation'], tensor(0.))
    """

    needs = frozenset({"embedding"})

    def __init__(
        self,
        mechanism: Mechanism = "fusion",
        margin: float = 0.2,
        negatives: TripletNegatives = "distance",
        nearest: float = 0.5,
        farthest: float = 1.7,
        connected: float = 0.5,
        matches: int = 10,
        relevance: float = 1.0,
        regularisation: float = 10.0,
        layers: int = 1,
        heads: int = 16,
        dropout: float = 0.1,
        among: Among = "all",
        consistent: bool = True,
        chunk: int = 0,
    ) -> None:
        super().__init__()
        if mechanism not in MECHANISMS:
            raise ModelError(f"relation.mechanism cannot be {mechanism!r}", f"Choose one of {', '.join(MECHANISMS)}.")
        if among not in get_args(Among):
            raise ModelError(f"relation.among cannot be {among!r}", f"Choose one of {', '.join(get_args(Among))}.")
        if not 0 < connected <= 1:
            raise ModelError(
                f"relation.connected cannot be {connected}", "Use a fraction of the batch, above 0 and at most 1."
            )
        least = {"matches": 1, "layers": 1, "relevance": 0, "regularisation": 0, "chunk": 0}
        for key, value in zip(least, (matches, layers, relevance, regularisation, chunk), strict=True):
            if value < least[key]:
                raise ModelError(f"relation.{key} cannot be {value}", f"Use a number of at least {least[key]}.")
        self.mechanism, self.among, self.consistent = mechanism, among, consistent
        self.layers, self.heads, self.dropout = layers, heads, dropout
        self.relevance, self.regularisation = relevance, regularisation
        self.triplet = Triplet(margin, negatives, nearest, farthest, reduction="sum")
        self.graph = AssociationGraph(connected, matches, chunk)
        self.attention: Fusion | Standalone | None = None
        self._recorded = CapturedFunction(_loss)

    def fit(self, model: Retriever) -> None:
        """Create the attention with the width of the model's embeddings."""
        kind = MECHANISMS[self.mechanism]
        self.attention = kind(model.embedding_dim, self.heads, self.layers, self.dropout, self.relevance, self.among)

    def forward(self, pairs: Pairs, model: Retriever, generator: torch.Generator) -> Tensor:
        """Return this process's contribution to the loss."""
        seed = int(torch.randint(2**31, (), generator=generator))
        numbers = self.triplet.numbers(pairs, generator, (4,))
        device = pairs.text_ids.device
        forked = torch.random.fork_rng([device] if device.type == "cuda" else [])
        with forked, torch.autocast(device.type, enabled=False):
            torch.manual_seed(seed)  # the same dropout in all processes
            play = self._records(pairs)
            loss, parts = self._recorded(self, *_tensors(pairs), numbers) if play else self.loss_of(pairs, numbers)
        initial, of_images, of_texts, both, stray = parts.detach().unbind()
        self.parts = {"initial": initial, "enhanced": both, "crossed": of_images + of_texts, "regularisation": stray}
        return loss

    def _records(self, pairs: Pairs) -> bool:
        """Return whether the loss of a batch can be captured: on a GPU, without chunks, in a single process."""
        alone = all(
            range(len(ids))[own] == range(len(ids))
            for ids, own in ((pairs.text_ids, pairs.own_texts), (pairs.image_ids, pairs.own_images))
        )
        steady = self.graph.chunk == 0 and self.triplet.negatives in ("hardest", "distance")
        return pairs.text_ids.is_cuda and torch.is_grad_enabled() and alone and steady

    def loss_of(self, pairs: Pairs, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss, and its components: L(v, u), L(v̄, u), L(v, ū), L(v̄, ū) and L_reg."""
        graph = self.graph(pairs)
        stray = relevance_loss(pairs, graph.relevance)
        losses = self.triplet.of(self._cosines(pairs, graph), pairs, numbers)
        loss = losses.sum() if self.consistent else losses[0] + losses[3]
        parts = torch.cat([losses.detach(), stray.detach()[None]])
        return (loss + self.regularisation * stray if self.regularisation else loss), parts

    def _cosines(self, pairs: Pairs, graph: BatchGraph) -> Tensor:
        """Return the cosines of u with v, u with v̄, ū with v, and ū with v̄: [4, texts, images]."""
        if self.attention is None:
            raise ModelError("the relation loss has not been fitted to a model", "Call fit(model) first.")
        images, texts = full(pairs.images.embedding), full(pairs.texts.embedding)
        counts = [len(images), len(texts)]
        enhanced = F.normalize(torch.cat(self.attention(images, texts, graph)), dim=-1)
        enhanced_images, enhanced_texts = torch.split(enhanced, counts)
        cosines = torch.cat([texts, enhanced_texts]) @ torch.cat([images, enhanced_images]).T
        return cosines.view(2, len(texts), 2, len(images)).transpose(1, 2).flatten(0, 1)


def _loss(relation: Relation, *tensors: Tensor) -> tuple[Tensor, Tensor]:
    """Return the loss as a function of tensors, which can be captured."""
    *batch, numbers = tensors
    return relation.loss_of(_batch(*batch), numbers)


def _tensors(pairs: Pairs) -> tuple[Tensor, ...]:
    """Return the tensors of a batch that the loss reads, with padded texts."""
    texts, images = pairs.texts, pairs.images
    more = -texts.mask.shape[1] % _WORDS
    words, mask = F.pad(texts.fragments, (0, 0, 0, more)), F.pad(texts.mask, (0, more))
    sides = texts.embedding, words, mask, images.embedding, images.fragments, images.mask
    return *sides, pairs.text_ids, pairs.image_ids, pairs.positive, ~(pairs.positive | pairs.negative)


def _batch(*tensors: Tensor) -> Pairs:
    """Rebuild the batch from the result of `_tensors`."""
    text, words, word_mask, image, patches, patch_mask, text_ids, image_ids, positive, excluded = tensors
    texts, images = EncodedTensors(text, words, word_mask, None), EncodedTensors(image, patches, patch_mask, None)
    return Pairs(texts, images, text_ids, image_ids, also_positive=positive, excluded=excluded)
