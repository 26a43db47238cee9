"""The masked-words loss: predict hidden words from the others and from the image."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sightline.losses.base import Loss, Pairs, check_chunk
from sightline.losses.masking import (
    PredictionHead,
    between_ends,
    check_share,
    hide,
    in_chunks,
    mean_of_items,
    own_inputs,
)
from sightline.losses.negative_sampling import uniform
from sightline.models.masking import read_with_gaps, two_towers
from sightline.models.retriever import Retriever, Tokens


class MaskedWords(Loss):
    """Paper 4, equation 2 (VMLM) or, not fused, equation 1 (MLM), averaged over the texts of the batch.

        L(t, i) = -1/M Σ_k log P(w_k | z_k + h_0)        L(t) = -1/M Σ_k log P(w_k | z_k)

    w_k are the M hidden words of text t, z_k the outputs of the text tower at their positions, and h_0 the embedding of
    t's image i (the first in the batch, if it occurs twice). The image is added, not attended to: what helps to predict
    a word must be in its embedding.

    z_k and h_0 are in the embedding space, projected and of unit length: the paper's towers have the same width, others
    may not. P is a linear layer, GELU, a norm and the word vectors themselves, as in BERT.

    fused: whether h_0 is added.
    share: the probability of hiding a word; at least one of each text is hidden. BERT keeps a tenth of them and swaps
        another tenth; here all are replaced by one learned vector, so that none can be read off its own input.
    chunk: encode this many texts at a time, again in the backward pass; 0 encodes all at once.

    Needs two towers with a BERT-type text encoder. Runs the text tower itself; if fused, it sends gradients into the
    images' embeddings. A text without words, or whose image is needed but missing, contributes nothing.

    Distributed: a text belongs to the process that owns it; the mean is over all texts of the batch.
    """

    needs_inputs = True
    trains_ability = False
    sends_to = frozenset({"images"})

    def __init__(self, fused: bool = True, share: float = 0.15, chunk: int = 0) -> None:
        super().__init__()
        self.needs = frozenset({"embedding"}) if fused else frozenset()
        self.fused = fused
        self.share = check_share("masked_words", share)
        self.chunk = check_chunk(chunk)

    def fit(self, model: Retriever) -> None:
        """Create the vector that replaces a hidden word, and the prediction head."""
        dual = two_towers(model, "masked_words")
        dual.text.check_reads_images()
        words = dual.text.encoder.get_input_embeddings().weight
        self.blank = nn.Parameter(torch.randn(words.shape[1]) * dual.text.word_spread())
        self.guess = PredictionHead(dual.config.embedding_dim, words.shape[1])
        self.bias = nn.Parameter(torch.zeros(len(words)))

    def forward(self, pairs: Pairs, model: Retriever, generator: torch.Generator) -> Tensor:
        """Return this process's contribution to the mean over texts."""
        dual, tokens = two_towers(model, "masked_words"), own_inputs("masked_words", pairs).tokens
        texts = len(pairs.text_ids)
        numbers = uniform((texts, tokens.ids.shape[1]), generator, tokens.ids.device)[pairs.own_texts]
        hidden = hide(between_ends(tokens.mask), numbers, self.share)
        positive = pairs.own[pairs.own_texts]
        counts = positive.any(1) if self.fused else torch.ones_like(positive[:, 0])
        images = pairs.images.embedding.index_select(0, positive.int().argmax(1))

        def share(rows: Tensor) -> Tensor:
            some = Tokens(tokens.ids[rows], tokens.mask[rows])
            gaps = hidden[rows]
            found = read_with_gaps(dual, some, gaps, self.blank)
            if self.fused:
                found = found + images[rows][:, None]
            words = dual.text.encoder.get_input_embeddings().weight
            return mean_of_items(self._surprise(words, found[gaps], some.ids[gaps]), gaps, counts[rows], texts)

        return in_chunks(share, len(tokens.ids), self.chunk, tokens.ids.device)

    def _surprise(self, words: Tensor, found: Tensor, right: Tensor) -> Tensor:
        """Cross-entropy [n] of the right words [n] given vectors [n, embedding_dim]."""
        logits = F.linear(self.guess(found), words, self.bias)
        return F.cross_entropy(logits.float(), right, reduction="none")
