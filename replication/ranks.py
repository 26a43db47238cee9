"""Encoding a test set, making an evaluation from ranks, and the gain of one evaluation over another."""

import numpy as np

from sightline.evaluation import Evaluation
from sightline.evaluation.encodings import Encodings, Needs, encode_images, encode_texts
from sightline.evaluation.metrics import CUTOFFS, Ranks, query_images
from sightline.evaluation.result import FoldRanks
from sightline.evaluation.test_set import Questions
from sightline.models.torch_model import TorchModel

RESAMPLES = 1000


def encode_test_set(model: TorchModel, questions: Questions, needs: Needs) -> tuple[Encodings, Encodings]:
    """Encode the texts and images of a test set, all of which must be readable."""
    images, readable = encode_images(model, questions.images, needs, 256)
    if len(readable) < len(questions.images):
        raise SystemExit("some test images cannot be read")
    return encode_texts(model, questions.captions, needs, 256)[0], images


def ranked(
    questions: Questions, ranks: tuple[Ranks, Ranks], model: str, data: str = "flickr8k", stage: str = "embed"
) -> Evaluation:
    """Make an evaluation from the ranks of all captions' images, and of all images' captions."""
    to_image, to_text = ranks
    image_of = questions.image_of
    return Evaluation(
        model=model, data=data, lang="en", protocol="karpathy", stages=(stage,), fusion=None, weight=None,
        distractors=0, folds=(FoldRanks(to_image, image_of, to_text, query_images(image_of)),),
        fingerprint=questions.fingerprint, problems={}, seconds={}, seed=0,
    )  # fmt: skip


def gain(before: Evaluation, after: Evaluation, seed: int = 0) -> dict[str, float]:
    """The gain in rSum from before to after, with the 95 % interval of resampling images with all their captions."""
    texts, caption_of, images, image = before.ranks()
    other_texts, _, other_images, _ = after.ranks()
    count = int(image.max()) + 1
    captions = np.bincount(caption_of, minlength=count)
    more_captions, more_images = np.zeros(count), np.zeros(count)
    for k in CUTOFFS:
        more_captions += np.bincount(caption_of, (other_texts <= k) * 1.0 - (texts <= k), count)
        more_images += np.bincount(image, (other_images <= k) * 1.0 - (images <= k), count)
    draws = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), RESAMPLES)
    drawn = 100 * (draws @ more_captions / (draws @ captions) + draws @ more_images / count)
    low, high = np.quantile(drawn, [0.025, 0.975])
    value = 100 * (more_captions.sum() / captions.sum() + more_images.sum() / count)
    return {"rSum": round(float(value), 3), "low": round(float(low), 3), "high": round(float(high), 3)}
