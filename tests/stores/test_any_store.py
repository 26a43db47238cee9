"""What every store promises, whichever engine keeps it."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from sightline.bundle.encoded import Encoded
from sightline.errors import StoreError
from sightline.stores.base import Ids, PaddedVectors, Part, Shape, Store
from stores.places import Place
from stores.plain import SHAPE, Plain, check_found, items, queries

Factory = Callable[[], Place]
some_ids = st.lists(st.integers(0, 60), unique=True, max_size=12).map(lambda ids: np.array(ids, dtype=np.int64))


class Life(RuleBasedStateMachine):
    """A store goes through anything that may happen to it, and is compared with a dict at every step."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self.place = place

    @initialize()
    def begin(self) -> None:
        self.store, self.plain, self.flushed = self.place.open(SHAPE), Plain(), Plain()

    @rule(ids=some_ids)
    def add(self, ids: Ids) -> None:
        new = np.array([number for number in ids.tolist() if number not in self.plain.vectors], dtype=np.int64)
        self.store.add(*items(new))
        self.plain.add(*items(new))

    @rule(ids=some_ids)
    def add_what_is_there(self, ids: Ids) -> None:
        if any(number in self.plain.vectors for number in ids.tolist()):
            with pytest.raises(StoreError, match="already"):
                self.store.add(*items(ids))

    @rule(ids=some_ids)
    def delete(self, ids: Ids) -> None:
        self.store.delete(ids)
        self.plain.delete(ids)

    @rule()
    def flush(self) -> None:
        self.store.flush()
        self.flush_is_done()

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.flush_is_done()
        self.store = self.place.open(SHAPE)

    @rule()
    def compact(self) -> None:
        self.store.compact()
        self.flush_is_done()

    @rule()
    def crash(self) -> None:
        left = self.place.after_crash(SHAPE)
        if left is not None:
            check_whole(left, self.flushed)
            left.close()

    @rule(seed=st.integers(0, 99), count=st.integers(0, 3), k=st.integers(1, 70), where=st.none() | some_ids)
    def search(self, seed: int, count: int, k: int, where: Ids | None) -> None:
        asked = queries(seed, count)
        check_found(self.store.search(asked, k, where), self.plain, asked, k, where, self.place.tolerance)

    @rule(seed=st.integers(0, 99))
    def fetch(self, seed: int) -> None:
        check_whole(self.store, self.plain, seed)

    @invariant()
    def has_the_right_ids(self) -> None:
        if hasattr(self, "store"):
            assert self.store.ids().tolist() == sorted(self.plain.vectors)
            assert self.store.stats().items == len(self.plain.vectors)

    def flush_is_done(self) -> None:
        self.flushed = Plain(dict(self.plain.vectors))

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()


def check_whole(store: Store, plain: Plain, seed: int = 0) -> None:
    """Assert that a store holds exactly the items of a dict, with all their vectors."""
    assert store.ids().tolist() == sorted(plain.vectors)
    ids, encoded = items(np.random.default_rng(seed).permutation(store.ids()))
    wanted = np.array([plain.vectors[number] for number in ids.tolist()]).reshape(-1, SHAPE.embedding)
    got = store.fetch(ids, "embedding")
    assert got.mask.all()
    np.testing.assert_allclose(got.values[:, 0], wanted, atol=1e-3)
    check_part(store.fetch(ids, "fragments"), encoded.fragments, encoded.mask)
    check_part(store.fetch(ids, "states"), encoded.states, encoded.mask)
    check_rows(store, ids, seed)


def check_rows(store: Store, ids: Ids, seed: int) -> None:
    """Assert that what is read as it is kept is what is fetched, also where only the first of each item are read."""
    fetched, first = store.fetch(ids, "fragments"), (None, 1, 2, 9)[seed % 4]
    mask = fetched.mask & (np.arange(fetched.mask.shape[1]) < (first or 9))
    rows = store.rows(ids, "fragments", first)
    assert rows.values.dtype == np.int8
    assert rows.lengths.tolist() == mask.sum(axis=1).tolist()
    np.testing.assert_allclose(rows.values * rows.scales[:, None], fetched.values[mask], rtol=1e-6)


def check_part(got: PaddedVectors, wanted: np.ndarray, mask: np.ndarray) -> None:
    longest = int(mask.sum(axis=1).max(initial=0))
    np.testing.assert_array_equal(got.mask, mask[:, :longest])
    assert not got.values[~got.mask].any()
    vectors, right = got.values[got.mask], wanted[mask]
    assert vectors.shape == right.shape
    allowed = np.abs(right).max(axis=1, keepdims=True) / 254 * 1.0001 + 1e-7 * np.abs(right)
    assert (np.abs(vectors - right) <= allowed).all()


def test_a_store_does_what_a_dict_does_whatever_happens_to_it(store_factory: Factory) -> None:
    lives = store_factory().lives
    quick = settings(
        max_examples=lives,
        stateful_step_count=30,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
        phases=list(Phase) if lives > 50 else [Phase.generate],  # a server is too slow to look for a shorter life
    )
    run_state_machine_as_test(lambda: Life(store_factory()), settings=quick)


@pytest.fixture
def store(store_factory: Factory) -> Iterator[Store]:
    store = store_factory().open(SHAPE)
    yield store
    store.close()


def test_an_empty_store_finds_nothing(store: Store) -> None:
    found = store.search(queries(0, 2), 3)
    assert found.ids.tolist() == [[-1] * 3] * 2
    assert (found.scores == -np.inf).all()
    assert store.search(queries(0, 2), 3, np.array([1, 2])).ids.tolist() == [[-1] * 3] * 2
    assert store.stats().items == 0
    assert store.fetch(np.zeros(0, dtype=np.int64), "states").values.shape == (0, 0, SHAPE.states)


def test_rows_that_cannot_be_read_are_refused(store: Store) -> None:
    store.add(*items(range(5)))
    with pytest.raises(StoreError, match="id 9 does not exist"):
        store.rows(np.array([1, 9]), "fragments")
    with pytest.raises(StoreError, match="first 0"):
        store.rows(np.array([1]), "fragments", 0)
    with pytest.raises(StoreError, match="are not quantised"):
        store.rows(np.array([1]), "embedding")
    assert store.rows(np.zeros(0, dtype=np.int64), "states").values.shape == (0, SHAPE.states)


def test_no_queries_have_no_answers(store: Store) -> None:
    store.add(*items(range(5)))
    assert store.search(queries(0, 0), 3).ids.shape == (0, 3)


def test_a_filter_that_allows_nothing_finds_nothing(store: Store) -> None:
    store.add(*items(range(5)))
    assert store.search(queries(0, 1), 2, np.zeros(0, dtype=np.int64)).ids.tolist() == [[-1, -1]]
    assert store.search(queries(0, 1), 2, np.array([77])).ids.tolist() == [[-1, -1]]


def test_equal_items_come_in_the_order_of_their_ids(store: Store) -> None:
    ids = np.random.default_rng(0).permutation(1500)
    vector = queries(1, 1)
    for some in np.array_split(ids, 7):
        store.add(some, with_embedding(np.repeat(vector, len(some), axis=0)))
    assert store.search(vector, 1500).ids[0].tolist() == list(range(1500))
    assert store.search(vector, 5).ids[0].tolist() == [0, 1, 2, 3, 4]


def test_two_adds_answer_like_one(store_factory: Factory) -> None:
    one, two = store_factory().open(SHAPE), store_factory().open(SHAPE)
    ids = np.arange(300)
    one.add(*items(ids))
    for some in np.array_split(ids, 11):
        two.add(*items(some))
    for a, b in zip(one.search(queries(3, 20), 10), two.search(queries(3, 20), 10), strict=True):
        np.testing.assert_array_equal(a, b)
    one.close()
    two.close()


def test_filters_hold_after_reopening(store_factory: Factory) -> None:
    place, plain = store_factory(), Plain()
    store = place.open(SHAPE)
    store.add(*items(range(200)))
    plain.add(*items(range(200)))
    store.close()
    store = place.open(SHAPE)
    where, asked = np.arange(3, 190, 3), queries(5, 4)
    check_found(store.search(asked, 7, where), plain, asked, 7, where, place.tolerance)
    store.close()


def test_queries_of_any_length_are_cosines(store: Store) -> None:
    store.add(*items(range(20)))
    once, more = store.search(queries(2, 3), 5), store.search(7 * queries(2, 3), 5)
    np.testing.assert_array_equal(once.ids, more.ids)
    np.testing.assert_allclose(once.scores, more.scores, atol=1e-6)


BROKEN = [np.nan, np.inf, -np.inf]


@pytest.mark.parametrize("number", BROKEN)
def test_vectors_that_are_not_finite_are_refused(store: Store, number: float) -> None:
    ids, encoded = items([1, 2, 3])
    encoded.embedding[1, 4] = number
    with pytest.raises(StoreError, match="embedding: a vector contains a number that is not finite"):
        store.add(ids, encoded)
    ids, encoded = items([1, 2, 3])
    assert encoded.states is not None
    encoded.states[1, 0, 1] = number
    with pytest.raises(StoreError, match="states: a vector"):
        store.add(ids, encoded)
    with pytest.raises(StoreError, match="not finite"):
        store.search(np.full((1, SHAPE.embedding), number, dtype=np.float32), 3)
    assert store.ids().tolist() == []


def test_a_vector_without_a_direction_is_refused(store: Store) -> None:
    with pytest.raises(StoreError, match="all zeros"):
        store.add(np.array([1]), with_embedding(np.zeros((1, SHAPE.embedding), dtype=np.float32)))
    with pytest.raises(StoreError, match="all zeros"):
        store.search(np.zeros((1, SHAPE.embedding), dtype=np.float32), 1)


def test_vectors_of_another_width_are_refused(store: Store) -> None:
    wrong = [Shape(11, 5, 3), Shape(12, 6, 3), Shape(12, 5, 2)]
    for shape in wrong:
        with pytest.raises(StoreError, match="shape"):
            store.add(*items([1, 2, 3], shape))
    with pytest.raises(StoreError, match="shape"):
        store.search(queries(0, 1, dim=13), 3)
    with pytest.raises(StoreError, match="shape"):
        store.search(queries(0, 1)[0], 3)
    assert store.ids().tolist() == []


def test_items_without_a_part_that_is_kept_are_refused(store: Store) -> None:
    ids, encoded = items([1, 2])
    with pytest.raises(StoreError, match="have no states"):
        store.add(ids, Encoded(encoded.embedding, encoded.mask, encoded.fragments))


def test_parts_that_are_not_kept_are_left_out(store_factory: Factory) -> None:
    store = store_factory().open(Shape(SHAPE.embedding))
    store.add(*items([1, 2, 3]))
    assert store.fetch(np.array([3, 1]), "embedding").values.shape == (2, 1, SHAPE.embedding)
    with pytest.raises(StoreError, match="has no states"):
        store.fetch(np.array([1]), "states")
    store.close()


@pytest.mark.parametrize("part", ["embedding", "fragments", "states"])
def test_what_is_not_there_cannot_be_fetched(store: Store, part: Part) -> None:
    store.add(*items([1, 2]))
    store.delete(np.array([2]))
    for missing in (2, 3):
        with pytest.raises(StoreError, match=f"id {missing} does not exist"):
            store.fetch(np.array([1, missing]), part)


def test_ids_are_whole_numbers_from_zero_each_once(store: Store) -> None:
    _, encoded = items([1, 2])
    for wrong in ([1, 1], [-1, 2], [0.5, 1.5], [[1], [2]], [1]):
        with pytest.raises(StoreError, match="id"):
            store.add(np.array(wrong), encoded)
    assert store.ids().tolist() == []


def test_at_least_one_result_is_asked_for(store: Store) -> None:
    with pytest.raises(StoreError, match="at least 1"):
        store.search(queries(0, 1), 0)


def with_embedding(embedding: np.ndarray) -> Encoded:
    _, encoded = items(range(len(embedding)))
    return Encoded(embedding, encoded.mask, encoded.fragments, encoded.states)
