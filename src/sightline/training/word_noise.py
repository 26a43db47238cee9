"""Noise in the captions of a batch: words that are masked, replaced or dropped."""

from dataclasses import replace

import torch
from torch import Tensor

from sightline.bundle.tokenizer import Tokenizer
from sightline.errors import RecipeError
from sightline.models.retriever import Tokens
from sightline.training.captions import CaptionTable, DrawnBatch

_MASKED, _REPLACED = 0.5, 0.6  # cumulative fractions of the changed words; the rest are dropped
_MASKS = ("[MASK]", "<mask>", "[UNK]", "<unk>")


class WordNoise:
    """Changes each word with probability `share`: half become masks, a tenth random tokens, and the rest are dropped.

    All tokens of a word change in the same way. This is the text augmentation of HREM's code; the paper does not
    mention it.
    """

    def __init__(self, share: float, corpus: CaptionTable, tokenizer: Tokenizer) -> None:
        self._share, self._corpus, self._vocabulary = share, corpus, tokenizer.vocabulary_size
        found = [number for number in map(tokenizer.id_of, _MASKS) if number is not None]
        if not found:
            raise RecipeError("data.word_noise: this tokenizer has no mask token", "Remove data.word_noise.")
        self._mask_id = found[0]

    def __call__(self, batch: DrawnBatch, seed: int) -> DrawnBatch:
        """Return the batch with its words changed; the same seed gives the same changes."""
        words = self._corpus.words(batch.captions)[:, : batch.tokens.ids.shape[1]]
        generator = torch.Generator().manual_seed(seed)
        draws = torch.rand(words.shape, generator=generator)
        others = torch.randint(self._vocabulary, words.shape, generator=generator)
        return replace(batch, tokens=noisy(batch.tokens, words, draws, others, self._share, self._mask_id))


def noisy(tokens: Tokens, words: Tensor, draws: Tensor, others: Tensor, share: float, mask_id: int) -> Tokens:
    """Change words according to one random number each, from 0 to 1; all tensors are [texts, n].

    words: the index of each token's word in its text, -1 for tokens that belong to none, which stay. draws: the random
    numbers, by word. others: the replacement tokens.

    >>> tokens = Tokens(torch.tensor([[2, 10, 11, 12, 3]]), torch.ones(1, 5, dtype=torch.bool))
    >>> words, draws = torch.tensor([[-1, 0, 0, 1, -1]]), torch.tensor([[0.05, 0.15, 1, 1, 1]])
    >>> noisy(tokens, words, draws, tokens.ids, share=0.2, mask_id=9).ids
    tensor([[2, 9, 9, 3]])
    """
    part = torch.where(words < 0, 1.0, draws.gather(1, words.clamp(min=0)) / share)
    ids = torch.where(part < _MASKED, mask_id, torch.where(part < _REPLACED, others, tokens.ids))
    kept = tokens.mask & ((part < _REPLACED) | (part >= 1))
    order = kept.int().argsort(dim=1, descending=True, stable=True)
    counts = kept.sum(1, keepdim=True)
    longest = int(counts.max())
    mask = torch.arange(longest) < counts
    padding = tokens.ids[~tokens.mask][:1] if (~tokens.mask).any() else tokens.ids.new_zeros(1)
    return Tokens(torch.where(mask, ids.gather(1, order)[:, :longest], padding), mask)
