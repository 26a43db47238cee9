"""Two models together rank by the mean of their similarities."""

import dataclasses

import numpy as np
import pytest

from evaluation import slow_reference
from evaluation.made_up import IMAGE_OF, made_up, record, records, units
from sightline.errors import EvaluationError
from sightline.evaluation import evaluate
from sightline.evaluation.encodings import Encodings


def test_ranks_are_those_of_the_mean_of_both_models_cosines() -> None:
    first = dataclasses.replace(made_up(3), name="first")
    random = np.random.default_rng(4)  # another width, and so another scale of everything but the cosines
    second = dataclasses.replace(first, texts=units(random, 25, 7), images=units(random, 8, 7), name="second")
    found = evaluate(first, records(), partner=second)
    scores = (first.texts @ first.images.T + second.texts @ second.images.T) / 2
    to_image, _, to_text, _ = found.ranks()
    assert to_image.tolist() == slow_reference.text_to_image(scores, IMAGE_OF.tolist())
    assert to_text.tolist() == slow_reference.image_to_text(scores, IMAGE_OF.tolist())
    assert (found.model, found.stages) == ("first + second", ("embed",))
    assert evaluate(second, records(), partner=first).r_sum == found.r_sum
    assert evaluate(first, records(), partner=first).r_sum == evaluate(first, records()).r_sum


def test_an_image_that_cannot_be_read_is_missed_by_both() -> None:
    model = made_up(3)
    found = evaluate(model, records(frozenset({2})), partner=made_up(4))
    assert found.problems["images_unreadable"] == 1
    assert found.ranks()[2][2] == np.inf


@pytest.mark.parametrize("stage", [{"late": 5}, {"rerank": 3}])
def test_two_models_are_not_asked_to_rescore(stage: dict[str, int]) -> None:
    with pytest.raises(EvaluationError, match="Leave out `late` and `rerank`"):
        evaluate(made_up(), [record(0, ["0 a"])], partner=made_up(1), **stage)  # type: ignore[arg-type]


def test_items_of_two_models_must_be_the_same() -> None:
    def encodings(*names: str) -> Encodings:
        return Encodings(np.array(names, dtype=object), np.eye(len(names), dtype=np.float32), None, None)

    with pytest.raises(EvaluationError, match="could not"):
        encodings("a", "b").beside(encodings("a", "c"))
    both = encodings("a", "b").beside(encodings("a", "b")).embedding
    np.testing.assert_allclose(both @ both.T, np.eye(2), atol=1e-6)
