"""Calculate the time of an evaluation, as in Table 4 of paper 1, from measured rates; gpu.py measures it on a GPU.

    python -m benchmarks.evaluation

The rates of encoding and matching are those of `sightline.evaluate` on some photos. Ranking is measured on random
embeddings of 5,000 images and 25,000 captions: the CPU seconds for all ranks in both directions.
"""

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks import samples
from benchmarks.timing import cpu_seconds_of, options, save
from sightline.bundle import Model
from sightline.datasets import Record
from sightline.evaluation import evaluate, ranks_from_embeddings

IMAGES, CAPTIONS = 5_000, 25_000
PAPER = {
    1_000: {"embed": 5.0, "rerank 20": 5 * 60.0, "match all": 2 * 3600.0},
    5_000: {"embed": 30.0, "rerank 20": 25 * 60.0, "match all": 50 * 3600.0},
}
"""Seconds on a V100, from Table 4 of paper 1: its BE, COOP and CE, by number of images."""
RERANK = 20


@dataclass(frozen=True, slots=True)
class Rates:
    """How many images, captions and pairs are processed per second."""

    images: float
    captions: float
    pairs: float

    def seconds(self, images: int, ranking: float) -> dict[str, float]:
        """Return the seconds that each system takes for this many images with five captions each.

        ranking: the seconds that ranking by embedding takes. Reranking matches 20 candidates for every caption and
        every image (a pair that occurs in both directions is counted twice); "match all" matches every pair.
        """
        captions = 5 * images
        encoding = images / self.images + captions / self.captions
        return {
            "embed": encoding + ranking,
            "rerank 20": encoding + ranking + RERANK * (images + captions) / self.pairs,
            "match all": encoding + images * captions / self.pairs,
        }


def measure_rates(model: Model, records: list[Record]) -> Rates:
    """Evaluate on some images with reranking, and compute the rate of each part."""
    counted: dict[str, int] = {}

    def note(part: str, _: int, whole: int) -> None:
        counted[part] = whole

    evaluate(model, records[:2], rerank=RERANK)  # loads the graphs
    took = evaluate(model, records, rerank=RERANK, progress=note).seconds
    parts = {"images": "encode_images", "captions": "encode_texts", "pairs": "match"}
    return Rates(**{name: counted[part] / took[part] for name, part in parts.items()})


def table4(rates: Rates, ranking: float) -> list[dict[str, Any]]:
    """Calculate Table 4 from rates; ranking: seconds for 5,000 images and 25,000 captions."""
    return [
        {"images": images, "seconds": rates.seconds(images, ranking * (images / 5_000) ** 2), "paper_seconds": paper}
        for images, paper in PAPER.items()
    ]


def measure_ranking(dim: int) -> dict[str, Any]:
    """Return the CPU seconds that ranking takes: the best of three runs."""
    rng, image_of = np.random.default_rng(0), np.repeat(np.arange(IMAGES), CAPTIONS // IMAGES)
    rank = partial(ranks_from_embeddings, samples.units(rng, CAPTIONS, dim), samples.units(rng, IMAGES, dim), image_of)
    return {"dim": dim, "cpu_seconds": min(cpu_seconds_of(rank) for _ in range(3))}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--photos", type=int, help="to measure rates on")
    arguments = parser.parse_args()
    ranking = measure_ranking(512)
    records = samples.records(arguments.photos or (24 if arguments.quick else 100), distinct=1000)
    rates = measure_rates(samples.bundle(arguments.model), records)
    table, ratios = table4(rates, ranking["cpu_seconds"]), {}
    for row in table:
        what = f"evaluation of {row['images']:,} images, rerank 20, times as quick as paper 1 on a V100"
        ratios[what] = row["paper_seconds"]["rerank 20"] / row["seconds"]["rerank 20"]
    more = {"rates": asdict(rates), "table4": table}
    save("evaluation", arguments, ["random", samples.data()], [ranking], ratios, **more)


if __name__ == "__main__":
    main()
