"""Which images are searched together: the galleries behind the numbers that papers print.

A recall means little without its gallery: R@1 among 1,000 images is a far easier task than among 5,000. Papers 1 to 4
report Flickr30k over its 1,000 test images (`karpathy`), and COCO both over all 5,000 (`coco-5k`) and as the mean of
five folds of 1,000 (`coco-1k`). Paper 4 also asks about the test images among those of all splits (`full`): captions of
train and val join the gallery of captions there, as its Table 2 has it.

Distractors join every gallery as images only. Were their captions to join the gallery of captions as well, a caption
that happens to describe a query image would count as wrong; and what an enlarged gallery is to show, as in section 6 of
paper 1, is how a search holds up among more images.
"""

from dataclasses import dataclass

import numpy as np

from sightline.arrays import Int64Array
from sightline.errors import EvaluationError


@dataclass(frozen=True, slots=True)
class Protocol:
    """A way of cutting the images of a split into galleries: `folds` of equal size, of `images` in all if given.

    asks: the split that is asked about, where the others only enlarge the gallery; None asks about all images.
    """

    name: str
    folds: int = 1
    images: int | None = None
    asks: str | None = None

    def galleries(self, images: int) -> list[Int64Array]:
        """Give the image indices of every gallery, consecutive images together, as the published splits have them."""
        if self.images is not None and images != self.images:
            raise EvaluationError(
                f"protocol {self.name} is for {self.images:,} images; these are {images:,}",
                "Give it the whole COCO test split of Karpathy, or choose protocol karpathy: all images, one gallery.",
            )
        return np.array_split(np.arange(images), self.folds)


PROTOCOLS = {
    protocol.name: protocol
    for protocol in (
        Protocol("karpathy"),
        Protocol("coco-5k", images=5000),
        Protocol("coco-1k", folds=5, images=5000),
        Protocol("full", asks="test"),
    )
}


def protocol_named(name: str) -> Protocol:
    """Look up a protocol by name."""
    if name not in PROTOCOLS:
        raise EvaluationError(f"unknown protocol {name!r}", f"Choose one of {', '.join(PROTOCOLS)}.")
    return PROTOCOLS[name]
