"""The names of the rules that combine a matcher's score with the cosine; `retrieval.fusion` applies them."""

from typing import Literal, get_args

FusionRule = Literal["ce", "add", "norm_add", "logit_add"]
FUSIONS: tuple[FusionRule, ...] = get_args(FusionRule)
