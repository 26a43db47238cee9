"""Combine the matcher's score and the cosine of the embeddings."""

import numpy as np

from sightline.arrays import Float64Array, FloatArray
from sightline.errors import EvaluationError, OptionError
from sightline.fusion_names import FUSIONS, FusionRule


def fuse(rule: FusionRule, cosines: FloatArray, logits: FloatArray, weight: float) -> Float64Array:
    """Combine the scores [..., candidates] of the top candidates of each query; higher is better.

    ce: the matcher alone. Returns its logit, not the probability: both give the same order, but sigmoids of confident
        logits all round to 1 and tie.
    add: ADD(e, c) = weight e + (1 - weight) sigmoid(c), paper 1, equation 3.
    norm_add: the same after scaling e and sigmoid(c) each to 0..1 over the candidates of the query, paper 1,
        section 6; a list of equal scores becomes zeros.
    logit_add: c + weight e, the logit plus the weighted cosine.

    Table 9 of paper 1 finds `ce` best and, of the sums, a weight of 0.1.
    """
    if cosines.shape != logits.shape:
        raise EvaluationError(f"cosines have shape {cosines.shape}, but match logits have shape {logits.shape}")
    check_fusion(rule, weight)
    embed, match = cosines.astype(np.float64), logits.astype(np.float64)
    if rule == "ce":
        return match
    if rule == "logit_add":
        return match + weight * embed
    probability = sigmoid(match)
    if rule == "norm_add":
        embed, probability = _zero_to_one(embed), _zero_to_one(probability)
    return weight * embed + (1 - weight) * probability


def check_fusion(rule: str, weight: float) -> None:
    """Check a rule and its weight before they are used."""
    if rule not in FUSIONS:
        raise OptionError("fusion", f"must be one of {', '.join(FUSIONS)}, not {rule!r}")
    if not np.isfinite(weight):
        raise OptionError("weight", f"must be a finite number, not {weight}")
    if rule in ("add", "norm_add") and not 0 <= weight <= 1:
        raise OptionError("weight", f"must be between 0 (match only) and 1 (embed only) for {rule}, not {weight:g}")


def sigmoid(logits: FloatArray) -> Float64Array:
    """Compute 1 / (1 + exp(-x)) without overflow, in float64, where logits up to 37 (not 17) stay below 1."""
    value: Float64Array = np.exp(-np.logaddexp(0.0, -logits.astype(np.float64)))
    return value


def _zero_to_one(scores: Float64Array) -> Float64Array:
    if not scores.size:
        return scores
    low = scores.min(axis=-1, keepdims=True)
    span = scores.max(axis=-1, keepdims=True) - low
    normal: Float64Array = np.divide(scores - low, span, out=np.zeros_like(scores), where=span > 0)
    return normal
