"""Encode a test set, make an evaluation from ranks, and compute the gain of one evaluation over another."""

from typing import Any

from sightline.evaluation import Evaluation
from sightline.evaluation.encodings import Encodings, Needs, encode_images, encode_texts
from sightline.evaluation.metrics import Ranks, query_images
from sightline.evaluation.resampling import paired_gain
from sightline.evaluation.result import FoldRanks
from sightline.evaluation.test_set import Questions
from sightline.models.torch_model import TorchModel


def encode_test_set(model: TorchModel, questions: Questions, needs: Needs) -> tuple[Encodings, Encodings]:
    """Encode the texts and images of a test set, distractors last; all images must be readable."""
    every = [*questions.images, *questions.distractors]
    images, readable = encode_images(model, every, needs, 256)
    if len(readable) < len(every):
        raise SystemExit("some test images cannot be read")
    return encode_texts(model, questions.captions, needs, 256)[0], images


def ranked(questions: Questions, ranks: tuple[Ranks, Ranks], model: str, data: str, **more: Any) -> Evaluation:
    """Make an evaluation from the ranks of all captions' images, and of all images' captions; more: other fields."""
    folds = (FoldRanks(ranks[0], questions.image_of, ranks[1], query_images(questions.image_of)),)
    usual: dict[str, Any] = {"lang": "en", "stages": ("embed",), "fusion": None, "weight": None, "distractors": 0}
    usual |= {"protocol": "karpathy", "problems": {}, "seconds": {}, "seed": 0}
    return Evaluation(model=model, data=data, folds=folds, fingerprint=questions.fingerprint, **usual | more)


def gain(before: Evaluation, after: Evaluation) -> dict[str, float]:
    """Return the gain in rSum of `after` over `before`, with its 95 % interval from resampling images."""
    texts, caption_of, images, image = before.ranks()
    other_texts, _, other_images, _ = after.ranks()
    found = paired_gain((texts, other_texts, caption_of), (images, other_images, image))
    return {"rSum": round(found.value, 3), "low": round(found.low, 3), "high": round(found.high, 3)}
