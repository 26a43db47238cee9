"""Image augmentation: crops, mirroring, colour changes."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from sightline.errors import ModelError
from sightline.training.distributed import to_device

_LUMA = (0.299, 0.587, 0.114)
_DRAWS = 8  # drawn per image whatever is enabled, so that one setting does not change another's random numbers


@dataclass(frozen=True, slots=True)
class Augment:
    """Random changes to a batch of images, independent for each image.

    flip: the probability of mirroring an image left to right. Set 0 if captions say "left" and "right".
    crop: the smallest fraction of the area that a crop keeps; 1 disables cropping. A crop is scaled back to full size.
    aspect: the largest factor by which a crop's aspect ratio may differ from the image's, in either direction.
    colour: brightness, contrast and saturation are each multiplied by 1 - colour to 1 + colour; 0 disables this.
        Hue is not changed, because captions name colours.
    views: for a frozen image tower, how many augmented versions of each image to encode before training; each step
        draws from these. 0 runs the tower on a newly augmented version at every step.

    >>> images = torch.randint(256, (4, 3, 8, 8), dtype=torch.uint8)
    >>> seen = Augment(crop=0.5, colour=0.2)(images, torch.Generator().manual_seed(0))
    >>> seen.shape, seen.dtype, bool((0 <= seen).all() and (seen <= 255).all())
    (torch.Size([4, 3, 8, 8]), torch.float32, True)
    """

    flip: float = 0.5
    crop: float = 0.6
    aspect: float = 4 / 3
    colour: float = 0.0
    views: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.flip <= 1:
            raise ModelError(f"augment.flip cannot be {self.flip}", "Use a probability from 0 to 1.")
        if not 0 < self.crop <= 1:
            raise ModelError(
                f"augment.crop cannot be {self.crop}",
                "Use a fraction of the area, above 0 and at most 1 (no cropping).",
            )
        if not 1 <= self.aspect < math.inf:
            raise ModelError(f"augment.aspect cannot be {self.aspect}", "Use a ratio of at least 1.")
        if self.views < 0:
            raise ModelError(f"augment.views cannot be {self.views}", "Use a number of at least 0.")
        if not 0 <= self.colour <= 1:
            raise ModelError(f"augment.colour cannot be {self.colour}", "Use a strength from 0 to 1.")

    def __call__(self, pixels: Tensor, generator: torch.Generator) -> Tensor:
        """Augment pixels [batch, 3, height, width]; returns float32 of the same shape, device and value range.

        pixels: uint8 from 0 to 255 or floats from 0 to 1; without `colour`, any floats. The same generator state gives
        the same changes on every device, and the changes to an image depend only on its index in the batch. With
        everything disabled, the pixels are returned unchanged.
        """
        brightest = 1.0 if pixels.is_floating_point() else 255.0
        draws = torch.rand(len(pixels), _DRAWS, generator=generator, device=generator.device).cpu()
        mirrored = draws[:, 0] < self.flip
        seen = pixels.float()
        if self.crop < 1:
            boxes = crop_boxes(draws[:, 1:5], self.crop, self.aspect)
            seen = cropped(seen, to_device(boxes, seen.device), to_device(mirrored, seen.device))
        elif mirrored.any():
            seen = torch.where(to_device(mirrored, seen.device)[:, None, None, None], seen.flip(-1), seen)
        if self.colour:
            factors = 1 + self.colour * (2 * draws[:, 5:] - 1)
            seen = coloured(seen, to_device(factors, seen.device), brightest)
        return seen


def crop_boxes(draws: Tensor, smallest: float, aspect: float) -> Tensor:
    """Crop boxes [batch, 4] as left, top, width, height relative to the image, from uniform draws [batch, 4].

    Areas are uniform from `smallest` to 1. Aspect ratios are log-uniform, within `aspect` and within what fits the
    image at that area, so that every box lies inside the image and has the area drawn for it.
    """
    area = smallest + (1 - smallest) * draws[:, 0]
    widest = (-area.log()).clamp(max=math.log(aspect))
    ratio = (widest * (2 * draws[:, 1] - 1)).exp()
    sides = torch.stack([(area * ratio).sqrt(), (area / ratio).sqrt()], 1).clamp(max=1)
    return torch.cat([draws[:, 2:4] * (1 - sides), sides], 1)


def cropped(pixels: Tensor, boxes: Tensor, mirrored: Tensor) -> Tensor:
    """Crop pixels [batch, 3, height, width] to boxes [batch, 4], scaled to full size; mirrored [batch]: which to flip.

    Interpolates bilinearly, in one pass for the batch. Crops are only ever enlarged, so no smoothing is needed.
    """
    corner, sides = boxes[:, :2], boxes[:, 2:]
    across, down = sides.unbind(1)
    zero = torch.zeros_like(across)
    turn = torch.stack([torch.where(mirrored, -across, across), zero, zero, down], 1).view(-1, 2, 2)
    centre = 2 * corner + sides - 1
    grid = F.affine_grid(torch.cat([turn, centre[:, :, None]], 2), list(pixels.shape), align_corners=False)
    return F.grid_sample(pixels, grid, mode="bilinear", padding_mode="border", align_corners=False)


def coloured(pixels: Tensor, factors: Tensor, brightest: float) -> Tensor:
    """Multiply brightness, contrast and saturation of pixels [batch, 3, …] by factors [batch, 3], and clamp them.

    Contrast is measured from the image's mean grey, saturation from each pixel's own grey.
    """
    brightness, contrast, saturation = factors[:, :, None, None, None].unbind(1)
    bright = pixels * brightness
    level = grey(bright).mean((1, 2, 3), keepdim=True)
    contrasted = level + contrast * (bright - level)
    plain = grey(contrasted)
    return (plain + saturation * (contrasted - plain)).clamp(0, brightest)


def grey(pixels: Tensor) -> Tensor:
    """Return the luma [batch, 1, …] of pixels [batch, 3, …]."""
    weights = pixels.new_tensor(_LUMA)[:, None, None]
    return (pixels * weights).sum(1, keepdim=True)
