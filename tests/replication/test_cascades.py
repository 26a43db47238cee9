"""Many cascades measured at once rank as `evaluate` ranks with one at a time."""

import numpy as np
import pytest

from replication.cascades import Cascades
from sightline.datasets import Record, read_all
from sightline.evaluation import Evaluation, evaluate
from sightline.models.torch_model import TorchModel
from sightline.training.recipe import parse_recipe
from sightline.training.trainer import train
from training import shapes


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[TorchModel, list[Record]]:
    folder = tmp_path_factory.mktemp("cascades")
    pictures = shapes.write(folder / "pictures", list(shapes.cards(seed=0))[:12])
    recipe = shapes.recipe(pictures, hidden=16, layers=1, schedule={"steps": 20}, data={"batch_size": 6})
    run = train(parse_recipe({**recipe, "losses": shapes.ALL}, "it"), folder / "run")
    return TorchModel.open(run.folder), read_all([str(pictures)])


def assert_same_ranks(found: Evaluation, expected: Evaluation) -> None:
    for one, other in zip(found.ranks(), expected.ranks(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_embedding_and_reranking_rank_as_an_evaluation_does(trained: tuple[TorchModel, list[Record]]) -> None:
    model, records = trained
    cascades = Cascades(model, model, records, [], "shapes")
    assert_same_ranks(cascades.embed(), evaluate(model, records))
    assert_same_ranks(cascades.rerank(3), evaluate(model, records, rerank=3, fusion="ce"))


def test_matching_everything_ranks_as_reranking_everything_does(trained: tuple[TorchModel, list[Record]]) -> None:
    model, records = trained
    cascades = Cascades(model, model, records, [], "shapes")
    found = cascades.match_everything()
    assert_same_ranks(found, evaluate(model, records, rerank=100, fusion="ce"))  # of 12 images
    assert not np.array_equal(found.ranks()[0], cascades.embed().ranks()[0])
