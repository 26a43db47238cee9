"""Drawing negatives at random.

A draw looks up a uniform number in the cumulative weights of one row. The uniform numbers come from a generator
that all processes share and are drawn for the whole batch, so a row gets the same negative whichever process owns it
and however many processes there are.
"""

import torch
from torch import Tensor


def uniform(shape: tuple[int, ...], generator: torch.Generator, device: torch.device) -> Tensor:
    """Return random numbers in [0, 1), drawn on the generator's device so that they are the same for every device.

    They are copied to a GPU through pinned memory, so that the CPU does not wait.
    """
    pinned = device.type == "cuda" and generator.device.type == "cpu"
    numbers = torch.rand(shape, generator=generator, device=generator.device, pin_memory=pinned)
    return numbers.to(device, non_blocking=True)


@torch.no_grad()
def draw(log_weights: Tensor, allowed: Tensor, numbers: Tensor) -> Tensor:
    """Draw one item per row in proportion to the exponential of its log-weight: [rows].

    log_weights, allowed: [rows, items]; numbers: [rows], from 0 to 1. Items that are not allowed are never drawn; the
    result of a row without allowed items is undefined.

    >>> draw(torch.tensor([[0.0, 9.0, 0.0]]), torch.tensor([[True, False, True]]), torch.tensor([0.6]))
    tensor([2])
    """
    return draw_each(log_weights, allowed, numbers[:, None]).squeeze(1)


@torch.no_grad()
def draw_each(log_weights: Tensor, allowed: Tensor, numbers: Tensor) -> Tensor:
    """Like `draw`, but once for every number of a row, with replacement: [..., rows, draws].

    log_weights, allowed: [..., rows, items]; numbers: [..., rows, draws].
    """
    weights = masked_softmax(log_weights, allowed)
    cumulated = weights.cumsum(-1)
    last = weights.shape[-1] - 1
    drawn = torch.searchsorted(cumulated, numbers * cumulated[..., -1:], right=True).clamp(max=last)
    # Rounding may move a number past the last weight, or onto an item of weight zero.
    sound = weights.gather(-1, drawn) > 0
    return torch.where(sound, drawn, weights.argmax(-1, keepdim=True))


@torch.no_grad()
def draw_several(log_weights: Tensor, allowed: Tensor, numbers: Tensor, count: int) -> Tensor:
    """Draw `count` items per row without replacement, in proportion to the exponential of their log-weights.

    log_weights, allowed, numbers: [rows, items]; returns [rows, count], or fewer columns if there are fewer items.
    The items with the largest log-weight + Gumbel noise are such a draw (Kool et al. 2019). If a row has fewer
    than `count` allowed items, the rest of its draws are items that are not allowed.
    """
    noise = -(-numbers.clamp(min=torch.finfo(numbers.dtype).tiny).log()).log()
    lowest = torch.finfo(log_weights.dtype).min
    return (log_weights + noise).masked_fill(~allowed, lowest).topk(min(count, log_weights.shape[1])).indices


def masked_softmax(log_weights: Tensor, allowed: Tensor) -> Tensor:
    """Return the softmax of each row [..., rows, items] over the allowed items; zeros in a row without any."""
    lowest = torch.finfo(log_weights.dtype).min
    return log_weights.masked_fill(~allowed, lowest).softmax(-1) * allowed


def inverse_density(cosines: Tensor, dim: int, nearest: float) -> Tensor:
    """Log of the inverse density, up to a constant, of the distance between random points on a sphere.

    Wu et al., Sampling Matters in Deep Embedding Learning (2017), equation 2: on the unit sphere in `dim` dimensions
    distances follow

        q(d) = c · d^(dim-2) · [1 - d²/4]^((dim-3)/2),        d² = 2 - 2 cos.

    Weights of 1 / q(d) make every distance equally likely, whereas unweighted draws would nearly all be at about √2.
    Distances below `nearest` count as `nearest`, so that the few closest items, which are often wrongly labelled, are
    not drawn all the time.

    In 512 dimensions q spans hundreds of powers of ten: only its logarithm fits a float32, and the constant c cancels.
    """
    square = (2 - 2 * cosines).clamp(min=nearest**2)
    rest = (1 - square / 4).clamp(min=torch.finfo(cosines.dtype).eps)
    return (2 - dim) / 2 * square.log() - (dim - 3) / 2 * rest.log()
