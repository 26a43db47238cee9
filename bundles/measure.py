"""Measure a model on a data set for its card and its results: by embeddings alone, and reranked."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from benchmarks.provenance import provenance
from sightline.bundle.model import Model
from sightline.datasets import read_all
from sightline.evaluation import Evaluation, evaluate, evaluate_names
from sightline.evaluation.encodings import Needs, SharedImages


@dataclass(frozen=True, slots=True)
class TestRecipe:
    """A data set to measure the bundle on: by its embeddings, and reranked if `rerank` is set.

    kind: "captions" for recalls, "names" for zero-shot names.
    """

    name: str
    data: tuple[str, ...]
    rerank: int = 0
    kind: Literal["captions", "names"] = "captions"


def measured(model: Model, test: TestRecipe) -> dict[str, Any]:
    """Return the content of a result file: its provenance, a row for embeddings alone, and one with reranking."""
    records = read_all(test.data)
    measure: Callable[..., Any] = evaluate_names if test.kind == "names" else evaluate
    images = [record.image for record in records]
    options: dict[str, Any] = {"data": test.name, "batch_size": 20}
    options["shared"] = SharedImages(model, images, Needs(states=bool(test.rerank)), 20)
    embed = measure(model, records, **options)
    rows, more = [embed.to_json()], {}
    if test.rerank:
        reranked = measure(model, records, rerank=test.rerank, **options)
        rows.append(reranked.to_json())
        if isinstance(embed, Evaluation) and isinstance(reranked, Evaluation):
            gain = embed.gain_of(reranked)
            more = {way: {name: dataclasses.asdict(one) for name, one in gain[way].items()} for way in gain}
    sources = [Path(one).stem for one in test.data]
    return {"experiment": "bundle", **provenance(0, sources), "rows": rows, "gain_of_reranking": more}
