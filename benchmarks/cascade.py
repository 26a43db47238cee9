"""Find the cascade with the highest recall in the same time: embed -> late@K -> match@k, or embed -> match@k alone.

    python -m benchmarks.cascade                            measure; continues an interrupted run
    python -m benchmarks.cascade --write bundles/default    write the chosen cascade into a bundle

Needs SIGHTLINE_DATA. The gallery consists of Flickr8k's test images and distractors from COCO, indexed once under
--work. Every cascade in the grid is measured on the same captions; its ranks are saved under --work. Times are measured
afterwards, with all cascades in turn for each caption: what else the machine does slows all of them alike.
"""

import argparse
import dataclasses
import json
import os
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import sightline
from benchmarks.provenance import RESULTS, provenance, read_result, write_result
from sightline.bundle import Bundle
from sightline.bundle.model import Defaults
from sightline.bundle.spec import read_spec, write_spec
from sightline.collection import Collection
from sightline.datasets import Record, read_all
from sightline.evaluation.metrics import CUTOFFS, Ranks, summary
from sightline.evaluation.resampling import paired_gain
from sightline.files import write_atomic
from sightline.registry.loader import locate

Cascade = tuple[int, int]  # how many candidates late interaction rescores, and how many the matcher reranks

LATES, RERANKS = (0, 25, 50, 100, 200), (5, 10, 20, 30)
TIMED = 100  # captions whose searches are timed
EQUAL = 1.02  # times that differ by less are considered equal


def gallery(asked: Sequence[Record], others: Sequence[Record], model: Bundle, work: Path) -> Path:
    """Index the images of the records in a folder; returns the collection's path."""
    for kind, records in (("asked", asked), ("others", others)):
        (work / "images" / kind).mkdir(parents=True, exist_ok=True)
        for number, record in enumerate(records):
            path = work / "images" / kind / f"{number:05}.jpg"
            if not path.exists():
                path.write_bytes(record.image.read())
    return Path(sightline.index(work / "images", at=work / "collection", model=model, prune=True).at)


def ranks_of(collection: Collection, model: Bundle, captions: Sequence[str], late: int, rerank: int) -> list[float]:
    """Return the rank of each caption's image after a cascade, infinite beyond ten."""
    ranks = []
    for number, caption in enumerate(captions):
        found = search(collection, model, caption, late, rerank)
        names = [Path(hit.path).as_posix() for hit in found]
        right = [place for place, name in enumerate(names, 1) if name.endswith(f"asked/{number:05}.jpg")]
        ranks.append(float(right[0]) if right else np.inf)
    return ranks


def times_of(
    collection: Collection, model: Bundle, captions: Sequence[str], cascades: Sequence[Cascade]
) -> list[float]:
    """Return the median milliseconds of each cascade; searches for a caption are run one after the other."""
    for cascade in cascades:
        search(collection, model, captions[0], *cascade)
    took = [
        [sum(search(collection, model, caption, *cascade).took_ms.values()) for cascade in cascades]
        for caption in captions
    ]
    return [median(column) for column in zip(*took, strict=True)]


def search(collection: Collection, model: Bundle, caption: str, late: int, rerank: int) -> sightline.SearchResult:
    return collection.search(caption, k=max(CUTOFFS), late=late, rerank=rerank, duplicates="show", model=model)


def rows(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the recall and time of each cascade, compared with matching alone and with the default."""
    ranks = {(one["late"], one["rerank"]): np.array(one["ranks"]) for one in found}
    usual, made = ranks[0, Defaults().rerank], []
    for one in found:
        own, alone = ranks[one["late"], one["rerank"]], ranks[0, one["rerank"]]
        row = {key: one[key] for key in ("late", "rerank", "ms")}
        row |= {"text_to_image": summary(own), "gain": gain(alone, own)}
        halves = {"first_half": slice(0, None, 2), "second_half": slice(1, None, 2)}
        gains = {name: {"sum": gain(usual[half], own[half])} for name, half in halves.items()}
        made.append(row | {"over_usual": gains})
    return made


def gain(before: Ranks, after: Ranks) -> dict[str, float]:
    """Return how much higher the sum of recalls is for `after` than for `before`, with its 95 % bootstrap interval."""
    found = paired_gain((before, after, np.arange(len(before))))
    return {name: round(number, 3) for name, number in dataclasses.asdict(found).items()}


def chosen(rows: Sequence[dict[str, Any]]) -> tuple[int, int]:
    """Return the cascade to use in a bundle, as its `late` and `rerank` depths.

    Of the cascades that take no longer than the default, the best on the first half of the images is chosen, if it is
    also better on the second half, with an interval above zero.
    """
    (usual,) = [row for row in rows if (row["late"], row["rerank"]) == (0, Defaults().rerank)]
    quick = [row for row in rows if row["ms"] <= EQUAL * usual["ms"]]
    best = max(quick, key=lambda row: row["over_usual"]["first_half"]["sum"]["value"])
    is_better = best["over_usual"]["second_half"]["sum"]["low"] > 0
    return (best["late"], best["rerank"]) if is_better else (Defaults().late, Defaults().rerank)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="default")
    parser.add_argument("--work", type=Path, default=Path("runs/cascade"), help="where the gallery is kept")
    parser.add_argument("--json", type=Path, default=RESULTS / "cascade.json")
    parser.add_argument("--write", type=Path, metavar="BUNDLE", help="measure nothing: write what --json has chosen")
    parser.add_argument("--ranks-only", action="store_true", help="measure no times yet: on a busy machine, say")
    arguments = parser.parse_args()
    if arguments.write:
        late, rerank = chosen(read_result(arguments.json)["rows"])
        spec = read_spec(arguments.write)
        defaults = dataclasses.replace(spec.defaults, late=late, rerank=rerank)
        write_spec(arguments.write, dataclasses.replace(spec, defaults=defaults))
        return
    model, names = Bundle.open(locate(arguments.model)), ["flickr8k-test", "coco-distractors"]
    data = os.environ["SIGHTLINE_DATA"]
    records, others = (read_all([f"{data}/{name}.tar"]) for name in names)
    captions, cascades = [record.captions_in("en")[0] for record in records], list(product(LATES, RERANKS))
    with Collection.open(gallery(records, others, model, arguments.work), model) as collection:
        ranks = []
        for late, rerank in cascades:
            kept = arguments.work / f"{model.sha256[:12]}-{len(captions)}-{late}-{rerank}.json"
            if not kept.exists():
                write_atomic(kept, json.dumps(ranks_of(collection, model, captions, late, rerank)))
            ranks.append(json.loads(kept.read_text()))
        if arguments.ranks_only:
            return
        times = times_of(collection, model, captions[:TIMED], cascades)
        items = len(collection)
    made = rows(
        [
            {"late": late, "rerank": rerank, "ms": ms, "ranks": own}
            for (late, rerank), ms, own in zip(cascades, times, ranks, strict=True)
        ]
    )
    best = dict(zip(("late", "rerank"), chosen(made), strict=True))
    more = {"model": model.name, "items": items, "questions": len(captions), "timed": len(captions[:TIMED])}
    more |= {"rows": made, "chosen": best}
    write_result(arguments.json, {"experiment": "cascade", **provenance(0, names), **more})


if __name__ == "__main__":
    main()
