"""How well a text and an image fit: cosine of one vector each, MaxSim of many, and the fusion of two judgements.

Everything here is a pure function of arrays, used alike by a search of one text and by the evaluation of thousands.
"""

from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from sightline.errors import EvaluationError

Floats = npt.NDArray[np.floating]
Ints = npt.NDArray[np.integer]
Fusion = Literal["ce", "add", "norm_add", "logit_add"]
FUSIONS: tuple[Fusion, ...] = get_args(Fusion)


def cosine(texts: Floats, images: Floats) -> npt.NDArray[np.float32]:
    """Cosine of every text [texts, dim] with every image [images, dim], both of unit length: [texts, images]."""
    return _single(texts) @ _single(images).T


def maxsim_texts(text_rows: Floats, text_lengths: Ints, image_fragments: Floats) -> npt.NDArray[np.float32]:
    """Late interaction of many texts with one image: float32 [texts] (paper 3, equation 5).

    Each word looks for the patch it is most alike, and the words' best cosines are summed, in float32 even where
    fragments are stored in float16.

    text_rows: [all words of all texts, dim], text after text; text_lengths: [texts], how many words each has, none of
    them zero; image_fragments: [patches, dim]. Only real fragments are given, so there is nothing to mask.
    """
    if len(text_rows) != text_lengths.sum():
        raise EvaluationError(f"{len(text_rows)} text fragments where the lengths add up to {text_lengths.sum()}")
    if not len(text_lengths):
        return np.empty(0, dtype=np.float32)
    if text_lengths.min() < 1:
        raise EvaluationError(f"text {int(text_lengths.argmin())} has no fragments", "Embed it instead.")
    if not len(image_fragments):
        raise EvaluationError("an image without fragments", "Late interaction needs at least one patch.")
    best = (_single(image_fragments) @ _single(text_rows).T).max(axis=0)
    return np.add.reduceat(best, _starts(text_lengths))


def fuse(rule: Fusion, embed_scores: Floats, match_logits: Floats, weight: float = 0.1) -> npt.NDArray[np.float64]:
    """Join the two judgements of the top candidates of each query: [..., candidates], higher is better.

    ce: the matcher alone. Its logit is returned, not the probability: both rank alike, but sigmoids of confident
        logits all become 1 and tie.
    add: ADD(e, c) = weight e + (1 - weight) sigmoid(c), paper 1, equation 3.
    norm_add: the same after each of e and sigmoid(c) was brought to 0..1 over the candidates of the query, paper 1,
        section 6; a list of equal scores becomes zeros.
    logit_add: c + weight e, the logit plus a weight times the cosine.

    Table 9 of paper 1 finds `ce` best and, of the sums, a weight of 0.1.
    """
    if embed_scores.shape != match_logits.shape:
        raise EvaluationError(f"{embed_scores.shape} embedding scores for {match_logits.shape} match logits")
    check_fusion(rule, weight)
    embed, logits = embed_scores.astype(np.float64), match_logits.astype(np.float64)
    if rule == "ce":
        return logits
    if rule == "logit_add":
        return logits + weight * embed
    probability = sigmoid(logits)
    if rule == "norm_add":
        embed, probability = _zero_to_one(embed), _zero_to_one(probability)
    return weight * embed + (1 - weight) * probability


def check_fusion(rule: str, weight: float) -> None:
    """Refuse a rule or weight that `fuse` would refuse, before the hours of work whose result it would fuse."""
    if rule not in FUSIONS:
        raise EvaluationError(f"no fusion is called {rule!r}", f"There are {', '.join(FUSIONS)}.")
    if not np.isfinite(weight) or (rule in ("add", "norm_add") and not 0 <= weight <= 1):
        raise EvaluationError(f"weight {weight} for {rule}", "Give a number from 0 (match alone) to 1 (embed alone).")


def sigmoid(logits: Floats) -> npt.NDArray[np.float64]:
    """1 / (1 + exp(-x)) without overflow, in float64, where it takes a logit of 37, not 17, to become exactly 1."""
    value: npt.NDArray[np.float64] = np.exp(-np.logaddexp(0.0, -logits.astype(np.float64)))
    return value


def _zero_to_one(scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    if not scores.size:
        return scores
    low = scores.min(axis=-1, keepdims=True)
    span = scores.max(axis=-1, keepdims=True) - low
    normal: npt.NDArray[np.float64] = np.divide(scores - low, span, out=np.zeros_like(scores), where=span > 0)
    return normal


def _single(values: Floats) -> npt.NDArray[np.float32]:
    return values.astype(np.float32, copy=False)


def _starts(lengths: Ints) -> npt.NDArray[np.int64]:
    """Where each of the consecutive segments of these lengths begins."""
    ends: npt.NDArray[np.int64] = np.cumsum(lengths, dtype=np.int64)
    return ends - lengths.astype(np.int64)
