"""Embedding lookup in a table of packed integers."""

import torch
from torch import Tensor

from sightline.kernels.operators import Attributes, operator, refuse


def unpacked(packed: Tensor, bits: int) -> Tensor:
    """Unpack two 4-bit numbers per byte, the lower half first; or one 8-bit number."""
    if bits == 8:
        return packed
    return torch.stack([packed & 15, packed >> 4], -1).flatten(-2)


@operator("GatherBlockQuantized")
def gather_blocks(attributes: Attributes, packed: Tensor, rows: Tensor, scales: Tensor, *zeros: Tensor) -> Tensor:
    """Look up and dequantise rows of a table; each block of a row has a scale [rows, blocks], and zero is mid-range."""
    bits, axes = attributes.get("bits", 4), (attributes.get("gather_axis", 0), attributes.get("quantize_axis", 1))
    if zeros:
        raise refuse("GatherBlockQuantized", "has zero points")
    if bits not in (4, 8):
        raise refuse("GatherBlockQuantized", f"has {bits} bits per number, not 4 or 8")
    if packed.dtype != torch.uint8 or packed.ndim != 2 or axes != (0, 1):
        raise refuse("GatherBlockQuantized", "has a table whose type or axes are not supported")
    wanted, blocks, block = (rows % len(packed)).flatten(), scales.shape[1], attributes.get("block_size", 128)
    whole = unpacked(packed.index_select(0, wanted), bits).float() - 2.0 ** (bits - 1)
    if whole.shape[1] != blocks * block:
        raise refuse(
            "GatherBlockQuantized", f"has rows of {whole.shape[1]} numbers instead of {blocks} blocks of {block}"
        )
    found: Tensor = whole.reshape(-1, blocks, block) * scales.index_select(0, wanted).float().unsqueeze(-1)
    return found.reshape(*rows.shape, -1).to(scales.dtype)
