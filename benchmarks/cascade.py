"""Which cascade finds most in the same time: embed -> late@K -> match@k, or embed -> match@k alone.

    python -m benchmarks.cascade --work runs/cascade                  measure; continues an interrupted run
    python -m benchmarks.cascade --work runs/try --limit 20 --json try.json      a small part, to see that it runs
    python -m benchmarks.cascade --write bundles/default              write the chosen cascade into a bundle

Needs SIGHTLINE_DATA. The gallery is Flickr8k's test images and distractors of COCO, indexed once below --work. The
scores that each stage gives to a caption's best candidates are computed once and kept; all cascades of the grid are
ranked from these. Times are those of searches in the same run.
"""

import argparse
import dataclasses
import json
import os
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import sightline
from benchmarks.provenance import RESULTS, provenance, write_result
from sightline.bundle import Bundle
from sightline.bundle.model import Defaults
from sightline.bundle.spec import read_spec, write_spec
from sightline.collection import Collection
from sightline.datasets import Record, read_all
from sightline.evaluation.metrics import CUTOFFS, summary
from sightline.evaluation.ranking import ranks_after_stages
from sightline.registry.loader import locate
from sightline.retrieval.candidates import Candidates
from sightline.retrieval.cascade import Cascade
from sightline.retrieval.costs import Costs
from sightline.retrieval.first_stage import retrieve
from sightline.retrieval.fusion import fuse
from sightline.retrieval.late import LateScorer
from sightline.retrieval.options import SearchOptions
from sightline.retrieval.query import Query, encode

Ids = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float64]
LATES, RERANKS = (25, 50, 100, 200), (5, 10, 20, 30)
RESAMPLES = 1000
EQUAL = 1.02  # two times that differ by less are the same


class Question(NamedTuple):
    """A caption, the id of the item that it is about, and the number of its picture."""

    text: str
    right: int
    picture: int


@dataclasses.dataclass(frozen=True, slots=True)
class Judged:
    """What stages say of the best candidates of questions, by embedding: items, embed and late are [questions, n].

    logits: of each question, by item, those that any cascade may want matched. right, picture: [questions].
    """

    items: Ids
    embed: Scores
    late: Scores
    logits: list[dict[int, float]]
    right: Ids
    picture: Ids

    def ranks(self, late: int, rerank: int, joined: Defaults) -> Scores:
        """Rank [questions] of the right item after a cascade, infinite beyond the candidates; ties count against it."""
        found = Candidates.of(self.items, self.embed)
        if late:
            found = found.reranked(self.late[:, :late], "late")
        if rerank:
            rows = zip(self.logits, found.ids[:, :rerank].tolist(), strict=True)
            logits = np.array([[known[item] for item in row] for known, row in rows])
            found = found.reranked(fuse(joined.fusion, found.embed[:, :rerank], logits, joined.weight), "match")
        return ranks_after_stages(found, found.ids == self.right[:, None], np.full(len(self.right), np.inf))


def gallery(asked: Sequence[Record], others: Sequence[Record], model: Bundle, work: Path) -> Path:
    """Index the pictures of records below a folder, unless that was done; gives the collection's place."""
    for kind, records in (("asked", asked), ("others", others)):
        (work / "pictures" / kind).mkdir(parents=True, exist_ok=True)
        for number, record in enumerate(records):
            path = work / "pictures" / kind / f"{number:05}.jpg"
            if not path.exists():
                path.write_bytes(record.image.read())
    return Path(sightline.index(work / "pictures", at=work / "collection", model=model, prune=True).at)


def questions(collection: Collection, records: Sequence[Record], captions: int) -> list[Question]:
    """The first captions of every record whose picture could be indexed."""
    ids = {
        file.path: id for id, item in collection.items(collection.catalog.ids()).items() for file in item.files
    }  # an item has several files where pictures are the same
    return [
        Question(text, ids[f"asked/{number:05}.jpg"], number)
        for number, record in enumerate(records)
        if f"asked/{number:05}.jpg" in ids
        for text in record.captions_in("en")[:captions]
    ]


def judge(cascade: Cascade, asked: Sequence[Question], kept: Path) -> Judged:
    """Ask all stages about the candidates of every question; those that are kept in a file already are not asked."""
    head = json.dumps({"model": cascade.model.sha256, "items": cascade.store.stats().items, "asked": len(asked)})
    lines = kept.read_text().split("\n")[:-1] if kept.exists() else []
    if lines and lines[0] != head:
        raise SystemExit(f"{kept} is of another model or gallery: remove it, or give another --work")
    done = [json.loads(line) for line in lines[1:]]
    kept.write_text("\n".join([head, *lines[1:]]) + "\n")  # without half a line, where the last run was ended
    with kept.open("a") as file:
        for number, question in enumerate(asked[len(done) :], len(done) + 1):
            done.append(_judged(cascade, question.text))
            file.write(json.dumps(done[-1]) + "\n")
            if number % 50 == 0:
                file.flush()
                print(f"{number} of {len(asked)} questions", flush=True)
    logits = [{int(item): logit for item, logit in one["logits"].items()} for one in done]
    items, embed, late = (np.array([one[name] for one in done]) for name in ("items", "embed", "late"))
    right, picture = (np.array([getattr(question, name) for question in asked]) for name in ("right", "picture"))
    return Judged(items, embed, late, logits, right, picture)


def _judged(cascade: Cascade, text: str) -> dict[str, Any]:
    """What stages say of the best candidates of one text."""
    asked = encode(Query(text), cascade.model, "images")
    found = retrieve(cascade.store, asked, max(LATES))
    assert asked.across is not None
    assert asked.across.states is not None
    late = LateScorer(cascade.store, asked.across, "images").scores(found.ids)
    wanted = {*found.ids[: max(RERANKS)].tolist()}
    for k in LATES:
        wanted |= {*found.ids[:k][np.argsort(-late[:k], kind="stable")][: max(RERANKS)].tolist()}
    ids = np.array(sorted(wanted))
    stored, count = cascade.store.fetch(ids, "states"), len(ids)
    words, mask = np.repeat(asked.across.states, count, axis=0), np.repeat(asked.across.mask, count, axis=0)
    logits = cascade.model.match(words, mask, stored.values, stored.mask)
    return {
        "items": found.ids.tolist(),
        "embed": found.embed.tolist(),
        "late": late.tolist(),
        "logits": dict(zip(ids.tolist(), logits.tolist(), strict=True)),
    }


def costs(cascade: Cascade, texts: Sequence[str]) -> dict[str, Any]:
    """Median milliseconds of every stage, over searches for texts: of late interaction and matching by how many."""
    took: dict[str, dict[int, list[float]]] = {"encode": {}, "retrieve": {}, "interact": {}, "match": {}}
    for text in texts:
        for late in (0, *LATES):
            found = cascade.run(SearchOptions(text, late=late, rerank=0)).took_ms
            for part in ("encode", "retrieve", "interact"):
                took[part].setdefault(late, []).append(found[part])
        for rerank in RERANKS:
            took["match"].setdefault(rerank, []).append(
                cascade.run(SearchOptions(text, rerank=rerank)).took_ms["match"]
            )
    medians = {part: {k: median(times) for k, times in by_k.items()} for part, by_k in took.items()}
    return {**medians, "encode": median(medians["encode"].values()), "retrieve": median(medians["retrieve"].values())}


def rows(judged: Judged, stages: dict[str, Any], joined: Defaults) -> Iterator[dict[str, Any]]:
    """Every cascade of the grid: what it finds and takes, against matching alone, and against the default."""
    usual, first = judged.ranks(0, Defaults().rerank, joined), judged.picture % 2 == 0
    for late, rerank in product((0, *LATES), RERANKS):
        found, alone = judged.ranks(late, rerank, joined), judged.ranks(0, rerank, joined)
        ms = stages["encode"] + stages["retrieve"] + stages["interact"][late] + stages["match"][rerank]
        halves = {"first_half": first, "second_half": ~first}
        yield {
            "late": late,
            "rerank": rerank,
            "ms": ms,
            "text_to_image": summary(found),
            "gain": gain(alone, found, judged.picture)["sum"],
            "over_usual": {name: gain(usual[h], found[h], judged.picture[h]) for name, h in halves.items()},
        }


def gain(before: Scores, after: Scores, picture: Ids) -> dict[str, dict[str, float]]:
    """How much higher recalls and their sum are after than before, with 95 % intervals of drawing pictures."""
    members = np.unique(picture, return_inverse=True)[1]
    count = int(members.max()) + 1
    sizes = np.bincount(members)
    more = {f"R@{k}": np.bincount(members, (after <= k) * 1.0 - (before <= k), count) for k in CUTOFFS}
    more["sum"] = np.sum(list(more.values()), axis=0)
    draws = np.random.default_rng(0).multinomial(count, np.full(count, 1 / count), RESAMPLES)
    found = {}
    for name, hits in more.items():
        low, high = np.quantile(100 * (draws @ hits) / (draws @ sizes), [0.025, 0.975])
        value = 100 * float(hits.sum()) / len(members)
        found[name] = {"value": round(value, 3), "low": round(float(low), 3), "high": round(float(high), 3)}
    return found


def chosen(result: dict[str, Any]) -> tuple[int, int]:
    """The cascade that a bundle should have, from a result of this script.

    Of those that take no longer than the usual one, the best of the first half of the pictures is tried on the second
    half: it is chosen if it finds more than the usual one there too, with an interval above zero.
    """
    (usual,) = [row for row in result["rows"] if (row["late"], row["rerank"]) == (0, Defaults().rerank)]
    quick = [row for row in result["rows"] if row["ms"] <= EQUAL * usual["ms"]]
    best = max(quick, key=lambda row: row["over_usual"]["first_half"]["sum"]["value"])
    is_better = best["over_usual"]["second_half"]["sum"]["low"] > 0
    usual_stages = (Defaults().late, Defaults().rerank)
    return (best["late"], best["rerank"]) if is_better else usual_stages


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run it all; gives the result."""
    model = Bundle.open(locate(arguments.model))
    data = os.environ["SIGHTLINE_DATA"]
    names = ["flickr8k-test", "coco-distractors"]
    records, others = (read_all([f"{data}/{name}.tar"])[: arguments.limit] for name in names)
    with Collection.open(gallery(records, others, model, arguments.work), model) as collection:
        cascade = Cascade(model, collection.store, "images", Costs(model.sha256))
        asked = questions(collection, records, arguments.captions)
        judged = judge(cascade, asked, arguments.work / "judged.jsonl")
        stages = costs(cascade, [question.text for question in asked[: arguments.timed]])
        found = list(rows(judged, stages, model.defaults))
        items = len(collection)
    result = {"experiment": "cascade", **provenance(0, names), "load_average": os.getloadavg()[0], "model": model.name}
    result |= {"items": items, "questions": len(asked), "stages": stages, "rows": found}
    return {**result, "chosen": dict(zip(("late", "rerank"), chosen(result), strict=True))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="default")
    parser.add_argument("--work", type=Path, default=Path("runs/cascade"), help="where the gallery is kept")
    parser.add_argument("--limit", type=int, help="only the first so many test pictures, and distractors")
    parser.add_argument("--captions", type=int, default=1, help="questions a test picture")
    parser.add_argument("--timed", type=int, default=20, help="questions to measure times by")
    parser.add_argument("--json", type=Path, default=RESULTS / "cascade.json")
    parser.add_argument("--write", type=Path, metavar="BUNDLE", help="measure nothing: write what --json has chosen")
    arguments = parser.parse_args()
    if arguments.write:
        late, rerank = chosen(json.loads(arguments.json.read_text(encoding="utf-8")))
        spec = read_spec(arguments.write)
        defaults = dataclasses.replace(spec.defaults, late=late, rerank=rerank)
        write_spec(arguments.write, dataclasses.replace(spec, defaults=defaults))
        return
    result = measure(arguments)
    print("chosen", result["chosen"])
    write_result(arguments.json, result)


if __name__ == "__main__":
    main()
