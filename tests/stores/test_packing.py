import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sightline.bundle.encoded import Encoded
from sightline.stores.base import Shape
from sightline.stores.packing import pack, unit, unpack

numbers = st.floats(-(2.0**100), 2.0**100, width=32)
batches = hnp.arrays(np.float32, hnp.array_shapes(min_dims=3, max_dims=3, max_side=6), elements=numbers)


@settings(deadline=None)
@given(batch=batches, seed=st.integers(0, 100))
def test_a_part_comes_back_within_half_a_step_of_127(batch: np.ndarray, seed: int) -> None:
    mask = np.random.default_rng(seed).random(batch.shape[:2]) < 0.6
    encoded = Encoded(np.ones((len(batch), 4), dtype=np.float32), mask, fragments=batch)
    packed = pack(np.arange(len(batch)), encoded, Shape(4, batch.shape[2]))
    assert packed.lengths.tolist() == mask.sum(axis=1).tolist()
    real = batch[mask]
    step = np.abs(real).max(axis=1, initial=0, keepdims=True) / 127
    error = np.abs(unpack(packed.parts["fragments"]) - real)
    slack = 127 * np.finfo(np.float32).tiny  # a step that is too small for an ordinary number is a coarse one
    assert (error <= step * 0.50001 + slack).all()


def test_what_is_kept_of_a_fragment_is_a_byte_a_number() -> None:
    encoded = Encoded(np.ones((1, 4), dtype=np.float32), np.ones((1, 49), dtype=np.bool_), np.ones((1, 49, 128)))
    packed = pack(np.array([0]), encoded, Shape(4, 128))
    assert packed.parts["fragments"].nbytes == 49 * (128 + 4)


@settings(deadline=None)
@given(hnp.arrays(np.float32, (3, 5), elements=numbers.filter(lambda x: abs(x) > 1e-30)))
def test_embeddings_of_any_length_become_unit_vectors(vectors: np.ndarray) -> None:
    np.testing.assert_allclose(np.linalg.norm(unit(vectors, 5), axis=1), 1, atol=1e-6)
