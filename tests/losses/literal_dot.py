"""LightningDOT (paper 4) to the letter: slow loops, written from the paper by someone who had not seen our code.

"Code" is github.com/intersun/LightningDOT at a597f3f, whose formulas settle what the paper leaves open; nothing is
copied. Pairs of texts and images share a row.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

MASK_PROBABILITY = 0.15


def log_softmax(x: Sequence[Tensor]) -> list[Tensor]:
    top = max(a.item() for a in x)
    total = sum(torch.exp(a - top) for a in x)
    return [a - top - torch.log(total) for a in x]


def mask_tokens(
    tokens: Sequence[int], draws: Sequence[float], mask_id: int, random_id: Callable[[], int]
) -> tuple[list[int], list[int]]:
    """Code: inputs and labels (-1: not predicted) of the pieces of a text, without [CLS] and [SEP]; one draw for each.

    Of those to predict, 80 % become [MASK], 10 % a random piece, 10 % stay. If there are none, the first is masked.
    """
    inputs, labels = [], []
    for token, draw in zip(tokens, draws, strict=True):
        part = draw / MASK_PROBABILITY
        labels.append(token if draw < MASK_PROBABILITY else -1)
        if draw >= MASK_PROBABILITY:
            inputs.append(token)
        elif part < 0.8:
            inputs.append(mask_id)
        elif part < 0.9:
            inputs.append(random_id())
        else:
            inputs.append(token)
    if all(x == -1 for x in labels):
        labels[0], inputs[0] = tokens[0], mask_id
    return inputs, labels


def mask_regions(draws: Sequence[float], forced: int) -> list[bool]:
    """Code: which regions are masked; if none, the region `forced`. Never 80/10/10: a masked feature is set to zero."""
    mask = [d < MASK_PROBABILITY for d in draws]
    if not any(mask):
        mask[forced] = True
    return mask


def fuse(states: Tensor, other_cls: Tensor) -> Tensor:
    """Equations 2 and 4: z_k + h_0 and h_k + z_0, the output states of one side plus the other side's [CLS].

    Code: the raw last-layer [CLS] state, not the projected vector that scores CMR, and not normalised; plain addition.
    states: [n, length, d]; other_cls: [n, d].
    """
    out = states.clone()
    for i in range(states.shape[0]):
        for j in range(states.shape[1]):
            out[i, j] = states[i, j] + other_cls[i]
    return out


def masked_language(logits: Tensor, labels: Sequence[Sequence[int]]) -> Tensor:
    """Equations 1 and 2: -1/M sum_k log P(w_k | ...), M masked tokens of a sentence; the mean over sentences."""
    means = []
    for i in range(len(logits)):
        losses = [-log_softmax(logits[i, t])[labels[i][t]] for t in range(len(labels[i])) if labels[i][t] != -1]
        means.append(sum(losses) / len(losses))
    return sum(means) / len(means)


def region_regression(prediction: Tensor, target: Tensor) -> Tensor:
    """Equations 3 and 4 with MRFR, for regions [M, width]. Code: the mean over dimensions too, printed: the sum."""
    total = 0.0
    for k in range(len(target)):
        for a in range(target.shape[1]):
            total = total + (target[k, a] - prediction[k, a]) ** 2
    return total / (len(target) * target.shape[1])


def region_classes_kl(logits: Tensor, detector: Tensor) -> Tensor:
    """Equations 3 and 4 with MRC-kl: 1/M sum_k KL(c(v_k) || softmax g(...)), for masked regions [M, classes]."""
    total = 0.0
    for k in range(len(logits)):
        log_q = log_softmax(logits[k])
        for c in range(logits.shape[1]):
            if detector[k, c] > 0:
                total = total + detector[k, c] * (torch.log(detector[k, c]) - log_q[c])
    return total / len(logits)


def score_eq5(z0: Tensor, h0: Tensor) -> Tensor:
    """Equation 5: the inner product of texts z0 and images h0, no normalisation and no temperature: [texts, images]."""
    return torch.stack([torch.stack([sum(a * b for a, b in zip(t, i, strict=True)) for i in h0]) for t in z0])


def retrieval_eq6(s: Tensor) -> Tensor:
    """Equation 6: 1/(2n) sum_k of the cross entropies of row k (texts) and column k (images)."""
    n = len(s)
    total = 0.0
    for k in range(n):
        total = total - log_softmax(s[k])[k] - log_softmax(s[:, k])[k]
    return total / (2 * n)
