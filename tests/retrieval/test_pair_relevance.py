"""Relevance belongs to a pair: whatever else is in a collection, passes a filter or is found beside it."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from retrieval.made_up import PIXEL
from sightline.bundle import Bundle, Encoded
from sightline.bundle.model import Calibration
from sightline.bundle.relevance_formula import PairRelevance
from sightline.retrieval import duplicates, first_stage, late
from sightline.retrieval.cascade import Cascade, Ranking
from sightline.retrieval.costs import Costs
from sightline.retrieval.first_stage import Scope
from sightline.retrieval.options import SearchOptions
from sightline.retrieval.query import Query
from sightline.retrieval.results import Hit, SearchResult
from sightline.stores.base import Shape
from sightline.stores.local import LocalStore

FITTED = PairRelevance({"cosine": 4.0, "length": -0.5, "bias": -0.5}, line=0.4)
TEXT = "a red ball"


@pytest.fixture
def fitted(tiny_bundle: Path) -> Bundle:
    opened = Bundle.open(tiny_bundle)
    return Bundle(tiny_bundle, dataclasses.replace(opened.spec, relevance=FITTED, words="a ball red dog"))


@pytest.fixture
def items(fitted: Bundle) -> Encoded:
    """2,000 items: 20 that the model encoded, and many like them."""
    pixels = np.random.default_rng(0).standard_normal((20, 3, 32, 32)).astype(np.float32)
    real, rng = fitted.encode_images(pixels), np.random.default_rng(1)
    rows = np.concatenate([np.arange(20), rng.integers(0, 20, 1980)])
    noise = rng.standard_normal((2000, real.embedding.shape[1])).astype(np.float32)
    noise[:20] = 0
    embedding = real.embedding[rows] + noise
    embedding /= np.linalg.norm(embedding, axis=1, keepdims=True)
    assert real.fragments is not None
    assert real.states is not None
    return Encoded(embedding, real.mask[rows], real.fragments[rows], real.states[rows])


def cascade_over(bundle: Bundle, items: Encoded, count: int, folder: Path) -> Cascade:
    assert items.fragments is not None
    assert items.states is not None
    some = Encoded(items.embedding[:count], items.mask[:count], items.fragments[:count], items.states[:count])
    shape = Shape(some.embedding.shape[1], items.fragments.shape[2], items.states.shape[2])
    store = LocalStore.open(folder / f"s{count}", shape, write=True)
    store.add(np.arange(count), some)
    store.flush()
    return Cascade(bundle, store, "images", Costs("none"))


def of_item(found: Ranking, id: int) -> float:
    assert found.relevances is not None
    return float(found.relevances[found.candidates.ids.tolist().index(id)])


@pytest.mark.parametrize("options", [{"rerank": 0}, {"rerank": 5}, {"late": 8, "rerank": 0}, {"late": "all"}])
def test_a_pair_has_the_same_relevance_among_any_others(
    fitted: Bundle, items: Encoded, tmp_path: Path, options: dict[str, Any]
) -> None:
    asked = SearchOptions(TEXT, k=2000, **options)
    alone, some, many = (cascade_over(fitted, items, count, tmp_path) for count in (1, 20, 2000))
    expected = of_item(alone.run(asked), 0)
    assert of_item(some.run(asked), 0) == pytest.approx(expected, abs=1e-6)
    assert of_item(many.run(asked), 0) == pytest.approx(expected, abs=1e-6)
    assert of_item(many.run(asked, Scope(allowed=np.array([0, 7]))), 0) == pytest.approx(expected, abs=1e-6)
    assert of_item(many.run_together([TEXT, "a dog"], 2000)[0], 0) == pytest.approx(expected, abs=1e-6)


def test_what_is_not_wanted_lowers_the_relevance_of_a_pair_and_depends_on_nothing_else(
    fitted: Bundle, items: Encoded, tmp_path: Path
) -> None:
    asked = SearchOptions(TEXT, not_=("a dog",), k=2000, rerank=0)
    few, many = (cascade_over(fitted, items, count, tmp_path) for count in (20, 2000))
    lowered = of_item(few.run(asked), 3)
    assert lowered < of_item(few.run(SearchOptions(TEXT, k=2000, rerank=0)), 3)
    assert of_item(many.run(asked), 3) == pytest.approx(lowered, abs=1e-6)


@pytest.mark.parametrize("options", [{}, {"not_": "a dog"}, {"late": "all"}, {"late": "all", "not_": "a dog"}])
@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
def test_results_with_a_least_relevance_are_those_of_the_whole_list(
    fitted: Bundle, items: Encoded, tmp_path: Path, options: dict[str, Any], share: float
) -> None:
    """Unless nothing else is asked for, relevance does not fall from one result to the next."""
    many = cascade_over(fitted, items, 2000, tmp_path)
    whole = many.run(asked := SearchOptions(TEXT, k=2000, **{"rerank": 0, **options}))
    assert whole.relevances is not None
    least = float(np.quantile(whole.relevances, share))
    wanted = whole.at_least(least).candidates.ids
    for k in (1, 10, 40):
        found = many.run(dataclasses.replace(asked, k=k, min_relevance=least)).at_least(least).candidates.ids
        assert found[:k].tolist() == wanted[:k].tolist()
        reranked = many.run(dataclasses.replace(asked, k=k, min_relevance=least, rerank=k)).candidates.ids
        assert sorted(reranked.tolist()) == sorted(wanted[:k].tolist()), "only relevant items are reranked"


@pytest.mark.parametrize("options", [{}, {"not_": "a dog"}, {"late": "all", "not_": "a dog"}])
def test_a_search_with_a_least_relevance_that_no_item_has_examines_hardly_more(
    fitted: Bundle, items: Encoded, tmp_path: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    many = cascade_over(fitted, items, 2000, tmp_path)
    examined: list[int] = []
    searched: list[object] = []
    fold, search = duplicates.folded, LocalStore.search
    for module in (first_stage, late):
        monkeypatch.setattr(module, "folded", lambda some, *given: examined.append(len(some)) or fold(some, *given))
    monkeypatch.setattr(LocalStore, "search", lambda *given: searched.append(given) or search(*given))
    asked = SearchOptions(TEXT, k=10, rerank=0, min_relevance=0.9999, **options)
    found = many.run(asked, Scope(fold=True))
    whole = many.run(dataclasses.replace(asked, k=2000, min_relevance=None))
    assert not len(found.candidates)
    assert whole.best_relevance is not None
    assert found.best_relevance is not None
    assert 0.9999 > found.best_relevance > 0.5 * whole.best_relevance
    assert sum(examined) == 0
    assert len(searched) <= 2, "one for each of the two"


def test_a_blank_image_is_never_relevant_enough(fitted: Bundle, items: Encoded, tmp_path: Path) -> None:
    few = cascade_over(fitted, items, 20, tmp_path)
    asked = SearchOptions(TEXT, k=20, rerank=0)
    first, second = few.run(asked).candidates.ids[:2].tolist()
    without = Scope(blank=lambda ids: {first}.intersection(ids))
    found = few.run(dataclasses.replace(asked, min_relevance=0.01), without)
    assert found.candidates.ids[0] == second
    assert first not in found.candidates.ids
    assert found.best_relevance == of_item(found, second)


def test_relevance_that_is_higher_for_items_of_the_fast_graph_is_found_further_down(
    fitted: Bundle, items: Encoded, quick_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = cascade_over(fitted, items, 2000, tmp_path)
    whole = many.run(SearchOptions(TEXT, k=2000, rerank=0))
    fast = whole.candidates.ids[500:1500:7]
    spec = Bundle.open(quick_bundle).spec
    quick = Bundle(quick_bundle, dataclasses.replace(spec, relevance=FITTED, words="a ball red dog"))
    monkeypatch.setattr(LocalStore, "fast_ids", lambda _, ids: np.intersect1d(ids, fast))
    generous = PairRelevance({"cosine": 4.0, "bias": 6.0})
    both = dataclasses.replace(many, model=quick, fast_relevance=generous)
    assert whole.best_relevance is not None
    least = whole.best_relevance + 1e-3
    for found in (
        both.run(SearchOptions(TEXT, k=10, rerank=0, min_relevance=least)),
        both.run_together(["a dog", TEXT], 10, min_relevance=least)[1],
    ):
        assert found.candidates.ids.tolist() == fast[:10].tolist()
        assert found.relevances is not None
        assert found.relevances.min() > least


def test_queries_with_an_image_have_no_relevance(fitted: Bundle, items: Encoded, tmp_path: Path) -> None:
    few, image = cascade_over(fitted, items, 20, tmp_path), PIXEL
    for asked in (SearchOptions(image=image), SearchOptions(TEXT, image=image)):
        found = few.run(asked)
        assert (found.relevances, found.best_relevance, found.line) == (None, None, None)


def test_a_blank_image_comes_last_and_shows_nothing(fitted: Bundle, items: Encoded, tmp_path: Path) -> None:
    few = cascade_over(fitted, items, 20, tmp_path)
    found = few.run(SearchOptions(TEXT, k=20, rerank=0), Scope(blank=lambda ids: {3}.intersection(ids)))
    assert found.candidates.ids[-1] == 3
    assert of_item(found, 3) == 0
    assert of_item(found, 4) > 0
    assert of_item(few.run_together([TEXT], 20, Scope(blank=lambda ids: {3}.intersection(ids)))[0], 3) == 0


def test_blank_images_are_asked_for_once_per_search(fitted: Bundle, items: Encoded, tmp_path: Path) -> None:
    asked: list[Sequence[int]] = []

    def blank(ids: Sequence[int]) -> set[int]:
        asked.append(ids)
        return {3}.intersection(ids)

    cascade_over(fitted, items, 20, tmp_path).run(SearchOptions(TEXT, k=5, rerank=3), Scope(blank=blank))
    assert len(asked) == 1


def test_a_least_relevance_keeps_every_result_that_has_it(fitted: Bundle, items: Encoded, tmp_path: Path) -> None:
    found = cascade_over(fitted, items, 20, tmp_path).run(SearchOptions(TEXT, k=20, rerank=5))
    assert found.relevances is not None
    least = float(np.median(found.relevances))
    kept = found.at_least(least)
    assert kept.candidates.ids.tolist() == found.candidates.ids[found.relevances >= least].tolist()
    assert found.best_relevance == found.relevances.max()


def hit(rank: int, relevance: float | None) -> Hit:
    return Hit(rank, rank, f"{rank}.jpg", Path(f"/x/{rank}.jpg"), Path("/x"), 1.0 - rank / 10, relevance, "embed")


def test_results_are_matches_from_the_line_on() -> None:
    hits = (hit(1, 0.9), hit(2, 0.3), hit(3, 0.4))
    result = SearchResult(Query("a dog"), hits, best_relevance=0.9, line=0.4, did_you_mean="a dog")
    assert [one.rank for one in result.matches] == [1, 3]
    assert [one.rank for one in result.rest] == [2]
    told = result.to_json()
    assert (told["line"], told["matches"], told["did_you_mean"]) == (0.4, 2, "a dog")
    assert "relevance_kind" not in told


def test_an_older_bundle_says_that_its_relevance_is_of_the_older_kind() -> None:
    result = SearchResult(Query("a dog"), (hit(1, 0.2),), best_relevance=0.2)
    assert result.is_older_kind
    assert result.to_json()["relevance_kind"] == "older"
    assert len(result.matches) == 1
    unknown = SearchResult(Query("a dog"), (hit(1, None),))
    assert not unknown.is_older_kind


def test_a_search_with_an_older_bundle_is_of_the_older_kind(tiny_bundle: Path, items: Encoded, tmp_path: Path) -> None:
    opened = Bundle.open(tiny_bundle)
    older = Bundle(tiny_bundle, dataclasses.replace(opened.spec, relevance={"embed": Calibration(3.0, -1.0)}))
    found = cascade_over(older, items, 20, tmp_path).run(SearchOptions(TEXT, rerank=0))
    assert found.relevances is not None
    assert found.line is None
