"""The last touches to a bundle, on captions it was not trained on: how its scores combine, and what they are worth."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sightline.bundle import Bundle
from sightline.bundle.model import check_ability
from sightline.bundle.spec import BundleSpec, read_spec, write_spec
from sightline.datasets import Record
from sightline.datasets.record import Report
from sightline.evaluation.calibration import cross_calibrated
from sightline.evaluation.cascade import Shortlist
from sightline.evaluation.encodings import Needs, Progress, encode_images, encode_texts
from sightline.evaluation.metrics import query_images
from sightline.evaluation.ranking import top_k_from_embeddings
from sightline.evaluation.stages import Direction, match_scorer, score_both
from sightline.evaluation.test_set import Questions
from sightline.retrieval.scoring import fuse

WEIGHTS = (0.0, 1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 80.0, 100.0, 150.0, 200.0)
CANDIDATES = 20
Singles = npt.NDArray[np.float32]


def finish(
    folder: str | Path,
    records: Sequence[Record],
    *,
    lang: str = "en",
    progress: Progress | None = None,
    on_problem: Report | None = None,
) -> BundleSpec:
    """Choose the fusion's weight and fit the calibration of a bundle on held-out records; rewrites its spec.

    The weight is the one with the highest sum of recalls at 1, 5 and 10 in both directions. The
    calibration says how likely a candidate among the 20 best of a text is the picture that the text was written for:
    other pictures that fit as well count as wrong, so probabilities err on the low side. Pictures that cannot be read
    are left out, and `on_problem` is told of each.
    """
    folder = Path(folder)
    bundle = Bundle.open(folder)
    questions = Questions.of(records, lang)
    check_ability(bundle, "embed", "calibrating", "A matcher alone has nothing to calibrate by: leave it out.")
    matches = "match" in bundle.abilities
    images, readable = encode_images(bundle, questions.images, Needs(states=matches), 32, progress, on_problem)
    texts, _ = encode_texts(bundle, questions.captions, Needs(states=matches), 32, progress)
    place = np.full(len(questions.images), -1, dtype=np.int64)
    place[readable] = np.arange(len(readable))
    image_of = place[questions.image_of]
    by_text = Direction(np.arange(len(texts)), _best(texts.embedding, images.embedding))
    by_image = Direction(query_images(image_of), _best(images.embedding[query_images(image_of)], texts.embedding))
    right_images = by_text.shortlist.items == image_of[:, None]
    right_texts = image_of[by_image.shortlist.items] == by_image.queries[:, None]
    calibration = {"embed": cross_calibrated(by_text.shortlist.embed, right_images, image_of, len(images))}
    defaults = bundle.defaults
    if matches:
        scorer = match_scorer(bundle, texts, images, 32, progress)
        for_text, for_image = score_both(by_text, by_image, CANDIDATES, scorer)
        defaults = replace(
            defaults,
            fusion="logit_add",
            weight=_weight(by_text, for_text, right_images, by_image, for_image, right_texts),
        )
        fused = fuse(defaults.fusion, by_text.shortlist.embed, for_text, defaults.weight)
        calibration["match"] = cross_calibrated(fused, right_images, image_of, len(images))
    spec = replace(read_spec(folder), defaults=defaults, relevance=calibration)
    write_spec(folder, spec)
    return spec


def _best(queries: Singles, gallery: Singles) -> Shortlist:
    return Shortlist.of(*top_k_from_embeddings(queries, gallery, min(CANDIDATES, len(gallery))))


def _weight(
    by_text: Direction,
    for_text: Singles,
    right_images: npt.NDArray[np.bool_],
    by_image: Direction,
    for_image: Singles,
    right_texts: npt.NDArray[np.bool_],
) -> float:
    """The weight with the highest sum of R@1, R@5 and R@10 of both directions."""

    def total(weight: float) -> float:
        found = 0.0
        sides = ((by_text, for_text, right_images), (by_image, for_image, right_texts))
        for direction, logits, right in sides:
            scores = fuse("logit_add", direction.shortlist.embed, logits, weight)
            order = np.argsort(-scores, axis=1, kind="stable")
            hits = np.take_along_axis(right, order, axis=1)
            found += sum(float(hits[:, :k].any(axis=1).mean()) for k in (1, 5, 10))
        return found

    return max(WEIGHTS, key=total)
