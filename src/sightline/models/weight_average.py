"""Interpolating the weights of a fine-tuned encoder and its initial ones (WiSE-FT).

Fine-tuning on a few thousand images gains on images like them and loses on others; on the straight line between
the two sets of weights there are points that keep most of the gain and lose little (Wortsman et al. 2022, WiSE-FT).
"""

import torch

from sightline.errors import ModelError
from sightline.models import towers
from sightline.models.retriever import Retriever
from sightline.models.towers import TowerConfig


@torch.no_grad()
def blend(model: Retriever, part: str, source: str, share: float) -> None:
    """Set the encoder `part` of a model to share x its weights + (1 - share) x those of `source`, a folder or hub name.

    The projection that `source` carries, if the model began with it, is left as it is: it belongs to the heads.
    """
    if not 0 <= share <= 1:
        raise ModelError(f"a blend of {share}", "Give a share from 0 (all source) to 1 (all trained).")
    if part not in model.parts():
        raise ModelError(f"this model has no part {part!r}", f"Its parts: {', '.join(model.parts())}.")
    trained = dict(model.parts()[part].named_parameters())
    original, _ = towers.build(TowerConfig(source), "vision" if part == "image" else "text")
    found = dict(original.named_parameters())
    if {k: v.shape for k, v in found.items()} != {k: v.shape for k, v in trained.items()}:
        raise ModelError(f"{source}: its weights are not those of this model's {part} encoder")
    for name, parameter in trained.items():
        parameter.lerp_(found[name].to(parameter.device), 1 - share)
