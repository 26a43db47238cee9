"""Students: shapes, unit lengths, padding, and patches as a product."""

import pytest
import torch
from transformers import BertConfig, BertModel, ViTConfig, ViTModel

from sightline.models.student import ImageStudent, PatchProduct, StudentShape, TextStudent

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
