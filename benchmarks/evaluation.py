"""How long an evaluation takes: ranking against the matrix product it cannot do without, and Table 4 of paper 1.

    python -m benchmarks.evaluation

Ranking is of made-up embeddings, 5,000 images x 25,000 captions: CPU seconds of all ranks in both directions, their
ratio to the bare product of the same embeddings in the same blocks, and the memory beyond the embeddings.

Table 4 needs SIGHTLINE_DATA and a bundle (the bundled one), and goes through the code of `sightline eval`: some
photos are evaluated on, and the table follows from the rates by the arithmetic of `Rates.seconds` in
table4.py. On a GPU it is measured by gpu.py.
"""

import argparse
import dataclasses
import os
import time
import tracemalloc
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks import table4
from benchmarks.timing import options, write
from sightline.bundle import Bundle
from sightline.evaluation import ranks_from_embeddings
from sightline.registry.loader import locate

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


def table(arguments: argparse.Namespace, ranking: float) -> dict[str, Any]:
    """Table 4 from the rates of a few photos; ranking: seconds for all of its embeddings."""
    photos = arguments.photos or (24 if arguments.quick else 100)
    found = table4.rates(Bundle.open(locate(arguments.model)), table4.test_set(photos))
    return {"rates": dataclasses.asdict(found), "table4": table4.extrapolated(found, ranking)}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--photos", type=int, help="evaluated on, for the rates")
    parser.add_argument("--model", default="default")
    arguments = parser.parse_args()
    rows = [measure(dim) for dim in ((512,) if arguments.quick else (256, 512))]
    more: dict[str, Any] = {"table4": []}
    data = ["made up"]
    if "SIGHTLINE_DATA" in os.environ:
        more = table(arguments, rows[-1]["cpu_seconds"])
        data.append("flickr8k-test")
    ratios = {"ranking 5,000 images, times the bare matrix product": rows[-1]["ratio"]} | table4.ratios(more["table4"])
    write("evaluation", arguments, data, rows, ratios, **more)


if __name__ == "__main__":
    main()
