"""Zero-shot names: ranks among the labels, prompts, reranking, intervals, labels from folders."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from evaluation.made_up import MadeUp, made_up, record
from sightline.datasets import Record, read_all
from sightline.errors import EvaluationError, ModelError
from sightline.evaluation import evaluate_names
from sightline.evaluation.names import PROMPTS
from sightline.evaluation.resampling import wilson

LABELS = [3, 0, 2, 2, 1, 3, 0, 1]


def labelled(broken: int = -1) -> list[Record]:
    """Eight pictures; the label of each is the number of a text of the made-up model."""
    return [replace(record(i, [], broken=i == broken), label=str(label)) for i, label in enumerate(LABELS)]


def expected_ranks(scores: np.ndarray) -> list[int]:
    """The slow way: [images, labels 0 to 3]."""
    return [1 + sum(row[other] >= row[own] for other in range(4) if other != own) for row, own in zip(scores, LABELS)]  # noqa: B905


def test_an_image_is_named_by_the_label_whose_text_is_closest() -> None:
    model = made_up()
    found = evaluate_names(model, labelled(), prompts=["{}"])
    assert found.ranks.tolist() == expected_ranks(model.images @ model.texts[:4].T)
    assert found.top1 == 100 * np.mean(found.ranks == 1)
    assert found.top5 == 100


def test_the_mean_of_the_prompts_stands_for_a_label() -> None:
    model = made_up(2)
    found = evaluate_names(model, labelled(), prompts=["{}", "1{}"])  # "13" is text number 13 of the model
    means = model.texts[:4] + model.texts[10:14]
    scores = model.images @ (means / np.linalg.norm(means, axis=1, keepdims=True)).T
    assert found.ranks.tolist() == expected_ranks(scores)
    assert found.ranks.tolist() != evaluate_names(model, labelled(), prompts=["{}"]).ranks.tolist()


@pytest.mark.parametrize("k", [1, 2, 3, 4, 9])
def test_the_matcher_reorders_the_best_labels_and_leaves_the_others(k: int) -> None:
    model = made_up(3)
    assert model.logits is not None
    first = model.images @ model.texts[:4].T
    found = evaluate_names(model, labelled(), prompts=["{}"], rerank=k, fusion="ce", batch_size=3)
    for image, own in enumerate(LABELS):
        order = np.argsort(-first[image]).tolist()
        head = sorted(order[:k], key=lambda label: -model.logits[label, image])  # type: ignore[index]
        assert found.ranks[image] == 1 + [*head, *order[k:]].index(own)
    assert found.stages == ("embed", f"match@{k}")
    assert len(model.matched) == min(k, 4) * 8


def test_without_arguments_the_fusion_is_that_of_the_model() -> None:
    model = made_up(3)
    found = evaluate_names(model, labelled(), prompts=["{}"], rerank=2)
    assert (found.fusion, found.weight) == (model.defaults.fusion, None)


def test_an_image_that_cannot_be_read_counts_as_missed_and_is_named() -> None:
    found = evaluate_names(made_up(), labelled(broken=4), prompts=["{}"])
    assert found.ranks[4] == np.inf
    assert [problem.place for problem in found.unreadable] == ["4.png"]
    assert len(found.ranks) == 8


def test_equal_scores_count_against_the_model() -> None:
    same = np.ones((4, 2), dtype=np.float32)
    model = MadeUp(texts=same, images=np.ones((8, 2), dtype=np.float32))
    assert evaluate_names(model, labelled(), prompts=["{}"]).top1 == 0


def test_the_result_says_what_was_asked() -> None:
    result = json.loads(json.dumps(evaluate_names(made_up(), labelled(), data="set", prompts=["{}"]).to_json()))
    assert result["names"]["labels"] == 4
    assert result["images"] == 8
    low, high = result["ci95"]["top1"]
    assert low < result["names"]["top1"] < high
    assert (result["data"], result["protocol"], result["prompts"]) == ("set", "names", ["{}"])


def test_labels_come_from_the_folders_that_images_are_in(tmp_path: Path) -> None:
    for number, name in enumerate(["0", "0", "1_"]):
        (tmp_path / name).mkdir(exist_ok=True)
        Image.new("RGB", (2, 2), (0, number, 0)).save(tmp_path / name / f"{number}.png")
    found = evaluate_names(made_up(), read_all(tmp_path), prompts=["{} x"])
    assert found.labels == ("0", "1")


@pytest.mark.parametrize(
    ("records", "said"),
    [
        ([record(0, ["a dog"])], "picture-0 has no label"),
        ([replace(record(i, []), label="dog") for i in range(2)], "all images have the same label, 'dog'"),
        ([], "no images"),
    ],
)
def test_data_without_labels_is_refused(records: list[Record], said: str) -> None:
    with pytest.raises(EvaluationError, match=said):
        evaluate_names(made_up(), records)


@pytest.mark.parametrize("prompt", ["a photo", "{} and {}"])
def test_a_prompt_without_a_place_for_the_label_is_refused(prompt: str) -> None:
    with pytest.raises(EvaluationError, match="prompt"):
        evaluate_names(made_up(), labelled(), prompts=[prompt])


def test_reranking_without_a_matcher_is_refused() -> None:
    with pytest.raises(ModelError, match="has no matcher"):
        evaluate_names(replace(made_up(), logits=None), labelled(), rerank=5)


def test_intervals_stay_within_the_possible_and_narrow_with_more_images() -> None:
    assert wilson(0.0, 10)[0] == 0
    assert wilson(1.0, 10)[1] == pytest.approx(100)
    narrow, wide = wilson(0.6, 1000), wilson(0.6, 50)
    assert wide[0] < narrow[0] < 60 < narrow[1] < wide[1]


def test_there_are_seven_prompts_each_with_one_place_for_a_name() -> None:
    assert len(set(PROMPTS)) == 7
    assert all(prompt.count("{}") == 1 for prompt in PROMPTS)
