"""Evaluate a model on captioned images: encode everything, rank it stage by stage, compute recalls."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sightline.arrays import Int64Array
from sightline.bundle.model import Model
from sightline.datasets import Problem, Record
from sightline.errors import EvaluationError
from sightline.evaluation.encodings import (
    Encodings,
    Needs,
    Progress,
    SharedImages,
    encode_images,
    encode_texts,
    usual_batch,
)
from sightline.evaluation.metrics import Ranks, query_images
from sightline.evaluation.pair_scores import PairScores, late_scores, match_scores
from sightline.evaluation.protocols import protocol_named
from sightline.evaluation.ranking import candidates_from_embeddings, ranks_after_stages, ranks_from_embeddings
from sightline.evaluation.result import Evaluation, FoldRanks
from sightline.evaluation.test_set import Questions, Translator, translated, translator_name
from sightline.fusion_names import FusionRule
from sightline.retrieval.candidates import Candidates
from sightline.retrieval.costs import Stopwatch
from sightline.retrieval.options import SearchOptions
from sightline.retrieval.stages import Plan, Score, resolve

PARTS = ("encode_images", "encode_texts", "rank", "late", "match")
"""The parts of an evaluation whose times `seconds` reports."""


def evaluation_plan(
    model: Model,
    *,
    late: int | None = None,
    rerank: int | None = None,
    fusion: FusionRule | None = None,
    weight: float | None = None,
    matcher: Model | None = None,
) -> Plan:
    """Return the requested stages of an evaluation; fusion and weight default to those of the model."""
    return resolve(SearchOptions(late=late or 0, rerank=rerank or 0, fusion=fusion, weight=weight), model, matcher)


def evaluate(
    model: Model,
    records: Sequence[Record],
    *,
    data: str = "",
    lang: str = "en",
    protocol: str = "karpathy",
    late: int | None = None,
    rerank: int | None = None,
    fusion: FusionRule | None = None,
    weight: float | None = None,
    distractors: Sequence[Record] = (),
    skip_missing_language: bool = False,
    seed: int = 0,
    batch_size: int | None = None,
    progress: Progress | None = None,
    translate: Translator | None = None,
    shared: SharedImages | None = None,
    partner: Model | None = None,
    matcher: Model | None = None,
    top: int = 0,
) -> Evaluation:
    """Measure how well `model` finds images by caption and captions by image; see `sightline.evaluate`.

    Captions are read by the model's text graph for `lang` or, if it has none or they are translated, by its main one.

    shared: the images, if they are already encoded. top: how many results to keep per query, in `folds`.

    Invalid options and data are rejected before the first image is opened.
    """
    if translate is None:
        model = _reading(model, lang)
        partner, matcher = (one and _reading(one, lang) for one in (partner, matcher))
    plan = evaluation_plan(model, late=late, rerank=rerank, fusion=fusion, weight=weight, matcher=matcher)
    needs = Needs(fragments=bool(plan.late), states=bool(plan.rerank) and matcher is None)
    if partner is not None and plan.longest:
        raise EvaluationError(
            f"{', '.join(plan.names[1:])} cannot rescore the mean of two models ({partner.name} is the second)",
            "Leave out `late` and `rerank`, or the second model.",
        )
    batch_size = usual_batch(model) if batch_size is None else batch_size
    if batch_size < 1:
        raise EvaluationError(f"the batch size cannot be {batch_size}", "Use at least 1.")
    chosen = protocol_named(protocol)
    questions = Questions.of(records, lang, distractors, skip_missing_language, chosen.asks)
    galleries = chosen.galleries(len(questions.images))
    clock = Stopwatch(PARTS)
    unreadable: list[Problem] = []
    with clock("encode_texts"):  # first, because a translator may fail
        captions = questions.captions if translate is None else translated(questions.captions, lang, translate)
    with clock("encode_images"):
        sources = (*questions.images, *questions.distractors)
        images, readable = encode_images(model, sources, needs, batch_size, progress, unreadable.append, shared)
    with clock("encode_texts"):
        texts, truncated = encode_texts(model, captions, needs, batch_size, progress)
    other = partner or matcher  # never both: with a partner, there is no reranking
    if other is not None:
        with clock("encode_images"):
            own = Needs(states=matcher is not None)
            more_images, _ = encode_images(other, sources, own, batch_size, progress)
            more_texts, _ = encode_texts(other, captions, own, batch_size, progress)
            join = Encodings.with_states if matcher is not None else Encodings.beside
            images, texts = join(images, more_images), join(texts, more_texts)
    ranker = Ranker(matcher or model, plan, questions, texts, images, readable, batch_size, clock, progress, top)
    problems = {"images_unreadable": len(sources) - len(readable), "captions_truncated": truncated}
    if skip_missing_language:
        problems["records_without_language"] = questions.skipped
    return Evaluation(
        model=" + ".join(one.name for one in (model, partner, matcher) if one is not None),
        data=data,
        lang=lang,
        protocol=protocol,
        stages=plan.names,
        fusion=plan.fusion if plan.rerank else None,
        weight=plan.weight if plan.rerank and plan.fusion != "ce" else None,
        distractors=len(sources) - questions.asked,
        folds=tuple(ranker.ranks(gallery) for gallery in galleries),
        fingerprint=questions.fingerprint,
        problems=problems,
        seconds=clock.seconds,
        seed=seed,
        distractor_captions=int((questions.image_of >= questions.asked).sum()),
        translated_by=None if translate is None else translator_name(translate),
        unreadable=tuple(unreadable),
        questions=questions,
    )


def _reading(model: Model, lang: str) -> Model:
    """Return the variant of a model for captions in a language; the model itself if it does not read that language."""
    return model.for_language(lang) if lang in model.languages else model


@dataclass(frozen=True, slots=True)
class Ranker:
    """The encoded test set, ready to rank one gallery after another.

    texts: all captions. images: the readable images. readable: [images], their indices among the query images followed
    by the distractors.
    """

    model: Model
    plan: Plan
    questions: Questions
    texts: Encodings
    images: Encodings
    readable: Int64Array
    batch_size: int
    clock: Stopwatch
    progress: Progress | None = None
    top: int = 0

    def ranks(self, gallery: Int64Array) -> FoldRanks:
        """Rank the captions and images of a gallery, given as indices of query images in ascending order.

        An unreadable image cannot be found: the ranks of the image and its captions are infinite. Images that are not
        queries are not ranked: their captions are wrong answers to every image.
        """
        captions = np.flatnonzero(np.isin(self.questions.image_of, gallery))
        caption_of = self.questions.image_of[captions]
        count = len(self.questions.images)
        held = np.flatnonzero((self.readable >= count) | np.isin(self.readable, gallery))
        place = np.full(count + len(self.questions.distractors), -1, dtype=np.int64)
        place[self.readable[held]] = np.arange(len(held))
        asks, asked = caption_of < self.questions.asked, gallery[gallery < self.questions.asked]
        right = np.where(asks, place[caption_of], -1)
        to_image, own, images, texts = self._cascade(self.texts.taken(captions), self.images.taken(held), right)
        to_text = np.full(len(asked), np.inf)
        to_text[place[asked] >= 0] = own
        best_images = np.full((len(captions), self.top), -1, dtype=np.int64)
        best_images[right >= 0, : images.shape[1]] = self.readable[held][images]
        best_captions = np.full((len(asked), self.top), -1, dtype=np.int64)
        best_captions[place[asked] >= 0, : texts.shape[1]] = captions[texts]
        return FoldRanks(
            to_image[asks], caption_of[asks], to_text, asked, captions[asks], best_images[asks], best_captions
        )

    def _cascade(
        self, texts: Encodings, images: Encodings, image_of: Int64Array
    ) -> tuple[Ranks, Ranks, Int64Array, Int64Array]:
        """Rank everything by embedding; then let the later stages rescore the top candidates of every query.

        Returns the ranks of all captions and of the query images, and the `top` best images and captions for them.
        """
        with self.clock("rank"):
            to_image, to_text = ranks_from_embeddings(texts.embedding, images.embedding, image_of)
        longest = self.plan.longest
        asking, asked = np.flatnonzero(image_of >= 0), query_images(image_of)
        if not longest and not self.top:
            return to_image, to_text, np.empty((len(asking), 0), np.int64), np.empty((len(asked), 0), np.int64)
        pairs: dict[str, PairScores] = {}
        if self.plan.late:
            pairs["late"] = late_scores(self.model, texts, images, self.progress)
        if self.plan.rerank:
            pairs["match"] = match_scores(self.model, texts, images, self.batch_size, self.progress)
        best = self._best(texts, images, asking, {name: one.of_texts(asking) for name, one in pairs.items()})
        of_images = self._best(images, texts, asked, {name: one.of_images(asked) for name, one in pairs.items()})
        if longest:
            found = best.first(longest)
            to_image[asking] = ranks_after_stages(found, found.ids == image_of[asking, None], to_image[asking])
            found = of_images.first(longest)
            to_text = ranks_after_stages(found, image_of[found.ids] == asked[:, None], to_text)
        return to_image, to_text, best.ids[:, : self.top], of_images.ids[:, : self.top]

    def _best(
        self, queries: Encodings, gallery: Encodings, asked: Int64Array, scores: Mapping[str, Score]
    ) -> Candidates:
        """Return the top candidates for these queries after all stages."""
        with self.clock("rank"):
            longest = max(self.plan.longest, self.top)
            found = candidates_from_embeddings(queries.embedding[asked], gallery.embedding, longest)
        for stage in self.plan.stages(scores):
            with self.clock(stage.name):
                found = stage.run(found)
        return found
