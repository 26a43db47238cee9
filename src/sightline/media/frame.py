"""The true size of an image that may have been decoded at a reduced size.

A JPEG 449 pixels wide, decoded at half size, is 225 pixels wide, and half of the last pixel is outside the image.
Treating all 225 pixels as the image would stretch it by 0.25 %, and a crop might be rounded differently. So the
original size is kept with the pixels.
"""

from dataclasses import dataclass, field, replace
from typing import Self

from PIL import Image

Box = tuple[float, float, float, float]

_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_MIRRORS_ACROSS = {2, 3, 6, 7}
_MIRRORS_DOWN = {3, 4, 7, 8}


@dataclass(frozen=True, slots=True)
class FramedImage:
    """Pixels, the full (width, height) of the image, and the box within the pixels that the image fills.

    exif: the image's EXIF data; empty if missing or unreadable.
    """

    image: Image.Image
    sides: tuple[int, int]
    box: Box
    exif: Image.Exif = field(default_factory=Image.Exif, compare=False, repr=False)

    @classmethod
    def whole(cls, image: Image.Image) -> Self:
        """Frame an image that was decoded at full size."""
        return cls(image, image.size, (0, 0, *image.size))

    def upright(self, orientation: int) -> "FramedImage":
        """Rotate or mirror the pixels and the box according to an EXIF orientation."""
        if orientation not in _TURNS:
            return self
        image = self.image.transpose(_TURNS[orientation])
        width, height = self.box[2] - self.box[0], self.box[3] - self.box[1]
        sides = self.sides
        if orientation >= 5:
            width, height, sides = height, width, (sides[1], sides[0])
        left = image.width - width if orientation in _MIRRORS_ACROSS else 0.0
        top = image.height - height if orientation in _MIRRORS_DOWN else 0.0
        return replace(self, image=image, sides=sides, box=(left, top, left + width, top + height))

    def part(self, wanted: Box) -> Box:
        """Convert a box from full-size coordinates to the coordinates of these pixels."""
        left, top, right, bottom = self.box
        across, down = (right - left) / self.sides[0], (bottom - top) / self.sides[1]
        return (
            left + wanted[0] * across,
            top + wanted[1] * down,
            min(right, left + wanted[2] * across),  # the division may have been rounded up, beyond the image
            min(bottom, top + wanted[3] * down),
        )
