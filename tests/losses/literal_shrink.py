"""Inflate and shrink (paper 3) to the letter: slow loops, written from the paper by someone who had not seen our code.

No code of the authors was found. w and r are the fragments [n, d] and [m, d] of one text and one image; s is
[texts, images] with the pairs on the diagonal.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def cosine(a: Tensor, b: Tensor) -> Tensor:
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    return dot / (torch.sqrt(sum(x * x for x in a)) * torch.sqrt(sum(y * y for y in b)))


def global_eq3(w: Tensor, r: Tensor) -> Tensor:
    """Equation 3: the cosine of the first fragment of each side, called [CLS]."""
    return cosine(w[0], r[0])


def triplet_eq4(s: Tensor, margin: float) -> Tensor:
    """Equation 4: the sum over all i and j != i, in both directions. The printed minus in front is a misprint."""
    total = 0.0
    n = len(s)
    for i in range(n):
        for j in range(n):
            if j != i:
                total = total + torch.clamp(margin - s[i, i] + s[j, i], min=0)  # image i, text j
                total = total + torch.clamp(margin - s[i, i] + s[i, j], min=0)  # text i, image j
    return total


def late_eq5(w: Tensor, r: Tensor) -> Tensor:
    """Equation 5: the sum over text fragments of the best cosine with an image fragment."""
    total = 0.0
    for i in range(len(w)):
        total = total + max((cosine(w[i], r[j]) for j in range(len(r))), key=lambda x: x.item())
    return total


def first_fragments_score(w: Tensor, r: Tensor, length: int) -> Tensor:
    """Section 5.5: the first l fragments of both sides; with l = 1 equation 3, "our fast model"."""
    return late_eq5(w[:length], r[:length])


def log_softmax_row(row: Sequence[Tensor]) -> list[Tensor]:
    top = max(x.item() for x in row)
    total = sum(torch.exp(x - top) for x in row)
    return [x - top - torch.log(total) for x in row]


def distil_eq6(teacher: Tensor, student: Tensor, tau_t: float, tau_s: float) -> Tensor:
    """Equation 6 as printed: - sum_i p^t_ii log p^s_ii. Only the pair itself; texts in rows; the sum over the batch."""
    total = 0.0
    for i in range(len(student)):
        weight = torch.exp(log_softmax_row([x / tau_t for x in teacher[i]])[i]).detach()
        total = total - weight * log_softmax_row([x / tau_s for x in student[i]])[i]
    return total


def distil_full(teacher: Tensor, student: Tensor, tau_t: float, tau_s: float) -> Tensor:
    """Not printed: the usual distillation, - sum_i sum_j p^t_ij log p^s_ij."""
    total = 0.0
    for i in range(len(student)):
        p_t = log_softmax_row([x / tau_t for x in teacher[i]])
        p_s = log_softmax_row([x / tau_s for x in student[i]])
        for j in range(len(p_s)):
            total = total - torch.exp(p_t[j]).detach() * p_s[j]
    return total
