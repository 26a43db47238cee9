"""Measure a model: `evaluate`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sightline.bundle.model import Model
    from sightline.datasets import Record
    from sightline.evaluation.encodings import SharedImages
    from sightline.evaluation.result import Evaluation
    from sightline.evaluation.test_set import Translator
    from sightline.fusion_rules import FusionRule


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
    progress: Callable[[str, int, int], None] | None = None,
    translate: Translator | None = None,
    shared: SharedImages | None = None,
    partner: Model | None = None,
    matcher: Model | None = None,
    top: int = 0,
) -> Evaluation:
    """Measure how well a model finds the images of captions and the captions of images.

    records: captioned images, as `sightline.datasets.read_all` reads them.
    data: the name of the data set in the result. lang: the language of the captions.
    protocol: which images form a gallery: karpathy, coco-1k, coco-5k or full.
    late, rerank: number of top results to rescore by late interaction, then by the matcher; by default 0.
    fusion, weight: how the matcher's score and the cosine are combined; the model sets the defaults.
    distractors: records whose images, without their captions, are added to the gallery.
    skip_missing_language: skip records without captions in `lang`, and count them.
    seed: seed of the bootstrap intervals.
    batch_size: number of items encoded at once; by default depends on the device.
    progress: called with the current part of the work, the amount done, and the total.
    translate: translates captions from `lang` into the model's language.
    shared: the encoded images, if they already exist.
    partner: a second model; rank by the mean similarity of both. matcher: another model for reranking.
    top: how many results of every query to keep, for `evaluation.rank_files` and `evaluation.comparison`.

    An unreadable image is listed in `unreadable`; it and its captions count as missed.

    >>> import sightline
    >>> from sightline.datasets import Record
    >>> from sightline.media import image_source
    >>> from PIL import Image
    >>> images = {colour: image_source(Image.new("RGB", (40, 30), colour)) for colour in ("red", "green", "blue")}
    >>> records = [Record(name, image, {"en": (f"a {name} image",)}) for name, image in images.items()]
    >>> sightline.evaluate(sightline.load(), records).text_to_image["R@1"]
    100.0
    """
    from sightline.evaluation.evaluator import evaluate

    return evaluate(
        model,
        records,
        data=data,
        lang=lang,
        protocol=protocol,
        late=late,
        rerank=rerank,
        fusion=fusion,
        weight=weight,
        distractors=distractors,
        skip_missing_language=skip_missing_language,
        seed=seed,
        batch_size=batch_size,
        progress=progress,
        translate=translate,
        shared=shared,
        partner=partner,
        matcher=matcher,
        top=top,
    )
