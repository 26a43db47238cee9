"""The last touches to a bundle, on captions it was not trained on: how its scores combine, and what they are worth."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from sightline.arrays import BoolArray, Int64Array
from sightline.bundle import Bundle
from sightline.bundle.model import FusionRule, check_ability
from sightline.bundle.spec import BundleSpec, read_spec, write_spec
from sightline.datasets import Record
from sightline.datasets.record import Report
from sightline.evaluation.calibration import cross_calibrated
from sightline.evaluation.encodings import Needs, Progress, encode_images, encode_texts
from sightline.evaluation.metrics import query_images
from sightline.evaluation.pair_scores import match_scores
from sightline.evaluation.ranking import candidates_from_embeddings
from sightline.evaluation.test_set import Questions
from sightline.retrieval.candidates import Candidates
from sightline.retrieval.stages import Score, Stage

WEIGHTS = (0.0, 1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 80.0, 100.0, 150.0, 200.0)
CANDIDATES = 20
FUSION: FusionRule = "logit_add"


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
    asked = query_images(image_of)
    by_text = candidates_from_embeddings(texts.embedding, images.embedding, CANDIDATES)
    by_image = candidates_from_embeddings(images.embedding[asked], texts.embedding, CANDIDATES)
    relevance = {"embed": cross_calibrated(by_text.scores, by_text.ids == image_of[:, None], image_of, len(images))}
    defaults = bundle.defaults
    if matches:
        pairs = match_scores(bundle, texts, images, 32, progress)
        to_image = _Direction(by_text, pairs.of_texts(np.arange(len(texts))), lambda ids: ids == image_of[:, None])
        to_text = _Direction(by_image, pairs.of_images(asked), lambda ids: image_of[ids] == asked[:, None])
        weight = max(WEIGHTS, key=lambda weight: to_image.recalls(weight) + to_text.recalls(weight))
        defaults = replace(defaults, fusion=FUSION, weight=weight)
        found = to_image.reranked(weight)
        relevance["match"] = cross_calibrated(found.scores, found.ids == image_of[:, None], image_of, len(images))
    spec = replace(read_spec(folder), defaults=defaults, relevance=relevance)
    write_spec(folder, spec)
    return spec


@dataclass(frozen=True, slots=True)
class _Direction:
    """The candidates of the queries of one direction, what matches them, and which ids [queries, k] are right."""

    candidates: Candidates
    score: Score
    right: Callable[[Int64Array], BoolArray]

    def reranked(self, weight: float) -> Candidates:
        return Stage("match", CANDIDATES, self.score, (FUSION, weight)).run(self.candidates)

    def recalls(self, weight: float) -> float:
        """The sum of R@1, R@5 and R@10."""
        hits = self.right(self.reranked(weight).ids)
        return sum(float(hits[:, :k].any(axis=1).mean()) for k in (1, 5, 10))
