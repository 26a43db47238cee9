"""Two mechanisms that enhance embeddings by related texts and images (paper 2, section 3.3.2, figure 4)."""

from typing import Literal

import torch
from torch import Tensor, nn

from sightline.losses.graph import BatchGraph
from sightline.models.attention import Attending, FeedForward, hide

Mechanism = Literal["fusion", "standalone"]
Among = Literal["all", "intra", "inter"]
"""Which relations to use: all, only those within images and within texts, or only those between images and texts."""


class Fusion(nn.Module):
    """Images and texts attend to the whole batch, with connections A and relevance weighted by λ (equation 12)."""

    def __init__(self, dim: int, heads: int, layers: int, dropout: float, weight: float, among: Among) -> None:
        super().__init__()
        self.weight, self.among = weight, among
        self.attend = nn.ModuleList(Attending(dim, heads, dropout) for _ in range(layers))
        self.feed_forward = nn.ModuleList(FeedForward(dim, dropout) for _ in range(layers))

    def forward(self, images: Tensor, texts: Tensor, graph: BatchGraph) -> tuple[Tensor, Tensor]:
        """Enhance images [I, dim] and texts [T, dim]."""
        counts = [len(images), len(texts)]
        connected = graph.connected.joined()
        if self.among != "all":
            first = torch.arange(len(connected), device=images.device) < counts[0]
            connected &= (first[:, None] == first) == (self.among == "intra")
        bias = hide(self.weight * graph.relevance.joined(), connected)
        nodes = torch.cat([images, texts])
        for attend, feed_forward in zip(self.attend, self.feed_forward, strict=True):
            nodes = feed_forward(attend(nodes, nodes, bias))
        images, texts = torch.split(nodes, counts)
        return images, texts


class Standalone(nn.Module):
    """Images attend to texts and then to images, texts to images and then to texts, in two branches."""

    def __init__(self, dim: int, heads: int, layers: int, dropout: float, weight: float, among: Among) -> None:
        super().__init__()
        self.weight = weight
        self.images, self.texts = (
            nn.ModuleList(_Branch(dim, heads, dropout, among) for _ in range(layers)) for _ in range(2)
        )

    def forward(self, images: Tensor, texts: Tensor, graph: BatchGraph) -> tuple[Tensor, Tensor]:
        """Enhance images [I, dim] and texts [T, dim]."""
        blocks = zip(graph.relevance, graph.connected, strict=True)
        image_image, image_text, text_image, text_text = (hide(self.weight * s, a) for s, a in blocks)
        for of_images, of_texts in zip(self.images, self.texts, strict=True):
            images, texts = (
                of_images(images, texts, image_image, image_text),
                of_texts(texts, images, text_text, text_image),
            )
        return images, texts


class _Branch(nn.Module):
    """One layer for one modality: inter-modal attention, intra-modal attention, feed-forward."""

    def __init__(self, dim: int, heads: int, dropout: float, among: Among) -> None:
        super().__init__()
        self.inter = Attending(dim, heads, dropout) if among != "intra" else None
        self.intra = Attending(dim, heads, dropout) if among != "inter" else None
        self.feed_forward = FeedForward(dim, dropout)

    def forward(self, nodes: Tensor, others: Tensor, within: Tensor, across: Tensor) -> Tensor:
        """Update nodes [n, dim] from others [m, dim]; biases: within [n, n] and across [n, m]."""
        if self.inter is not None:
            nodes = self.inter(nodes, others, across)
        if self.intra is not None:
            nodes = self.intra(nodes, nodes, within)
        return self.feed_forward(nodes)  # type: ignore[no-any-return]


MECHANISMS: dict[Mechanism, type[Fusion | Standalone]] = {"fusion": Fusion, "standalone": Standalone}
