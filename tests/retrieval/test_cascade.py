"""Later stages see what they should, rank as in an evaluation, keep to the time, and say how sure they are."""

import dataclasses
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation import made_up as evaluated
from retrieval.made_up import DIM, PIXEL, MadeUp, store_of, unit, units
from sightline.bundle import Bundle
from sightline.bundle.model import Calibration, Defaults
from sightline.errors import ModelError, OptionError
from sightline.evaluation import evaluate
from sightline.media import to_pixels
from sightline.retrieval.candidates import Candidates
from sightline.retrieval.cascade import Cascade
from sightline.retrieval.costs import Costs
from sightline.retrieval.options import SearchOptions
from sightline.retrieval.relevance import gallery_relevances, relevance
from sightline.retrieval.stages import resolve
from sightline.stores.base import Shape
from sightline.stores.local import LocalStore


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIGHTLINE_CACHE", str(tmp_path / "cache"))


def cascade(model: Any, store: Any, kind: Any = "images") -> Cascade:
    clock = getattr(model, "clock", None)
    return Cascade(model, store, kind, Costs(model.name), *([clock] if clock else []))


PLANS = [
    {},
    {"rerank": 3},
    {"late": 4},
    {"late": 5, "rerank": 3},
    {"late": 2, "rerank": 6},
    {"rerank": 5, "fusion": "add", "weight": 0.4},
    {"late": 6, "rerank": 5, "fusion": "norm_add", "weight": 0.6},
    {"rerank": 8, "fusion": "logit_add", "weight": 3.0},
]


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_ranks_are_those_of_an_evaluation_with_the_same_stages(tmp_path: Path, plan: dict[str, Any]) -> None:
    """In both directions. Stored vectors are rounded; made-up scores lie far enough apart to keep their order."""
    model = evaluated.made_up(3)
    photos = evaluated.records()
    result = evaluate(model, photos, **plan)
    images = model.encode_images(np.stack([to_pixels(photo.image, model.preprocess) for photo in photos]))
    captions = [caption for photo in photos for caption in photo.captions["en"]]
    texts = model.encode_texts(captions)
    sides = {}
    for kind, items in (("images", images), ("texts", texts)):
        sides[kind] = LocalStore.open(tmp_path / kind, Shape(12, 4, 1), write=True)
        sides[kind].add(np.arange(len(items)), items)
    wanted = {"rerank": 0, **plan}

    to_image = []
    for caption, image in zip(captions, evaluated.IMAGE_OF, strict=True):
        ranking = cascade(model, sides["images"]).run(SearchOptions(caption, k=len(photos), **wanted))
        to_image.append(1 + ranking.candidates.ids.tolist().index(image))
    assert to_image == result.ranks()[0].tolist()

    to_text = []
    for number, photo in enumerate(photos):
        ranking = cascade(model, sides["texts"], "texts").run(
            SearchOptions(image=photo.image, k=len(captions), **wanted)
        )
        to_text.append(1 + [int(evaluated.IMAGE_OF[id]) for id in ranking.candidates.ids].index(number))
    assert to_text == result.ranks()[2].tolist()
    for store in sides.values():
        store.close()


@pytest.fixture
def model() -> MadeUp:
    return MadeUp(vectors={"dog": unit(1), "snow": unit(0, 1)}, logits=np.random.default_rng(0).normal(0, 3, 120))


@pytest.fixture
def store(tmp_path: Path) -> Any:
    store = store_of(tmp_path / "store", units(np.random.default_rng(1), 120, DIM))
    yield store
    store.close()


def test_the_usual_number_is_matched_and_the_rest_stays_behind(model: MadeUp, store: LocalStore) -> None:
    plain = cascade(model, store).run(SearchOptions("dog", k=30, rerank=0)).candidates
    ranked = cascade(model, store).run(SearchOptions("dog", k=30)).candidates
    assert plain.stages == ("embed",) * 30
    assert ranked.stages == ("match",) * 20 + ("embed",) * 10
    assert ranked.ids[20:].tolist() == plain.ids[20:].tolist()
    assert ranked.ids[:20].tolist() == sorted(plain.ids[:20].tolist(), key=lambda id: -model.logits[id])
    np.testing.assert_allclose(ranked.scores[:20], model.logits[ranked.ids[:20]], rtol=1e-5)


@pytest.mark.parametrize(
    ("text", "image", "kind", "matches"),
    [("dog", None, "images", True), (None, PIXEL, "images", False), ("dog", None, "texts", False),
     (None, PIXEL, "texts", True), ("dog", PIXEL, "images", True), ("dog", PIXEL, "texts", True)],
)  # fmt: skip
def test_matching_is_for_words_with_pictures_only(
    model: MadeUp, store: LocalStore, text: str | None, image: Any, kind: str, matches: bool
) -> None:
    found = cascade(model, store, kind).run(SearchOptions(text, image, rerank=5, late=7)).candidates
    assert found.stages == (("match",) * 5 + ("late",) * 2 + ("embed",) * 3 if matches else ("embed",) * 10)


def test_the_picture_still_counts_after_the_words_were_matched(model: MadeUp, store: LocalStore) -> None:
    by_words = cascade(model, store).run(SearchOptions("dog", k=20)).candidates
    model.picture = store.fetch(by_words.ids[-1:], "embedding").values[0, 0]
    both = {w: cascade(model, store).run(SearchOptions("dog", PIXEL, w, k=20)).candidates for w in (0.01, 0.9)}
    assert both[0.9].ids[0] == by_words.ids[-1]
    assert both[0.01].ids[0] != by_words.ids[-1]


def test_what_is_not_wanted_counts_in_every_stage(tmp_path: Path) -> None:
    model = MadeUp(vectors={"dog": unit(1), "snow": unit(0, 1)}, logits=np.array([2.0, 1.0, -8, -8, -8, -8]))
    others = [unit(0, 0, 1, number) for number in range(4)]
    store = store_of(tmp_path / "s", np.stack([unit(1, 0.6), unit(1), *others]))
    for stages in ({"rerank": 0}, {"rerank": 2}, {"late": 2, "rerank": 2}):
        found = cascade(model, store).run(SearchOptions("dog", not_="snow", k=2, **stages)).candidates
        assert found.ids.tolist() == [1, 0], stages
    assert cascade(model, store).run(SearchOptions("dog", k=2)).candidates.ids[:2].tolist() == [0, 1]
    store.close()


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("k", 0, "k must be at least 1, not 0"),
        ("rerank", -1, "rerank must be at least 0, not -1"),
        ("late", -2, "late must be at least 0, not -2"),
        ("late", "some", "late must be a whole number or 'all', not 'some'"),
        ("late_fragments", 0, "late_fragments must be at least 1, not 0"),
        ("budget_ms", 0, "budget_ms must be more than 0, not 0"),
        ("budget_ms", float("nan"), "budget_ms must be more than 0, not nan"),
        ("fusion", "sum", "fusion must be one of ce, add, norm_add, logit_add, not 'sum'"),
        ("min_relevance", 10, "min_relevance must be between 0 and 1, not 10"),
        ("image_weight", 1.5, "image_weight must be between 0 and 1, not 1.5"),
        ("duplicates", "hide", "duplicates must be 'fold' or 'show', not 'hide'"),
    ],
)
def test_an_option_that_cannot_be_is_refused(option: str, value: Any, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        SearchOptions("dog", **{option: value})
    assert (caught.value.option, str(caught.value)) == (option, message)


def test_a_weight_that_does_not_fit_its_fusion_is_refused(model: MadeUp, store: LocalStore) -> None:
    with pytest.raises(OptionError, match="weight must be between 0"):
        SearchOptions("dog", fusion="add", weight=3)
    with pytest.raises(OptionError, match="weight must be a finite number"):
        cascade(model, store).run(SearchOptions("dog", weight=float("inf")))


def test_the_fusion_and_its_weight_come_from_the_model_unless_they_are_given() -> None:
    @dataclasses.dataclass
    class Tuned(MadeUp):
        defaults: ClassVar = Defaults(late=7, rerank=9, fusion="logit_add", weight=30.0)

    model = Tuned()
    plan = resolve(SearchOptions("dog"), model)
    assert (plan.late, plan.rerank, plan.fusion, plan.weight) == (7, 9, "logit_add", 30.0)
    plan = resolve(SearchOptions("dog", rerank=3, fusion="add"), model)
    assert (plan.late, plan.rerank, plan.fusion, plan.weight) == (0, 3, "add", 0.5)
    plan = resolve(SearchOptions("dog", weight=2.0), model)
    assert (plan.fusion, plan.weight) == ("logit_add", 2.0)


def test_a_missing_ability_is_refused_only_where_it_was_asked_for(model: MadeUp, store: LocalStore) -> None:
    model.abilities = frozenset({"embed"})
    assert cascade(model, store).run(SearchOptions("dog")).candidates.stages == ("embed",) * 10
    assert cascade(model, store).run(SearchOptions("dog", rerank=0, late=0)).candidates.stages == ("embed",) * 10
    for stages in ({"rerank": 5}, {"late": 5}):
        with pytest.raises(ModelError, match=r"made-up has no (matcher|fragments)"):
            cascade(model, store).run(SearchOptions("dog", **stages))


def test_a_matcher_that_fails_is_not_ranked_by(model: MadeUp, store: LocalStore) -> None:
    model.logits[:] = np.nan
    with pytest.raises(ModelError, match="not finite"):
        cascade(model, store).run(SearchOptions("dog"))


# Time


def spent(model: MadeUp, store: LocalStore, budget_ms: float, **plan: Any) -> tuple[float, tuple[str, ...]]:
    """Milliseconds by the model's clock, and the stages that judged the results."""
    began = model.clock()
    stages = cascade(model, store).run(SearchOptions("dog", k=10, budget_ms=budget_ms, **plan)).candidates.stages
    return 1000 * (model.clock() - began), stages


@pytest.mark.parametrize("costs", [(0.0, 0.01), (0.02, 0.002), (0.05, 0.001)])
@pytest.mark.parametrize("budget_ms", [100, 200, 350])
def test_a_search_keeps_to_its_time_and_uses_it(
    model: MadeUp, store: LocalStore, costs: tuple[float, float], budget_ms: float
) -> None:
    model.costs = costs
    for _ in range(4):
        assert spent(model, store, budget_ms)[0] <= 1.05 * budget_ms
    for _ in range(3):
        took, stages = spent(model, store, budget_ms)
        most = min(100, int((0.9 * budget_ms / 1000 - costs[0]) / costs[1]))
        assert took <= budget_ms
        assert abs(stages.count("match") - most) <= max(1, 0.1 * most)


def test_time_that_was_spent_on_encoding_is_not_spent_again(model: MadeUp, store: LocalStore) -> None:
    model.costs = (0.0, 0.01)
    spent(model, store, 500)
    encode = model.encode_texts

    def slowly(texts: Any) -> Any:
        model.clock.advance(0.1)
        return encode(texts)

    model.encode_texts = slowly  # type: ignore[method-assign]
    took, stages = spent(model, store, 200)
    assert took <= 200
    assert stages.count("match") in (8, 9)


def test_without_time_for_it_nothing_is_matched(model: MadeUp, store: LocalStore) -> None:
    model.costs = (0.05, 0.01)
    spent(model, store, 1000)
    took, stages = spent(model, store, 20)
    assert (took, set(stages)) == (0, {"embed"})


def test_what_was_asked_for_is_an_upper_limit(model: MadeUp, store: LocalStore) -> None:
    model.costs = (0.0, 0.001)
    spent(model, store, 1000)
    assert spent(model, store, 1000, rerank=5)[1].count("match") == 5
    assert spent(model, store, 1000)[1].count("match") == 100
    assert set(spent(model, store, 1000, rerank=0)[1]) == {"embed"}


def test_a_search_without_a_limit_teaches_the_next_one(model: MadeUp, store: LocalStore) -> None:
    model.costs = (0.0, 0.01)
    for rerank in (5, 10, 20):
        cascade(model, store).run(SearchOptions("dog", rerank=rerank))
    model.matched.clear()
    spent(model, store, 100)
    assert model.matched in ([8], [9])


# Relevance


CALIBRATED = {"embed": Calibration(10, -2), "match": Calibration(0.5, 1)}


def test_relevance_is_what_the_fit_says() -> None:
    scores = np.linspace(-5, 5, 20)
    expected = 1 / (1 + np.exp(-(10 * scores - 2)))
    np.testing.assert_allclose(relevance(scores, CALIBRATED["embed"]), expected)
    np.testing.assert_allclose(relevance(scores, CALIBRATED["embed"], items=7), expected)  # nobody knows of how many


def test_the_odds_fall_as_the_items_grow() -> None:
    fitted = dataclasses.replace(CALIBRATED["embed"], items=1001)
    (few,), (fewer,), (many,) = (relevance(np.array([0.1]), fitted, items) for items in (1001, 101, 100_001))
    odds = [chance / (1 - chance) for chance in (few, fewer, many)]
    assert odds[1] == pytest.approx(10 * odds[0])
    assert odds[2] == pytest.approx(odds[0] / 100)
    shown = gallery_relevances(Candidates.of(np.arange(1), np.array([0.1])), {"embed": fitted}, items=101)
    assert shown is not None
    assert shown[0] == pytest.approx(fewer)


@given(
    st.lists(st.floats(-20, 20), min_size=1, max_size=8),
    st.lists(st.floats(-20, 20), max_size=8),
    st.sampled_from([CALIBRATED, {"embed": CALIBRATED["embed"]}]),
)
def test_relevance_never_rises_down_the_list(matched: list[float], rest: list[float], calibrations: Any) -> None:
    scores = np.array(sorted(matched, reverse=True) + sorted(rest, reverse=True))
    stages = ("match",) * len(matched) + ("embed",) * len(rest)
    found = gallery_relevances(
        dataclasses.replace(Candidates.of(np.arange(len(scores)), scores), stages=stages), calibrations
    )
    assert found is not None
    assert (np.diff(found) <= 0).all()
    assert ((found >= 0) & (found <= 1)).all()
    last = relevance(scores[:1], calibrations.get("match", calibrations["embed"]))[0]
    assert found[0] == pytest.approx(last)


def test_without_a_calibration_relevance_is_not_known() -> None:
    assert gallery_relevances(Candidates.of(np.arange(1), np.ones(1)), {}) is None


def calibrated(folder: Path) -> Bundle:
    bundle = Bundle.open(folder)
    return Bundle(
        folder,
        dataclasses.replace(bundle.spec, relevance=CALIBRATED, defaults=Defaults(fusion="logit_add", weight=2.0)),
    )


def test_each_result_has_the_relevance_of_its_stage(tiny_bundle: Path, tmp_path: Path) -> None:
    bundle = calibrated(tiny_bundle)
    pixels = np.random.default_rng(0).standard_normal((12, 3, 32, 32)).astype(np.float32)
    items = bundle.encode_images(pixels)
    assert items.fragments is not None
    assert items.states is not None
    store = LocalStore.open(tmp_path / "s", Shape(16, 8, items.states.shape[2]), write=True)
    store.add(np.arange(12), items)
    run = cascade(bundle, store).run
    found = run(SearchOptions("a dog", k=12, rerank=4))
    expected = np.concatenate(
        [relevance(found.candidates.scores[:4], CALIBRATED["match"]),
         relevance(found.candidates.scores[4:], CALIBRATED["embed"])]
    )  # fmt: skip
    assert found.relevances is not None
    np.testing.assert_allclose(found.relevances, np.minimum.accumulate(expected))
    other = run(SearchOptions("a dog", k=12, rerank=4, fusion="ce"))
    assert other.relevances is not None, "scores joined in another way have no calibration: cosines stand in"
    assert other.relevances[0] == pytest.approx(relevance(other.candidates.embed[:1], CALIBRATED["embed"])[0])
    assert run(SearchOptions(image=PIXEL)).relevances is None
    assert cascade(bundle, store, "texts").run(SearchOptions("a dog")).relevances is None
    both = run(SearchOptions("a dog", PIXEL, 0.4, k=12, rerank=4))
    assert both.relevances is not None
    assert both.relevances[0] == pytest.approx(relevance(both.candidates.fit[:1], CALIBRATED["match"])[0])
    assert both.candidates.fit[0] != both.candidates.scores[0]
    store.close()
