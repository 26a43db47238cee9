"""Any number of vectors around the embeddings of photos, with captions as queries, and the exact answers."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import faiss
import numpy as np
import numpy.typing as npt
from faiss.contrib.exhaustive_search import knn_ground_truth

from benchmarks import samples
from sightline.evaluation.encodings import Needs, encode_texts

TOP, BLOCK = 20, 50_000
Halves = npt.NDArray[np.float16]
Vectors = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]


def real(file: Path, model: str, photos: int) -> tuple[Vectors, Vectors]:
    """Return the unit-length embeddings of photos and of their captions; computed once, then read from the file."""
    if not file.exists():
        bundle, records = samples.bundle(model), samples.records(photos)
        texts, _ = encode_texts(bundle, samples.captions(records), Needs(), 32)
        np.savez(file, samples.encode(bundle, records).embedding, texts.embedding)
    images, captions = np.load(file).values()
    return images, captions


def around(images: Vectors, count: int, seed: int = 0) -> Iterator[Vectors]:
    """Yield blocks of vectors: points between two images, plus noise with their covariance at half their spread."""
    rng, dim = np.random.default_rng(seed), images.shape[1]
    spread = np.cov(images.T) + 1e-6 * np.eye(dim)
    alike = 0.05**2 * np.trace(spread) / dim * np.eye(dim)
    noise = np.linalg.cholesky(0.5**2 * spread + alike).T.astype(np.float32)
    for start in range(0, count, BLOCK):
        some = min(BLOCK, count - start)
        a, b = images[rng.integers(0, len(images), (2, some))]
        share = rng.uniform(0.5, 1, (some, 1)).astype(np.float32)
        yield samples.unit(share * a + (1 - share) * b + rng.standard_normal((some, dim), dtype=np.float32) @ noise)


def blocks(vectors: Halves) -> Iterator[Vectors]:
    """Yield the vectors in float32, block by block."""
    return (vectors[start : start + BLOCK].astype(np.float32) for start in range(0, len(vectors), BLOCK))


def truth(vectors: Halves, queries: Vectors) -> Ids:
    """Find the TOP nearest rows for each query [queries, TOP], by exact comparison in float32, block by block."""
    found: Ids = knn_ground_truth(queries, blocks(vectors), TOP, faiss.METRIC_INNER_PRODUCT)[1]
    return found


def recall(found: Iterable[Ids], right: Iterable[Ids]) -> float:
    """Return the fraction of the right rows that were found, over all queries."""
    pairs = zip(found, right, strict=True)
    return float(np.mean([len(np.intersect1d(got, wanted)) / len(wanted) for got, wanted in pairs]))
