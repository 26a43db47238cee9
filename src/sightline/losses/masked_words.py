"""The masked-words loss: predict hidden words from the others and from the image."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sightline.errors import ModelError
from sightline.losses.base import Loss, Pairs, check_chunk
from sightline.losses.masking import (
    PredictionHead,
    between_ends,
    check_share,
    in_chunks,
    mask_words,
    mean_of_items,
    others_of,
    own_inputs,
)
from sightline.losses.negative_sampling import uniform
from sightline.losses.precision import full
from sightline.models.masking import check_same_width, read_with_gaps, two_towers
from sightline.models.retriever import Retriever, Tokens
from sightline.models.single_stream import SingleStream
from sightline.models.text_tower import TextTower


class MaskedWords(Loss):
    """Predicts masked words of a text from its other words and, if fused, from its image.

    Paper 4, equation 2 (VMLM) or, if not fused, equation 1 (MLM), averaged over the texts of the batch:

        L(t, i) = -1/M Σ_k log P(w_k | z_k + h_0)        L(t) = -1/M Σ_k log P(w_k | z_k)

    w_k are the M masked words of text t, z_k the outputs of the text tower at their positions, and h_0 the [CLS] of t's
    image i (the first in the batch, if it occurs twice), both as the last layers return them. The image is added, not
    attended to, so what helps to predict a word must be in the image's [CLS]. P is a linear layer, GELU, a norm and the
    word vectors themselves, as in BERT.

    A single-stream model reads the masked text and the image together, and P(w_k | z_k) uses its output: this is the
    masked language modelling of OSCAR and UNITER, which paper 1 starts from.

    fused: whether h_0 is added or, in a single-stream model, the image is read.
    share: the probability of predicting a word; at least one word of each text is predicted. Of the predicted words,
        80 % are replaced by a learned vector, 10 % by a random word, and 10 % are kept.
    chunk: encode this many texts at a time, and again in the backward pass; 0 encodes all at once.

    Needs a BERT-type text encoder and, if fused with two towers, both sides of the same width. Runs the text tower
    itself; if fused, gradients also flow to the images. A text without words, or whose image is needed but missing,
    contributes nothing.

    Distributed: each process computes the terms of its own texts; the mean is over all texts of the batch.
    """

    needs_inputs = True
    trains_ability = False
    sends_to = frozenset({"images"})

    def __init__(self, fused: bool = True, share: float = 0.15, chunk: int = 0) -> None:
        super().__init__()
        self.needs = frozenset({"pooled"}) if fused else frozenset()
        self.fused = fused
        self.share = check_share("masked_words", share)
        self.chunk = check_chunk(chunk)

    def fit(self, model: Retriever) -> None:
        """Create the vector that replaces a masked word, and the prediction head."""
        tower = _tower(model)
        tower.check_reads_images()
        if self.fused and isinstance(model, SingleStream):
            self.needs = frozenset({"states"})
        elif self.fused:
            check_same_width(two_towers(model, "masked_words"), "masked_words")
        words = tower.encoder.get_input_embeddings().weight
        self.blank = nn.Parameter(torch.randn(words.shape[1]) * tower.word_spread())
        self.guess = PredictionHead(tower.hidden, words.shape[1])
        self.bias = nn.Parameter(torch.zeros(len(words)))

    def forward(self, pairs: Pairs, model: Retriever, generator: torch.Generator) -> Tensor:
        """Return this process's contribution to the mean over texts."""
        tokens, words = own_inputs("masked_words", pairs).tokens, _tower(model).encoder.get_input_embeddings().weight
        device = tokens.ids.device
        texts, own = len(pairs.text_ids), pairs.own_texts
        numbers = uniform((2, texts, tokens.ids.shape[1]), generator, device)[:, own]
        masked = mask_words(between_ends(tokens.mask), numbers[0], self.share)
        any_word = (numbers[1] * len(words)).long().clamp(max=len(words) - 1)
        given = Tokens(torch.where(masked.swapped, any_word, tokens.ids), tokens.mask)
        positive = pairs.own[own]
        counts = positive.any(1) if self.fused else torch.ones_like(positive[:, 0])

        def share(rows: Tensor) -> Tensor:
            some, gaps = Tokens(given.ids[rows], given.mask[rows]), masked.predicted[rows]
            found = self._read(model, some, masked.blank[rows], pairs, positive[rows])[gaps]
            losses = self._surprise(words, found, tokens.ids[rows][gaps])
            return mean_of_items(losses, gaps, counts[rows], texts)

        return in_chunks(share, len(tokens.ids), self.chunk, device)

    def _read(self, model: Retriever, tokens: Tokens, blank: Tensor, pairs: Pairs, positive: Tensor) -> Tensor:
        """Return the outputs [texts, n, width] for masked texts, including what their images add."""
        if isinstance(model, SingleStream):
            tower = model.transformer
            words = torch.where(blank[:, :, None], self.blank, tower.words(tokens.ids))
            image, image_mask = None, None
            if self.fused:
                if pairs.images.states is None:
                    raise ModelError(
                        "this model keeps too few fragments for the text encoder to read", "Set model.fragments = 0."
                    )
                rows = positive.int().argmax(1)
                image, image_mask = pairs.images.states.index_select(0, rows), pairs.images.mask[rows]
            return tower.read(words, tokens.mask, image, image_mask)[:, : tokens.ids.shape[1]]
        found = read_with_gaps(two_towers(model, "masked_words"), tokens, self.blank, blank)
        return found + others_of(pairs.images, positive)[:, None] if self.fused else found

    def _surprise(self, words: Tensor, found: Tensor, right: Tensor) -> Tensor:
        """Return the cross-entropy [n] of the right words [n] given vectors [n, width]."""
        logits = F.linear(self.guess(found), words, self.bias)
        return F.cross_entropy(full(logits), right, reduction="none")


def _tower(model: Retriever) -> TextTower:
    """Return the transformer that reads words."""
    return model.transformer if isinstance(model, SingleStream) else two_towers(model, "masked_words").text
