"""As many vectors as one likes around those of real photos, and the captions that ask for them."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

TOP, BLOCK = 20, 50_000
Halves = npt.NDArray[np.float16]
Singles = npt.NDArray[np.float32]
Longs = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Real:
    """Real embeddings of unit length: images [images, dim] and captions [captions, dim]."""

    images: Singles
    captions: Singles
    model: str


def real(file: Path, model: str, photos: int | None = None) -> Real:
    """The embeddings of Flickr8k's test set, or of its first photos; made once, and then read from the file."""
    if not file.exists():
        from sightline.datasets import read_all
        from sightline.evaluation.encodings import Needs, encode_images, encode_texts
        from sightline.evaluation.test_set import Questions
        from sightline.registry.loader import load

        records = read_all([f"{os.environ['SIGHTLINE_DATA']}/flickr8k-test.tar"])[:photos]
        questions = Questions.of(records, "en", [])
        images = encode_images(load(model), list(questions.images), Needs(), 8)[0]
        texts = encode_texts(load(model), list(questions.captions), Needs(), 32)[0]
        np.savez(file, i=images.embedding, t=texts.embedding, model=model)
    found = np.load(file)
    name = str(found["model"]) if "model" in found else "a model that the file of embeddings does not name"
    return Real(found["i"].astype(np.float32), found["t"].astype(np.float32), name)


def around(real: Real, count: int, seed: int = 0) -> Iterator[Singles]:
    """Vectors around real images, in blocks: mixes of two, with noise.

    The noise varies as the images do, at half their spread, and a little in every direction alike.
    """
    rng = np.random.default_rng(seed)
    images, dim = real.images, real.images.shape[1]
    spread = np.cov(images.T) + 1e-6 * np.eye(dim)
    alike = 0.05**2 * np.trace(spread) / dim * np.eye(dim)
    noise = np.linalg.cholesky(0.5**2 * spread + alike).T.astype(np.float32)
    for start in range(0, count, BLOCK):
        some = min(BLOCK, count - start)
        a, b = images[rng.integers(0, len(images), (2, some))]
        share = rng.uniform(0.5, 1, (some, 1)).astype(np.float32)
        mixed = share * a + (1 - share) * b + rng.standard_normal((some, dim), dtype=np.float32) @ noise
        yield unit(mixed)


def unit(vectors: Singles) -> Singles:
    units: Singles = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return units


def blocks(vectors: Halves) -> Iterator[Singles]:
    return (vectors[start : start + BLOCK].astype(np.float32) for start in range(0, len(vectors), BLOCK))


def truth(vectors: Halves, queries: Singles, masks: Sequence[Bools | None] = (None,)) -> list[Longs]:
    """For each of the masks, the TOP nearest rows [queries, TOP] among those it allows, by comparing everything.

    In float32, block by block: no more than a block's scores are held.
    """
    rows = [np.full((len(queries), TOP), -1) for _ in masks]
    scores = [np.full((len(queries), TOP), -np.inf, dtype=np.float32) for _ in masks]
    for number, some in enumerate(blocks(vectors)):
        products = queries @ some.T
        here = np.arange(len(some)) + number * BLOCK
        for kind, mask in enumerate(masks):
            allowed = slice(None) if mask is None else mask[here]
            both = np.concatenate([scores[kind], products[:, allowed]], axis=1)
            ids = np.concatenate([rows[kind], np.broadcast_to(here[allowed], (len(queries), both.shape[1] - TOP))], 1)
            best = np.argpartition(-both, TOP - 1, axis=1)[:, :TOP]
            rows[kind], scores[kind] = (np.take_along_axis(array, best, axis=1) for array in (ids, both))
    return rows


def recall(found: Iterable[Longs], right: Iterable[Longs]) -> float:
    """The share of the right rows that were found, over all queries."""
    pairs = zip(found, right, strict=True)
    return float(np.mean([len(np.intersect1d(got, wanted)) / len(wanted) for got, wanted in pairs]))
