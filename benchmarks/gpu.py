"""How long a bundle takes on a GPU: one query, matching, encoding images, a whole search, and an evaluation.

    python -m benchmarks.gpu             writes benchmarks/results/gpu.json
    python -m benchmarks.gpu --device cpu --vectors 1000 --images 8 --batches 4    only shows that it runs

Needs torch and Triton, and neither ONNX Runtime nor FAISS. Timed from numbers in CPU memory to an answer there. A floor
is what the operations with weights take at the rate of a large product, or reading the weights at the memory's
bandwidth, whichever is longer; both are measured first.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks import samples
from benchmarks.scan import made_up, measured_bandwidth, times
from benchmarks.timing import numbers, options, save
from sightline.arrays import Arrays
from sightline.bundle import Bundle
from sightline.bundle.model import Graph
from sightline.evaluation import evaluate
from sightline.kernels import graphs
from sightline.kernels.graphs import TorchGraph
from sightline.kernels.operators import OPERATORS, Attributes, Operator, Outputs, linear
from sightline.kernels.scan import Scan
from sightline.media import blank
from sightline.registry.loader import locate

RERANK, TEXT = 20, "two children and a small dog are running on a beach"
PHOTOS = 32  # different photos; an evaluation repeats them under other names
Rows = Iterator[dict[str, Any]]


class Bench:
    """A bundle on a device, and what that device can do at best."""

    def __init__(self, model: str, device: str, calls: int) -> None:
        self.device, self.calls = device, calls
        plain = Bundle.open(locate(model))
        self.bundle = Bundle(plain.folder, plain.spec, device="gpu")
        for graph in ("image", "text", "match"):
            self.bundle._engines[graph] = TorchGraph.open(plain.folder / f"{graph}.onnx", device)
        self.bandwidth, self.rate = measured_bandwidth(device), measured_rate(device)
        self.text = self.bundle.encode_texts([TEXT])
        self.image = self.bundle.encode_images(blank(self.bundle.preprocess))

    def single(self) -> Rows:
        """One query, and the matching of twenty candidates: captured, and launched one operator after another."""
        tokens = self.bundle.tokenizer([TEXT])
        asked: dict[str, tuple[Graph, Arrays, Callable[[], object]]] = {
            "encode a query": ("text", {"ids": tokens.ids, "mask": tokens.mask}, self._encode),
            f"match {RERANK} pairs": ("match", self._pairs(), lambda: self.bundle.match(**self._pairs())),
        }
        for what, (graph, inputs, run) in asked.items():
            row: dict[str, Any] = {"what": what, "p50_ms": self._median(run), "floor_ms": self.floor_ms(graph, inputs)}
            row["times_floor"] = row["p50_ms"] / row["floor_ms"]
            small, graphs._SMALL = graphs._SMALL, 0
            self.bundle._engines[graph] = TorchGraph(self._graph(graph).program)
            row["launched_p50_ms"] = self._median(run)
            graphs._SMALL = small
            yield row

    def pictures(self, batches: list[int]) -> Rows:
        """Pictures a second by the size of a batch: as pixels come, from the device, and what stays on the device."""
        graph, one = self._graph("image"), blank(self.bundle.preprocess)
        for batch in batches:
            pixels = np.repeat(one, batch, 0)
            there = {"pixels": torch.from_numpy(pixels).to(self.device)}
            row: dict[str, Any] = {"what": "encode pictures", "batch": batch}
            row["pictures_per_second"] = 1000 * batch / self._median(partial(self.bundle.encode_images, pixels))
            row["on_device_per_second"] = 1000 * batch / self._median(partial(graph.compute, there))
            with torch.inference_mode():
                plan, _ = graph.program.plan(there)
                row["graph_per_second"] = 1000 * batch / self._median(partial(plan.run, there))
            row["floor_per_second"] = 1000 * batch / self.floor_ms("image", {"pixels": pixels})
            yield row

    def searches(self, count: int) -> Rows:
        """A whole search: the query is encoded, all vectors are compared with it, and the best are matched."""
        vectors, _ = made_up(count, self.bundle.spec.embedding_dim, self.device)
        scan = Scan(vectors, device=self.device)
        assert self.image.states is not None
        states = np.repeat(self.image.states[:1], min(count, 10_000), 0).astype(np.float16)

        def retrieve() -> Any:
            return scan.search(self.text.embedding, RERANK)[1][0]

        def match(found: Any) -> object:
            return self.bundle.match(**self._pairs() | {"image_states": found})

        def search() -> object:
            self._encode()
            return match(states[retrieve() % len(states)])

        row: dict[str, Any] = {"what": "retrieve and rerank", "vectors": count, "p50_ms": self._median(search)}
        others = iter(np.random.default_rng(0).integers(0, len(states), (self.calls + 3, RERANK)))
        parts: dict[str, Callable[[], object]] = {
            "encode": self._encode,
            "retrieve": retrieve,
            "fetch": lambda: states[next(others)],
            "match": partial(match, states[:RERANK]),
        }
        row["parts_ms"] = {part: self._median(run) for part, run in parts.items()}
        yield row | {"floor_ms": 1000 * vectors.nbytes / self.bandwidth}

    def evaluations(self, sizes: list[int]) -> Rows:
        """Whole evaluations with reranking, from JPEGs to ranks."""
        records = samples.records(max(sizes), PHOTOS)
        evaluate(self.bundle, records[:RERANK], rerank=RERANK)  # what is new to this machine is compiled
        for size in sizes:
            parts = evaluate(self.bundle, records[:size], rerank=RERANK).seconds
            yield {"what": "evaluate", "images": size, "seconds": sum(parts.values()), "parts": parts}

    def floor_ms(self, graph: Graph, inputs: Arrays) -> float:
        """The least milliseconds that a graph's products with weights can take."""
        done, read = 0.0, 0.0

        def counting(attributes: Attributes, values: torch.Tensor) -> Outputs:
            nonlocal done, read
            done += 2.0 * values.numel() * len(attributes["weight"])
            read += attributes["weight"].nbytes
            return linear(attributes, values)

        OPERATORS["Linear"], usual = Operator(counting), OPERATORS["Linear"]
        try:
            with torch.inference_mode():
                program = self._graph(graph).program
                program.plan({name: torch.from_numpy(array).to(self.device) for name, array in inputs.items()})
        finally:
            OPERATORS["Linear"] = usual
        return 1000 * max(done / self.rate, read / self.bandwidth)

    def _graph(self, graph: Graph) -> TorchGraph:
        engine = self.bundle.engine(graph)
        assert isinstance(engine, TorchGraph)
        return engine

    def _encode(self) -> object:
        return self.bundle.encode_texts([TEXT])

    def _pairs(self) -> Arrays:
        """One text with twenty images."""
        found = {"text_states": self.text.states, "text_mask": self.text.mask}
        found |= {"image_states": self.image.states, "image_mask": self.image.mask}
        return {name: np.repeat(part, RERANK, 0) for name, part in found.items() if part is not None}

    def _median(self, run: Callable[[], object]) -> float:
        """Milliseconds."""
        return float(np.median(times(run, self.calls, self.device)))


def measured_rate(device: str) -> float:
    """Operations a second of a product of large matrices, in the type of the graphs' products."""
    side, dtype = (8192, torch.float16) if device == "cuda" else (256, torch.float32)
    one = torch.ones(side, side, dtype=dtype, device=device)
    return 2.0 * side**3 / (min(times(lambda: one @ one, 20, device)) / 1000)


def ratios(rows: list[dict[str, Any]]) -> dict[str, float]:
    """What the targets speak of, and how far the rest is from its floor."""
    found: dict[str, float] = {}
    for row in rows:
        if "launched_p50_ms" in row:
            found[f"ms, {row['what']}"] = row["p50_ms"]
            found[f"times the floor, {row['what']}"] = row["times_floor"]
            found[f"times as quick captured as launched, {row['what']}"] = row["launched_p50_ms"] / row["p50_ms"]
        elif row["what"] == "retrieve and rerank":
            found[f"ms, retrieve from {row['vectors']:,} and rerank {RERANK}"] = row["p50_ms"]
        elif row["what"] == "evaluate":
            found[f"seconds, evaluate {row['images']:,} images with rerank {RERANK}"] = row["seconds"]
    best = max((row for row in rows if "batch" in row), key=lambda row: row["pictures_per_second"])
    found["pictures a second"] = best["pictures_per_second"]
    found["pictures a second, share of the floor's"] = best["pictures_per_second"] / best["floor_per_second"]
    return found


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda", help="cpu only shows that it runs")
    parser.add_argument("--vectors", type=int, help="by default a million, with --quick a hundred thousand")
    parser.add_argument("--images", type=numbers, help="evaluated on; by default 1000,5000, with --quick 1000")
    parser.add_argument("--batches", type=numbers, default=[1, 8, 32, 128, 256], help="of pictures")
    parser.add_argument("--calls", type=int, default=200)
    arguments = parser.parse_args()
    vectors = arguments.vectors or (100_000 if arguments.quick else 1_000_000)
    images = arguments.images or ([1_000] if arguments.quick else [1_000, 5_000])
    bench = Bench(arguments.model, arguments.device, arguments.calls)
    rows = [*bench.single(), *bench.pictures(arguments.batches), *bench.searches(vectors), *bench.evaluations(images)]
    reached = {"bytes_per_second": bench.bandwidth, "operations_per_second": bench.rate}
    save("gpu", arguments, ["random", samples.data()], rows, ratios(rows), model=bench.bundle.name, **reached)


if __name__ == "__main__":
    main()
