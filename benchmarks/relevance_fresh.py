"""Test the bundled relevance on images, nouns and names that were not used to fit, choose or test it before.

    python -m benchmarks.relevance_fresh

Besides the sets of `benchmarks.relevance`, SIGHTLINE_DATA needs the shards coco-test (images of Karpathy's COCO test
split with their five captions) and imagenet-sample (one image for each of ImageNet's 1,000 names, its label). The
embedding model was trained on neither. Nouns are those of nouns.toml, and then those of relevance_other_nouns.toml,
which no earlier test asked for. Names that are labels in names-val are not used as queries, nor those that captions
often mention: images with another label may show them too.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.relevance import FITTED, MORE, Images, Lab, measured, opened, options, save
from sightline.bundle.relevance_formula import PairRelevance
from sightline.onnx_export.relevance_fit import fit_relevance
from sightline.onnx_export.relevance_truth import Captions, nouns_from

NEW = ("coco-test", "imagenet-sample")
SETS = (*FITTED, *NEW, "flickr8k-test", *MORE)
SEED = 2026
OFTEN = 10  # captions that mention a name
OTHER_NOUNS = Path(__file__).with_name("relevance_other_nouns.toml")


def run(lab: Lab, sets: Mapping[str, Images], shipped: PairRelevance) -> list[dict[str, Any]]:
    """Test the shipped relevance, and relevance fitted on the other source alone, in collections of three sizes."""
    names = sets["names-val"]
    fits = {
        "all validation sets": shipped,
        "flickr8k-val": fit_relevance(lab.judged(sets["flickr8k-val"].joined(names.half(0))), lab.words),
        "coco-val": fit_relevance(lab.judged(sets["coco-val"].joined(names.half(1))), lab.words),
    }
    coco, flickr8k = sets["coco-test"].joined(sets["imagenet-sample"]), sets["flickr8k-test"]
    same = replace(lab, seed=SEED, skipped=_labels(names) | _common(sets["imagenet-sample"], sets["coco-test"]))
    other = replace(same, nouns=nouns_from(tomllib.loads(OTHER_NOUNS.read_text(encoding="utf-8"))))
    # Images of Flickr8k's test set were in earlier tests, so they are only asked for other nouns.
    tests = [
        ("flickr8k-val", "coco-test", "nouns.toml", same, coco, flickr8k),
        ("flickr8k-val", "coco-test", "other nouns", other, coco, flickr8k),
        ("coco-val", "flickr8k-test", "other nouns", other, flickr8k, coco),
        ("all validation sets", "coco-test", "nouns.toml", same, coco, flickr8k),
        ("all validation sets", "coco-test", "other nouns", other, coco, flickr8k),
        ("all validation sets", "flickr8k-test", "other nouns", other, flickr8k, coco),
    ]
    found = []
    for fitted, tested, nouns, asking, images, second in tests:
        about = {"fitted_on": fitted, "tested_on": tested, "nouns": nouns, "line": fits[fitted].line}
        medium = [second, sets["web-val"]]
        for others in ([], medium, [*medium, *(sets[name] for name in MORE if name in sets)]):
            found.append({**about, **measured(asking, fits[fitted], images, others)})
    return found


def _labels(images: Images) -> frozenset[str]:
    return frozenset(record.label.lower() for record in images.records if record.label)


def _common(named: Images, captioned: Images) -> frozenset[str]:
    """Return the labels that many captions mention."""
    captions = Captions(captioned.records)
    return frozenset(name for name in _labels(named) if captions.mentions([name]).sum() >= OFTEN)


def main() -> None:
    arguments = options(__doc__, "relevance-fresh").parse_args()
    bundle, sets = opened(arguments, SETS)
    if bundle.relevance is None:
        raise SystemExit(f"{arguments.model} has no relevance formula")
    save(arguments, SEED, sets, {"tests": run(Lab(bundle, bundle.words), sets, bundle.relevance)})


if __name__ == "__main__":
    main()
