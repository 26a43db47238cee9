"""Add languages to a bundle: write the add-on's folder from a text graph and its tokenizer."""

import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sightline.bundle.languages import (
    FOLDER,
    FORMAT,
    GRAPH_FILE,
    TOKENIZER_FILE,
    WORDS_FILE,
    LanguagesSpec,
    write_languages,
)
from sightline.bundle.relevance_formula import PairRelevance
from sightline.bundle.runtime import Bundle
from sightline.bundle.spec import BundleSpec, TextSpec, check_file, identity, read_spec, sha256
from sightline.errors import BundleError

_PROBE = "a"


def add_languages(
    bundle: str | Path,
    graph: str | Path,
    tokenizer: str | Path,
    languages: Sequence[str],
    *,
    max_length: int,
    pad_id: int = 0,
    relevance: PairRelevance | None = None,
    words: Mapping[str, Sequence[str]] | None = None,
    provenance: Mapping[str, Any] | None = None,
    results: Sequence[Mapping[str, Any]] = (),
) -> LanguagesSpec:
    """Write the folder `languages` into a bundle's folder, replacing an existing one; other files are unchanged.

    graph, tokenizer: the files of a text graph and of its tokenizer. Like the bundle's own graph, it takes `ids` and
        `mask`, and returns `embedding` and, if the bundle has them, `fragments` and `states`. It must encode into the
        bundle's vector space.
    languages: the codes of its languages, such as `de`.
    max_length, pad_id: the maximum number of tokens, and the token for padding.
    relevance: fitted for texts in these languages. words: the words of its training texts by language, most frequent
        first; queries that contain other words get a notice.
    provenance, results: where it came from, and what `sightline eval` measured.

    A graph that does not fit the bundle is rejected, and nothing is changed.
    """
    folder, given = Path(bundle), {GRAPH_FILE: Path(graph), TOKENIZER_FILE: Path(tokenizer)}
    own = read_spec(folder)
    _check_languages(languages, own)
    with tempfile.TemporaryDirectory(dir=folder, prefix=f".{FOLDER}-") as made:
        draft = Path(made, FOLDER)
        draft.mkdir()
        for name, source in given.items():
            shutil.copyfile(source, draft / name)
        if words:
            listed = {lang: " ".join(some) for lang, some in words.items()}
            (draft / WORDS_FILE).write_text(json.dumps(listed, ensure_ascii=False), encoding="utf-8")
        spec = LanguagesSpec(
            format=FORMAT,
            bundle=identity(own),
            text=TextSpec(max_length, TOKENIZER_FILE, pad_id, tuple(languages)),
            files={path.name: sha256(path) for path in sorted(draft.iterdir())},
            relevance=relevance,
            provenance=provenance or {},
            results=tuple(results),
        )
        check_file(draft, GRAPH_FILE, spec.files[GRAPH_FILE])
        _check_outputs(draft, own, spec)
        write_languages(draft, spec)
        if (folder / FOLDER).exists():
            (folder / FOLDER).rename(Path(made, "before"))
        draft.rename(folder / FOLDER)
    return spec


def _check_languages(languages: Sequence[str], own: BundleSpec) -> None:
    if not languages:
        raise BundleError("no languages to add", "Specify at least one, such as de.")
    if repeated := sorted({lang for lang in languages if languages.count(lang) > 1}):
        raise BundleError(f"languages listed more than once: {', '.join(repeated)}", "List each language once.")
    if known := sorted(set(languages) & set(own.text.languages)):
        raise BundleError(f"{own.name} already reads {', '.join(known)}", "List only languages that it does not read.")


def _check_outputs(draft: Path, own: BundleSpec, spec: LanguagesSpec) -> None:
    """Reject a graph whose outputs differ in width from those of the bundle's text graph."""
    bundle = Bundle(draft.parents[1], own, threads=1)
    expected = bundle.encode_texts([_PROBE])
    found = Bundle(draft, replace(own, text=spec.text), threads=1).encode_texts([_PROBE])
    for name in ("embedding", "fragments", "states"):
        wanted, given = getattr(expected, name), getattr(found, name)
        width, other = (None if one is None else one.shape[-1] for one in (wanted, given))
        if wanted is not None and width != other:
            raise BundleError(
                f"{draft / GRAPH_FILE}: {name} has width {other}, but in {own.name}'s text graph it has {width}",
                "Export a graph with the same outputs as the bundle's own.",
            )
