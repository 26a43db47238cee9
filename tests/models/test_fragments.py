"""Codes in a mask, and clusters of fragments."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

import tiny
from sightline.models import Regions
from sightline.models.fragments import clusters, mask_with_codes, mask_without_codes


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=1, max_size=4), count=st.integers(0, 3))
def test_codes_are_found_again_in_a_mask_with_padding_anywhere(rows: list[list[bool]], count: int) -> None:
    mask = torch.tensor(rows)
    longer = mask_with_codes(mask, count)
    assert longer.sum(1).tolist() == (mask.sum(1) + count).tolist()
    found = mask_without_codes(longer, count)
    assert found[:, :4].tolist() == rows
    assert not found[:, 4:].any()
    pressed = longer.sort(dim=1, descending=True, stable=True).values  # as a store gives them back: padding at the end
    assert mask_without_codes(pressed, count).sum(1).tolist() == mask.sum(1).tolist()


def literal(values: Tensor, count: int, rounds: int) -> Tensor:
    """K-means of one item's values [n, dim], by loops; gives the clusters' means."""
    points = F.normalize(values.double(), dim=-1)
    count, n = min(count, len(points)), len(points)
    seeds = [step * n // count for step in range(count)]
    centres = [points[seed] for seed in seeds]
    members: list[list[int]] = []
    for _ in range(rounds + 1):
        members = [[] for _ in range(count)]
        for i, point in enumerate(points):
            members[max(range(count), key=lambda c: (float(centres[c] @ point), -c))].append(i)
        members = [some or [seed] for some, seed in zip(members, seeds, strict=True)]
        centres = [F.normalize(points[some].sum(0), dim=0) for some in members]
    return torch.stack([values[some].mean(0) for some in members])


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=3),
    count=st.integers(1, 8),
    extra=st.integers(0, 3),
    seed=st.integers(0, 999),
)
def test_clusters_are_those_of_plain_k_means_whatever_the_padding(
    lengths: list[int], count: int, extra: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    width = max(lengths) + extra
    values = torch.randn(len(lengths), width, 4, generator=generator)
    order = torch.rand(len(lengths), width, generator=generator).argsort(1)  # what is real may stand anywhere
    mask = order < torch.tensor(lengths)[:, None]
    shares, real = clusters(values, count, mask)
    assert real.sum(1).tolist() == [min(count, n) for n in lengths]
    for i, row in enumerate(mask):
        torch.testing.assert_close((shares @ values)[i][real[i]], literal(values[i][row], count, 4))


def test_where_all_are_real_a_mask_makes_no_difference() -> None:
    values = torch.randn(3, 16, 8, generator=torch.Generator().manual_seed(0))
    with_mask, without = clusters(values, 5, torch.ones(3, 16, dtype=torch.bool)), clusters(values, 5)
    torch.testing.assert_close(with_mask[0], without[0])
    assert without[1].all()


def test_patches_that_look_alike_end_up_together_and_are_averaged() -> None:
    kinds = F.normalize(torch.randn(4, 32, generator=torch.Generator().manual_seed(1)), dim=-1)
    of_kind = torch.arange(4).repeat_interleave(4)
    values = kinds[of_kind] + 0.01 * torch.randn(16, 32, generator=torch.Generator().manual_seed(2))
    shares, _ = clusters(values[None], 4)
    torch.testing.assert_close((shares[0] > 0).int(), (of_kind == torch.arange(4)[:, None]).int())
    torch.testing.assert_close(shares[0].sum(1), torch.ones(4))
    torch.testing.assert_close((shares @ values)[0, 1], values[4:8].mean(0))


def test_a_cluster_sends_its_gradient_to_its_members_in_equal_parts() -> None:
    values = torch.randn(1, 12, 6, generator=torch.Generator().manual_seed(3)).requires_grad_()
    shares, _ = clusters(values, 3)
    (gradient,) = torch.autograd.grad((shares @ values)[0, 0].sum(), values)
    members = shares[0, 0] > 0
    torch.testing.assert_close(gradient[0, members], torch.full((int(members.sum()), 6), 1 / int(members.sum())))
    assert gradient[0, ~members].abs().sum() == 0


@pytest.mark.parametrize("count", [3, 40])
@torch.inference_mode()
def test_regions_are_clustered_before_the_transformer_reads_them(count: int) -> None:
    config = dataclasses.replace(tiny.REGION_MODEL, pool="kmeans", pool_to=count)
    features, boxes = torch.randn(2, 7, 10), torch.rand(2, 7, 6)
    mask = torch.tensor([[True] * 7, [True] * 5 + [False] * 2])
    encoded = tiny.retriever(config).encode_images(Regions(features, boxes, mask))
    assert encoded.fragments.shape == (2, count, 8)
    assert encoded.mask.sum(1).tolist() == [min(count, 7), min(count, 5)]
    if count >= 7:  # every region is a cluster of its own
        plain = tiny.retriever(tiny.REGION_MODEL).encode_images(Regions(features, boxes, mask))
        torch.testing.assert_close(encoded.embedding, plain.embedding, atol=1e-5, rtol=1e-4)
