"""What captions and labels tell of what pictures show."""

import numpy as np
import pytest

from sightline.bundle.relevance_formula import PairRelevance
from sightline.bundle.words import Words
from sightline.datasets import Record
from sightline.errors import EvaluationError
from sightline.media import ImageBytes
from sightline.onnx_export.relevance_fit import (
    JudgedQuery,
    balanced_accuracy,
    best_chances,
    best_line,
    errors,
    fit_relevance,
    judge,
    top_error,
)
from sightline.onnx_export.relevance_truth import (
    NOT_SHOWN,
    SHOWN,
    UNKNOWN,
    Captions,
    TruthQuery,
    nouns_from,
    truth_queries,
)


def record(number: int, *captions: str, label: str | None = None) -> Record:
    return Record(str(number), ImageBytes(f"{number}.jpg", b""), {"en": captions} if captions else {}, label=label)


DOG = record(0, "A brown dog runs.", "the brown dog on grass", "a happy puppy", "green grass", "something brown")
BLACK_DOG = record(1, "a black dog", "a black dog jumps", "a dog", "one black dog", "jumping")
ONE_MENTION = record(2, "a cat and a dog", "a cat", "a cat sleeps", "a kitten", "sleeping")
BOAT = record(3, "a boat", "two boats on a lake", "sailing", "a sailboat", "boats")
ONE_CAPTION = record(4, "a tree")
TENCH = record(5, "tench", "a photo of a tench", label="tench")
TERRIER = record(6, "border terrier", "a border terrier", label="border terrier")
RECORDS = [DOG, BLACK_DOG, ONE_MENTION, BOAT, ONE_CAPTION, TENCH, TERRIER, record(7)]


def truth(text: str) -> list[int]:
    (found,) = [query.truth for query in truth_queries(RECORDS, sentences=0) if query.text == text]
    return found.tolist()


def test_a_noun_is_shown_if_two_captions_say_so_and_not_if_none_does() -> None:
    assert truth("dog")[:4] == [SHOWN, SHOWN, UNKNOWN, NOT_SHOWN]
    assert truth("cat")[:4] == [NOT_SHOWN, NOT_SHOWN, SHOWN, NOT_SHOWN]


def test_pictures_with_few_captions_or_a_label_prove_no_absence() -> None:
    assert truth("dog")[4:] == [UNKNOWN, UNKNOWN, SHOWN, UNKNOWN]
    assert truth("boat")[4:] == [UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN]


def test_a_phrase_is_not_shown_where_the_noun_has_another_colour() -> None:
    assert truth("brown dog")[:4] == [SHOWN, NOT_SHOWN, UNKNOWN, NOT_SHOWN]
    assert truth("black dog")[:4] == [NOT_SHOWN, SHOWN, UNKNOWN, NOT_SHOWN]


def test_a_scene_is_shown_by_its_own_image_and_not_where_a_noun_is_missing() -> None:
    assert truth("a cat and a dog")[:5] == [NOT_SHOWN, NOT_SHOWN, SHOWN, NOT_SHOWN, UNKNOWN]


def test_a_scene_is_shown_where_both_nouns_are() -> None:
    both = record(9, "a dog with a cat", "dog and kitten", "a cat", "a dog", "pets")
    (found,) = [query for query in truth_queries([*RECORDS, both], sentences=0) if query.text == "a cat and a dog"]
    assert found.truth[-1] == SHOWN


def test_a_sentence_is_shown_by_its_own_picture_and_not_by_one_that_shares_few_words() -> None:
    sentences = [query for query in truth_queries(RECORDS) if query.kind == "sentence"]
    assert sentences
    for query in sentences:
        assert (query.truth == SHOWN).sum() == 1
    (runs,) = [query for query in sentences if query.truth[0] == SHOWN]
    assert runs.truth[3] == NOT_SHOWN
    assert runs.truth[4:].tolist() == [UNKNOWN] * 4, "few captions prove no absence"


def test_a_sentence_is_shown_by_images_whose_captions_have_all_its_words() -> None:
    one = record(0, "A dog runs through snow.")
    other = record(1, "the dog", "a dog in deep snow", "running", "white fur", "winter")
    part = record(2, "a dog", "a dog on grass", "it runs", "green", "summer")
    first = next(q for q in truth_queries([one, other, part, BOAT]) if q.kind == "sentence" and q.truth[0] == SHOWN)
    assert first.truth.tolist() == [SHOWN, SHOWN, UNKNOWN, NOT_SHOWN]


def test_a_sentence_may_be_shown_by_images_whose_captions_have_synonyms_of_its_words() -> None:
    one = record(0, "A cyclist leaps over a boulder.")
    same = record(1, "a man on a bike", "jumping", "a rock", "a bicycle in the air", "a stunt")
    other = record(2, "a woman on a bike", "a street", "houses", "riding", "a city")
    first = next(q for q in truth_queries([one, same, other, BOAT]) if q.kind == "sentence" and q.truth[0] == SHOWN)
    assert first.truth.tolist() == [SHOWN, UNKNOWN, NOT_SHOWN, NOT_SHOWN]


def test_images_with_few_captions_are_judged_if_there_are_no_others() -> None:
    few = [record(0, "A dog runs through snow."), record(1, "a boat on a lake")]
    assert {q.truth.min() for q in truth_queries(few) if q.kind == "sentence"} == {NOT_SHOWN}


def test_a_name_is_shown_by_its_label_and_a_breed_may_be_any_dog() -> None:
    assert truth("tench")[3:7] == [NOT_SHOWN, UNKNOWN, SHOWN, NOT_SHOWN]
    assert truth("border terrier")[:4] == [UNKNOWN, UNKNOWN, UNKNOWN, NOT_SHOWN]


def test_phrases_with_another_meaning_are_left_out() -> None:
    hot_dog = record(0, "a hot dog", "a hot dog with mustard", "hot dogs", "food", "a bun")
    (found,) = [query for query in truth_queries([hot_dog, BLACK_DOG, BOAT]) if query.text == "dog"]
    assert found.truth.tolist() == [UNKNOWN, SHOWN, NOT_SHOWN]


def test_captions_count_once_each() -> None:
    captions = Captions([record(0, "a dog and a dog", "a puppy"), record(1, "a cat")])
    assert captions.mentions(["dog", "puppy"]).tolist() == [2, 0]


# Fitting


FAMILIAR = Words(["a", "dog", "on", "the", "wide", "green", "field", *(str(n) for n in range(5000))])


def made_up(seed: int, bias: float = -4.0) -> list[JudgedQuery]:
    """Queries whose images show what is asked for with a probability that their cosines give."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(400):
        cosines = np.sort(rng.uniform(0, 1, 60))[::-1]
        shown = rng.random(60) < 1 / (1 + np.exp(-(10 * cosines + bias)))
        text, kind = ("dog", "noun") if number % 2 else ("a dog on the wide green field", "sentence")
        found.append(JudgedQuery(text, kind, cosines, shown))  # type: ignore[arg-type]
    return found


def test_a_fit_finds_the_probabilities_that_made_the_truth() -> None:
    words = FAMILIAR
    fitted = fit_relevance(made_up(0), words, data=["made up"])
    stated = fitted.of("dog", np.array([0.2, 0.4, 0.6]), words)
    np.testing.assert_allclose(stated, 1 / (1 + np.exp(-(10 * np.array([0.2, 0.4, 0.6]) - 4))), atol=0.05)
    assert max(errors(made_up(1), fitted, words).values()) < 0.03
    assert (top_error(made_up(2, bias=-9.0), fitted, words) or 0) > 0.2, "where the truth is another, the error shows"
    assert fitted.data == ("made up",)


def test_wrong_images_count_more_the_rarer_the_word_as_in_a_larger_collection() -> None:
    rare = Words(["a", *(str(n) for n in range(5000))])
    known, unknown = (
        float(fit_relevance(made_up(0), words).of("dog", np.array([0.4]), words)[0]) for words in (FAMILIAR, rare)
    )
    assert known == pytest.approx(0.5, abs=0.05)
    assert unknown < 0.35


def test_wrong_images_count_more_the_longer_the_query_as_in_a_larger_collection() -> None:
    words = FAMILIAR
    fitted = fit_relevance(made_up(0), words)
    noun, sentence = (
        float(fitted.of(text, np.array([0.4]), words)[0]) for text in ("dog", "a dog on the wide green field")
    )
    assert noun == pytest.approx(0.5, abs=0.05)
    assert sentence < 0.35


def test_a_fit_needs_right_and_wrong_answers() -> None:
    query = JudgedQuery("dog", "noun", np.ones(3), np.ones(3, dtype=np.bool_))
    with pytest.raises(EvaluationError, match="images that match"):
        fit_relevance([query], Words())
    with pytest.raises(EvaluationError, match="images that match"):
        fit_relevance([], Words())


def test_only_images_of_known_truth_are_judged_best_first() -> None:
    images = np.eye(3, dtype=np.float32)
    query = TruthQuery("dog", "noun", np.array([SHOWN, UNKNOWN, NOT_SHOWN], dtype=np.int8))
    (found,) = judge([query], np.array([[0.1, 0.9, 0.5]], dtype=np.float32), images)
    assert found.shown.tolist() == [False, True]
    np.testing.assert_allclose(found.cosines, [0.5, 0.1])


def test_present_and_absent_are_told_apart_by_the_best_image() -> None:
    words = Words(["dog"])
    fitted = fit_relevance(made_up(0), words, line=0.5)
    assert fitted.line == 0.5
    none = JudgedQuery("dog", "noun", np.array([0.1]), np.array([False]))
    one = JudgedQuery("dog", "noun", np.array([0.9]), np.array([True]))
    best, present = best_chances([none, one], fitted, words)
    assert present.tolist() == [False, True]
    assert balanced_accuracy(best, present, 0.5) == 1
    assert balanced_accuracy(best, present, 0.0) == 0.5
    assert balanced_accuracy(best[:1], present[:1], 0.5) is None


def test_the_line_is_the_lowest_that_tells_all_kinds_of_queries_well() -> None:
    words, rng = Words(["dog"]), np.random.default_rng(0)
    fitted = PairRelevance({"cosine": 20.0, "bias": -10.0})
    present = {"noun": 0.52, "sentence": 0.47}  # the cosine of what is there; the best of all else has 0.45
    judged = []
    for kind, cosine in present.items():
        for number in range(40):
            others = np.sort(rng.uniform(0.3, 0.45, 30))[::-1]
            shown = number % 2 == 0
            cosines = np.concatenate([[cosine if shown else 0.45], others])
            judged.append(JudgedQuery("dog", kind, cosines, np.arange(31) == (0 if shown else -1)))  # type: ignore[arg-type]
    assert best_line(judged, fitted, words) == 0.3, "a sentence has a relevance of 0.35, what is absent of 0.27"
    assert best_line(judged[:40], fitted, words) == 0.3, "nouns would allow more, and the lowest is taken"
    assert best_line(judged[:1], fitted, words) == 0.5, "one half, where nothing is absent"


def test_sentences_may_be_asked_of_the_first_images_only() -> None:
    records = [record(number, "a dog runs over a green field") for number in range(4)]
    asked = truth_queries(records, asked=1)
    (only,) = [query for query in asked if query.kind == "sentence"]
    assert only.truth[0] == SHOWN


def test_other_nouns_can_be_asked_for() -> None:
    asked = nouns_from({"grass": {"shows": ["meadow"]}})
    found = truth_queries(RECORDS, sentences=0, nouns=asked)
    assert [query.text for query in found if query.kind == "noun"] == ["grass"]
    assert found[0].truth[:4].tolist() == [SHOWN, NOT_SHOWN, NOT_SHOWN, NOT_SHOWN]


SHEEP = [
    record(0, "two sheep", "a couple of sheep", "a pair of white sheep", "sheep", "animals"),
    record(1, "a herd of sheep", "a group of sheep", "sheep on grass", "a flock of sheep", "white sheep"),
    record(2, "a sheep", "one sheep stands", "a white sheep", "a sheep", "a woolly sheep"),
    record(3, "three sheep", "three white sheep", "sheep", "grass", "a field"),
    record(4, "a sheep and a lamb", "one sheep with lambs", "a sheep", "a sheep", "a lamb"),
]


def test_a_number_is_not_shown_where_captions_say_another_or_only_one_and_unknown_for_a_herd() -> None:
    (two,) = [query.truth for query in truth_queries(SHEEP, sentences=0) if query.text == "two sheep"]
    assert two.tolist() == [SHOWN, UNKNOWN, NOT_SHOWN, NOT_SHOWN, UNKNOWN]


def test_a_colour_before_of_does_not_belong_to_the_noun_after_it() -> None:
    plate = record(0, "a white plate of pizza", "white plates of pizza", "pizza", "pizza", "a pizza")
    assert not [one for one in truth_queries([plate, BOAT], sentences=0) if one.text == "white pizza"]


def test_captions_leave_a_name_open_by_its_plural_its_head_a_wider_word_or_a_place() -> None:
    names = [record(n, name, label=name) for n, name in enumerate(("bathtub", "microwave oven", "hen", "toaster"))]
    said = ("a tub", "two microwaves", "chickens", "a kitchen", "a boat in a bath")
    photos = [record(10 + n, *(text,) * 5) for n, text in enumerate(said)]
    truth = {one.text: one.truth[4:].tolist() for one in truth_queries([*names, *photos], sentences=0)}
    assert truth["bathtub"] == [UNKNOWN, NOT_SHOWN, NOT_SHOWN, NOT_SHOWN, UNKNOWN]
    assert truth["microwave oven"] == [NOT_SHOWN, UNKNOWN, NOT_SHOWN, UNKNOWN, NOT_SHOWN]
    assert truth["hen"] == [NOT_SHOWN, NOT_SHOWN, UNKNOWN, NOT_SHOWN, NOT_SHOWN]
    assert truth["toaster"] == [NOT_SHOWN, NOT_SHOWN, NOT_SHOWN, UNKNOWN, NOT_SHOWN]
