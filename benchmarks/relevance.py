"""Fit the relevance of a bundle, and evaluate it on data that it was not fitted on.

    python -m benchmarks.relevance --write

Needs the shards of SETS in SIGHTLINE_DATA; missing sets are skipped. Images are encoded once: --embeddings names a
folder with a file SET.npz for each set, with the `keys` [n] of its records and their `embeddings` [n, dim]. Only images
with an embedding there are used.
--write stores the fitted relevance in the bundle's spec, which must have words (see `export`).
`python -m replication.results_page` shows the results.
"""

import argparse
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.provenance import RESULTS, ROOT, provenance, write_result
from sightline.arrays import Float32Array, Int64Array
from sightline.bundle import Bundle
from sightline.bundle.relevance_formula import PairRelevance
from sightline.bundle.spec import read_spec, write_spec
from sightline.bundle.words import Words
from sightline.datasets import Record, read_all
from sightline.evaluation.encodings import Needs, encode_images, encode_texts
from sightline.onnx_export.relevance_fit import (
    JudgedQuery,
    balanced_accuracy,
    best_chances,
    by_kind,
    calibration_error,
    fit_relevance,
    judge,
    top_error,
    top_pairs,
)
from sightline.onnx_export.relevance_truth import SHOWN, Captions, Noun, noun_queries, truth_queries

FITTED = ("flickr8k-val", "coco-val", "names-val", "web-val")
MORE = tuple(f"coco72k-{shard:03}" for shard in (20, 21, 22, 23, *range(12)))
"""Sets whose images with at least CAPTIONS captions fill up a collection of LARGE images."""

MEDIUM = ("flickr8k-test", "web-val")
SETS = (*FITTED, "flickr8k-test", *MORE)
CAPTIONS = 3  # the truth about images with fewer is mostly unknown
SMALL, DRAWS, LARGE = 300, 5, 10_000
SAID = 2  # captions that prove presence
COMMON, ENOUGH = 60, 3  # nouns in the sample collection, and the minimum number of its photos that show each
BINS = 10
ABSENT = Path(__file__).with_name("relevance_absent.txt").read_text(encoding="utf-8").splitlines()
"""Names of things that few photos show."""

OFTEN_SHOWN = Path(__file__).with_name("relevance_common.txt").read_text(encoding="utf-8").splitlines()
"""Further common nouns, each followed by words that imply it. Captions often omit them, so they only prove presence."""


@dataclass(frozen=True, slots=True)
class Images:
    """Records with the embeddings [records, dim] of their images."""

    records: list[Record]
    embeddings: Float32Array

    def taken(self, places: Iterable[int]) -> "Images":
        """Return the images at these indices."""
        chosen = list(places)
        return Images([self.records[place] for place in chosen], self.embeddings[chosen])

    def joined(self, *others: "Images") -> "Images":
        """Return these images followed by others."""
        records = [record for one in (self, *others) for record in one.records]
        return Images(records, np.concatenate([self.embeddings, *(one.embeddings for one in others)]))

    def half(self, part: int) -> "Images":
        """Return the images with every second label (or key, if there is no label), starting at `part`."""
        names = {label: place for place, label in enumerate(sorted({one.label or one.key for one in self.records}))}
        return self.taken(n for n, one in enumerate(self.records) if names[one.label or one.key] % 2 == part)


@dataclass(slots=True)
class Lab:
    """A bundle with its words, and which queries to ask.

    seed: draws collections, scenes and sentences. nouns: the nouns to ask for; by default those of nouns.toml.
    skipped: names, in lower case, that are not used as queries.
    """

    bundle: Bundle
    words: Words
    seed: int = 0
    nouns: Sequence[Noun] | None = None
    skipped: frozenset[str] = frozenset()
    _texts: dict[str, Float32Array] = field(default_factory=dict)

    def judged(
        self, images: Images, galleries: Sequence[Int64Array | slice] = (slice(None),), asked: int | None = None
    ) -> list[JudgedQuery]:
        """Judge queries with known truth in each gallery (indices); only the first `asked` images give sentences."""
        queries = truth_queries(images.records, asked=asked, seed=self.seed, nouns=self.nouns)
        queries = [query for query in queries if query.kind != "name" or query.text.lower() not in self.skipped]
        texts = self.texts([query.text for query in queries])
        found = []
        for places in galleries:
            own = [replace(query, truth=query.truth[places]) for query in queries]
            found += judge(own, texts, images.embeddings[places])
        return found

    def texts(self, texts: Sequence[str]) -> Float32Array:
        """Return the embeddings [texts, dim] of texts; each text is encoded once."""
        new = [text for text in dict.fromkeys(texts) if text not in self._texts]
        if new:
            self._texts.update(zip(new, encode_texts(self.bundle, new, Needs(), 64)[0].embedding, strict=True))
        return np.stack([self._texts[text] for text in texts])


def load(name: str, folder: Path, bundle: Bundle, cache: Path) -> Images | None:
    """Return the images of a set, encoded or from the cache; None if there are none."""
    if not (folder / f"{name}.tar").is_file():
        return None
    records = read_all([folder / f"{name}.tar"])
    if name in MORE:
        records = [record for record in records if len(record.captions.get("en", ())) >= CAPTIONS]
    path = cache / f"{name}.npz"
    if not path.is_file():
        print(f"{name}: encoding {len(records):,} images", flush=True)
        encoded, readable = encode_images(bundle, [record.image for record in records], Needs(), 8)
        cache.mkdir(parents=True, exist_ok=True)
        np.savez(path, keys=np.array([records[place].key for place in readable]), embeddings=encoded.embedding)
    with np.load(path) as stored:
        known = dict(zip(stored["keys"].tolist(), stored["embeddings"], strict=True))
    found = [record for record in records if record.key in known]
    return Images(found, np.stack([known[record.key] for record in found])) if found else None


def measured(lab: Lab, fitted: PairRelevance, images: Images, others: Sequence[Images] = ()) -> dict[str, Any]:
    """Measure by kind of query, over galleries of SMALL images or, with `others`, of half of the images plus `others`.

    Anything that only images outside a gallery show counts as absent from it. A gallery has at most LARGE images.
    """
    rng, count = np.random.default_rng(lab.seed + 1), len(images.records)
    if others:
        images = images.joined(*others)
        half = np.sort(rng.permutation(count)[: count // 2])
        galleries = [np.concatenate([half, np.arange(count, len(images.records))])[:LARGE]]
    else:
        galleries = [rng.choice(count, min(SMALL, count), replace=False) for _ in range(DRAWS)]
    judged = by_kind(one for one in lab.judged(images, galleries, count) if len(one.cosines))
    kinds = {kind: _figures(lab, fitted, own) for kind, own in judged.items()}
    return {"images": len(galleries[0]), "kinds": kinds}


def _figures(lab: Lab, fitted: PairRelevance, judged: list[JudgedQuery]) -> dict[str, Any]:
    stated, shown = top_pairs(judged, fitted, lab.words)
    best, present = best_chances(judged, fitted, lab.words)
    many = np.array([one.shown.sum() >= ENOUGH for one in judged if len(one.cosines)], dtype=np.bool_)
    place = np.minimum((stated * BINS).astype(int), BINS - 1)
    return {
        "error": calibration_error(stated, shown),
        "error_of_present": top_error([one for one in judged if one.shown.any()], fitted, lab.words),
        "present_above_line": float((best[present] >= fitted.line).mean()) if present.any() else None,
        "shown_by_three_above_line": float((best[many] >= fitted.line).mean()) if many.any() else None,
        "balanced_accuracy": balanced_accuracy(best, present, fitted.line),
        "bins": [
            [int(np.sum(place == b)), float(stated[place == b].mean()), float(shown[place == b].mean())]
            for b in range(BINS)
            if (place == b).any()
        ],
    }


def collection_of_300(lab: Lab, fitted: PairRelevance, images: Images) -> dict[str, Any]:
    """Return the common nouns for which nothing was found, and the absent things for which something was found."""
    captions = Captions(images.records)
    shown = {query.text: int((query.truth == SHOWN).sum()) for query in noun_queries(captions)}
    often = [line.split() for line in OFTEN_SHOWN]
    shown |= {words[0]: int((captions.mentions(words) >= SAID).sum()) for words in often}
    common = [noun for noun, count in sorted(shown.items(), key=lambda one: -one[1]) if count >= ENOUGH][:COMMON]
    absent = [text for text in ABSENT if not captions.mentions([text.split(" ", 1)[1].lower()]).any()]

    def best(texts: Sequence[str]) -> dict[str, float]:
        cosines = (lab.texts(texts) @ images.embeddings.T).max(axis=1)
        return {t: float(fitted.of(t, c[None], lab.words)[0]) for t, c in zip(texts, cosines, strict=True)}

    return {
        "images": len(images.records),
        "common": len(common),
        "not_found": sorted(text for text, chance in best(common).items() if chance < fitted.line),
        "absent": len(absent),
        "found": sorted(text for text, chance in best(absent).items() if chance >= fitted.line),
    }


def run(lab: Lab, sets: Mapping[str, Images]) -> tuple[PairRelevance, dict[str, Any]]:
    """Fit on one source and test on another, in both directions; then fit on all validation sets."""
    names = sets.get("names-val")

    def with_names(source: str, part: int) -> Images:
        return sets[source] if names is None else sets[source].joined(names.half(part))

    def test(fitted: PairRelevance, on: str, name: str, images: Images, *more: Sequence[str]) -> None:
        about = {"fitted_on": on, "tested_on": name, "line": fitted.line}
        found = [[], *([sets[one] for one in some if one in sets] for some in more)]
        sizes = {len(others): others for others in found}
        tests.extend({**about, **measured(lab, fitted, images, others)} for others in sizes.values())

    tests: list[dict[str, Any]] = []
    sides = {"flickr8k-val": with_names("flickr8k-val", 0), "coco-val": with_names("coco-val", 1)}
    for learn, other in (("flickr8k-val", "coco-val"), ("coco-val", "flickr8k-val")):
        fitted = fit_relevance(lab.judged(sides[learn]), lab.words)
        test(fitted, learn, other, sides[other], MEDIUM, (*MEDIUM, *MORE))
    used = [name for name in FITTED if name in sets]
    # Each source is its own collection: images from elsewhere are too easy to tell from those that a text describes.
    alone = [sets[name] for name in used if name not in sides and name != "names-val"]
    final = fit_relevance([one for own in (*sides.values(), *alone) for one in lab.judged(own)], lab.words, data=used)
    kinds = sorted({kind for one in tests for kind in one["kinds"]})
    mean = {kind: np.mean([one["kinds"][kind]["error"] for one in tests if kind in one["kinds"]]) for kind in kinds}
    final = replace(final, error={kind: round(float(value), 4) for kind, value in mean.items()})
    result: dict[str, Any] = {"tests": tests, "weights": dict(final.weights), "line": final.line}
    if "flickr8k-test" in sets:
        unseen = sets["flickr8k-test"]
        test(final, "all validation sets", "flickr8k-test", unseen, MORE)
        halves = [one.taken(range(min(SMALL // 2, len(one.records)))) for one in (unseen, sets["coco-val"])]
        result["collection"] = collection_of_300(lab, final, halves[0].joined(halves[1]))
    return final, result


def options(description: str | None, name: str) -> argparse.ArgumentParser:
    """Return the parser for the options of this script and relevance_fresh.py; name: the name of the experiment."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=ROOT / "bundles" / "default")
    parser.add_argument("--embeddings", type=Path, help="a folder of SET.npz; by default one below runs/relevance")
    parser.add_argument("--json", type=Path, default=RESULTS / f"{name}.json")
    parser.set_defaults(experiment=name)
    return parser


def opened(arguments: argparse.Namespace, names: Iterable[str]) -> tuple[Bundle, dict[str, Images]]:
    """Open the bundle to test, and the sets that are available."""
    bundle = Bundle.open(arguments.model)
    cache = arguments.embeddings or Path("runs/relevance", bundle.sha256[:12])
    loaded = {name: load(name, Path(os.environ["SIGHTLINE_DATA"]), bundle, cache) for name in names}
    return bundle, {name: images for name, images in loaded.items() if images is not None}


def save(arguments: argparse.Namespace, seed: int, sets: Mapping[str, Images], result: Mapping[str, Any]) -> None:
    """Write the result file."""
    sizes = {name: len(images.records) for name, images in sets.items()}
    about = {"experiment": arguments.experiment, **provenance(seed, list(sets)), "sizes": sizes}
    write_result(arguments.json, {**about, **result})


def main() -> None:
    parser = options(__doc__, "relevance")
    parser.add_argument("--write", action="store_true", help="put the fitted relevance into the bundle")
    arguments = parser.parse_args()
    bundle, sets = opened(arguments, SETS)
    fitted, result = run(Lab(bundle, bundle.words), sets)
    save(arguments, 0, sets, result)
    if arguments.write:
        write_spec(arguments.model, replace(read_spec(arguments.model), relevance=fitted))
    print(json.dumps(result.get("collection", {}), indent=1))


if __name__ == "__main__":
    main()
