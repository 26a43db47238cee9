import dataclasses
import inspect
import json
from collections.abc import Sequence

import numpy as np
import pytest

import sightline
from evaluation.made_up import COUNTS, IMAGE_OF, MadeUp, made_up, record, records
from sightline.bundle.encoded import Encoded
from sightline.datasets import Record
from sightline.errors import DataError, EvaluationError, MediaError, ModelError, OptionError
from sightline.evaluation import evaluate
from sightline.evaluation.encodings import Needs, SharedImages
from sightline.media import ImageBytes, open_image


def test_an_image_that_cannot_be_read_is_missed_and_not_forgotten() -> None:
    model = made_up(7)
    result = evaluate(model, records(broken=frozenset({3})), late=4, rerank=2)
    assert result.problems == {"images_unreadable": 1, "captions_truncated": 0}
    assert (result.images, result.captions) == (len(COUNTS), len(IMAGE_OF))
    to_image, caption_of, to_text, _ = result.ranks()
    assert np.isinf(to_image[caption_of == 3]).all()
    assert np.isfinite(to_image[caption_of != 3]).all()
    assert np.isinf(to_text).tolist() == [image == 3 for image in range(len(COUNTS))]


def test_images_that_cannot_be_read_are_named_with_the_reason() -> None:
    result = evaluate(
        made_up(images=10), records(broken=frozenset({3, 5})), distractors=[record(9, [], broken=True)], batch_size=2
    )
    assert [problem.place for problem in result.unreadable] == ["3.png", "5.png", "9.png"]
    assert result.problems["images_unreadable"] == len(result.unreadable)
    named = result.to_json()["unreadable"]
    assert [one["image"] for one in named] == ["3.png", "5.png", "9.png"]
    assert all("truncated" in one["reason"] for one in named), named


def test_a_name_that_is_no_text_can_be_written_as_json() -> None:
    photos = [record(0, ["0"]), record(1, ["1"])]
    broken = Record("2", ImageBytes("caf\udce9.png", b""), {"en": ("2",)})
    named = evaluate(MadeUp(texts=np.eye(3), images=np.eye(3)), [*photos, broken]).to_json()["unreadable"]
    assert named == [{"image": "caf\ufffd.png", "reason": named[0]["reason"]}]
    json.dumps(named, ensure_ascii=False).encode("utf-8")


def test_an_unreadable_image_lowers_recall_by_its_share() -> None:
    perfect = MadeUp(texts=np.eye(4), images=np.eye(4))
    photos = [record(0, ["0"]), record(1, ["1"], broken=True), record(2, ["2"]), record(3, ["3"])]
    result = evaluate(perfect, photos)
    assert result.text_to_image == {"R@1": 75, "R@5": 75, "R@10": 75, "medR": 1}
    assert result.image_to_text["R@10"] == 75


def test_the_captions_of_an_unreadable_image_still_stand_in_the_way() -> None:
    model = MadeUp(texts=np.array([[0.6, 0.8], [1.0, 0.0]]), images=np.eye(2))
    result = evaluate(model, [record(0, ["0"]), record(1, ["1"], broken=True)])
    assert result.ranks()[2].tolist() == [2, np.inf]


def test_a_median_that_is_never_reached_is_null_in_json() -> None:
    model = MadeUp(texts=np.eye(3), images=np.eye(3))
    photos = [record(0, ["0"]), record(1, ["1"], broken=True), record(2, ["2"], broken=True)]
    assert evaluate(model, photos).to_json()["text_to_image"]["medR"] is None


def test_no_readable_image_at_all_is_refused() -> None:
    with pytest.raises(EvaluationError, match="none of 2 images can be read") as refused:
        evaluate(made_up(), [record(0, ["0"], broken=True), record(1, ["1"], broken=True)])
    with pytest.raises(MediaError) as own:
        open_image(record(0, ["0"], broken=True).image)
    assert own.value.way_out
    assert refused.value.way_out == own.value.way_out
    assert own.value.way_out not in refused.value.what


def test_truncated_captions_are_counted() -> None:
    photos = [record(0, ["0 short", "1 " + "very " * 20 + "long"]), record(1, ["2 " + "so " * 20])]
    assert evaluate(made_up(), photos).problems["captions_truncated"] == 2


def test_a_missing_language_is_refused_unless_it_may_be_skipped() -> None:
    photos = [record(0, ["0 a"]), record(1, ["1 b"], lang="de"), record(2, [])]
    with pytest.raises(DataError, match="picture-1"):
        evaluate(made_up(), photos)
    result = evaluate(made_up(), photos, skip_missing_language=True)
    assert (result.images, result.problems["records_without_language"]) == (1, 2)
    with pytest.raises(DataError, match="none of 3 records has captions in 'fr'"):
        evaluate(made_up(), photos, lang="fr", skip_missing_language=True)


def test_no_records_are_refused() -> None:
    with pytest.raises(DataError, match="no records"):
        evaluate(made_up(), [])


def test_the_same_picture_twice_in_the_gallery_is_refused() -> None:
    photos = records()
    with pytest.raises(DataError, match="'picture-0'"):
        evaluate(made_up(), [*photos, photos[0]])
    with pytest.raises(DataError, match=r"2\.png is in the gallery twice"):
        evaluate(made_up(), photos[:2], distractors=[photos[2], photos[2]])


@pytest.mark.parametrize(("part", "named"), [("texts", r"'4 about 1!+'"), ("images", r"4\.png")])
def test_an_embedding_that_is_not_finite_is_refused_by_name(part: str, named: str) -> None:
    model = made_up()
    getattr(model, part)[4, 0] = np.nan
    with pytest.raises(EvaluationError, match=f"embedding of {named} is not finite"):
        evaluate(model, records())


def test_scores_of_later_stages_that_are_not_finite_are_refused() -> None:
    model = made_up()
    assert model.logits is not None
    model.logits[3] = np.nan
    with pytest.raises(EvaluationError, match=r"'3 about 1!' with \d\.png is nan"):
        evaluate(model, records(), rerank=3)


def test_a_text_without_fragments_is_refused_by_name() -> None:
    model = made_up()
    assert model.text_fragments
    model.text_fragments[4] = model.text_fragments[4][:0]
    with pytest.raises(EvaluationError, match=r"'4 about 1!+' has no fragments"):
        evaluate(model, records(), late=3)


def test_a_stage_the_model_lacks_is_refused_with_what_it_has() -> None:
    plain = MadeUp(texts=np.eye(3), images=np.eye(3))
    with pytest.raises(ModelError, match="made-up has no fragments, so `late` is unavailable"):
        evaluate(plain, records(), late=5)
    with pytest.raises(ModelError, match="made-up has no matcher, so `rerank` is unavailable"):
        evaluate(plain, records(), rerank=5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rerank": -1}, "rerank must be at least 0, not -1"),
        ({"late": -1}, "late must be at least 0, not -1"),
        ({"batch_size": 0}, "the batch size cannot be 0"),
        ({"protocol": "coco-5k"}, "5,000 images, but there are 8"),
        ({"protocol": "flickr"}, "unknown protocol"),
        ({"fusion": "sum", "rerank": 2}, "fusion must be one of"),
        ({"fusion": "add", "weight": 2.0, "rerank": 2}, "weight must be between 0"),
    ],
)
def test_what_cannot_work_is_refused_before_any_work(options: dict, message: str) -> None:
    model = made_up()
    model.images = model.texts = np.zeros((0, 0))  # encoding would fail
    with pytest.raises((EvaluationError, OptionError), match=message):
        evaluate(model, records(), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fusion": "add"}, "fusion has no effect without reranking"),
        ({"weight": 0.5, "late": 3}, "weight has no effect without reranking"),
        ({"names": True, "lang": "de"}, "lang cannot be combined with `names`"),
        ({"names": True, "protocol": "full"}, "protocol cannot be combined with `names`"),
        ({"names": True, "ranks": "ranks.csv"}, "ranks cannot be combined with `names`"),
        ({"names": True, "skip_missing_language": True}, "skip_missing_language cannot be combined with `names`"),
        ({"names": True, "top": 5}, "top cannot be combined with `names`"),
        ({"names": True, "seed": 3}, "seed cannot be combined with `names`"),
        ({"names": True, "distractors": records()}, "distractors cannot be combined with `names`"),
        ({"lang": ["en", "de"], "top": 5}, "top has no effect with several languages"),
        ({"lang": ["en", "de"], "shared": object()}, "shared has no effect with several languages"),
        ({"lang": ["en", "de"], "ranks": "ranks.csv"}, "ranks has no effect with several languages"),
        ({"split": "val"}, "split has no effect on records"),
        ({"images": "photos"}, "images has no effect on records"),
    ],
)
def test_an_option_that_would_change_nothing_is_refused(options: dict, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        sightline.evaluate(made_up(), records(), **options)


class Labelled(MadeUp):
    """Reads the number of a text in the middle of a prompt."""

    def encode_texts(self, texts: Sequence[str]) -> Encoded:
        return super().encode_texts(["".join(filter(str.isdigit, text)) for text in texts])


def labelled(count: int) -> tuple[Labelled, list[Record]]:
    """As many pictures, each with its number as caption and label, and a model that knows them."""
    photos = [dataclasses.replace(record(number, [str(number)]), label=str(number)) for number in range(count)]
    return Labelled(texts=np.eye(count), images=np.eye(count)), photos


@pytest.mark.parametrize("mode", [{"names": True}, {"lang": ["en"]}, {"lang": "en"}])
def test_options_may_be_given_with_their_usual_values(mode: dict) -> None:
    model, photos = labelled(2)
    usual = {key: one.default for key, one in inspect.signature(sightline.evaluate).parameters.items()}
    options = {key: value for key, value in usual.items() if value is not inspect.Parameter.empty}
    assert sightline.evaluate(model, photos, **{**options, "late": 0, "distractors": [], **mode})


def test_images_that_are_encoded_already_are_not_encoded_again_to_measure_names() -> None:
    model, photos = labelled(5)
    expected = sightline.evaluate(model, photos, names=True)
    shared = SharedImages(model, [one.image for one in photos], Needs(), 4)
    model.encode_images = None  # type: ignore[assignment,method-assign]
    assert sightline.evaluate(model, photos, names=True, shared=shared).ranks.tolist() == expected.ranks.tolist()


def test_none_of_the_best_are_rescored_where_none_is_asked_for() -> None:
    assert evaluate(made_up(), records(), late=0, rerank=0).stages == ("embed",)


def test_an_unreadable_distractor_is_counted() -> None:
    result = evaluate(made_up(images=10), records(), distractors=[record(9, [], broken=True)])
    assert result.problems["images_unreadable"] == 1
