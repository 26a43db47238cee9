import numpy as np
import pytest

from sightline.errors import EvaluationError
from sightline.evaluation.protocols import PROTOCOLS, protocol_named


def test_karpathy_is_one_gallery_of_all_images() -> None:
    (gallery,) = PROTOCOLS["karpathy"].galleries(1014)
    np.testing.assert_array_equal(gallery, np.arange(1014))


def test_coco_5k_is_one_gallery_of_5000() -> None:
    (gallery,) = PROTOCOLS["coco-5k"].galleries(5000)
    assert len(gallery) == 5000


def test_coco_1k_is_five_galleries_of_consecutive_thousands() -> None:
    galleries = PROTOCOLS["coco-1k"].galleries(5000)
    assert [(gallery[0], gallery[-1], len(gallery)) for gallery in galleries] == [
        (start, start + 999, 1000) for start in range(0, 5000, 1000)
    ]


@pytest.mark.parametrize("name", ["coco-5k", "coco-1k"])
@pytest.mark.parametrize("images", [1000, 4999, 5001])
def test_another_number_of_images_than_the_protocols_is_refused(name: str, images: int) -> None:
    with pytest.raises(EvaluationError, match=rf"{name}' needs 5,000 images, but there are {images:,}"):
        PROTOCOLS[name].galleries(images)


def test_an_unknown_protocol_is_refused_with_those_there_are() -> None:
    with pytest.raises(EvaluationError, match="karpathy, coco-5k, coco-1k"):
        protocol_named("coco")
