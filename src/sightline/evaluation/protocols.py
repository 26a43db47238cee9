"""Evaluation protocols: the galleries that published results were measured on.

A recall means little without its gallery: R@1 among 1,000 images is a far easier task than among 5,000. Papers 1 to 4
report Flickr30k over its 1,000 test images (`karpathy`), and COCO both over all 5,000 (`coco-5k`) and as the mean of
five folds of 1,000 (`coco-1k`). Paper 4 also searches for the test images among those of all splits (`full`); the
captions of train and val are then in the gallery of captions too, as in its Table 2.

Distractors are added to every gallery as images only. If their captions were in the gallery of captions, a caption
that happens to describe a query image would count as wrong; and the purpose of a larger gallery, as in section 6 of
paper 1, is to measure search among more images.
"""

from dataclasses import dataclass

import numpy as np

from sightline.arrays import Int64Array
from sightline.errors import EvaluationError


@dataclass(frozen=True, slots=True)
class Protocol:
    """How to divide the images of a split into galleries: `folds` of equal size.

    images: the number of images required in total, if given.
    asks: the split with the queries, if other splits only enlarge the gallery; None if all images are queries.
    """

    name: str
    folds: int = 1
    images: int | None = None
    asks: str | None = None

    def galleries(self, images: int) -> list[Int64Array]:
        """Return the image indices of every gallery; the images of each are consecutive, as in the published splits."""
        if self.images is not None and images != self.images:
            raise EvaluationError(
                f"protocol {self.name!r} needs {self.images:,} images, but there are {images:,}",
                "Use the whole COCO test split, or protocol 'karpathy', which puts all images into one gallery.",
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
