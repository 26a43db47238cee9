"""What an objective is: a number to make small, from a batch of encoded texts and images."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from sightline.models.retriever import Encoded, Retriever

Field = Literal["embedding", "fragments", "states"]


@dataclass(frozen=True, slots=True)
class Pairs:
    """A batch: texts [T, …] and images [I, …], and which belong together.

    text_ids [T] and image_ids [I] name the picture behind each row: a text and an image with the same id are a
    positive pair, and never negatives of each other, however often a picture is in the batch. Numbers of texts and
    images may differ (five captions for each image, say).

    Where several processes train together, the batch is that of all of them, and `own_texts` and `own_images` are the
    rows that this process answers for. In a single process they are all rows.
    """

    texts: Encoded
    images: Encoded
    text_ids: Tensor
    image_ids: Tensor
    own_texts: slice = field(default_factory=lambda: slice(None))
    own_images: slice = field(default_factory=lambda: slice(None))

    @property
    def positive(self) -> Tensor:
        """[T, I], true where text and image belong together."""
        return self.text_ids[:, None] == self.image_ids[None, :]

    def cosines(self) -> Tensor:
        """[T, I], float32 even under autocast: cosine of every text with every image."""
        texts, images = self.texts.embedding, self.images.embedding
        with torch.autocast(texts.device.type, enabled=False):
            return texts.float() @ images.float().T

    def late(self, chunk: int = 256) -> Tensor:
        """[T, I], float32: late interaction of every text with every image (paper 3, equation 5).

        Each word's best cosine with a patch, summed over the words. `chunk` texts at a time, so that the cosines of all
        words with all patches are never there at once; going back needs only which patch was best.
        """
        words, patches = self.texts.fragments, self.images.fragments.flatten(0, 1)
        hidden = ~self.images.mask
        padded = bool(hidden.any())
        rows = []
        with torch.autocast(words.device.type, enabled=False):
            for some, real in zip(torch.split(words, chunk), torch.split(self.texts.mask, chunk), strict=True):
                cosines = (some.float() @ patches.float().T).view(*some.shape[:2], *hidden.shape)
                if padded:
                    cosines = cosines.masked_fill(hidden, -torch.inf)
                rows.append((cosines.max(3).values * real[:, :, None]).sum(1))
        return torch.cat(rows)


class Objective(nn.Module, ABC):
    """A loss over a batch.

    It gives the share of this process's own rows: a sum over them divided by the count of all rows, so that the shares
    of all processes add up to the loss of one process that had the whole batch. What is random is drawn from
    `generator` for the whole batch, alike in every process, before own rows are picked.
    """

    needs: frozenset[Field]
    """Fields of `Encoded` that it sends gradients into, and so into the encoders. It may read others, detached."""

    @abstractmethod
    def forward(self, pairs: Pairs, model: Retriever, generator: torch.Generator) -> Tensor:
        """Give the loss, a scalar in float32."""
