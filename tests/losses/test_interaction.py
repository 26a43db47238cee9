"""Late interaction is paper 3's equation 5, word by word."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from sightline.errors import ModelError
from sightline.losses.interaction import maxsim

MASKS = st.integers(1, 4).flatmap(
    lambda n: st.lists(st.lists(st.booleans(), min_size=n, max_size=n).filter(any), min_size=1, max_size=4)
)


def fragments(mask: Tensor, seed: int) -> Tensor:
    """Unit vectors for every place of a mask; padding is as long as anything real, and better than it."""
    made = F.normalize(torch.randn(*mask.shape, 5, generator=torch.Generator().manual_seed(seed)), dim=-1)
    return torch.where(mask[..., None], made, torch.ones(5))


def literal(words: Tensor, words_mask: Tensor, patches: Tensor, patches_mask: Tensor) -> list[list[float]]:
    scores = []
    for text, real_words in zip(words.double(), words_mask, strict=True):
        scores.append([])
        for image, real_patches in zip(patches.double(), patches_mask, strict=True):
            total = 0.0
            for word, word_is_real in zip(text, real_words, strict=True):
                cosines = [float(word @ patch) for patch, real in zip(image, real_patches, strict=True) if real]
                total += max(cosines) if word_is_real else 0.0
            scores[-1].append(total)
    return scores


@settings(max_examples=60, deadline=None)
@given(of_words=MASKS, of_patches=MASKS, chunk=st.integers(1, 5), seed=st.integers(0, 999))
def test_it_is_the_triple_loop_of_equation_5_for_any_lengths_and_masks(
    of_words: list[list[bool]], of_patches: list[list[bool]], chunk: int, seed: int
) -> None:
    words_mask, patches_mask = torch.tensor(of_words), torch.tensor(of_patches)
    words, patches = fragments(words_mask, seed), fragments(patches_mask, seed + 1)
    for one in ((words, words_mask, patches, patches_mask), (patches, patches_mask, words, words_mask)):
        found = maxsim(*one, chunk=chunk)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, torch.tensor(literal(*one)), rtol=1e-5, atol=1e-5)


def test_an_item_without_a_fragment_is_refused() -> None:
    mask = torch.tensor([[True, False], [False, False]])
    some, whole = torch.ones(2, 2, 3), torch.ones(2, 2, dtype=torch.bool)
    with pytest.raises(ModelError, match="item 1 of 2 has no fragments"):
        maxsim(some, mask, some, whole)
    with pytest.raises(ModelError, match="item 1 of 2 has no fragments"):
        maxsim(some, whole, some, mask)


def test_half_precision_is_added_up_in_float32() -> None:
    """A thousand words of a cosine of 1 each: in bfloat16 the sum would stop at 256."""
    words, patches = torch.zeros(1, 1000, 4), torch.zeros(1, 1, 4)
    words[..., 0], patches[..., 0] = 1.0, 1.0
    masks = torch.ones(1, 1000, dtype=torch.bool), torch.ones(1, 1, dtype=torch.bool)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert maxsim(words.bfloat16(), masks[0], patches.bfloat16(), masks[1]).item() == 1000


def test_only_the_best_patch_of_a_word_gets_a_gradient_and_padding_none() -> None:
    words_mask, patches_mask = torch.tensor([[True, True, False]]), torch.tensor([[True, True, True, False]])
    words, patches = fragments(words_mask, 3).requires_grad_(), fragments(patches_mask, 4).requires_grad_()
    maxsim(words, words_mask, patches, patches_mask).sum().backward()
    best = (words @ patches.transpose(1, 2))[0, :2, :3].argmax(1)
    assert patches.grad is not None
    assert words.grad is not None
    assert patches.grad[0].abs().sum(1).nonzero().flatten().tolist() == sorted(set(best.tolist()))
    assert words.grad[0, 2].abs().sum() == 0
