"""A transformer of its own for pictures, which reads regions, or what an image tower saw, as if words (paper 4)."""

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from sightline.models.heads import ImageStates
from sightline.models.text_tower import TextTower


class ImageReader(nn.Module):
    """Reads [CLS] and the fragments of a picture: patches row by row, each at its own position; or a set of regions.

    Paper 4's image encoder: twelve layers over the regions that a frozen detector found. Here any BERT-type encoder,
    over regions or over the patches of an image tower.

    hidden: the width of a fragment. places: how many fragments a picture has; 0 for regions, of which there may be any
    number, and whose boxes say where they are.
    """

    def __init__(self, encoder: PreTrainedModel, hidden: int, places: int) -> None:
        super().__init__()
        self.tower = TextTower(encoder, places + 1)
        self.tower.check_reads_images()
        spread = self.tower.word_spread()
        self.states = ImageStates(hidden, self.tower.hidden, spread)
        self.start = nn.Parameter(torch.randn(self.tower.hidden) * spread)

    def forward(self, fragments: Tensor, mask: Tensor | None = None) -> Tensor:
        """Read fragments [batch, n, hidden]: [batch, 1 + n, width], the picture as a whole first.

        mask: [batch, n], true where a region is real; None for patches, which all are.
        """
        states = self.states(fragments)
        start = self.start.to(states.dtype).expand(states.shape[0], 1, -1)
        first = torch.ones(states.shape[0], 1, dtype=torch.bool, device=states.device)
        if mask is not None:
            return self.tower.read(start, first, states, mask)
        return self.tower.read(torch.cat([start, states], 1), first.expand(-1, 1 + states.shape[1]), None, None)
