"""A transformer of its own for pictures, which reads what an image tower saw as if it were words (paper 4)."""

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from sightline.models.heads import ImageStates
from sightline.models.text_tower import TextTower


class ImageReader(nn.Module):
    """Reads [CLS] and the fragments of a picture, row by row, each at its own position.

    Paper 4's image encoder: twelve layers over the regions that a frozen detector found. Here any BERT-type encoder,
    over the patches of an image tower.

    hidden: the width of a fragment. places: how many fragments a picture has.
    """

    def __init__(self, encoder: PreTrainedModel, hidden: int, places: int) -> None:
        super().__init__()
        self.tower = TextTower(encoder, places + 1)
        self.tower.check_reads_images()
        spread = self.tower.word_spread()
        self.states = ImageStates(hidden, self.tower.hidden, spread)
        self.start = nn.Parameter(torch.randn(self.tower.hidden) * spread)

    def forward(self, fragments: Tensor, hidden: Tensor | None = None) -> Tensor:
        """Read fragments [batch, n, hidden]: [batch, 1 + n, width], the picture as a whole first.

        hidden: [batch, n], true where a fragment is not to be seen. It is read as zeros, as in UNITER: that something
        was there, and where, remains.
        """
        if hidden is not None:
            fragments = torch.where(hidden[:, :, None], 0.0, fragments)
        states = self.states(fragments)
        vectors = torch.cat([self.start.to(states.dtype).expand(states.shape[0], 1, -1), states], 1)
        there = torch.ones(vectors.shape[:2], dtype=torch.bool, device=vectors.device)
        return self.tower.read(vectors, there, None, None)
