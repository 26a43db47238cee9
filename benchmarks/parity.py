"""Whether searching a collection finds as much as `sightline eval` says of its model.

    python benchmarks/parity.py

Needs SIGHTLINE_DATA and the bundled model. Indexes the 1,000 photos of Flickr8k's test set, searches for each of their
5,000 captions, with and without a rerank, and compares the recalls with those that the bundle has of its evaluation by
the same stages. Stored vectors are rounded to half precision and states to eight bits, so a rank that hangs by a thread
may move.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from measuring.provenance import provenance
from sightline.bundle import Bundle
from sightline.collection import Collection, index
from sightline.datasets import Record, read_all
from sightline.registry.loader import locate

K = (1, 5, 10)


def recalls(collection: Collection, bundle: Bundle, records: list[Record], rerank: int) -> dict[str, float]:
    """Per cent of captions whose photo is among the first k that are found."""
    found = dict.fromkeys(K, 0)
    captions = [(record.key, caption) for record in records for caption in record.captions_in("en")]
    for key, caption in captions:
        result = collection.search(caption, k=max(K), rerank=rerank, duplicates="show", model=bundle)
        names = [Path(hit.path).stem for hit in result]
        for k in K:
            found[k] += key in names[:k]
    return {f"R@{k}": 100 * count / len(captions) for k, count in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/parity.json"))
    arguments = parser.parse_args()
    bundle = Bundle.open(locate("default"))
    records = read_all([os.environ["SIGHTLINE_DATA"] + "/flickr8k-test.tar"])
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="sightline-parity-") as folder:
        for record in records:
            (Path(folder) / f"{record.key}.webp").write_bytes(record.image.read())
        index(folder, model=bundle)
        with Collection.open(folder, bundle) as collection:
            for stages in (["embed"], ["embed", "match@20"]):
                started = time.perf_counter()
                found = recalls(collection, bundle, records, 20 if len(stages) > 1 else 0)
                (evaluated,) = [one["text_to_image"] for one in bundle.spec.results if one["stages"] == stages]
                told = {name: evaluated[name] for name in found}
                furthest = max(abs(found[name] - told[name]) for name in found)
                row = {"stages": stages, "searched": found, "evaluated": told, "furthest_apart": furthest}
                rows.append(row | {"seconds": time.perf_counter() - started})
                print(*stages, "searched", found, "evaluated", told, f"at most {furthest:.2f} apart", flush=True)
    result = {"experiment": "parity", **provenance(0, ["flickr8k-test"]), "photos": len(records), "rows": rows}
    arguments.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
