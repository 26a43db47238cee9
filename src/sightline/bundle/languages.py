"""The language add-on of a bundle: a second text graph, which encodes texts in other languages into the same space."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sightline import settings
from sightline.bundle.relevance_formula import PairRelevance
from sightline.bundle.spec import TextSpec
from sightline.bundle.words import Words
from sightline.errors import BundleError

FOLDER = "languages"
"""The add-on's folder, inside the bundle's folder."""

LANGUAGES_FILE = "languages.json"
GRAPH_FILE, TOKENIZER_FILE, WORDS_FILE = "text.onnx", "tokenizer.json", "words.json"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class LanguagesSpec:
    """The contents of `languages.json`.

    bundle: the hash that identifies the bundle whose space the graph encodes into; the add-on works with no other.
    text: the input of the graph, and its languages.
    files: sha256 of the graph, of the tokenizer and, if there is one, of the word list.
    relevance: fitted for texts in these languages; without it, their results have no relevance.
    provenance, results: as in `BundleSpec`.
    """

    format: int
    bundle: str
    text: TextSpec
    files: Mapping[str, str]
    relevance: PairRelevance | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    results: tuple[Mapping[str, Any], ...] = ()


def read_languages(bundle: Path, sha256: str) -> LanguagesSpec | None:
    """Return the spec of the add-on in a bundle's folder; None if there is none. sha256: the bundle's hash.

    The other files of the add-on are checked when a text in one of its languages is first encoded.
    """
    folder = bundle / FOLDER
    path = folder / LANGUAGES_FILE
    way_out = f"Delete {folder}, or replace it with this bundle's add-on."
    try:
        spec = settings.read(LanguagesSpec, path, "language add-on", FORMAT, BundleError, way_out)
    except FileNotFoundError:
        return None
    if spec.bundle != sha256:
        raise BundleError(
            f"{folder}: belongs to another bundle ({spec.bundle[:12]}…), not to this one ({sha256[:12]}…)", way_out
        )
    needed = {GRAPH_FILE, TOKENIZER_FILE}
    if not spec.text.languages:
        raise BundleError(f"{path}: lists no languages", way_out)
    if spec.text.tokenizer != TOKENIZER_FILE:
        raise BundleError(f"{path}: the tokenizer must be {TOKENIZER_FILE}, not {spec.text.tokenizer!r}", way_out)
    if set(spec.files) - {WORDS_FILE} != needed:
        listed = ", ".join(sorted(spec.files)) or "none"
        raise BundleError(f"{path}: must list the files {', '.join(sorted(needed))}, but lists {listed}", way_out)
    return spec


def languages_of(own: tuple[str, ...], add_on: LanguagesSpec | None) -> tuple[str, ...]:
    """Return the languages of a bundle: its own, then those of its add-on."""
    return (*own, *(lang for lang in (add_on.text.languages if add_on else ()) if lang not in own))


def write_languages(folder: Path, spec: LanguagesSpec) -> None:
    """Write `languages.json` into the add-on's folder, after its other files."""
    text = json.dumps(settings.plain(spec), indent=2, ensure_ascii=False) + "\n"
    (folder / LANGUAGES_FILE).write_text(text, encoding="utf-8")


def read_words(folder: Path, spec: LanguagesSpec) -> dict[str, Words]:
    """Return the words that the add-on was trained on, by language; empty if it has no word list."""
    if WORDS_FILE not in spec.files:
        return {}
    path = folder / WORDS_FILE
    try:
        listed = json.loads(path.read_text(encoding="utf-8"))
        return {lang: Words(words.split()) for lang, words in listed.items()}
    except (OSError, ValueError, AttributeError) as error:
        raise BundleError(f"{path} is not a word list by language: {error}", "Create the add-on again.") from error
