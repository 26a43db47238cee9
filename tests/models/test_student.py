"""Students: shapes, unit lengths, padding, and patches as a product."""

import pytest
import torch
from torch.nn import functional as F
from transformers import BertConfig, BertModel, ViTConfig, ViTModel

from sightline.models.student import (
    ImageStudent,
    PatchProduct,
    StudentShape,
    TextStudent,
    area_means,
    resized_projection,
)

SHAPE = StudentShape(embedding=12, fragments=6, states=10)


@pytest.fixture
def image_student() -> ImageStudent:
    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, patch_size=8, image_size=32
    )
    return ImageStudent(ViTModel(config, add_pooling_layer=False), SHAPE).eval()


@pytest.fixture
def text_student() -> TextStudent:
    torch.manual_seed(0)
    config = BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32)
    return TextStudent(BertModel(config, add_pooling_layer=False), SHAPE).eval()


def test_an_image_student_has_the_outputs_of_a_bundle(image_student: ImageStudent) -> None:
    out = image_student(torch.randn(3, 3, 32, 32))
    assert [tuple(part.shape) for part in out] == [(3, 12), (3, 16, 6), (3, 16, 10)]
    for part in (out.embedding, out.fragments):
        torch.testing.assert_close(part.norm(dim=-1), torch.ones(part.shape[:-1]))


def test_larger_images_have_more_patches_but_as_many_parts(image_student: ImageStudent) -> None:
    torch.manual_seed(0)
    config = image_student.encoder.config
    larger = ImageStudent(ViTModel(config, add_pooling_layer=False), SHAPE, size=48, rows=4).eval()
    larger.load(image_student.state_dict())
    assert larger.encoder.embeddings.position_embeddings.shape[1] == 1 + 6 * 6
    out = larger(torch.randn(3, 3, 48, 48))
    assert [tuple(part.shape) for part in out] == [(3, 12), (3, 16, 6), (3, 16, 10)]
    same = ImageStudent(ViTModel(config, add_pooling_layer=False), SHAPE, size=32, rows=4).eval()
    same.load(image_student.state_dict())
    pixels = torch.randn(2, 3, 32, 32)
    for found, expected in zip(same(pixels), image_student(pixels), strict=True):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("side", [7, 5, 16])
def test_resized_patches_of_a_resized_image_have_the_same_vectors(side: int) -> None:
    torch.manual_seed(0)
    weight = torch.randn(5, 3, 7, 7)
    resized = resized_projection(weight.flatten(1), side).view(5, 3, side, side)
    small = torch.randn(1, 3, min(side, 7), min(side, 7))
    large = F.interpolate(small, size=(max(side, 7),) * 2, mode="bicubic")
    original, other = (large, small) if side < 7 else (small, large)
    expected = F.conv2d(original, weight)
    torch.testing.assert_close(F.conv2d(other, resized), expected, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize(("rows", "cells"), [(4, 4), (9, 7), (6, 3), (3, 5)])
def test_cells_of_equal_area_cover_a_grid(rows: int, cells: int) -> None:
    weights = area_means(rows, cells)
    torch.testing.assert_close(weights.sum(1), torch.ones(cells**2))
    torch.testing.assert_close(weights.sum(0), torch.full((rows**2,), cells**2 / rows**2))
    across = torch.linspace(0, 1, 2 * rows + 1)[1::2].expand(rows, rows)  # the middle of each column
    middles = torch.linspace(0, 1, 2 * cells + 1)[1::2].expand(cells, cells)
    if rows % cells == 0:
        torch.testing.assert_close((weights @ across.flatten()).view(cells, cells), middles)


def test_patches_as_a_product_equal_the_convolution() -> None:
    torch.manual_seed(0)
    convolution = torch.nn.Conv2d(3, 5, 8, 8)
    pixels = torch.randn(2, 3, 32, 32)
    expected = convolution(pixels).flatten(2).transpose(1, 2)
    torch.testing.assert_close(PatchProduct(convolution)(pixels), expected)


def test_padding_does_not_change_a_text(text_student: TextStudent) -> None:
    ids = torch.tensor([[5, 6, 7]])
    alone = text_student(ids, torch.ones(1, 3, dtype=torch.bool))
    padded = text_student(torch.tensor([[5, 6, 7, 0, 0]]), torch.tensor([[True, True, True, False, False]]))
    torch.testing.assert_close(padded.embedding, alone.embedding)
    torch.testing.assert_close(padded.states[:, :3], alone.states)
    torch.testing.assert_close(padded.fragments[:, :3], alone.fragments)
