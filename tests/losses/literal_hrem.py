"""HREM (paper 2) to the letter: slow loops, one per index, written from the paper by someone who had not seen our code.

"Code" is github.com/CrossmodalGroup/HREM at 1ad2612, whose formulas settle what is open; nothing is copied.
Axes: v is [images, d], u is [texts, d]; where both have N rows, row i of both is a pair.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

MARGIN, TAU, TOP_K, SIGMA, REG_WEIGHT = 0.2, 0.5, 10, 1.0, 10.0

TERMS_FULL = ("bar_bar", "plain_plain", "bar_plain", "plain_bar")
TERMS_WITHOUT_CROSS = ("bar_bar", "plain_plain")
"""Code, --cross_loss 0: drops only the two mixed terms."""


def pool_eq2(r: Tensor, enhanced: Tensor, beta: float) -> Tensor:
    """Equations 2 and 3: beta * MaxPool(R) + (1 - beta) * AvgPool(R^V), per dimension."""
    out = []
    for d in range(r.shape[1]):
        largest = max((r[i, d] for i in range(len(r))), key=lambda x: x.item())
        average = sum(enhanced[i, d] for i in range(len(enhanced))) / len(enhanced)
        out.append(beta * largest + (1 - beta) * average)
    return torch.stack(out)


def blocks_eq4(ii: Tensor, it: Tensor, ti: Tensor, tt: Tensor) -> Tensor:
    """Equation 4: [[I->I, I->T], [T->I, T->T]]; a row attends, a column is attended to."""
    return torch.cat([torch.cat([ii, it], 1), torch.cat([ti, tt], 1)])


def connect(similarity: Tensor, tau: float = TAU) -> Tensor:
    """Equations 5 and 6: A_ij = 1 if j is among the first tau * N nearest of i along row i. Code: int(N * tau)."""
    rows, columns = similarity.shape
    count = int(columns * tau)
    out = torch.zeros(rows, columns, dtype=torch.bool)
    for i in range(rows):
        last = sorted((similarity[i, j].item() for j in range(columns)), reverse=True)[count - 1]
        for j in range(columns):
            out[i, j] = similarity[i, j].item() >= last
    return out


def best_per_row(rows: Tensor, columns: Tensor) -> list[Tensor]:
    best = []
    for m in range(len(rows)):
        dots = [sum(rows[m, x] * columns[n, x] for x in range(rows.shape[1])) for n in range(len(columns))]
        best.append(max(dots, key=lambda x: x.item()))
    return best


def overall_match_eq7(rows: Tensor, columns: Tensor) -> Tensor:
    """Equation 7: 1/n_r sum_m max_n r_m^T c_n, for the fragments of one image and one text."""
    return sum(best_per_row(rows, columns)) / len(rows)


def match_vector_eq8(rows: Tensor, columns: Tensor, k: int = TOP_K) -> Tensor:
    """Equation 8: the k largest row maxima, in descending order."""
    return torch.stack(sorted(best_per_row(rows, columns), key=lambda x: -x.item())[:k])


def relevance_eq9(q: Tensor, p: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
    """Equation 9: MLP(q) + p. Code: Linear(K, K), ReLU, Linear(K, 1)."""
    hidden = [torch.clamp(sum(w1[a, b] * q[b] for b in range(len(q))) + b1[a], min=0) for a in range(len(b1))]
    return sum(w2[a] * hidden[a] for a in range(len(hidden))) + b2 + p


def relevance_global(x: Tensor, y: Tensor, sigma: float = SIGMA) -> Tensor:
    """Equation 10, and S^g of equation 11: exp(-||x_i - y_j||^2 / sigma)."""
    out = torch.zeros(len(x), len(y), dtype=x.dtype)
    for i in range(len(x)):
        for j in range(len(y)):
            out[i, j] = torch.exp(-sum((x[i, a] - y[j, a]) ** 2 for a in range(x.shape[1])) / sigma)
    return out


def kl_rows(p_logits: Tensor, q_logits: Tensor) -> Tensor:
    """Mean over rows i of sum_j P_ij (log P_ij - log Q_ij); P and Q are softmaxes over j."""
    n, m = p_logits.shape
    total = 0.0
    for i in range(n):
        log_p, log_q = log_softmax(p_logits[i]), log_softmax(q_logits[i])
        for j in range(m):
            total = total + torch.exp(log_p[j]) * (log_p[j] - log_q[j])
    return total / n


def regularisation_eq11(s_i2t: Tensor, s_t2i: Tensor, v: Tensor, u: Tensor) -> Tensor:
    """Equation 11: L_kl(S_I->T, S^g_I->T) + L_kl(S_T->I, S^g_T->I).

    The text gives neither direction nor axis. Code: P = softmax(S), the learned relevance, Q = softmax(S^g); KL(P || Q)
    over the last axis, "batchmean", both directions added; S^g detached.
    """
    guide = relevance_global(v, u).detach()
    return kl_rows(s_i2t, guide) + kl_rows(s_t2i, guide.t())


def attention_eq12(q: Tensor, k: Tensor, v: Tensor, connection: Tensor, relevance: Tensor, lam: float) -> Tensor:
    """Equation 12: softmax over connected j of (Q K^T / sqrt(d_k) + lambda S) V, one head."""
    d_k = q.shape[1]
    out = torch.zeros(len(q), v.shape[1], dtype=q.dtype)
    for i in range(len(q)):
        scores = []
        for j in range(len(k)):
            x = sum(q[i, a] * k[j, a] for a in range(d_k)) / math.sqrt(d_k) + lam * relevance[i, j]
            scores.append(x if connection[i, j] else torch.tensor(-math.inf, dtype=q.dtype))
        weights = torch.exp(log_softmax(torch.stack(scores)))
        out[i] = sum(weights[j] * v[j] for j in range(len(k)))
    return out


def similarity(v: Tensor, u: Tensor) -> Tensor:
    """s(v, u) = v^T u / (||v|| ||u||), images in rows."""
    return torch.stack([torch.stack([cosine(a, b) for b in u]) for a in v])


def triplet_eq13(positive: Tensor, negative_text: Tensor, negative_image: Tensor, margin: float = MARGIN) -> Tensor:
    """Equation 13, one pair."""
    return torch.clamp(margin - positive + negative_text, min=0) + torch.clamp(
        margin - positive + negative_image, min=0
    )


def triplet_hardest(v: Tensor, u: Tensor, image_ids: Sequence[int], margin: float = MARGIN) -> Tensor:
    """Equation 13 with the hardest negatives of the batch. Code: the sum over the batch, no negatives of one image."""
    s = similarity(v, u)
    total = 0.0 * s.sum()
    for i in range(len(s)):
        others = negatives(i, image_ids)
        if others:
            hard_text = max((s[i, j] for j in others), key=lambda x: x.item())
            hard_image = max((s[j, i] for j in others), key=lambda x: x.item())
            total = total + triplet_eq13(s[i, i], hard_text, hard_image, margin)
    return total


def triplet_all(v: Tensor, u: Tensor, image_ids: Sequence[int], margin: float = MARGIN) -> Tensor:
    """Code, before the hardest negatives: the sum over all negatives."""
    s = similarity(v, u)
    total = 0.0 * s.sum()
    for i in range(len(s)):
        for j in negatives(i, image_ids):
            total = total + triplet_eq13(s[i, i], s[i, j], s[j, i], margin)
    return total


def negative_probabilities(s: Tensor, image_ids: Sequence[int], dimension: int, cutoff: float, far: float) -> Tensor:
    """Distance-weighted sampling, the default of code: P(negative j | anchor i), with D = max(sqrt(2 - 2 s), cutoff).

    log w = (2 - n) log D - (n - 3)/2 log(1 - D^2/4); w = 0 for positives and for D >= far.
    """
    n = len(s)
    out = torch.zeros(n, n, dtype=s.dtype)
    for i in range(n):
        log_w, usable = [], []
        for j in range(n):
            d = max(math.sqrt(max(2 - 2 * s[i, j].item(), 0.0)), cutoff)
            inside = 1 - 0.25 * d * d
            value = (2.0 - dimension) * math.log(d) - (dimension - 3.0) / 2 * math.log(inside) if inside > 0 else 0.0
            is_negative = image_ids[i] != image_ids[j]
            log_w.append(value if is_negative else 0.0)
            usable.append(is_negative and d < far)
        top = max(log_w)
        w = [math.exp(x - top) if ok else 0.0 for x, ok in zip(log_w, usable, strict=True)]
        for j in range(n):
            out[i, j] = w[j] / (sum(w) + 1e-20)
    return out


def cross_eq14(
    loss: Callable[[Tensor, Tensor], Tensor],
    v: Tensor,
    u: Tensor,
    v_bar: Tensor,
    u_bar: Tensor,
    terms: Sequence[str] = TERMS_FULL,
) -> Tensor:
    """Equation 14: L(v_bar,u_bar) + [L(v,u) + L(v_bar,u) + L(v,u_bar)], equal weights, no division."""
    value = {
        "bar_bar": lambda: loss(v_bar, u_bar),
        "plain_plain": lambda: loss(v, u),
        "bar_plain": lambda: loss(v_bar, u),
        "plain_bar": lambda: loss(v, u_bar),
    }
    return sum(value[name]() for name in terms)


def hard_subset(similarity_to_others: Tensor, own: Sequence[set[int]], share: float, hardest: bool = True) -> list[int]:
    """Table 4: the share of queries with the highest (hardest) or lowest mean similarity to other samples.

    "selected by the percentile rank of average embedding similarity between themselves and other samples in the
    dataset"; own[q] are the columns that are no other sample of q. Whose modality the other samples have, is open.
    """
    means = []
    for q in range(len(similarity_to_others)):
        rest = [similarity_to_others[q, c].item() for c in range(similarity_to_others.shape[1]) if c not in own[q]]
        means.append(sum(rest) / len(rest))
    order = sorted(range(len(means)), key=lambda q: -means[q] if hardest else means[q])
    return order[: max(1, round(share * len(means)))]


def augment_text(words: Sequence[Sequence[str]], draws: Sequence[float], random_piece: Callable[[], str]) -> list[str]:
    """Code only: one draw per word; masked below 0.10, random pieces below 0.12, deleted below 0.20, otherwise kept."""
    out: list[str] = []
    for pieces, draw in zip(words, draws, strict=True):
        if draw < 0.20:
            part = draw / 0.20
            if part < 0.5:
                out += ["[MASK]"] * len(pieces)
            elif part < 0.6:
                out += [random_piece() for _ in pieces]
        else:
            out += pieces
    return ["[CLS]", *out, "[SEP]"]


def augment_regions(regions: Sequence[int], draws: Sequence[float]) -> list[int]:
    """Code only: a region stays if its draw is above 0.20."""
    return [region for region, draw in zip(regions, draws, strict=True) if draw > 0.20]


def negatives(i: int, image_ids: Sequence[int]) -> list[int]:
    return [j for j in range(len(image_ids)) if image_ids[i] != image_ids[j]]


def cosine(a: Tensor, b: Tensor) -> Tensor:
    norms = torch.sqrt(sum(x * x for x in a)) * torch.sqrt(sum(y * y for y in b))
    return sum(x * y for x, y in zip(a, b, strict=True)) / norms


def log_softmax(x: Tensor) -> Tensor:
    top = max(a.item() for a in x)
    total = sum(torch.exp(a - top) for a in x)
    return torch.stack([a - top - torch.log(total) for a in x])
