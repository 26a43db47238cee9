"""The plainest store there could be, a dict, and made-up items: what every real store is compared with."""

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from sightline.arrays import Float32Array
from sightline.bundle.encoded import Encoded
from sightline.stores.base import Ids, Neighbors, Shape

SHAPE = Shape(embedding=12, fragments=5, states=3)
LONGEST = 3


def items(ids: npt.ArrayLike, shape: Shape = SHAPE) -> tuple[Ids, Encoded]:
    """Made-up items, each a function of its id alone, so that anyone can tell later whether it is whole.

    Numbers are few and small, so that many cosines are equal; every seventh embedding is the same. Items have from
    none to three fragments.
    """
    numbers = np.asarray(ids, dtype=np.int64)
    embedding = np.empty((len(numbers), shape.embedding), dtype=np.float32)
    mask = np.arange(LONGEST) < (numbers % (LONGEST + 1))[:, None]
    fragments = np.full((len(numbers), LONGEST, shape.fragments), np.nan, dtype=np.float32)
    states = np.full((len(numbers), LONGEST, shape.states), np.nan, dtype=np.float32)
    for row, number in enumerate(numbers.tolist()):
        embedding[row], own_fragments, own_states = _item(number, shape)
        fragments[row, : len(own_fragments)], states[row, : len(own_states)] = own_fragments, own_states
    embedding /= np.linalg.norm(embedding, axis=1, keepdims=True)
    return numbers, Encoded(embedding, mask, fragments, states)


@lru_cache(maxsize=10_000)
def _item(number: int, shape: Shape) -> tuple[Float32Array, Float32Array, Float32Array]:
    """The embedding of an item before it is scaled, its fragments and its states."""
    rng = np.random.default_rng(number)
    embedding = np.random.default_rng(number % 7).integers(-2, 3, shape.embedding).astype(np.float32)
    embedding += rng.integers(0, 2, shape.embedding) * (number % 7 > 0)
    embedding[0] += 5
    length = number % (LONGEST + 1)
    fragments = rng.standard_normal((length, shape.fragments)).astype(np.float32)
    return embedding, fragments, (40 * rng.standard_normal((length, shape.states))).astype(np.float32)


def queries(seed: int, count: int, dim: int = SHAPE.embedding) -> Float32Array:
    vectors = np.random.default_rng(seed).integers(-2, 3, (count, dim)).astype(np.float32)
    vectors[:, 0] += 3
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@dataclass
class Plain:
    """Embeddings by id, and the search of a child."""

    vectors: dict[int, Float32Array] = field(default_factory=dict)

    def add(self, ids: Ids, encoded: Encoded) -> None:
        for number, vector in zip(ids.tolist(), encoded.embedding, strict=True):
            assert number not in self.vectors
            self.vectors[number] = vector.astype(np.float16).astype(np.float32)

    def delete(self, ids: Ids) -> None:
        for number in ids.tolist():
            self.vectors.pop(number, None)

    def cosines(self, query: Float32Array, where: Ids | None) -> dict[int, float]:
        allowed = self.vectors.keys() if where is None else self.vectors.keys() & set(where.tolist())
        return {number: float(self.vectors[number].astype(np.float64) @ query) for number in allowed}


def check_found(
    found: Neighbors, plain: Plain, asked: Float32Array, k: int, where: Ids | None, tolerance: float
) -> None:
    """Assert that an answer is the right one: the best scores, those of the ids they stand by, lower ids in a tie."""
    assert found.ids.shape == found.scores.shape == (len(asked), k)
    assert found.ids.dtype == np.int64
    assert found.scores.dtype == np.float32
    for ids, scores, query in zip(found.ids, found.scores, asked, strict=True):
        right = plain.cosines(query, where)
        count = min(k, len(right))
        assert (ids[count:] == -1).all()
        assert (scores[count:] == -np.inf).all()
        best = sorted(right.values(), reverse=True)[:count]
        np.testing.assert_allclose(scores[:count], best, atol=tolerance)
        np.testing.assert_allclose(scores[:count], [right[number] for number in ids[:count].tolist()], atol=tolerance)
        assert len(set(ids[:count].tolist())) == count
        _check_ties(ids[:count].tolist(), right, plain)


def _check_ties(ids: list[int], right: dict[int, float], plain: Plain) -> None:
    """Of items with the same vector, those with the lowest ids are found, in ascending order."""
    twins: dict[bytes, list[int]] = {}
    for number in sorted(right):
        twins.setdefault(plain.vectors[number].tobytes(), []).append(number)
    for same in twins.values():
        among = [number for number in ids if number in same]
        assert among == same[: len(among)]
