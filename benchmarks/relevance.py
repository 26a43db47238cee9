"""Fit the relevance of a bundle, and measure it on data that it was not fitted on.

    python -m benchmarks.relevance --write

Needs the shards of SETS in SIGHTLINE_DATA; sets that are missing are left out. Encoding takes minutes and is cached.
--write puts the fitted relevance, and the words of the captions that the bundle was trained on, into its spec.
`python -m replication.results_page` shows the results.
"""

import argparse
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.provenance import RESULTS, ROOT, provenance, write_result
from sightline.arrays import Float32Array
from sightline.bundle import Bundle
from sightline.bundle.relevance import PairRelevance
from sightline.bundle.spec import read_spec, write_spec
from sightline.bundle.words import Words, most_frequent
from sightline.datasets import Record, read_all
from sightline.evaluation.encodings import Needs, encode_images
from sightline.evaluation.relevance import (
    JudgedQuery,
    balanced_accuracy,
    best_chances,
    by_kind,
    calibration_error,
    fit_relevance,
    judge,
    top_pairs,
)
from sightline.evaluation.truth import SHOWN, Captions, noun_queries, truth_queries
from sightline.retrieval.relevance import relevance as gallery_relevance

SETS = ("flickr8k-val", "coco-val", "names-val", "flickr8k-test", "web-val", "coco-distractors")
TRAINED = ("flickr8k-train-*.tar", "coco-train-*.tar")
"""What a bundle that has noted no words was trained on."""

SMALL, DRAWS = 300, 5
COMMON, ENOUGH = 60, 3  # nouns of the sample collection, and how many of its photos show each at least
BINS = 10
ABSENT = (
    *("an X-ray", "a receipt", "a penguin", "a whale", "a volcano", "a submarine", "a microscope", "a violin"),
    *("a rocket launch", "a spreadsheet", "a circuit board", "a camel", "an octopus", "a lighthouse", "a map"),
    *("a passport", "a chess board", "a spider", "a kangaroo", "a windmill", "a piano", "a crocodile", "a jellyfish"),
    *("a dinosaur skeleton", "a tank", "a handwritten letter", "a bar chart", "a galaxy", "an accordion", "a cactus"),
    *("a snail", "a parachute", "a trombone", "a telescope", "an ultrasound scan", "a bank statement", "a castle"),
    *("a tornado", "a mushroom", "an igloo"),
)


@dataclass(frozen=True, slots=True)
class Images:
    """Records with the embeddings [records, dim] of their images."""

    records: list[Record]
    embeddings: Float32Array

    def taken(self, places: Iterable[int]) -> "Images":
        """Those at some places."""
        chosen = list(places)
        return Images([self.records[place] for place in chosen], self.embeddings[chosen])

    def joined(self, other: "Images") -> "Images":
        """These and others."""
        return Images(self.records + other.records, np.concatenate([self.embeddings, other.embeddings]))

    def half(self, part: int) -> "Images":
        """Every second name of labelled images, all others of the other part."""
        names = {label: place for place, label in enumerate(sorted({one.label or one.key for one in self.records}))}
        return self.taken(n for n, one in enumerate(self.records) if names[one.label or one.key] % 2 == part)


@dataclass(slots=True)
class Lab:
    """A bundle, what it made of texts so far, and the words that are familiar to it."""

    bundle: Bundle
    words: Words
    _texts: dict[str, Float32Array]

    def judged(self, images: Images, sentences: int = 500) -> list[JudgedQuery]:
        """All queries that the truth of some images gives."""
        queries = truth_queries(images.records, sentences=sentences)
        return judge(queries, self.texts([query.text for query in queries]), images.embeddings)

    def texts(self, texts: Sequence[str]) -> Float32Array:
        """Embeddings [texts, dim]; each text is encoded once."""
        new = [text for text in dict.fromkeys(texts) if text not in self._texts]
        for start in range(0, len(new), 64):
            some = new[start : start + 64]
            self._texts.update(zip(some, self.bundle.encode_texts(some).embedding, strict=True))
        return np.stack([self._texts[text] for text in texts])


def load(name: str, folder: Path, bundle: Bundle, cache: Path, cached: bool) -> Images | None:
    """The images of a set, encoded or from the cache; None where there are none. cached: only those in the cache."""
    if not (folder / f"{name}.tar").is_file():
        return None
    records = read_all([folder / f"{name}.tar"])
    path = cache / f"{name}-{bundle.sha256[:12]}.npz"
    known: dict[str, Float32Array] = {}
    if path.is_file():
        with np.load(path) as stored:
            known = dict(zip(stored["keys"].tolist(), stored["embeddings"], strict=True))
    new = [record for record in records if record.key not in known]
    if new and not cached:
        print(f"{name}: encoding {len(new):,} images", flush=True)
        encoded, readable = encode_images(bundle, [record.image for record in new], Needs(), 8)
        known |= {new[place].key: vector for place, vector in zip(readable, encoded.embedding, strict=True)}
        cache.mkdir(parents=True, exist_ok=True)
        np.savez(path, keys=np.array(list(known)), embeddings=np.stack(list(known.values())))
    found = [record for record in records if record.key in known]
    if not found:
        return None
    return Images(found, np.stack([known[record.key] for record in found]))


def trained_words(shards: Sequence[Path]) -> list[str]:
    """The words of the captions of training shards."""
    return most_frequent(text for record in read_all(shards) for text in record.captions.get("en", ()))


def measured(lab: Lab, fitted: PairRelevance, images: Images, size: int | None, seed: int = 0) -> dict[str, Any]:
    """Figures by kind of query: over all images or, with a size, over several galleries of that many."""
    rng = np.random.default_rng(seed)
    galleries = [images]
    if size is not None and size < len(images.records):
        galleries = [images.taken(rng.choice(len(images.records), size, replace=False)) for _ in range(DRAWS)]
    judged = by_kind(one for gallery in galleries for one in lab.judged(gallery))
    return {
        "images": len(galleries[0].records),
        "galleries": len(galleries),
        "kinds": {kind: _figures(lab, fitted, own, len(galleries[0].records)) for kind, own in judged.items()},
    }


def _figures(lab: Lab, fitted: PairRelevance, judged: list[JudgedQuery], items: int) -> dict[str, Any]:
    stated, shown = top_pairs(judged, fitted, lab.words)
    best, present = best_chances(judged, fitted, lab.words)
    many = np.array([one.shown.sum() >= ENOUGH for one in judged if len(one.cosines)], dtype=np.bool_)
    place = np.minimum((stated * BINS).astype(int), BINS - 1)
    found: dict[str, Any] = {
        "queries": len(judged),
        "error": calibration_error(stated, shown),
        "present": int(present.sum()),
        "present_above_line": float((best[present] >= fitted.line).mean()) if present.any() else None,
        "shown_by_three_above_line": float((best[many] >= fitted.line).mean()) if many.any() else None,
        "absent": int((~present).sum()),
        "balanced_accuracy": balanced_accuracy(best, present, fitted.line),
        "bins": [
            [int(np.sum(place == b)), float(stated[place == b].mean()), float(shown[place == b].mean())]
            for b in range(BINS)
            if (place == b).any()
        ],
    }
    old = lab.bundle.calibration.get("embed")
    if old is not None:
        before = np.concatenate([gallery_relevance(one.cosines[:10], old, items) for one in judged])
        found["older_error"] = calibration_error(before, shown)
    return found


def collection_of_300(lab: Lab, fitted: PairRelevance, images: Images) -> dict[str, Any]:
    """Common nouns that say that nothing was found, and absent things that show a match."""
    captions = Captions(images.records)
    shown = {query.text: int((query.truth == SHOWN).sum()) for query in noun_queries(captions)}
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
    """Fit on one source and test on another, both ways; then fit on all validation sets."""
    names = sets.get("names-val")

    def with_names(source: str, part: int) -> Images:
        return sets[source] if names is None else sets[source].joined(names.half(part))

    sides = {"flickr8k-val": with_names("flickr8k-val", 0), "coco-val": with_names("coco-val", 1)}
    judged = {name: lab.judged(images) for name, images in sides.items()}
    tests = []
    for learn, test in (("flickr8k-val", "coco-val"), ("coco-val", "flickr8k-val")):
        fitted = fit_relevance(judged[learn], lab.words)
        whole = sides[test]
        if "coco-distractors" in sets:
            whole = whole.joined(sets["coco-distractors"])
        for images, size in ((sides[test], SMALL), (whole, None)):
            tests.append(
                {"fitted_on": learn, "tested_on": test, "line": fitted.line, **measured(lab, fitted, images, size)}
            )
    used = [name for name in ("flickr8k-val", "coco-val", "names-val", "web-val") if name in sets]
    everything = sets[used[0]]
    for name in used[1:]:
        everything = everything.joined(sets[name])
    final = fit_relevance(lab.judged(everything), lab.words, data=used)
    kinds = sorted({kind for test in tests for kind in test["kinds"]})
    mean = {kind: np.mean([test["kinds"][kind]["error"] for test in tests if kind in test["kinds"]]) for kind in kinds}
    final = replace(final, error={kind: round(float(value), 4) for kind, value in mean.items()})
    result: dict[str, Any] = {"tests": tests, "weights": dict(final.weights), "line": final.line}
    if "flickr8k-test" in sets:
        unseen = sets["flickr8k-test"]
        for size in (SMALL, None):
            one = {"fitted_on": "all validation sets", "tested_on": "flickr8k-test", "line": final.line}
            tests.append({**one, **measured(lab, final, unseen, size)})
        halves = [one.taken(range(min(SMALL // 2, len(one.records)))) for one in (unseen, sets["coco-val"])]
        result["collection"] = collection_of_300(lab, final, halves[0].joined(halves[1]))
    return final, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=ROOT / "bundles" / "default")
    parser.add_argument("--cache", type=Path, default=Path("runs/relevance"))
    parser.add_argument("--cached", action="store_true", help="use only images that are in the cache")
    parser.add_argument("--json", type=Path, default=RESULTS / "relevance.json")
    parser.add_argument("--write", action="store_true", help="put the fitted relevance into the bundle")
    arguments = parser.parse_args()
    folder = Path(os.environ["SIGHTLINE_DATA"])
    bundle = Bundle.open(arguments.model)
    loaded = {name: load(name, folder, bundle, arguments.cache, arguments.cached) for name in SETS}
    sets = {name: images for name, images in loaded.items() if images is not None}
    words = bundle.words or Words(trained_words([one for name in TRAINED for one in sorted(folder.glob(name))]))
    fitted, result = run(Lab(bundle, words, {}), sets)
    sizes = {name: len(images.records) for name, images in sets.items()}
    write_result(arguments.json, {"experiment": "relevance", **provenance(0, list(sets)), "sizes": sizes, **result})
    if arguments.write:
        write_spec(arguments.model, replace(read_spec(arguments.model), relevance=fitted, words=" ".join(words)))
    print(json.dumps(result.get("collection", {}), indent=1))


if __name__ == "__main__":
    main()
