"""Calibration of a bundle on held-out captions: the fusion weight, and the relevance of pairs."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from sightline.arrays import BoolArray, Float32Array, Int64Array
from sightline.bundle import Bundle
from sightline.bundle.model import Defaults, check_ability
from sightline.bundle.relevance_formula import PairRelevance
from sightline.bundle.spec import BundleSpec, read_spec, write_spec
from sightline.bundle.words import Words, most_frequent
from sightline.datasets import Record
from sightline.datasets.record import OnProblem
from sightline.evaluation.encodings import Encodings, Needs, Progress, encode_images, encode_texts
from sightline.evaluation.metrics import query_images
from sightline.evaluation.pair_scores import match_scores
from sightline.evaluation.ranking import candidates_from_embeddings
from sightline.evaluation.test_set import Questions
from sightline.fusion_names import FusionRule
from sightline.onnx_export.relevance_fit import JudgedQuery, errors, fit_relevance, judge
from sightline.onnx_export.relevance_truth import truth_queries
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
    trained_on: Iterable[str] = (),
    progress: Progress | None = None,
    on_problem: OnProblem | None = None,
) -> BundleSpec:
    """Choose a bundle's fusion weight and fit its relevance on held-out records; rewrites its spec.

    The weight is the one with the highest sum of recalls at 1, 5 and 10 in both directions; the bundle reranks by
    default if that sum is not lower than without reranking. Records with a label are not used for this choice.
    Relevance is fitted to everything that captions and labels say about the images (see `relevance_truth`). Unreadable
    images are skipped, and `on_problem` is called for each.

    trained_on: captions that the model was trained on, whose words it therefore knows; if empty, the words in the spec
    are kept.
    """
    folder = Path(folder)
    bundle = Bundle.open(folder)
    captioned = [record for record in records if record.label is None] or list(records)
    others = [record for record in records if record.label is not None] if len(captioned) < len(records) else []
    questions = Questions.of(captioned, lang)
    check_ability(bundle, "embed", "calibrating", "A matcher alone cannot be calibrated: leave it out.")
    matches = "match" in bundle.abilities
    sources = [*questions.images, *(record.image for record in others)]
    images, readable = encode_images(bundle, sources, Needs(states=matches), 32, progress, on_problem)
    words = Words(most_frequent(trained_on)) or bundle.words
    known = [(*captioned, *others)[image] for image in readable]
    spec = replace(
        read_spec(folder),
        defaults=_defaults(bundle, questions, images, readable, progress) if matches else bundle.defaults,
        relevance=pair_relevance(bundle, known, images.embedding, words, lang, progress),
        words=" ".join(words),
    )
    write_spec(folder, spec)
    return spec


def pair_relevance(
    bundle: Bundle,
    records: Sequence[Record],
    images: Float32Array,
    words: Words,
    lang: str,
    progress: Progress | None,
) -> PairRelevance:
    """Fit relevance to all records; its error is measured on each half of them after a fit to the other."""

    def judged(part: Int64Array) -> list[JudgedQuery]:
        queries = truth_queries([records[int(image)] for image in part], lang=lang)
        if not queries:
            return []
        texts, _ = encode_texts(bundle, [query.text for query in queries], Needs(), 32, progress)
        return judge(queries, texts.embedding, images[part])

    fitted = fit_relevance(judged(np.arange(len(records))), words)
    parts = [judged(np.arange(half, len(records), 2)) for half in (0, 1)]
    found: dict[str, list[float]] = {}
    for learn, test in (parts, parts[::-1]):
        if any(one.shown.any() for one in learn) and not all(one.shown.all() for one in learn):
            for kind, error in errors(test, fit_relevance(learn, words), words).items():
                found.setdefault(kind, []).append(error)
    return replace(fitted, error={kind: round(float(np.mean(some)), 4) for kind, some in found.items()})


def _defaults(
    bundle: Bundle, questions: Questions, encoded: Encodings, readable: Int64Array, progress: Progress | None
) -> Defaults:
    """Choose the fusion weight on captions and their images, which come first among the encoded images."""
    own = readable[readable < len(questions.images)]
    images = encoded.taken(np.arange(len(own)))
    texts, _ = encode_texts(bundle, questions.captions, Needs(states=True), 32, progress)
    place = np.full(len(questions.images), -1, dtype=np.int64)
    place[own] = np.arange(len(own))
    image_of = place[questions.image_of]
    asked = query_images(image_of)
    by_text = candidates_from_embeddings(texts.embedding, images.embedding, CANDIDATES)
    by_image = candidates_from_embeddings(images.embedding[asked], texts.embedding, CANDIDATES)
    pairs = match_scores(bundle, texts, images, 32, progress)
    to_image = _Direction(by_text, pairs.of_texts(np.arange(len(texts))), lambda ids: ids == image_of[:, None])
    to_text = _Direction(by_image, pairs.of_images(asked), lambda ids: image_of[ids] == asked[:, None])
    weight = max(WEIGHTS, key=lambda weight: to_image.recalls(weight) + to_text.recalls(weight))
    helps = to_image.recalls(weight) + to_text.recalls(weight) >= to_image.recalls() + to_text.recalls()
    return replace(bundle.defaults, rerank=CANDIDATES if helps else 0, fusion=FUSION, weight=weight)


@dataclass(frozen=True, slots=True)
class _Direction:
    """The candidates for the queries of one direction, the matcher's scores, and which ids [queries, k] are correct."""

    candidates: Candidates
    score: Score
    right: Callable[[Int64Array], BoolArray]

    def reranked(self, weight: float) -> Candidates:
        return Stage("match", CANDIDATES, self.score, (FUSION, weight)).run(self.candidates)

    def recalls(self, weight: float | None = None) -> float:
        """Return the sum of R@1, R@5 and R@10; without a weight, that of the candidates before reranking."""
        hits = self.right((self.candidates if weight is None else self.reranked(weight)).ids)
        return sum(float(hits[:, :k].any(axis=1).mean()) for k in (1, 5, 10))
