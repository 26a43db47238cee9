"""The runs of paper 3: their recipes are whole, their teachers exist, and their gains are counted right."""

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from benchmarks.scripts import RECIPES, script
from sightline.evaluation import Evaluation
from sightline.evaluation.result import FoldRanks
from sightline.losses import Distill, Triplet
from sightline.training.recipe import Recipe, read_recipe
from sightline.training.setup import make_objectives


@pytest.fixture(scope="module")
def paper3() -> ModuleType:
    return script("replication.paper3")


@pytest.fixture(autouse=True)
def somewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIGHTLINE_DATA", "data")
    monkeypatch.setenv("SIGHTLINE_PRETRAINED", "pretrained")


def recipe_of(paper3: ModuleType, name: str, variant: str) -> Recipe:
    bench = object.__new__(paper3.Bench)
    bench.variant, bench.changes, bench.work = variant, (), Path("work")
    run = paper3.RUNS[name]
    return read_recipe(RECIPES / f"{run.recipe}.toml", bench._changes(run, 3))


@pytest.mark.parametrize("variant", ["paper", "factors", "tuned"])
def test_every_run_has_a_recipe_for_the_model_that_its_row_names(paper3: ModuleType, variant: str) -> None:
    for name, run in paper3.RUNS.items():
        recipe = recipe_of(paper3, name, variant)
        config = recipe.model_config()
        (objective,) = make_objectives(recipe).values()
        by_embedding = run.kind in ("fast", "shrink-fast")
        assert objective.needs == {"embedding" if by_embedding else "fragments"}, name
        assert config.codes == run.codes, name
        assert run.fragments == (1 if by_embedding else config.fragments or config.pool_to + config.codes), name
        assert (recipe.teacher is not None) == bool(run.teacher) == objective.asks_teacher, name
        if recipe.teacher is not None:
            assert run.teacher in paper3.RUNS
            shared = variant == "factors" and not paper3.RUNS[run.teacher].teacher
            taught_by = "paper" if shared else variant
            assert recipe.teacher.model == f"work/{run.teacher}-{taught_by}-3/best"
        assert (recipe.seed, recipe.data.val) == (3, ())


@pytest.mark.parametrize(("name", "margin"), [("F", 0.2), ("B", 0.6), ("I64", 0.6), ("L1", 0.2), ("L8", 0.6)])
def test_margins_are_those_of_the_paper_over_all_negatives(paper3: ModuleType, name: str, margin: float) -> None:
    (objective,) = make_objectives(recipe_of(paper3, name, "paper")).values()
    assert isinstance(objective, Triplet)
    assert (objective.margin, objective.negatives) == (margin, "sum")


@pytest.mark.parametrize(
    ("name", "temperatures"),
    [("I-B", (12, 12)), ("B-F", (2, 12)), ("I-F", (2, 12)), ("I-B-F", (2, 12)), ("B-L8", (12, 12)), ("B-L1", (2, 12))],
)
def test_temperatures_are_those_of_the_paper(paper3: ModuleType, name: str, temperatures: tuple[int, int]) -> None:
    recipes = (recipe_of(paper3, name, variant) for variant in ("paper", "factors"))
    divisors, factors = (make_objectives(recipe)["shrink"] for recipe in recipes)
    assert isinstance(divisors, Distill)
    assert isinstance(factors, Distill)
    assert (divisors.teacher_temperature, divisors.student_temperature) == temperatures
    inverse = (1 / factors.teacher_temperature, 1 / factors.student_temperature)
    assert inverse == pytest.approx(temperatures, rel=1e-3)


def test_a_tuned_temperature_grows_with_the_cosines_that_are_summed(paper3: ModuleType) -> None:
    """A single cosine over 0.5, which suits the sum over a caption's words, would tell nothing apart."""
    losses = [recipe_of(paper3, name, "tuned").objectives["late"] for name in ("L1", "L4", "L16", "B", "I64")]
    assert [loss["temperature"] for loss in losses] == pytest.approx([0.05, 0.2, 0.5, 0.5, 0.5])


def test_encoders_are_those_of_the_paper(paper3: ModuleType) -> None:
    """Three layers over words, three over 32 clusters of what a frozen tower sees, each picture looked at once."""
    for name in paper3.RUNS:
        recipe = recipe_of(paper3, name, "paper")
        config = recipe.model_config()
        assert (config.pool, config.pool_to, config.text_pooling) == ("kmeans", 32, "first"), name
        assert config.image_reader == config.text, name
        assert config.text.layer_step == 2, name
        assert config.embedding_dim == config.fragment_dim, name
        assert recipe.optimizer.rates["image"] == 0, name
        assert recipe.augment is None, name


def test_a_variant_trains_anew_only_what_differs(paper3: ModuleType) -> None:
    bench = object.__new__(paper3.Bench)
    bench.variant = "factors"
    assert [bench.label(name) for name in ("F", "L1", "I-B")] == ["F-paper", "L1-paper", "I-B-factors"]
    bench.variant = "tuned"
    assert [bench.label(name) for name in ("F", "I-B")] == ["F-tuned", "I-B-tuned"]


def evaluated(to_image: Any, to_text: Any) -> Evaluation:
    image_of = np.repeat(np.arange(len(to_text)), 2)
    folds = (FoldRanks(np.array(to_image), image_of, np.array(to_text), np.arange(len(to_text))),)
    return Evaluation("it", "it", "en", "karpathy", ("embed",), None, None, 0, folds, "same", {}, {}, 0)


def test_a_gain_is_the_difference_of_two_sums_and_its_interval_holds_it(paper3: ModuleType) -> None:
    random = np.random.default_rng(0)
    before = evaluated(random.integers(1, 30, 400), random.integers(1, 30, 200))
    after = evaluated(*(np.maximum(1, ranks - 3) for ranks in (before.ranks()[0], before.ranks()[2])))
    found = paper3.gain(before, after)
    assert found["rSum"] == pytest.approx(after.r_sum - before.r_sum, abs=1e-3)
    assert 0 < found["low"] < found["rSum"] < found["high"]
    assert paper3.gain(before, before) == {"rSum": 0, "low": 0, "high": 0}
    back = paper3.gain(after, before)
    assert back["rSum"] == -found["rSum"]


def test_runs_are_set_against_the_same_model_unshrunken_their_teacher_and_rivals(paper3: ModuleType) -> None:
    assert paper3.compared_with("I-B-F") == ["F", "I-B", "I-F", "B-F"]
    assert paper3.compared_with("B-L8") == ["L8", "B"]
    assert paper3.compared_with("I64") == ["B", "I16"]
    assert paper3.compared_with("L8") == ["L4"]
    assert paper3.compared_with("F") == []
