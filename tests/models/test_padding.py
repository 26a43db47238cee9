"""Padding never changes an output: a property of every model."""

import functools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tiny
from sightline.models import Regions, Tokens
from sightline.models.heads import last_real, masked_mean
from sightline.models.retriever import Retriever

LENGTHS = st.lists(st.integers(1, 8), min_size=1, max_size=4)
CONFIGS = {**tiny.PIXEL_MODELS, **tiny.INFLATED_MODELS, **tiny.RELATED_MODELS}


@functools.cache
def model_of(name: str, kind: str = "pixels") -> Retriever:
    """Made when it is needed, not while tests are collected, which every process does."""
    return tiny.retriever(CONFIGS[name] if kind == "pixels" else tiny.REGION_MODELS[name])


def texts(lengths: list[int], seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(2, len(tiny.WORDS), (n,), generator=generator) for n in lengths]


def padded(rows: list[torch.Tensor], width: int, fill: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Stack rows [n, …] padded with `fill` to `width`, and their mask."""
    out = torch.full((len(rows), width, *rows[0].shape[1:]), fill, dtype=rows[0].dtype)
    mask = torch.zeros(len(rows), width, dtype=torch.bool)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
        mask[i, : len(row)] = True
    return out, mask


@pytest.mark.parametrize("name", CONFIGS)
@settings(max_examples=10, deadline=None)
@given(lengths=LENGTHS, extra=st.integers(0, 4), fill=st.integers(0, len(tiny.WORDS) - 1), seed=st.integers(0, 99))
@torch.inference_mode()
def test_a_text_in_a_padded_batch_is_encoded_and_matched_as_alone(
    name: str, lengths: list[int], extra: int, fill: int, seed: int
) -> None:
    model, rows = model_of(name), texts(lengths, seed)
    image = model.encode_images(torch.randn(len(rows), 3, 32, 32, generator=torch.Generator().manual_seed(seed)))
    ids, mask = padded(rows, max(lengths) + extra, fill)
    batch = model.encode_texts(Tokens(ids, mask))
    for i, row in enumerate(rows):
        alone = model.encode_texts(Tokens(row[None], torch.ones(1, len(row), dtype=torch.bool)))
        torch.testing.assert_close(batch.embedding[i], alone.embedding[0], atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(batch.fragments[i][batch.mask[i]], alone.fragments[0], atol=1e-5, rtol=1e-4)
        if "match" in model.abilities:
            assert batch.states is not None
            assert alone.states is not None
            assert image.states is not None
            torch.testing.assert_close(batch.states[i][batch.mask[i]], alone.states[0], atol=1e-5, rtol=1e-4)
            together = model.match(batch.states, batch.mask, image.states, image.mask)[i]
            apart = model.match(alone.states, alone.mask, image.states[i : i + 1], image.mask[i : i + 1])[0]
            torch.testing.assert_close(together, apart, atol=1e-5, rtol=1e-4)
            shown = [part[i : i + 1].expand(len(rows), *part.shape[1:]) for part in (image.states, image.mask)]
            every = model.match_all(batch.states, batch.mask, image.states, image.mask)
            torch.testing.assert_close(every[:, i], model.match(batch.states, batch.mask, *shown), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", tiny.REGION_MODELS)
@settings(max_examples=10, deadline=None)
@given(lengths=LENGTHS, extra=st.integers(0, 4), fill=st.floats(-9, 9), seed=st.integers(0, 99))
@torch.inference_mode()
def test_regions_in_a_padded_batch_are_encoded_and_matched_as_alone(
    name: str, lengths: list[int], extra: int, fill: float, seed: int
) -> None:
    model, generator = model_of(name, "regions"), torch.Generator().manual_seed(seed)
    rows = [torch.randn(n, 16, generator=generator) for n in lengths]
    both, mask = padded(rows, max(lengths) + extra, fill)
    batch = model.encode_images(Regions(both[..., :10], both[..., 10:], mask))
    ids = texts([5], seed)[0][None]
    text = model.encode_texts(Tokens(ids, torch.ones_like(ids, dtype=torch.bool)))
    assert text.states is not None
    assert batch.states is not None
    for i, row in enumerate(rows):
        full = torch.ones(1, len(row), dtype=torch.bool)
        alone = model.encode_images(Regions(row[None, :, :10], row[None, :, 10:], full))
        assert alone.states is not None
        torch.testing.assert_close(batch.embedding[i], alone.embedding[0], atol=1e-5, rtol=1e-4)
        own = alone.fragments[0][alone.mask[0]]
        torch.testing.assert_close(batch.fragments[i][batch.mask[i]], own, atol=1e-5, rtol=1e-4)
        together = model.match(text.states, text.mask, batch.states[i : i + 1], batch.mask[i : i + 1])
        apart = model.match(text.states, text.mask, alone.states, alone.mask)
        torch.testing.assert_close(together, apart, atol=1e-5, rtol=1e-4)
        every = model.match_all(text.states, text.mask, batch.states, batch.mask)
        torch.testing.assert_close(every[:, i], apart, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", tiny.REGION_MODELS)
@torch.inference_mode()
def test_every_real_region_matters_and_so_does_its_box(name: str) -> None:
    model = model_of(name, "regions")
    regions = torch.randn(1, 4, 16, generator=torch.Generator().manual_seed(0)).repeat(3, 1, 1)
    regions[1, 3, :10] += 3
    regions[2, 3, 10:] += 3
    encoded = model.encode_images(Regions(regions[..., :10], regions[..., 10:], torch.ones(3, 4, dtype=torch.bool)))
    for changed in (1, 2):
        assert (encoded.embedding[0] - encoded.embedding[changed]).abs().max() > 1e-4


@pytest.mark.parametrize("name", CONFIGS)
@torch.inference_mode()
def test_every_real_word_matters(name: str) -> None:
    """The other side of padding: a mask that hides real words would pass the tests above."""
    model = model_of(name)
    ids = texts([6], 1)[0][None].repeat(2, 1)
    ids[1, 4] = (ids[1, 4] + 7) % len(tiny.WORDS)
    encoded = model.encode_texts(Tokens(ids, torch.ones_like(ids, dtype=torch.bool)))
    assert (encoded.embedding[0] - encoded.embedding[1]).abs().max() > 1e-3


def test_pooling_reads_the_true_places_of_the_mask_and_no_others() -> None:
    values = torch.tensor([[[1.0], [3.0], [100.0]], [[5.0], [-9.0], [-9.0]]])
    mask = torch.tensor([[True, True, False], [True, False, False]])
    assert masked_mean(values, mask).tolist() == [[2.0], [5.0]]
    assert last_real(values, mask).tolist() == [[3.0], [5.0]]
