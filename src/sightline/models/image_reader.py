"""A transformer over regions, or over the patches of an image tower (papers 3 and 4)."""

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from sightline.models.fragments import new_codes
from sightline.models.heads import ImageStates
from sightline.models.text_tower import TextTower


class ImageReader(nn.Module):
    """Reads [CLS] and the fragments of an image: patches row by row, each with its own position; or a set of regions.

    The image encoder of papers 3 and 4: there, three or twelve layers over the regions of a frozen detector; here, any
    BERT-type encoder over regions, or over the patches of an image tower or clusters of them.

    hidden: the width of a fragment. places: the number of fragments of an image; 0 for regions, whose number varies and
    whose positions are given by their boxes. codes: the number of learned vectors it reads after the patches (paper 3).
    """

    def __init__(self, encoder: PreTrainedModel, hidden: int, places: int, codes: int = 0) -> None:
        super().__init__()
        self.tower = TextTower(encoder, places + 1)
        self.tower.check_reads_images()
        spread = self.tower.word_spread()
        self.states = ImageStates(hidden, self.tower.hidden, spread)
        self.start = nn.Parameter(torch.randn(self.tower.hidden) * spread)
        self.codes = new_codes(codes, self.tower.hidden, spread)

    def forward(self, fragments: Tensor, mask: Tensor | None = None) -> Tensor:
        """Encode fragments [batch, n, hidden] as [batch, 1 + n + codes, width], [CLS] first.

        mask: [batch, n], true for real regions; None for patches, which are all real.
        """
        states = self.states(fragments)
        start = self.start.to(states.dtype).expand(states.shape[0], 1, -1)
        first = torch.ones(states.shape[0], 1, dtype=torch.bool, device=states.device)
        if mask is not None:
            return self.tower.read(start, first, states, mask)
        whole, all_of_it = torch.cat([start, states], 1), first.expand(-1, 1 + states.shape[1])
        return self.tower.read(whole, all_of_it, None, None, self.codes)
