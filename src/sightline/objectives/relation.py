"""The relation loss: texts and images of a batch help each other to be told apart, while training (paper 2, HREM)."""

from typing import get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from sightline.errors import ModelError
from sightline.models.retriever import Retriever
from sightline.objectives.graph import AssociationGraph, Graph, relevance_loss
from sightline.objectives.mechanisms import MECHANISMS, Among, Fusion, Mechanism, Standalone
from sightline.objectives.objective import Field, Objective, Pairs
from sightline.objectives.triplet import Negatives, Triplet


class Relation(Objective):
    """Paper 2, equations 4 to 14: embeddings enhanced by those related to them, and a loss that keeps both consistent.

        L = L(v̄, ū) + [L(v, u) + L(v̄, u) + L(v, ū)] + weight · L_reg

    v and u are the embeddings of images and texts, v̄ and ū the same after the nodes of the batch's association graph
    have attended to each other; L is the triplet loss, L_reg equation 11. Searching needs v and u alone: all weights of
    the graph and of the attention are this objective's own, and no model has them.

    mechanism: "fusion", all nodes attend to all at once, or "standalone", across the modalities and then within.
    margin, negatives, nearest, farthest: of L, see `Triplet`.
    connected: τ, the share of the batch that a node is connected to.
    matches: K, how many of the best matching fragments tell how relevant a text and an image are to each other.
    relevance: λ, the weight of the relevance in the attention.
    regularisation: the weight of L_reg.
    layers, heads, dropout: of the attention.
    among: "all", or only "intra"-modal or only "inter"-modal relations (Table 3a).
    consistent: whether the terms in brackets are there (Table 3b).
    chunk: match the fragments of this many texts at a time, and again when the gradient comes back; 0 is all at once.

    Reads embeddings and fragments of both sides. `parts` tells what the loss was made of (Figure 7): "initial" is
    L(v, u), "enhanced" L(v̄, ū), "crossed" the two others, "regularisation" L_reg without its weight.

    Shares: every process relates the whole batch, with the same dropout, and answers for the terms of its own rows.

    >>> from types import SimpleNamespace
    >>> from sightline.models import Encoded
    >>> sides = Encoded(torch.eye(2), torch.eye(2)[:, None], torch.ones(2, 1, dtype=torch.bool), None)
    >>> pairs = Pairs(sides, sides, torch.tensor([7, 8]), torch.tensor([7, 8]))
    >>> relation = Relation(heads=1)
    >>> relation.fit(SimpleNamespace(embedding_dim=2))
    >>> loss = relation(pairs, None, torch.Generator())
    >>> sorted(relation.parts), relation.parts["initial"]
    (['crossed', 'enhanced', 'initial', 'regularisation'], tensor(0.))
    """

    def __init__(
        self,
        mechanism: Mechanism = "fusion",
        margin: float = 0.2,
        negatives: Negatives = "distance",
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
            raise ModelError(f"relation mechanism {mechanism!r}", f"Give one of {', '.join(MECHANISMS)}.")
        if among not in get_args(Among):
            raise ModelError(f"relation among {among!r}", f"Give one of {', '.join(get_args(Among))}.")
        if not 0 < connected <= 1:
            raise ModelError(f"relation connected {connected}", "Give a share of the batch above 0, up to 1 for all.")
        if min(matches, layers) < 1 or min(relevance, regularisation, chunk) < 0:
            raise ModelError(
                f"relation with matches {matches}, layers {layers}, relevance {relevance}, "
                f"regularisation {regularisation} and chunk {chunk}",
                "Give at least one match and one layer, and the others from 0 up.",
            )
        self.mechanism, self.among, self.consistent = mechanism, among, consistent
        self.layers, self.heads, self.dropout = layers, heads, dropout
        self.relevance, self.regularisation = relevance, regularisation
        self.triplet = Triplet(margin, negatives, nearest, farthest)
        self.graph = AssociationGraph(connected, matches, chunk)
        self.attention: Fusion | Standalone | None = None
        weighs = regularisation > 0 or (relevance > 0 and among != "intra")
        fields: set[Field] = {"embedding", "fragments"} if weighs else {"embedding"}
        self.needs = frozenset(fields)

    def fit(self, model: Retriever) -> None:
        """Make the attention as wide as the model's embeddings."""
        kind = MECHANISMS[self.mechanism]
        self.attention = kind(model.embedding_dim, self.heads, self.layers, self.dropout, self.relevance, self.among)

    def forward(self, pairs: Pairs, model: Retriever, generator: torch.Generator) -> Tensor:
        """Give this process's share of the loss."""
        with torch.autocast(pairs.text_ids.device.type, enabled=False):
            graph = self.graph(pairs)
            stray = relevance_loss(pairs, graph.relevance)
            losses = self.triplet.of(self._cosines(pairs, graph, generator), pairs, generator)
        initial, of_images, of_texts, both = losses.detach().unbind()
        parts = {"initial": initial, "enhanced": both, "crossed": of_images + of_texts}
        self.parts = {**parts, "regularisation": stray.detach()}
        loss: Tensor = losses.sum() if self.consistent else losses[3]
        return loss + self.regularisation * stray if self.regularisation else loss

    def _cosines(self, pairs: Pairs, graph: Graph, generator: torch.Generator) -> Tensor:
        """Cosines of u with v, u with v̄, ū with v, and ū with v̄: [4, texts, images]."""
        images, texts = pairs.images.embedding.float(), pairs.texts.embedding.float()
        counts = [len(images), len(texts)]
        enhanced = F.normalize(torch.cat(self._enhanced(images, texts, graph, generator)), dim=-1)
        enhanced_images, enhanced_texts = torch.split(enhanced, counts)
        cosines = torch.cat([texts, enhanced_texts]) @ torch.cat([images, enhanced_images]).T
        return cosines.view(2, len(texts), 2, len(images)).transpose(1, 2).flatten(0, 1)

    def _enhanced(
        self, images: Tensor, texts: Tensor, graph: Graph, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Let images [I, dim] and texts [T, dim] attend to each other; dropout follows the generator alone."""
        if self.attention is None:
            raise ModelError("relation does not know how wide the embeddings are", "Call fit(model) first.")
        seed = int(torch.randint(2**31, (), generator=generator))
        with torch.random.fork_rng([images.device] if images.is_cuda else []):
            torch.manual_seed(seed)  # all processes drop the same
            enhanced: tuple[Tensor, Tensor] = self.attention(images, texts, graph)
        return enhanced
