"""How long ranking a test set takes: 5,000 images x 25,000 captions, against the matrix product it cannot do without.

    python benchmarks/evaluation.py --json benchmarks/results/evaluation.json

Prints one line a dimension: CPU seconds of all ranks in both directions, their ratio to the bare product of the same
embeddings in the same blocks, and the memory beyond the embeddings.
"""

import argparse
import json
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from provenance import provenance
from sightline.evaluation import ranks_from_embeddings

IMAGES, CAPTIONS, BLOCK = 5_000, 25_000, 1_000


def unit(count: int, dim: int, seed: int) -> npt.NDArray[np.float32]:
    vectors: npt.NDArray[np.float32] = np.random.default_rng(seed).standard_normal((count, dim)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


def measure(dim: int) -> dict[str, Any]:
    texts, images = unit(CAPTIONS, dim, 0), unit(IMAGES, dim, 1)
    image_of = np.repeat(np.arange(IMAGES), CAPTIONS // IMAGES)
    ranking, product = [], []
    for _ in range(3):
        start = time.process_time()
        for first in range(0, CAPTIONS, BLOCK):
            texts[first : first + BLOCK] @ images.T
        product.append(time.process_time() - start)
        start = time.process_time()
        ranks_from_embeddings(texts, images, image_of)
        ranking.append(time.process_time() - start)
    tracemalloc.start()
    ranks_from_embeddings(texts, images, image_of)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return {
        "dim": dim,
        "cpu_seconds": round(min(ranking), 3),
        "product_cpu_seconds": round(min(product), 3),
        "ratio": round(min(ranking) / min(product), 3),
        "peak_mb": round(peak / 1e6, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rows = [measure(dim) for dim in (256, 512)]
    for row in rows:
        print(
            f"evaluation, dim {row['dim']}: {row['cpu_seconds']} s of CPU for {IMAGES} x {CAPTIONS} ranks, "
            f"{row['ratio']} x the bare matrix product, {row['peak_mb']} MB beyond the embeddings"
        )
    if arguments.json:
        result = {"benchmark": "evaluation", **provenance(0, ["synthetic"]), "rows": rows}
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
