"""Student graphs: a fast image graph, and a text graph for more languages, with int8 weights."""

from collections.abc import Sequence
from pathlib import Path

import onnx
import torch

from sightline.arrays import Float32Array
from sightline.bundle.tokenizer import Tokenizer
from sightline.models.student import ImageStudent, StudentOutput, TextStudent
from sightline.onnx_export.exporter import trace
from sightline.onnx_export.faster_operators import use_faster_operators
from sightline.onnx_export.quantize import quantize
from sightline.onnx_export.samples import image_samples


def write_image_graph(student: ImageStudent, images: Float32Array, folder: Path) -> Path:
    """Write `image.onnx` into a folder; images: about a hundred typical images, [images, 3, size, size]."""
    folder.mkdir(parents=True, exist_ok=True)
    size = images.shape[-1]
    with torch.inference_mode():
        trace(student.eval(), "image", {"pixels": torch.zeros(2, 3, size, size)}, list(StudentOutput._fields), folder)
    path = folder / "image.onnx"
    quantize(path, "", image_samples(images))
    model = onnx.load(path)
    use_faster_operators(model)
    onnx.save(model, path)
    return path


def write_text_graph(
    student: TextStudent, tokenizer: Tokenizer, texts: Sequence[str], folder: Path, four_bits: str = ""
) -> Path:
    """Write `text.onnx` and `tokenizer.json` into a folder.

    texts: a few hundred typical texts, used to round the weights. four_bits: as in `quantize`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tokens = tokenizer(list(texts[:2]))
    inputs = {"ids": torch.from_numpy(tokens.ids), "mask": torch.from_numpy(tokens.mask)}
    with torch.inference_mode():
        fields = list(StudentOutput._fields)
        trace(student.eval(), "text", inputs, fields, folder, most_words=tokenizer.max_length)
    samples = [{"ids": one.ids, "mask": one.mask} for one in (tokenizer([text]) for text in texts)]
    quantize(folder / "text.onnx", four_bits, samples, fixed_ranges=False)
    tokenizer.save(folder / "tokenizer.json")
    return folder / "text.onnx"
