"""Typical inputs of a bundle's graphs, for measuring ranges and rounding weights."""

from collections.abc import Sequence

import numpy as np
import torch

from sightline.arrays import Float32Array
from sightline.bundle.tokenizer import Tokenizer
from sightline.datasets import Record
from sightline.models.retriever import Retriever, Tokens
from sightline.onnx_export.observe import Sample


def image_samples(images: Float32Array | None) -> list[Sample]:
    """Return the inputs of the image graph, one for each image."""
    return [] if images is None else [{"pixels": image[None]} for image in images]


def caption_samples(
    records: Sequence[Record], languages: Sequence[str], tokenizer: Tokenizer, count: int = 1024
) -> list[Sample]:
    """Return the tokens of some captions, evenly spaced over the records: a record's first caption in each language."""
    captions = [some[0] for record in records for lang, some in record.captions.items() if some and lang in languages]
    chosen = np.linspace(0, len(captions), min(count, len(captions)), endpoint=False, dtype=np.int64)
    tokens = (tokenizer([captions[place]]) for place in chosen)
    return [{"ids": one.ids, "mask": one.mask} for one in tokens]


@torch.inference_mode()
def pair_samples(
    retriever: Retriever, texts: Sequence[Sample], images: Float32Array | None, most: int = 64, pairs: int = 256
) -> list[Sample]:
    """Return the inputs of the matcher: some texts, each with the most similar of a few images, as in reranking."""
    if images is None or not texts or not {"embed", "match"} <= retriever.abilities:
        return []
    seen = retriever.encode_images(torch.from_numpy(images[:most]))
    found: list[Sample] = []
    for sample in texts[:: -(-len(texts) // pairs)]:
        text = retriever.encode_texts(Tokens(*(torch.from_numpy(sample[name]) for name in ("ids", "mask"))))
        best = int((seen.embedding @ text.embedding[0]).argmax())
        sides = {"text": (text, 0), "image": (seen, best)}
        found.append(
            {
                f"{side}_{part}": getattr(encoded, part)[place : place + 1].numpy()
                for side, (encoded, place) in sides.items()
                for part in ("states", "mask")
            }
        )
    return found
