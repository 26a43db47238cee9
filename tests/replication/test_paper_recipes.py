"""The runs of papers 2, 3 and 4 train by recipes that say what their rows say."""

import json
from pathlib import Path
from typing import Any

import pytest

from replication import paper1, paper2, paper3, paper4
from replication.training_runs import RECIPES
from sightline.losses import Contrastive, Distill, Listwise, MaskedFragments, MaskedWords, Matching, Relation, Triplet
from sightline.models import DualStreamConfig, SingleStreamConfig
from sightline.training.recipe import Recipe, read_recipe
from sightline.training.setup import make_losses


@pytest.fixture(autouse=True)
def folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIGHTLINE_DATA", "data")
    monkeypatch.setenv("SIGHTLINE_PRETRAINED", "pretrained")


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[Recipe]:
    """The recipes that paper 4 would train by, in order."""
    recipes: list[Recipe] = []
    monkeypatch.setattr(paper4, "train_once", lambda recipe, changes, out: recipes.append(
        read_recipe(RECIPES / f"{recipe}.toml", changes)) or {})  # fmt: skip
    return recipes


def recipe2(name: str) -> Recipe:
    return read_recipe(RECIPES / f"{paper2.RUNS[name].recipe}.toml", paper2.RUNS[name].changes)


def test_paper_2_trains_every_run_alike() -> None:
    base = recipe2("base")
    for name, run in paper2.RUNS.items():
        found = recipe2(name)
        assert found.data.word_noise == 0.2, name
        both = [(one.schedule, one.data.train, one.data.batch_size) for one in (found, base)]
        assert both[0] == both[1], name
        assert ("relation" in found.losses) == (run.recipe != "hrem-base"), name
    assert all(part in paper2.RUNS for parts in paper2.ENSEMBLES.values() for part in parts)


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("fusion", {}),
        ("standalone", {"mechanism": "standalone"}),
        ("intra", {"among": "intra", "regularisation": 0.0}),
        ("inter", {"among": "inter"}),
        ("no-connection", {"share": 1.0}),
        ("no-relevance", {"relevance": 0.0, "regularisation": 0.0}),
        ("no-consistency", {"consistent": False}),
        ("no-regularisation", {"regularisation": 0.0}),
        ("lambda-2", {"relevance": 2.0}),
        ("k-5", {"k": 5}),
        ("tau-0.25", {"share": 0.25}),
        ("bigru", {}),
        ("no-visual", {"image": False}),
        ("no-textual", {"text": False}),
        ("no-fragments", {"image": False, "text": False}),
    ],
)
def test_a_run_of_paper_2_changes_what_its_row_says_and_nothing_else(name: str, changed: dict[str, Any]) -> None:
    relation, config = make_losses(recipe2(name))["relation"], recipe2(name).model_config()
    assert isinstance(relation, Relation)
    assert isinstance(config, DualStreamConfig)
    assert config.relations is not None
    found = {"mechanism": relation.mechanism, "among": relation.among, "consistent": relation.consistent,
             "relevance": relation.relevance, "regularisation": relation.regularisation, "share": relation.graph.share,
             "k": relation.graph.k, "image": config.relations.image, "text": config.relations.text}  # fmt: skip
    usual = {"mechanism": "fusion", "among": "all", "consistent": True, "relevance": 1.0, "regularisation": 10.0,
             "share": 0.5, "k": 10, "image": True, "text": True}  # fmt: skip
    assert found == usual | changed


def test_a_curve_is_the_mean_of_equal_parts_of_the_steps_with_relations(tmp_path: Path) -> None:
    parts = [{"step": step, "parts": {"relation": {"initial": step, "enhanced": 0.5}}} for step in range(11, 21)]
    (tmp_path / "log").write_text("".join(json.dumps(entry) + "\n" for entry in [{"step": 1}, *parts]))
    points = [(point["step"], point["initial"]) for point in paper2.curve(tmp_path / "log")]
    assert points == [(step, step) for step in range(11, 21)]


def recipe3(name: str, variant: str) -> Recipe:
    bench = object.__new__(paper3.Bench)
    bench.variant, bench.changes, bench.work, bench.cross = variant, (), Path("work"), "cross/{seed}"
    return read_recipe(RECIPES / f"{paper3.RUNS[name].recipe}.toml", bench.changes_of(paper3.RUNS[name], 3))


@pytest.mark.parametrize("variant", paper3.VARIANTS)
def test_every_run_of_paper_3_trains_the_model_that_its_row_names(variant: str) -> None:
    for name, run in paper3.RUNS.items():
        found = recipe3(name, variant)
        (objective,), config = make_losses(found).values(), found.model_config()
        assert objective.needs == {"embedding" if run.by_embedding else "fragments"}, name
        assert config.codes == run.codes, name
        assert run.fragments == (1 if run.by_embedding else config.fragments or config.pool_to + config.codes), name
        assert (found.teacher is not None) == bool(run.teacher) == objective.needs_teacher, name
        assert (config.pool, config.pool_to, config.text_pooling) == ("kmeans", 32, "first"), name
        assert (config.text.layer_step, found.optimizer.rates["image"], found.augment) == (2, 0, None), name


def test_margins_and_temperatures_are_those_of_paper_3() -> None:
    for name, margin in (("F", 0.2), ("B", 0.6), ("I64", 0.6), ("L8", 0.6)):
        (objective,) = make_losses(recipe3(name, "paper")).values()
        assert isinstance(objective, Triplet)
        assert (objective.margin, objective.negatives, objective.reduction) == (margin, "sum", "sum"), name
    for name, printed in (("I-B", (12, 12)), ("B-F", (2, 12)), ("I-B-F", (2, 12)), ("B-L8", (12, 12))):
        divisors, factors = (make_losses(recipe3(name, variant))["shrink"] for variant in ("paper", "kl"))
        assert isinstance(divisors, Distill)
        assert isinstance(factors, Distill)
        assert (divisors.over, factors.over) == ("positives", "all")
        assert (divisors.teacher_temperature, divisors.student_temperature) == printed, name
        both = factors.teacher_temperature, factors.student_temperature
        chosen = paper3.CHOSEN[paper3.RUNS[name].teacher] if paper3.RUNS[name].by_embedding else (1 / 12, 1 / 12)
        assert both == pytest.approx(chosen, rel=1e-3), name
    for name in ("B-F", "I-F", "I-B-F"):
        shrink = make_losses(read_recipe(RECIPES / f"{paper3.RUNS[name].recipe}.toml"))["shrink"]
        assert isinstance(shrink, Distill)
        own = shrink.teacher_temperature, shrink.student_temperature
        assert own == paper3.CHOSEN[paper3.RUNS[name].teacher], f"recipe of {name}"


@pytest.mark.parametrize(
    ("name", "drawn", "fused"),
    [
        ("cmr", {"cmr"}, True),
        ("vmlm", {"cmr", "vmlm"}, True),
        ("smrm", {"cmr", "smrfr", "smrc"}, True),
        ("mlm-mrm", {"cmr", "vmlm", "smrfr", "smrc"}, False),
        ("vmlm-smrm", {"cmr", "vmlm", "smrfr", "smrc"}, True),
    ],
)
def test_every_run_of_paper_4_has_the_tasks_of_its_name(
    name: str, drawn: set[str], fused: bool, trained: list[Recipe]
) -> None:
    paper4.Bench("minilm", [], False, Path("work")).trained(name, 3)
    before, after = trained
    for recipe in trained:  # equations 5 and 6: plain dot products
        cmr = make_losses(recipe)["cmr"]
        assert isinstance(cmr, Contrastive)
        assert (float(cmr.scale()), cmr.learned_temperature) == (1, None)
    assert before.model["unit_length"] is False
    assert {task for task, weight in before.weights.items() if weight} == drawn
    losses = [make_losses(before)[task] for task in drawn - {"cmr"}]
    assert all(isinstance(one, MaskedWords | MaskedFragments) and one.fused == fused for one in losses)
    assert (list(after.losses), after.start) == (["cmr"], f"work/{name}-pretrain-minilm-3/best")


def test_without_pre_training_a_run_of_paper_4_starts_from_the_same_encoders(trained: list[Recipe]) -> None:
    bench = paper4.Bench("minilm", [], False, Path("work"))
    for name in ("none", "cmr"):
        bench.trained(name, 3)
    alone, before, _ = trained
    assert alone.model == before.model
    assert "MiniLM" in alone.model["text"]["source"]


def test_a_model_of_paper_3_is_trained_once_for_all_variants_that_share_it() -> None:
    bench = object.__new__(paper3.Bench)
    for variant, labels in {
        "paper": ["F-paper", "B-F-paper", "C-F-paper"], "kl": ["F-paper", "B-F-kl", "C-F-kl"],
        "contrastive": ["F-contrastive", "B-F-contrastive", "C-F-kl"],
        "printed": ["F-contrastive", "B-F-printed", "C-F-paper"],
    }.items():  # fmt: skip
        bench.variant = variant
        assert [bench.label(name) for name in ("F", "B-F", "C-F")] == labels, variant
    assert bench.system("B-F") == "B-F printed"


@pytest.mark.parametrize("paper", [paper2, paper3, paper4], ids=lambda paper: paper.__name__)
def test_parts_are_of_known_runs(paper: Any) -> None:
    known = {*paper.RUNS, *getattr(paper, "ENSEMBLES", ()), "languages"}
    assert all(name in known for names in paper.PARTS.values() for name in names)


@pytest.mark.parametrize(("features", "weight"), [("towers", 0.01), ("towers-joint", 1)])
def test_paper_1_with_two_towers_pre_trains_the_embeddings_little_or_as_much_as_the_matcher(
    features: str, weight: float
) -> None:
    found = read_recipe(RECIPES / "towers-pretrain.toml", paper1.FEATURES[features])
    assert found.weights == {"embed": weight, "match_any": 1, "match": 1}
    assert [type(loss) for loss in make_losses(found).values()] == [Contrastive, Listwise, Listwise]
    assert found.data.lang == "en", "only some runs are fine-tuned in other languages"


def test_paper_1_with_two_towers_trains_joint_as_often_on_either_task_as_be_and_ce() -> None:
    be, ce, joint = (read_recipe(RECIPES / f"towers-{run}.toml") for run in ("be", "ce", "joint"))
    assert joint.schedule.steps == be.schedule.steps + ce.schedule.steps
    assert (joint.losses["embed"], joint.losses["match"]) == (be.losses["embed"], ce.losses["match"])
    assert sorted(joint.schedule.pattern) == ["embed", "match"]
    assert be.weights == {"embed": 1}
    assert ce.weights == {"embed": 0.01, "match": 1}


@pytest.mark.parametrize("features", ["lower", "clip", "dino"])
def test_paper_1_pre_trains_one_stream_on_every_source_with_all_losses(features: str) -> None:
    found = read_recipe(RECIPES / "pretrain.toml", paper1.FEATURES[features])
    assert [source.name for source in found.data.sources] == ["coco", "web", "flickr8k"]
    assert found.data.lang == paper1.LANGUAGES
    assert [type(loss) for loss in make_losses(found).values()] == [Contrastive, Matching, Matching, MaskedWords]
    config = found.model_config()
    assert isinstance(config, SingleStreamConfig)
    assert config.image is not None
    assert config.image.layers == (8 if features == "lower" else 0)


def test_paper_4_reranks_a_gallery_once_for_each_matcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench, matchers = paper4.Bench("minilm", [], brief=False, work=tmp_path), list[str]()
    bench.folder("cmr", 1).mkdir()
    monkeypatch.setattr(bench, "opened", lambda *_: None, raising=False)
    monkeypatch.setattr(paper4, "load", lambda matcher, prefer_gpu: matcher)

    class Counted:
        def reranked(self, model: None, matcher: str) -> dict[str, Any]:
            matchers.append(matcher)
            return {"20": {"mR": float(len(matchers))}}

    def found(matcher: str) -> dict[str, Any]:
        return paper4.reranked(bench, Counted(), "cmr", 1, matcher)  # type: ignore[arg-type]

    assert found("") == {}
    assert found("one") == found("one") == found("") == {"reranked_by": "one", "reranked": {"20": {"mR": 1.0}}}
    assert found("other") == found("") == {"reranked_by": "other", "reranked": {"20": {"mR": 2.0}}}
    assert matchers == ["one", "other"]
