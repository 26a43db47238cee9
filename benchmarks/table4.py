"""The time of Table 4 of paper 1: evaluating on 1,000 and 5,000 images, by three systems (see evaluation.py)."""

import dataclasses
import os
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

from sightline.bundle import Model
from sightline.datasets import Record, read_all
from sightline.evaluation import evaluate

PAPER = {
    1_000: {"embed": 5.0, "rerank 20": 5 * 60.0, "match all": 2 * 3600.0},
    5_000: {"embed": 30.0, "rerank 20": 25 * 60.0, "match all": 50 * 3600.0},
}
"""Seconds on a V100: Table 4 of paper 1, its BE, COOP and CE."""
CAPTIONS = 5
RERANK = 20


@dataclass(frozen=True, slots=True)
class Rates:
    """How many pictures, captions and pairs of them a second, and how many of each that was measured on."""

    images: float
    captions: float
    pairs: float
    measured_on: dict[str, int]

    def seconds(self, images: int, ranking: float) -> dict[str, float]:
        """What each system takes for so many images, where ranking them by their embeddings takes `ranking` seconds.

        Everything is encoded once. Reranking then matches 20 for every caption and for every image; a pair that both
        directions ask for is matched once, but here it is counted twice. The third system matches every pair.
        """
        captions = CAPTIONS * images
        encoding = images / self.images + captions / self.captions
        return {
            "embed": encoding + ranking,
            "rerank 20": encoding + ranking + RERANK * (images + captions) / self.pairs,
            "match all": encoding + images * captions / self.pairs,
        }


def rates(model: Model, records: list[Record]) -> Rates:
    """Evaluate on some images with rerank, as `sightline eval` does, and say how quickly each part went."""
    counted = {}

    def noted(part: str, _: int, whole: int) -> None:
        counted[part] = whole

    evaluate(model, records[:2], rerank=RERANK)  # loads what the next one measures
    took = evaluate(model, records, rerank=RERANK, progress=noted).seconds
    of = {"images": "encode_images", "captions": "encode_texts", "pairs": "match"}
    measured_on = {name: counted[part] for name, part in of.items()}
    return Rates(**{name: counted[part] / took[part] for name, part in of.items()}, measured_on=measured_on)


def extrapolated(found: Rates, product_seconds: float) -> list[dict[str, Any]]:
    """The table, by arithmetic; product_seconds: of ranking 5,000 images and 25,000 captions, each with each."""
    rows = []
    for images, paper in PAPER.items():
        seconds = found.seconds(images, product_seconds * (images / 5_000) ** 2)
        rows.append({"images": images, "seconds": seconds, "paper_seconds": paper})
    return rows


def test_set(images: int) -> list[Record]:
    """So many photos of Flickr8k's test set, each under a name of its own; over again where there are not as many."""
    photos = read_all([os.environ["SIGHTLINE_DATA"] + "/flickr8k-test.tar"])
    return [
        dataclasses.replace(record, key=f"{number:05}") for number, record in enumerate(islice(cycle(photos), images))
    ]


def ratios(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Against the paper's times on its GPU."""
    asked = "evaluation of {:,} images, rerank 20, times as quick as paper 1 on a V100"
    return {
        asked.format(row["images"]): row["paper_seconds"]["rerank 20"] / row["seconds"]["rerank 20"] for row in rows
    }
