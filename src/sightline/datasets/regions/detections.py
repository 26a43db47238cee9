"""The detections in one image, as a reader yields them, and the rule for which to keep."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sightline.datasets.record import BrokenRecordError, OnProblem
from sightline.errors import DataError

Floats = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class Found:
    """The regions of an image.

    name: the image's name in the features, a file name or a number.
    features: [n, dim]. boxes: [n, 4], left, top, right and bottom relative to the image size; None if they
    were not published. confidence: [n], the detector's confidence; None if unknown.
    captions, split: as in `Record`, if the features come with captions.
    """

    name: str
    features: Floats
    boxes: Floats | None = None
    confidence: Floats | None = None
    captions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    split: str | None = None

    def __post_init__(self) -> None:
        if self.features.ndim != 2 or not self.features.size:
            raise BrokenRecordError(f"features have shape {list(self.features.shape)}, not [regions, numbers]")
        count = len(self.features)
        if self.boxes is not None and self.boxes.shape != (count, 4):
            raise BrokenRecordError(f"boxes have shape {list(self.boxes.shape)} for {count} regions")
        if self.confidence is not None and self.confidence.shape != (count,):
            raise BrokenRecordError(f"confidences have shape {list(self.confidence.shape)} for {count} regions")
        for what in ("features", "boxes", "confidence"):
            numbers = getattr(self, what)
            if numbers is not None and not np.isfinite(numbers).all():
                raise BrokenRecordError(f"{what}: some numbers are not finite")
        if self.boxes is not None and (self.boxes[:, :2] > self.boxes[:, 2:]).any():
            raise BrokenRecordError(
                "a box has its right or bottom edge before its left or top edge; the order is left, top, right, bottom"
            )


@dataclass(frozen=True, slots=True)
class Keep:
    """Selects regions: those with a confidence above `confidence`, but at least `fewest` and at most `most`.

    The most confident regions are kept, in their original order; this is UNITER's rule, with its numbers. Without
    confidences, the first `most` regions are kept.
    """

    confidence: float = 0.2
    fewest: int = 10
    most: int = 100

    def __post_init__(self) -> None:
        if not 1 <= self.fewest <= self.most:
            raise DataError(
                f"cannot keep from {self.fewest} to {self.most} regions per image", "Set 1 <= fewest <= most."
            )
        if not 0 <= self.confidence <= 1:
            raise DataError(f"the confidence cannot be {self.confidence:g}", "Use a probability from 0 to 1.")

    def __call__(self, found: Found) -> Found:
        """Return the image with only the selected regions."""
        if found.confidence is None:
            chosen = np.arange(min(len(found.features), self.most))
        else:
            sure = int((found.confidence > self.confidence).sum())
            count = min(max(sure, self.fewest), self.most)
            chosen = np.sort(np.argsort(-found.confidence, kind="stable")[:count])
        return replace(
            found,
            features=found.features[chosen],
            boxes=None if found.boxes is None else found.boxes[chosen],
            confidence=None if found.confidence is None else found.confidence[chosen],
        )


RegionReader = Callable[[Path, OnProblem], Iterator[Found]]
"""Reads the regions of all images in a file or folder; a broken row is reported and skipped."""


def relative(boxes: Floats, width: float, height: float) -> npt.NDArray[np.float32]:
    """Convert boxes in pixels, [n, 4] or with more columns, to coordinates relative to the image size."""
    if not (width > 0 and height > 0):
        raise BrokenRecordError(f"the image cannot have {width:g} x {height:g} pixels")
    sides = np.array([width, height, width, height], dtype=np.float32)
    return np.asarray(boxes[:, :4], dtype=np.float32) / sides
