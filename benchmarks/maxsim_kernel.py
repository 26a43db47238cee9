"""Late interaction of one text with every image of a collection, on a GPU, at the pace at which fragments are read.

The matrix of words and fragments is never written to memory: a tile of it lives in registers, where each word's best
fragment and the sum over words are found (paper 3, equation 5). What is written is one number an image.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from sightline.errors import ModelError

_HALVES = (torch.float16, torch.bfloat16)
_LEAST = 16  # words, fragments or numbers in a tile that tensor cores multiply
_CONFIGS = [
    triton.Config({"images": images, "steps": steps}, num_warps=warps, num_stages=stages)
    for images, steps, warps, stages in [
        (4, 4, 4, 3),
        (1, 16, 1, 4),
        (1, 16, 2, 4),
        (2, 8, 2, 3),
        (2, 8, 4, 4),
        (4, 1, 4, 1),
        (4, 4, 8, 3),
        (8, 1, 4, 1),
        (8, 4, 8, 2),
    ]
]


def maxsim(words: Tensor, fragments: Tensor, mask: Tensor | None = None, scales: Tensor | None = None) -> Tensor:
    """Late interaction of a text's words [words, dim] with the fragments [images, n, dim] of images: float32 [images].

    words: float16 or bfloat16. fragments: of the same type, or int8 with `scales` float32 [images, n], what one of a
        fragment's whole numbers is worth, as a store keeps them.
    mask: bool [images, n], true where a fragment is real; without it, all are. An image without any scores -inf.

    Products are summed in float32. The first call for a new shape tries which way of cutting it up is the quickest.
    """
    _check(words, fragments, mask, scales)
    count, each, dim = fragments.shape
    scores = torch.empty(count, dtype=torch.float32, device=fragments.device)
    if not count:
        return scores

    def grid(chosen: dict[str, int]) -> tuple[int]:
        return (triton.cdiv(count, chosen["images"] * chosen["steps"]),)

    _tuned[grid](
        words.contiguous(),
        fragments.contiguous(),
        scores if mask is None else mask.contiguous().view(torch.uint8),
        scores if scales is None else scales.contiguous(),
        scores,
        count,
        each,
        dim,
        len(words),
        word_tile=_tile(len(words)),
        each_tile=_tile(each),
        dim_tile=_tile(dim),
        is_masked=mask is not None,
        is_scaled=scales is not None,
    )
    return scores


def best(
    words: Tensor, fragments: Tensor, k: int, mask: Tensor | None = None, scales: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The k images with the highest scores by `maxsim`, best first: scores [k] and their places [k]."""
    found = torch.topk(maxsim(words, fragments, mask, scales), min(k, len(fragments)))
    return found.values, found.indices


def reference(
    words: Tensor, fragments: Tensor, mask: Tensor | None = None, scales: Tensor | None = None, at_once: int = 4096
) -> Tensor:
    """What `maxsim` computes, in plain float32 torch, a block of images after the other; on any device."""
    scores = []
    for start in range(0, len(fragments), at_once):
        some = slice(start, start + at_once)
        products = fragments[some].float() @ words.float().T
        if scales is not None:
            products *= scales[some, :, None]
        if mask is not None:
            products = products.masked_fill(~mask[some, :, None], float("-inf"))
        scores.append(products.amax(dim=1).sum(dim=1))
    return torch.cat(scores) if scores else fragments.new_empty(0, dtype=torch.float32)


@triton.jit  # type: ignore[untyped-decorator]
def _kernel(  # type: ignore[no-untyped-def]
    words,
    fragments,
    mask,
    scales,
    scores,
    count,
    each,
    dim,
    word_count,
    word_tile: tl.constexpr,
    each_tile: tl.constexpr,
    dim_tile: tl.constexpr,
    is_masked: tl.constexpr,
    is_scaled: tl.constexpr,
    images: tl.constexpr,
    steps: tl.constexpr,
):
    """Score `images` images at a time, `steps` times; tiles have the sides of what they hold, or a little more.

    Words that only fill a tile are zeros, and so are their best products: they add nothing.
    """
    word = tl.arange(0, word_tile)
    number = tl.arange(0, dim_tile)
    slot = tl.arange(0, images * each_tile)
    place = slot % each_tile
    asked = tl.load(
        words + word[:, None] * dim + number[None, :],
        mask=(word[:, None] < word_count) & (number[None, :] < dim),
        other=0.0,
    )
    for step in tl.range(0, steps):
        first = (tl.program_id(0) * steps + step) * images
        image = first + slot // each_tile
        row = image.to(tl.int64) * each + place
        is_real = (image < count) & (place < each)
        stored = tl.load(
            fragments + row[:, None] * dim + number[None, :],
            mask=is_real[:, None] & (number[None, :] < dim),
            other=0,
        )
        products = tl.dot(asked, tl.trans(stored.to(asked.dtype)))
        if is_scaled:
            products *= tl.load(scales + row, mask=is_real, other=0.0)[None, :]
        if is_masked:
            is_real = is_real & (tl.load(mask + row, mask=is_real, other=0) != 0)
        products = tl.where(is_real[None, :], products, float("-inf"))
        nearest = tl.max(tl.reshape(products, (word_tile, images, each_tile)), axis=2)
        own = first + tl.arange(0, images)
        tl.store(scores + own, tl.sum(nearest, axis=0), mask=own < count)


_tuned = triton.autotune(
    _CONFIGS[:1] if triton.knobs.runtime.interpret else _CONFIGS,
    key=["word_tile", "each_tile", "dim_tile", "is_masked"],
)(_kernel)


def _tile(size: int) -> int:
    return max(_LEAST, 1 << (size - 1).bit_length())


def _check(words: Tensor, fragments: Tensor, mask: Tensor | None, scales: Tensor | None) -> None:
    """Refuse what the kernel would read wrongly: it knows nothing but addresses."""
    if words.ndim != 2 or fragments.ndim != 3 or words.shape[1] != fragments.shape[2]:
        raise ModelError(f"words {tuple(words.shape)} for fragments {tuple(fragments.shape)}")
    if not len(words) or not fragments.shape[1]:
        raise ModelError("late interaction without fragments", "Give at least one word, and one fragment an image.")
    if words.dtype not in _HALVES or fragments.dtype != (words.dtype if scales is None else torch.int8):
        raise ModelError(
            f"words in {words.dtype} and fragments in {fragments.dtype}",
            "Give both in float16 or bfloat16, or fragments in int8 with their scales.",
        )
    for name, extra, dtype in (("mask", mask, torch.bool), ("scales", scales, torch.float32)):
        if extra is not None and (extra.shape != fragments.shape[:2] or extra.dtype != dtype):
            raise ModelError(f"a {name} of {extra.dtype} {tuple(extra.shape)} for {tuple(fragments.shape)}")
    if len({tensor.device for tensor in (words, fragments, mask, scales) if tensor is not None}) > 1:
        raise ModelError("words and fragments on different devices", "Move them to one.")
    if not fragments.is_cuda and not triton.knobs.runtime.interpret:
        raise ModelError(f"fragments on the {fragments.device.type}", "Move them to a GPU, or use `reference`.")
