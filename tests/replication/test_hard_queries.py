"""The hardest and the most infrequent queries, chosen by how similar they are to what is wrong for them."""

import numpy as np
import pytest

from evaluation.made_up import IMAGE_OF, made_up, records, units
from replication.hard_queries import average_similarities, special_recalls
from sightline.evaluation import evaluate

IMAGE_OF_SOME = np.array([0, 0, 2, -1, 2, 3, 0])  # of five images two have no caption; one caption has no image


def test_averages_are_over_all_that_is_wrong() -> None:
    random = np.random.default_rng(0)
    texts, images = units(random, 7, 6), units(random, 5, 6)
    of_texts, of_images = average_similarities(texts, images, IMAGE_OF_SOME)
    for t, text in enumerate(texts):
        wrong = [text @ image for i, image in enumerate(images) if i != IMAGE_OF_SOME[t]]
        assert of_texts[t] == pytest.approx(np.mean(wrong), abs=1e-6)
    assert len(of_images) == 3
    for found, i in zip(of_images, (0, 2, 3), strict=True):
        wrong = [text @ images[i] for t, text in enumerate(texts) if IMAGE_OF_SOME[t] != i]
        assert found == pytest.approx(np.mean(wrong), abs=1e-6)


def test_recalls_are_those_of_the_queries_with_the_highest_and_the_lowest_averages() -> None:
    model = made_up(2)
    found = evaluate(model, records())
    of_texts, of_images = average_similarities(model.texts, model.images, IMAGE_OF)
    special = special_recalls(found, of_texts, of_images)
    to_image, _, to_text, _ = found.ranks()
    for way, averages, ranks in (("text_to_image", of_texts, to_image), ("image_to_text", of_images, to_text)):
        order, fifth = sorted(range(len(averages)), key=lambda n: averages[n]), round(len(averages) / 5)
        for kind, chosen in (("hardest", order[-fifth:]), ("infrequent", order[:fifth])):
            for k in (1, 5, 10):
                expected = 100 * np.mean([ranks[n] <= k for n in chosen])
                assert special[way][kind]["20%"][f"R@{k}"] == pytest.approx(expected, abs=1e-3)
