"""Measure the speed of a bundle on a GPU: one query, matching, encoding images, a complete search, an evaluation.

    python -m benchmarks.gpu             writes benchmarks/results/gpu.json
    python -m benchmarks.gpu --device cpu --vectors 1000 --images 8 --batches 4    only checks that it runs

Needs torch and Triton, but neither ONNX Runtime nor FAISS. Times include copies to and from CPU memory.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from benchmarks import samples
from benchmarks.scan import made_up, times
from benchmarks.timing import numbers, options, save
from sightline.arrays import Arrays
from sightline.bundle import Bundle
from sightline.evaluation import evaluate
from sightline.kernels.graphs import TorchGraph
from sightline.kernels.scan import Scan
from sightline.media import blank

RERANK, TEXT = 20, "two children and a small dog are running on a beach"
PHOTOS = 32  # distinct photos; an evaluation repeats them under other names
Rows = Iterator[dict[str, Any]]


class Bench:
    """A bundle on a device."""

    def __init__(self, model: str, device: str, calls: int) -> None:
        self.device, self.calls = device, calls
        plain = samples.bundle(model)
        self.bundle = Bundle(plain.folder, plain.spec, device="gpu")
        for graph in ("image", "text", "match"):
            self.bundle._engines[graph] = TorchGraph.open(plain.folder / f"{graph}.onnx", device)
        self.text = self.bundle.encode_texts([TEXT])
        self.image = self.bundle.encode_images(blank(self.bundle.preprocess))

    def single(self) -> Rows:
        """Time encoding one query, and matching it with twenty candidates."""
        yield {"what": "encode a query", "p50_ms": self._median(lambda: self.bundle.encode_texts([TEXT]))}
        yield {"what": f"match {RERANK} pairs", "p50_ms": self._median(lambda: self.bundle.match(**self._pairs()))}

    def images(self, batches: list[int]) -> Rows:
        """Measure images per second by batch size, from pixels in CPU memory."""
        for batch in batches:
            pixels = np.repeat(blank(self.bundle.preprocess), batch, 0)
            took = self._median(partial(self.bundle.encode_images, pixels))
            yield {"what": "encode pictures", "batch": batch, "pictures_per_second": 1000 * batch / took}

    def searches(self, count: int) -> Rows:
        """Time a complete search: encode the query, compare all vectors with it, and match the best."""
        scan = Scan(made_up(count, self.bundle.spec.embedding_dim, self.device)[0], device=self.device)
        assert self.image.states is not None
        states = np.repeat(self.image.states[:1], min(count, 10_000), 0).astype(np.float16)

        def retrieve() -> Any:
            return scan.search(self.text.embedding, RERANK)[1][0]

        def search() -> object:
            self.bundle.encode_texts([TEXT])
            found = states[retrieve() % len(states)]
            return self.bundle.match(**self._pairs() | {"image_states": found})

        row: dict[str, Any] = {"what": "retrieve and rerank", "vectors": count, "p50_ms": self._median(search)}
        yield row | {"retrieve_p50_ms": self._median(retrieve)}

    def evaluations(self, sizes: list[int]) -> Rows:
        """Time complete evaluations with reranking, from JPEGs to ranks."""
        records = samples.records(max(sizes), PHOTOS)
        evaluate(self.bundle, records[:RERANK], rerank=RERANK)  # compiles kernels
        for size in sizes:
            parts = evaluate(self.bundle, records[:size], rerank=RERANK).seconds
            yield {"what": "evaluate", "images": size, "seconds": sum(parts.values()), "parts": parts}

    def _pairs(self) -> Arrays:
        """Return the matcher's inputs for one text with twenty images."""
        found = {"text_states": self.text.states, "text_mask": self.text.mask}
        found |= {"image_states": self.image.states, "image_mask": self.image.mask}
        return {name: np.repeat(part, RERANK, 0) for name, part in found.items() if part is not None}

    def _median(self, run: Callable[[], object]) -> float:
        """Return the median time of a call, in milliseconds."""
        return float(np.median(times(run, self.calls, self.device)))


def ratios(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return the ratios that have targets, and images per second."""
    found = {"pictures a second": max(row["pictures_per_second"] for row in rows if "batch" in row)}
    for row in rows:
        if row["what"] == "retrieve and rerank":
            found[f"ms, retrieve from {row['vectors']:,} and rerank {RERANK}"] = row["p50_ms"]
        elif row["what"] == "evaluate":
            found[f"seconds, evaluate {row['images']:,} images with rerank {RERANK}"] = row["seconds"]
        elif "p50_ms" in row:
            found[f"ms, {row['what']}"] = row["p50_ms"]
    return found


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda", help="cpu only shows that it runs")
    parser.add_argument("--vectors", type=int, help="by default a million, with --quick a hundred thousand")
    parser.add_argument("--images", type=numbers, help="evaluated on; by default 1000,5000, with --quick 1000")
    parser.add_argument("--batches", type=numbers, default=[1, 8, 32, 128, 256], help="of images")
    parser.add_argument("--calls", type=int, default=200)
    arguments = parser.parse_args()
    vectors = arguments.vectors or (100_000 if arguments.quick else 1_000_000)
    images = arguments.images or ([1_000] if arguments.quick else [1_000, 5_000])
    bench = Bench(arguments.model, arguments.device, arguments.calls)
    rows = [*bench.single(), *bench.images(arguments.batches), *bench.searches(vectors), *bench.evaluations(images)]
    save("gpu", arguments, ["random", samples.data()], rows, ratios(rows), model=bench.bundle.name)


if __name__ == "__main__":
    main()
