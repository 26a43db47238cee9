"""The tokenised captions of the training images, and the batches drawn from them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sightline.arrays import Int64Array
from sightline.bundle.tokenizer import Tokenizer
from sightline.datasets import Record, captions_in_any
from sightline.errors import DataError
from sightline.models.retriever import Tokens
from sightline.training.decoding import Decoding
from sightline.training.same_rows import SamePairs, SameRows, SameRule


@dataclass(frozen=True, slots=True)
class DrawnBatch:
    """A drawn batch: its distinct images [I], and for each caption its image [T] and its tokens.

    captions: [T], the index of each caption among the captions of all images. same: pairs that are not negatives.
    decoding: the pixels of this process's images, if they are decoded ahead.
    """

    images: Int64Array
    text_images: Int64Array
    tokens: Tokens
    captions: Int64Array
    same: SamePairs
    decoding: Decoding | None = None


class CaptionTable:
    """Images with every caption tokenised once.

    lang: the language of the captions, or several languages to mix.
    with_words: whether to record which word each token belongs to, for `words`.
    """

    def __init__(
        self, records: Sequence[Record], lang: str | Sequence[str], tokenizer: Tokenizer, with_words: bool = False
    ) -> None:
        self.records = [record for record in records if record.captions]
        if not self.records:
            raise DataError("the training data has no captions", "Use data with captions in data.train.")
        captions = [captions_in_any(record, lang) for record in self.records]
        self.captions_per_image = [len(texts) for texts in captions]
        self._first = np.concatenate([[0], np.cumsum(self.captions_per_image)])
        every = [text for texts in captions for text in texts]
        self._same = SameRows(every, self._first, [record.label for record in self.records])
        batch = tokenizer(every)
        self.caption_lengths = batch.mask.sum(1).tolist()
        self._ids, self._mask = torch.from_numpy(batch.ids), torch.from_numpy(batch.mask)
        self.truncated = int(batch.truncated.sum())
        self._words = torch.from_numpy(tokenizer.word_numbers(every)) if with_words else None

    def __len__(self) -> int:
        return len(self.records)

    def draw(self, pairs: Int64Array, rule: SameRule | None = None) -> DrawnBatch:
        """Make a batch from pairs [n, 2] of image and caption indices, padded to its longest caption.

        rule: which rows are not negatives of each other; by default only rows of the same image.
        """
        captions = self._first[pairs[:, 0]] + pairs[:, 1]
        tokens = self.tokens(captions)
        longest = int(tokens.mask.sum(1).max())
        short = Tokens(tokens.ids[:, :longest], tokens.mask[:, :longest])
        images = np.unique(pairs[:, 0])
        same = self._same.pairs(rule or SameRule(), images, pairs[:, 0], captions)
        return DrawnBatch(images, pairs[:, 0], short, captions, same)

    def tokens(self, captions: Int64Array) -> Tokens:
        """Return the tokens of the captions with these indices, padded to the longest caption of the table."""
        rows = torch.from_numpy(captions)
        return Tokens(self._ids[rows], self._mask[rows])

    def words(self, captions: Int64Array) -> Tensor:
        """Return the index of the word that each token returned by `tokens` belongs to; -1 if it belongs to none."""
        if self._words is None:
            raise ValueError("the corpus was created without words")
        return self._words[torch.from_numpy(captions)]
