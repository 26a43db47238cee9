"""Add the text graph that `bundles.languages` trained to a bundle as its language add-on: export, calibrate, measure.

    python -m bundles.languages_export bundles/default --start DIR/e5-small-multilingual --text DIR --run runs/languages

Needs SIGHTLINE_DATA, and the parallel text used for training, with held-out `held-stamps` and `held-nouns`. Relevance
is fitted to the same queries as the bundle's own, in the add-on's languages: nouns and names come from the
dictionaries, sentences from the captions of the same image. Results go to benchmarks/results/by-language.json.
"""

import argparse
import gzip
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig, AutoModel

import sightline
from benchmarks.provenance import provenance, write_result
from bundles.languages import kind_of, read_lines
from sightline import demo
from sightline.arrays import Float32Array
from sightline.bundle import Bundle
from sightline.bundle.add_languages import add_languages
from sightline.bundle.languages import FOLDER, read_languages, write_languages
from sightline.bundle.model import Model
from sightline.bundle.relevance_formula import PairRelevance
from sightline.bundle.tokenizer import Tokenizer
from sightline.bundle.words import Words, most_frequent
from sightline.datasets import Record, read_all
from sightline.evaluation import evaluate
from sightline.evaluation.encodings import Needs, SharedImages, encode_images, encode_texts
from sightline.media.source import ImageFile
from sightline.models.student import StudentShape, TextStudent
from sightline.onnx_export.relevance_fit import JudgedQuery, errors, fit_relevance, judge
from sightline.onnx_export.relevance_truth import SHOWN, UNKNOWN, TruthQuery, truth_queries
from sightline.onnx_export.students import write_text_graph

RESULT = Path("benchmarks/results/by-language.json")
FLICKR8K = ("de", "fr", "cs", "pt", "ar", "zh")
VALIDATION = ("flickr8k-val", "names-val")
WORD_LISTS = 12_000  # maximum number of words per language
UNSPACED = ("zh", "ja")  # no spaces between words, so no list of words
_LENGTH, _PAD = 40, 1


def main() -> None:
    """Write the add-on, fit its relevance, and measure it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--start", type=Path, required=True, help="the folder that the training started from")
    parser.add_argument("--text", type=Path, required=True, help="folder with parallel text")
    parser.add_argument("--run", type=Path, required=True, help="the folder of the training")
    parser.add_argument("--four-bits", default="", help="modules whose weights get four bits")
    parser.add_argument("--part", default="export,relevance,test", help="what to do, separated by commas")
    parser.add_argument("--tests", default="stamps,nouns,captions,cold", help="what to measure")
    args = parser.parse_args()
    parts, data = args.part.split(","), Path(os.environ["SIGHTLINE_DATA"])
    result = json.loads((args.run / "result.json").read_text(encoding="utf-8").splitlines()[-1])
    made = {key: value for key, value in result.items() if key != "results"}
    made |= {"initial weights": "multilingual-e5-small (Microsoft), MIT", "validation": result["results"]}
    made |= {
        "terms": "Captions of Flickr8k, Multi30k and COCO are for research only; bundles/README.md has all sources"
    }
    lines = [] if parts == ["test"] else read_lines(args.text, Bundle.open(args.bundle).words)
    languages = sorted({name.split()[1] for name in result["lines"]} - {"en"})
    tokenizer = Tokenizer.open(args.start / "tokenizer.json", _LENGTH, _PAD)
    folder = args.run / "graph"
    if "export" in parts:
        typical = [str(line["text"]) for line in lines[:: max(1, len(lines) // 600)]]
        write_text_graph(student_of(args.start, args.run), tokenizer, typical, folder, args.four_bits)
    words: dict[str, list[str]] = {}
    given: dict[str, Any] = {"max_length": _LENGTH, "pad_id": _PAD, "provenance": made}
    if "relevance" in parts:
        words = word_lists(lines)
        add_languages(args.bundle, folder / "text.onnx", folder / "tokenizer.json", languages, words=words, **given)
        fitted = fit(Bundle.open(args.bundle), data, dictionary(lines), languages, args.run / "images.npz")
        add_languages(
            args.bundle,
            folder / "text.onnx",
            folder / "tokenizer.json",
            languages,
            words=words,
            relevance=fitted,
            **given,
        )
    if "test" in parts:
        test(sightline.load(args.bundle), data, args.text, languages, args.tests.split(","))
        rows = json.loads(RESULT.read_text(encoding="utf-8")).get("captions", [])
        spec = read_languages(args.bundle, Bundle.open(args.bundle).sha256)
        assert spec is not None
        write_languages(args.bundle / FOLDER, replace(spec, results=tuple(rows)))


def student_of(start: Path, run: Path) -> TextStudent:
    """Return the trained student."""
    weights = torch.load(run / "student.pt", map_location="cpu", weights_only=True)
    shape = StudentShape(*(weights[f"heads.{part}.weight"].shape[0] for part in ("embedding", "fragments", "states.2")))
    encoder = AutoModel.from_config(AutoConfig.from_pretrained(start), dtype=torch.float32)
    encoder.pooler = None
    student = TextStudent(encoder, shape)
    student.load_state_dict({name: value.float() for name, value in weights.items()})
    return student


def word_lists(lines: Sequence[Mapping[str, object]]) -> dict[str, list[str]]:
    """Return the most frequent words of each language that puts spaces between words."""
    texts: dict[str, list[str]] = defaultdict(list)
    for line in lines:
        if line["lang"] not in UNSPACED:
            texts[str(line["lang"])].append(str(line["text"]))
    return {lang: most_frequent(some, least=2)[:WORD_LISTS] for lang, some in texts.items()}


def dictionary(lines: Sequence[Mapping[str, object]]) -> dict[str, dict[str, str]]:
    """Return, for each English word, its translations by language: the first that a dictionary gives."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for line in lines:
        if kind_of(str(line["source"])) == "words":
            found[_bare(str(line["en"]))].setdefault(str(line["lang"]), str(line["text"]))
    return found


def _bare(text: str) -> str:
    """Return a noun without an article."""
    words = text.lower().split()
    return " ".join(words[1:] if words[:1] in (["a"], ["an"], ["the"]) else words)


def fit(
    bundle: Bundle,
    data: Path,
    translations: Mapping[str, Mapping[str, str]],
    languages: Sequence[str],
    kept: Path,
) -> PairRelevance:
    """Fit relevance to queries in all languages; its error is measured on each half of the images.

    kept: a file that caches the embeddings of the images, which take the longest to compute.
    """
    held_out = [one for name in VALIDATION for one in read_all([str(data / f"{name}.tar")])]
    if not kept.exists():
        images, readable = encode_images(bundle, [one.image for one in held_out], Needs(), 32, None, None)
        np.savez(kept, embedding=images.embedding, readable=readable)
    with np.load(kept) as arrays:
        embedding, readable = arrays["embedding"], arrays["readable"]
    records = [held_out[int(row)] for row in readable]
    models = {lang: bundle.for_language(lang) for lang in languages}
    known = _AllWords({lang: model.words for lang, model in models.items()})

    def judged(rows: np.ndarray) -> list[tuple[str, JudgedQuery]]:
        queries = list(in_languages([records[int(row)] for row in rows], translations, languages))
        found = []
        for lang, model in models.items():
            own = [query for other, query in queries if other == lang]
            if own:
                texts, _ = encode_texts(model, [query.text for query in own], Needs(), 32, None)
                found += [(lang, one) for one in judge(own, texts.embedding, embedding[rows])]
        known.learn(found)
        return found

    everything = judged(np.arange(len(records)))
    fitted = fit_relevance([one for _, one in everything], known)  # type: ignore[arg-type]
    parts = [judged(np.arange(half, len(records), 2)) for half in (0, 1)]
    found: dict[str, list[float]] = {}
    for learn, exam in (parts, parts[::-1]):
        own = fit_relevance([one for _, one in learn], known)  # type: ignore[arg-type]
        for kind, error in errors([one for _, one in exam], own, known).items():  # type: ignore[arg-type]
            found.setdefault(kind, []).append(error)
    return replace(
        fitted, data=VALIDATION, error={kind: round(float(np.mean(some)), 4) for kind, some in found.items()}
    )


class _AllWords:
    """The familiarity of texts in many languages, each judged by the word list of its own language."""

    def __init__(self, words: Mapping[str, Words]) -> None:
        self._words, self._language = words, dict[str, str]()

    def learn(self, queries: Sequence[tuple[str, JudgedQuery]]) -> None:
        """Record the language of each query."""
        self._language |= {query.text: lang for lang, query in queries}

    def familiarity(self, text: str) -> float:
        """See `Words.familiarity`."""
        return self._words[self._language[text]].familiarity(text)


def in_languages(
    records: Sequence[Record], translations: Mapping[str, Mapping[str, str]], languages: Sequence[str]
) -> Iterator[tuple[str, TruthQuery]]:
    """Return queries with their languages: translated nouns and names, and for each sentence a caption of its image.

    Other images known to show an English sentence are left out: a caption in another language may say something else.
    """
    owner = {_plain(text): row for row, record in enumerate(records) for text in record.captions.get("en", ())}
    for query in truth_queries(records):
        if query.kind in ("noun", "name"):
            for lang, text in translations.get(_bare(query.text), {}).items():
                if lang in languages:
                    yield lang, replace(query, text=text)
        elif query.kind == "sentence" and (row := owner.get(_plain(query.text))) is not None:
            truth = np.where(query.truth == SHOWN, UNKNOWN, query.truth)
            truth[row] = SHOWN
            for lang, captions in records[row].captions.items():
                if lang in languages and captions:
                    yield lang, replace(query, text=captions[0], truth=truth)


def _plain(text: str) -> str:
    return " ".join("".join(one if one.isalnum() else " " for one in text.lower()).split())


def test(model: Model, data: Path, text: Path, languages: Sequence[str], tests: Sequence[str]) -> None:
    """Measure by language: captions of Flickr8k test, stamps, nouns against names-val, and start-up time.

    tests: which of these to run; the results of the others are kept.
    """
    sources = ["flickr8k-test", "names-val", "tuxpaint-stamps-default"]
    before = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.exists() else {}
    result: dict[str, Any] = {**before, "experiment": "by-language", **provenance(0, sources)}
    parts: dict[str, Callable[[], Iterator[dict[str, Any]]]] = {
        "stamps": lambda: stamps(model, text, languages),
        "nouns": lambda: nouns(model, data, text, languages),
        "captions": lambda: captions(model, data, languages),
        "cold": cold,
    }
    for name in tests:
        result[name] = []
        for row in parts[name]():
            print(name, row, flush=True)
            result[name].append(row)
            write_result(RESULT, result)


def cold(rounds: int = 9) -> Iterator[dict[str, Any]]:
    """Yield the median CPU time of a search from the command line, alternating between English and German."""
    queries = {"en": "a cat in a box", "de": "eine Katze in einer Kiste"}
    seconds: dict[str, list[float]] = {lang: [] for lang in queries}
    with tempfile.TemporaryDirectory() as folder:
        sightline.index(demo.PICTURES, at=folder)
        for number in range(rounds + 1):
            for lang, query in queries.items():
                before = resource.getrusage(resource.RUSAGE_CHILDREN)
                command = [sys.executable, "-m", "sightline", "search", query, "--at", folder, "--json"]
                subprocess.run(command, check=True, capture_output=True)
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                if number:  # skip the first round, which reads the files from disk
                    seconds[lang].append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    yield from ({"lang": lang, "seconds": round(statistics.median(some), 3)} for lang, some in seconds.items())


def captions(model: Model, data: Path, languages: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Measure the recall of embeddings on Flickr8k test in each language, and in English on the same images."""
    records = read_all([str(data / "flickr8k-test.tar")])
    shared = SharedImages(model, [record.image for record in records], Needs(), 20)
    for lang in FLICKR8K:
        some = [record for record in records if record.captions.get(lang)]
        options: dict[str, Any] = {"data": "flickr8k-test", "rerank": 0, "shared": shared, "batch_size": 20}
        found, english = (evaluate(model, some, lang=one, **options).to_json() for one in (lang, "en"))
        yield {**found, "english_mR": english["mR"]}


def stamps(model: Model, text: Path, languages: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Measure how often a held-out Tux Paint stamp is among the five nearest to its sentence, in each language."""
    held = _held(text / "held-stamps.jsonl.gz")
    pictures = [ImageFile(text / str(one["picture"])) for one in held]
    images, _ = encode_images(model, pictures, Needs(), 20, None, None)
    for lang in ["en", *languages]:
        asked = [(row, one["texts"][lang]) for row, one in enumerate(held) if one["texts"].get(lang)]
        if asked:
            ranks = _ranks(model.for_language(lang), [text for _, text in asked], images.embedding)
            right = [row in top[:5] for (row, _), top in zip(asked, ranks, strict=True)]
            yield {"lang": lang, "texts": len(asked), "R@5": _percent(right)}


def nouns(model: Model, data: Path, text: Path, languages: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Measure how often an image of a held-out noun is among the five nearest of names-val, by embeddings."""
    records = read_all([str(data / "names-val.tar")])
    images, _ = encode_images(model, [record.image for record in records], Needs(), 20, None, None)
    labels = np.array([_bare(record.label or "") for record in records])
    held = _held(text / "held-nouns.jsonl.gz")

    def right(lang: str, texts: Sequence[str], names: Sequence[str]) -> float:
        ranks = _ranks(model.for_language(lang), texts, images.embedding)
        return _percent([name in labels[top[:5]] for name, top in zip(names, ranks, strict=True)])

    for lang in languages:
        asked = [(str(one["en"]), one["texts"][lang][0]) for one in held if one["texts"].get(lang)]
        if asked:
            names = [name for name, _ in asked]
            found = right(lang, [text for _, text in asked], names)
            yield {"lang": lang, "texts": len(asked), "top5": found, "english_top5": right("en", names, names)}


def _percent(right: Sequence[bool]) -> float:
    return round(100 * float(np.mean(right)), 2)


def _ranks(model: Model, texts: Sequence[str], images: Float32Array) -> np.ndarray:
    encoded, _ = encode_texts(model, texts, Needs(), 20, None)
    return np.argsort(-(encoded.embedding @ images.T), axis=1)


def _held(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


if __name__ == "__main__":
    main()
