"""A matcher that compares every word with the part of the image it attends to, and then reads those comparisons.

Word-to-region attention is that of SCAN (Lee et al. 2018); reasoning over the comparisons follows SGRAF (Diao et al.
2021), with layers of the text tower as the reasoner. The matcher starts from vectors that already share a space, so it
learns from the first step, while a transformer over [words ; image] must first learn which words and parts correspond.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sightline.models.heads import masked_mean


class AlignedStates(nn.Module):
    """Maps image fragments [batch, n, width] to the space of the text tower's states, [batch, n, hidden].

    places: the number of fragments of an image; each position gets a learned vector. 0 if they form no grid.
    """

    def __init__(self, width: int, hidden: int, places: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, hidden)
        self.places = nn.Parameter(torch.zeros(max(places, 1), hidden), requires_grad=places > 0)

    def forward(self, fragments: Tensor) -> Tensor:
        """Map fragments to states."""
        return self.linear(fragments) + self.places  # type: ignore[no-any-return]

    @torch.no_grad()
    def keep(self) -> None:
        """Initialise so that fragments are passed on unchanged, as far as `hidden` has room for them."""
        nn.init.eye_(self.linear.weight)
        self.linear.bias.zero_()

    @torch.no_grad()
    def align(self, image_projection: Tensor, text_projection: Tensor) -> None:
        """Initialise from the embedding space: the image's projection, then the pseudo-inverse of the text's.

        image_projection: [dim, width]; text_projection: [dim, hidden], both into the same embedding space.
        """
        back = torch.linalg.pinv(text_projection.float())
        self.linear.weight.copy_(back @ image_projection.float())
        self.linear.bias.zero_()


class AlignedMatcher(nn.Module):
    """Compares words with what they attend to in an image, and scores the comparisons.

    In between, layers of the text tower read the comparisons. Texts and images broadcast: [texts, 1, …] with
    [1, images, …] compares every text with every image, and projects each only once.

    heads: the number of attention heads, each with its own temperature.
    """

    def __init__(self, hidden: int, heads: int = 6) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.value = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)
        self.key = nn.Linear(hidden, hidden)
        self.key.load_state_dict(self.query.state_dict())  # states share a space: similar ones attend to each other
        self.sharpness = nn.Parameter(torch.full((heads, 1, 1), 10.0))
        self.word = nn.Linear(hidden, hidden)
        self.from_word, self.from_image = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)
        self.from_product, self.from_cosine = nn.Linear(hidden, hidden), nn.Linear(heads, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.dense = nn.Linear(2 * hidden, hidden)
        self.score = nn.Linear(hidden, 1)
        nn.init.normal_(self.score.weight, std=0.02)
        nn.init.zeros_(self.score.bias)
        self.scale = nn.Parameter(torch.tensor(14.0))

    def compare(self, text: Tensor, image: Tensor, image_mask: Tensor) -> Tensor:
        """Compare words [..., words, hidden] with an image [..., n, hidden]: [..., words, hidden]."""
        cosines, hidden_image = self.cosines(text, image, image_mask), ~image_mask[..., None, None, :]
        attention = (cosines * self.sharpness).masked_fill(hidden_image, torch.finfo(cosines.dtype).min).softmax(-1)
        attended = (attention @ self._split(self.value(image))).transpose(-2, -3).flatten(-2)
        word = self.word(text)
        product = F.normalize(word, dim=-1) * F.normalize(attended, dim=-1) * text.shape[-1]
        best = cosines.amax(-1).transpose(-1, -2)
        read = self.from_word(word) + self.from_image(attended) + self.from_product(product)
        return self.norm(read + self.from_cosine(best * 4))  # type: ignore[no-any-return]

    def cosines(self, text: Tensor, image: Tensor, image_mask: Tensor) -> Tensor:
        """Return the cosines [..., heads, words, n] of words with the parts of an image; -1 for hidden parts."""
        query, key = (F.normalize(self._split(part), dim=-1) for part in (self.query(text), self.key(image)))
        return (query @ key.transpose(-1, -2)).masked_fill(~image_mask[..., None, None, :], -1.0)

    def logits(self, read: Tensor, text_mask: Tensor) -> Tensor:
        """Return the logits [batch] from comparisons that the text tower's layers have read, [batch, words, hidden]."""
        both = torch.cat([read[:, 0], masked_mean(read, text_mask)], -1)
        return self.score(F.gelu(self.dense(both))).squeeze(-1)  # type: ignore[no-any-return]

    def similarity(self, text: Tensor, text_mask: Tensor, image: Tensor, image_mask: Tensor) -> Tensor:
        """Return the scaled cosine [...] of the mean states of texts and images, both [..., n, hidden]."""
        means = (masked_mean(text, text_mask), masked_mean(image, image_mask))
        return self.scale * F.cosine_similarity(*means, dim=-1)

    def _split(self, values: Tensor) -> Tensor:
        """Split [..., n, hidden] into heads: [..., heads, n, hidden / heads]."""
        return values.view(*values.shape[:-1], self.heads, -1).transpose(-2, -3)
