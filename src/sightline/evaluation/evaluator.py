"""From a model and captioned images to recalls: encode everything, rank by stages, count."""

from collections.abc import Sequence

from sightline.bundle.model import FusionRule, Model
from sightline.datasets import Problem, Record
from sightline.errors import EvaluationError
from sightline.evaluation.encodings import Needs, Progress, SharedImages, encode_images, encode_texts, usual_batch
from sightline.evaluation.ensemble import beside, check_partner, encode_again, with_states
from sightline.evaluation.galleries import Ranker
from sightline.evaluation.protocols import protocol_named
from sightline.evaluation.result import Evaluation
from sightline.evaluation.test_set import Questions
from sightline.evaluation.translation import Translator, translated
from sightline.retrieval.options import SearchOptions
from sightline.retrieval.plan import Plan, resolve
from sightline.retrieval.stopwatch import Stopwatch

PARTS = ("encode_images", "encode_texts", "rank", "late", "match")
"""What the seconds of a result are counted for."""


def evaluation_plan(
    model: Model,
    *,
    late: int | None = None,
    rerank: int | None = None,
    fusion: FusionRule | None = None,
    weight: float | None = None,
    matcher: Model | None = None,
) -> Plan:
    """The stages of an evaluation: those that are named, and the model's own fusion and weight unless others are."""
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
) -> Evaluation:
    """Measure how well `model` finds the images of captions and the captions of images.

    data: what the result calls the data set.
    late, rerank: how many of the best are rescored by late interaction, and then by matching. The matcher's logit and
        the cosine of the embeddings are joined by `fusion` and `weight` (see `scoring.fuse`).
    distractors: their images, not their captions, enlarge the gallery.
    skip_missing_language: leave out, and count, records without captions in `lang`; else the first one is refused.
    batch_size: how many items are encoded at once; by default as many as suit the model's device.
    progress: told the part of the work, how much of it is done, and how much there is.
    translate: puts the captions from `lang` into the language that the model reads (see `translating`).
    shared: the pictures, where they are encoded already.
    partner: a second model; texts and images are then as similar as both find them on average.
    matcher: another model that reranks, instead of `model` itself.

    Nothing is dropped in silence: an image that cannot be read is counted in `problems` and named in `unreadable`, and
    it and its captions count as missed. What can be refused is refused before the first image is opened.
    """
    plan = evaluation_plan(model, late=late, rerank=rerank, fusion=fusion, weight=weight, matcher=matcher)
    needs = Needs(fragments=bool(plan.late), states=bool(plan.rerank) and matcher is None)
    if partner is not None:
        check_partner(partner, plan)
    batch_size = usual_batch(model) if batch_size is None else batch_size
    if batch_size < 1:
        raise EvaluationError(f"batches of {batch_size}", "Give at least 1.")
    chosen = protocol_named(protocol)
    questions = Questions.of(records, lang, distractors, skip_missing_language, chosen.asks)
    galleries = chosen.galleries(len(questions.images))
    clock = Stopwatch(PARTS)
    unreadable: list[Problem] = []
    with clock("encode_images"):
        sources = (*questions.images, *questions.distractors)
        images, readable = (
            shared.taken(sources, unreadable.append)
            if shared
            else encode_images(model, sources, needs, batch_size, progress, unreadable.append)
        )
    with clock("encode_texts"):
        captions = questions.captions if translate is None else translated(questions.captions, lang, translate)
        texts, truncated = encode_texts(model, captions, needs, batch_size, progress)
    if partner is not None:
        with clock("encode_images"):
            more_images, more_texts = encode_again(partner, sources, captions, Needs(), batch_size, progress)
            images, texts = beside(images, more_images), beside(texts, more_texts)
    if matcher is not None:
        with clock("encode_images"):
            more_images, more_texts = encode_again(matcher, sources, captions, Needs(states=True), batch_size, progress)
            images, texts = with_states(images, more_images), with_states(texts, more_texts)
    ranker = Ranker(matcher or model, plan, questions, texts, images, readable, batch_size, clock, progress)
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
        translated_by=None if translate is None else getattr(translate, "__name__", type(translate).__name__),
        unreadable=tuple(unreadable),
    )
