"""Protocol `full`: the test images are found among those of all splits, and their captions among all captions."""

import dataclasses

import numpy as np
import pytest

from evaluation.made_up import COUNTS, IMAGE_OF, made_up, record, records
from evaluation.slow_reference import image_to_text, text_to_image
from sightline.datasets import Record
from sightline.errors import DataError, ModelError, OptionError
from sightline.evaluation import evaluate

SPLITS = ["train", "test", "val", "test", "train", "test", "val", "train"]
ASKED = [image for image, split in enumerate(SPLITS) if split == "test"]


def split_records(**changes: frozenset[int]) -> list[Record]:
    return [dataclasses.replace(one, split=split) for one, split in zip(records(**changes), SPLITS, strict=True)]


def test_only_test_images_are_asked_about_among_all_images_and_all_captions() -> None:
    model = made_up()
    found = evaluate(model, split_records(), protocol="full")
    scores = model.texts @ model.images.T
    captions = np.flatnonzero(np.isin(IMAGE_OF, ASKED))
    to_image, caption_of, to_text, image = found.ranks()
    # The images that are asked about come first, in their order.
    assert to_image.tolist() == [text_to_image(scores, IMAGE_OF)[caption] for caption in captions]
    assert to_text.tolist() == [image_to_text(scores, IMAGE_OF)[image] for image in ASKED]
    assert image.tolist() == [0, 1, 2]
    assert np.bincount(caption_of).tolist() == [COUNTS[image] for image in ASKED]
    assert (found.images, found.captions) == (3, len(captions))
    assert found.distractors == len(SPLITS) - 3
    result = found.to_json()
    assert result["protocol"] == "full"
    assert result["distractor_captions"] == len(IMAGE_OF) - len(captions)


def test_images_of_other_splits_without_captions_in_the_language_only_distract() -> None:
    model = made_up(images=len(COUNTS) + 1)
    bare = dataclasses.replace(record(len(COUNTS), []), split="train")
    found = evaluate(model, [*split_records(), bare], protocol="full")
    scores = model.texts @ model.images.T
    captions = np.flatnonzero(np.isin(IMAGE_OF, ASKED))
    assert found.ranks()[0].tolist() == [text_to_image(scores, IMAGE_OF)[caption] for caption in captions]
    assert found.distractors == len(SPLITS) - 3 + 1


def test_later_stages_rescore_only_what_is_asked() -> None:
    model = made_up()
    evaluate(model, split_records(), protocol="full", rerank=3)
    from_texts = [(text, image) for text, image in model.matched if IMAGE_OF[text] in ASKED]
    from_images = [(text, image) for text, image in model.matched if image in ASKED]
    assert set(model.matched) == {*from_texts, *from_images}
    whole = made_up()
    evaluate(whole, split_records(), rerank=3)
    assert len(set(model.matched)) < len(set(whole.matched))


def test_reranking_everything_ranks_by_match_alone() -> None:
    model = made_up()
    found = evaluate(model, split_records(), protocol="full", rerank=len(IMAGE_OF))
    captions = np.flatnonzero(np.isin(IMAGE_OF, ASKED))
    assert model.logits is not None
    assert found.ranks()[0].tolist() == [text_to_image(model.logits, IMAGE_OF)[caption] for caption in captions]
    assert found.ranks()[2].tolist() == [image_to_text(model.logits, IMAGE_OF)[image] for image in ASKED]


def test_another_model_may_match_what_this_one_retrieved() -> None:
    retriever, matcher = dataclasses.replace(made_up(seed=1), logits=None, name="fast"), made_up()
    found = evaluate(retriever, split_records(), protocol="full", rerank=len(IMAGE_OF), matcher=matcher)
    alone = evaluate(made_up(), split_records(), protocol="full", rerank=len(IMAGE_OF))
    for one, other in zip(found.ranks(), alone.ranks(), strict=True):
        np.testing.assert_array_equal(one, other)
    few = evaluate(retriever, split_records(), protocol="full", rerank=1, matcher=matcher)
    embed = evaluate(retriever, split_records(), protocol="full")
    np.testing.assert_array_equal(few.ranks()[0], embed.ranks()[0])
    assert (found.model, found.stages) == ("fast + made-up", ("embed", f"match@{len(IMAGE_OF)}"))
    with pytest.raises(OptionError, match="nothing to rerank"):
        evaluate(retriever, split_records(), matcher=matcher)
    with pytest.raises(ModelError, match="fast has no matcher, so `rerank`"):
        evaluate(made_up(), split_records(), rerank=3, matcher=retriever)


def test_a_test_image_that_cannot_be_read_is_missed_and_counted() -> None:
    found = evaluate(made_up(), split_records(broken=frozenset({3})), protocol="full")
    assert found.problems["images_unreadable"] == 1
    to_image, caption_of, to_text, _ = found.ranks()
    assert np.isinf(to_image[caption_of == 1]).all()
    assert np.isinf(to_text[1])
    assert np.isfinite(to_image[caption_of != 1]).all()


@pytest.mark.parametrize("split", ["train", "test", None])
def test_it_needs_a_test_split_and_others(split: str | None) -> None:
    with pytest.raises(DataError, match=r"but (all|none) are in 'test'\nUse the data of all splits"):
        evaluate(made_up(), [dataclasses.replace(one, split=split) for one in records()], protocol="full")
