"""Search for synthetic documents among photos by five of their words: by appearance, by their text, and by both.

    python -m benchmarks.ocr

The photos are searched for by their names, to see whether text hurts searches for what images show. Every fusion rule
is measured; `searches` is the one in use.
"""

import argparse
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import sightline
from benchmarks.documents import make_documents
from benchmarks.provenance import RESULTS, provenance, write_result
from sightline.collection.collection import Collection
from sightline.collection.picture_text.reading import read_pictures
from sightline.collection.picture_text.search import find_text
from sightline.demo import PICTURES
from sightline.retrieval.options import SearchOptions

_RESULTS = 20
_RANK_CONSTANT = 60  # as in Cormack et al., 2009


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=60)
    parser.add_argument("--seed", type=int, default=22)
    parser.add_argument("--folder", type=Path, help="Keep the documents and their collection here.")
    parser.add_argument("--out", type=Path, default=RESULTS / "ocr.json")
    given = parser.parse_args()
    with TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        result = measured(folder, given.documents, given.seed)
    write_result(given.out, {**provenance(given.seed, ["made documents", "sightline/demo/pictures"]), **result})
    print(result["documents"], result["photos"], sep="\n")


def measured(folder: Path, count: int, seed: int) -> dict[str, Any]:
    """Put documents and photos into a folder, index them and read their text, and search for all of them."""
    queries: dict[str, str] = {}
    kinds: dict[str, str] = {}
    for number, document in enumerate(make_documents(count, seed)):
        name = f"{document.kind}-{number:02}.jpg"
        document.image.save(folder / name, quality=document.quality)
        queries[name], kinds[name] = document.query, document.kind
    photos: dict[str, str] = {}
    for path in sorted(PICTURES.glob("*.jpg")):
        (folder / path.name).write_bytes(path.read_bytes())
        photos[path.name] = path.stem.replace("-", " ")
    report = sightline.index(folder)
    with sightline.open(folder) as collection:
        first = _milliseconds(collection, list(queries.values()))
    read = read_pictures(report.at)
    with sightline.open(folder) as collection:
        documents = _found_first(collection, queries)
        found = _found_first(collection, photos)
        missed = sorted(set(queries) - documents["searches"])
        return {
            "documents": {"count": count, "words": 5, "found_first": _counts(documents), "missed": missed},
            "photos": {"count": len(photos), "found_first": _counts(found)},
            "reading": {
                "pictures": read.read,
                "with_text": read.with_text,
                "seconds": round(read.seconds, 1),
                "per_picture_seconds": round(read.seconds / max(1, read.read), 2),
            },
            "indexing_seconds": round(report.seconds, 1),
            "search_cpu_ms": {"before_text": first, "with_text": _milliseconds(collection, list(queries.values()))},
        }


def _milliseconds(collection: Collection, queries: Sequence[str]) -> float:
    """The median CPU time of a search by embedding and, if text has been read, by text."""
    times = []
    collection.search(queries[0], rerank=0)
    for query in queries:
        began = time.process_time()
        collection.search(query, rerank=0)
        times.append(1000 * (time.process_time() - began))
    return round(sorted(times)[len(times) // 2], 2)


def _found_first(collection: Collection, wanted: Mapping[str, str]) -> dict[str, set[str]]:
    """For each rule, the names of the files that are the first result for their own query."""
    assert collection.picture_text
    found: dict[str, set[str]] = {"by looks": set(), "by text": set(), "reciprocal rank": set(), "searches": set()}
    for name, query in wanted.items():
        looks = [hit.id for hit in collection.search_by_looks(SearchOptions(query, k=_RESULTS))]
        text = [one.id for one in find_text(collection.picture_text, collection.catalog, query)]
        both = [hit.id for hit in collection.search(query, k=_RESULTS)]
        ranked = {"by looks": looks, "by text": text, "reciprocal rank": _added(looks, text), "searches": both}
        for rule, ids in ranked.items():
            if ids and any(file.path == name for file in collection.item(ids[0]).files):
                found[rule].add(name)
    return found


def _counts(found: Mapping[str, set[str]]) -> dict[str, int]:
    return {rule: len(names) for rule, names in found.items()}


def _added(*rankings: Sequence[int]) -> list[int]:
    """Combine rankings by reciprocal rank fusion."""
    scores: dict[int, float] = {}
    for ids in rankings:
        for place, id in enumerate(ids):
            scores[id] = scores.get(id, 0.0) + 1 / (_RANK_CONSTANT + place + 1)
    return sorted(scores, key=lambda id: -scores[id])


if __name__ == "__main__":
    main()
