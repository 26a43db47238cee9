"""Write a bundle's model card, README.md: facts and numbers from its sightline.json, prose from a file.

python -m bundles.card bundles/default --words recipes/default.card.md
"""

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.markdown import table
from sightline.bundle.languages import FOLDER, LanguagesSpec, languages_of, read_languages
from sightline.bundle.relevance_formula import PairRelevance
from sightline.bundle.spec import BundleSpec, identity, read_spec
from sightline.evaluation.report import compare
from sightline.media import require_pixels

ABILITIES = {
    "embed": "one vector for a picture or a text, to search everything by",
    "fragments": "a vector for each part of it, to compare in detail",
    "match": "a judgement on a picture and a text together, to put the best in order",
}


def card(folder: Path, words: str) -> str:
    """Return the card of the bundle in a folder."""
    spec = read_spec(folder)
    add_on = read_languages(folder, identity(spec))
    title, _, rest = words.strip().partition("\n")
    parts = [
        title,
        "<!-- Written by `make card` from sightline.json and the words of the recipe. Do not edit. -->",
        rest.strip(),
        "## What it is",
        table(("", ""), _facts(folder, spec, add_on), words=2),
        "## How well it does",
        results_of(spec),
        *(["### With the fast image graph", results_of(spec.fast_variant())] if spec.fast else []),
        *(["### In other languages", results_of(replace(spec, results=add_on.results))] if add_on else []),
        "## How sure it is",
        _calibration(spec),
        "## Where it comes from",
        "\n".join(_outline(spec.provenance)) or "Its makers did not say.",
        *(["### The other languages", "\n".join(_outline(add_on.provenance))] if add_on and add_on.provenance else []),
    ]
    return "\n\n".join(parts) + "\n"


def _facts(folder: Path, spec: BundleSpec, add_on: LanguagesSpec | None) -> Iterator[tuple[str, str]]:
    files = [*spec.files, *(f"{FOLDER}/{name}" for name in (add_on.files if add_on else ()))]
    sizes = {name: (folder / name).stat().st_size / 1e6 for name in files}
    image = require_pixels(spec.image.input)
    for ability in spec.abilities:
        yield f"`{ability}`", ABILITIES[ability]
    yield "languages", ", ".join(languages_of(spec.text.languages, add_on))
    yield "size", f"{sum(sizes.values()):.1f} MB: " + ", ".join(f"{name} {size:.1f}" for name, size in sizes.items())
    yield "precision", spec.precision
    yield "a vector", f"{spec.embedding_dim} numbers; of a fragment {spec.fragment_dim}"
    yield "a picture", f"{image.size} x {image.size} pixels ({image.resize})"
    if spec.fast is not None:
        small = require_pixels(spec.fast.image.input)
        yield "a picture, `--quick`", f"{small.size} x {small.size} pixels ({small.resize}), by `image-fast.onnx`"
    yield "a text", f"up to {spec.text.max_length} tokens; a longer one is cut, and a search says so"


def results_of(spec: BundleSpec) -> str:
    """Return the results of a bundle as tables."""
    if not spec.results:
        return "Not measured yet: `sightline eval` does that."
    words = (
        "Recalls in per cent, by `sightline eval`: how often the right item is among the top 1, 5 or 10, from text "
        "to image (t2i) and from image to text (i2t)."
    )
    recalls = [result for result in spec.results if "names" not in result]
    names = [result for result in spec.results if "names" in result]
    parts = [words, compare(recalls).strip()] if recalls else []
    if names:
        rows = [(one["data"], str(one["names"]["labels"]), ", ".join(one["stages"]), *_tops(one)) for one in names]
        parts.append("Zero-shot accuracy: how often, in per cent, the right name is the first or among the first five.")
        parts.append(table(("data", "names", "stages", "top 1", "top 5"), rows, words=3))
    return "\n\n".join(parts)


def _tops(result: Mapping[str, Any]) -> tuple[str, str]:
    return f"{result['names']['top1']:.1f}", f"{result['names']['top5']:.1f}"


def _calibration(spec: BundleSpec) -> str:
    if not spec.relevance:
        return "It has no relevance: its scores put items in order, and say nothing of how likely each is."
    fusion = f"Reranking combines its scores by `{spec.defaults.fusion}` with a weight of {spec.defaults.weight:g}."
    if isinstance(spec.relevance, PairRelevance):
        words = (
            "Relevance is the probability that an image shows what a text asks for, computed from the pair alone. From "
            f"{spec.relevance.line:.0%} on, a result counts as a match. The error is how far it is off on average, "
            "among the ten best images of a query, on data that it was not fitted on."
        )
        rows = [(kind, f"{error:.1%}") for kind, error in spec.relevance.error.items()]
        fitted = f"Fitted on {', '.join(spec.relevance.data)}." if spec.relevance.data else ""
        return "\n\n".join(part for part in (words, table(("queries", "error"), rows, words=1), fitted, fusion) if part)
    words = (
        "Relevance is of the older kind, sigmoid(scale x score + bias): how likely an item is the only one that was "
        "meant. The error is how far it is off on average, on held-out pairs."
    )
    older = [
        (stage, f"{fit.scale:.3f}", f"{fit.bias:.3f}", "not measured" if fit.error is None else f"{fit.error:.1%}")
        for stage, fit in spec.relevance.items()
    ]
    return "\n\n".join([words, table(("scores of", "scale", "bias", "error"), older, words=4), fusion])


def _outline(value: Mapping[str, Any], depth: int = 0) -> Iterator[str]:
    """Format nested facts as a nested list."""
    for name, inner in value.items():
        start = f"{'  ' * depth}- **{str(name).replace('_', ' ')}**"
        if isinstance(inner, Mapping):
            yield start
            yield from _outline(inner, depth + 1)
        else:
            yield f"{start}: {', '.join(map(str, inner)) if isinstance(inner, list | tuple) else inner}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--words", type=Path, default=Path("recipes/default.card.md"))
    arguments = parser.parse_args()
    text = card(arguments.bundle, arguments.words.read_text(encoding="utf-8"))
    (arguments.bundle / "README.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
