"""Write ranks to files: a CSV table, or TREC run and qrels files, which ranx, pytrec_eval and trec_eval read."""

import csv
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import numpy as np

from sightline.errors import EvaluationError
from sightline.evaluation.metrics import DIRECTIONS
from sightline.evaluation.result import Evaluation
from sightline.files import check_writable

TOP = 100
"""The number of results per query in a TREC run."""
_TREC = (".run", ".trec")


@dataclass(frozen=True, slots=True)
class RankedQuery:
    """One query: its name, its text if it is a caption, the rank of its first right answer, results and right answers.

    A caption is named after its image, with a number: `beach.jpg#0`.
    """

    direction: str
    query: str
    text: str
    rank: float
    results: tuple[str, ...]
    right: frozenset[str]


def ranked_queries(found: Evaluation) -> Iterator[RankedQuery]:
    """Yield every query of an evaluation that kept `top` results: captions first, then images."""
    asked = found.questions
    if asked is None or not all(fold.best_images.shape[1:] > (0,) for fold in found.folds):
        raise EvaluationError("this evaluation did not keep its results", "Evaluate with `top=100`.")
    captions = asked.caption_names()
    own: dict[int, list[str]] = {}
    for name, image in zip(captions, asked.image_of.tolist(), strict=True):
        own.setdefault(image, []).append(name)

    def query(direction: str, name: str, text: str, rank: float, results: list[str], right: list[str]) -> RankedQuery:
        return RankedQuery(direction, name, text, rank, _in_rank(results, right, rank), frozenset(right))

    for fold in found.folds:
        rows = zip(fold.caption.tolist(), fold.caption_of.tolist(), fold.text_to_image, fold.best_images, strict=True)
        for caption, image, rank, best in rows:
            results = [asked.keys[place] for place in best[best >= 0]]
            yield query("text_to_image", captions[caption], asked.captions[caption], rank, results, [asked.keys[image]])
    for fold in found.folds:
        for image, rank, best in zip(fold.image.tolist(), fold.image_to_text, fold.best_captions, strict=True):
            results = [captions[place] for place in best[best >= 0]]
            yield query("image_to_text", asked.keys[image], "", rank, results, own[image])


def _in_rank(results: list[str], right: Sequence[str], rank: float) -> tuple[str, ...]:
    """Move the first right answer to its rank: ties count against the model, but `results` may list it before them."""
    if not math.isfinite(rank):
        return tuple(results)
    wrong = [place for place, name in enumerate(results) if name not in right]
    end = wrong[int(rank) - 2] + 1 if 2 <= rank <= len(wrong) + 1 else 0 if rank == 1 else len(results)
    before = results[:end]
    return (
        *(name for name in before if name not in right),
        *(name for name in before if name in right),
        *results[end:],
    )


def check_ranks_file(path: Path) -> None:
    """Reject a file name without the suffix of a known format, and one that `write_ranks` could not write to."""
    if path.suffix.lower() not in (".csv", *_TREC):
        raise EvaluationError(f"{path}: unknown file format for ranks", "Use a name that ends in .csv, .run or .trec.")
    for file in _files(path):
        check_writable(file)


def _files(path: Path) -> list[Path]:
    """Return the files that `write_ranks` writes."""
    if path.suffix.lower() == ".csv":
        return [path]
    return [path.with_suffix(f".{direction}{suffix}") for direction in DIRECTIONS for suffix in (path.suffix, ".qrels")]


def write_ranks(found: Evaluation, path: Path) -> list[Path]:
    """Write the ranks of every query; returns the files written.

    A `.csv` file has a line for each query. For a `.run` file, each direction gets a run and its qrels:
    NAME.text_to_image.run and NAME.text_to_image.qrels, NAME.image_to_text.run and NAME.image_to_text.qrels.
    """
    check_ranks_file(path)
    queries, files = list(ranked_queries(found)), _files(path)
    if path.suffix.lower() == ".csv":
        rows = ([one.direction, one.query, one.text, shown(one.rank), "".join(one.results[:1])] for one in queries)
        write_csv(path, ("direction", "query", "text", "rank", "first"), rows)
        return files
    for direction, run, qrels in zip(DIRECTIONS, files[::2], files[1::2], strict=True):
        of_direction = [one for one in queries if one.direction == direction]
        run.write_text("".join(_run_lines(of_direction, found.model)), encoding="utf-8")
        right = [(one.query, name) for one in of_direction for name in sorted(one.right)]
        lines = (f"{_trec(query)} 0 {_trec(name)} 1\n" for query, name in right)
        qrels.write_text("".join(lines), encoding="utf-8")
    return files


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write a table as CSV, in UTF-8."""
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def _run_lines(queries: Sequence[RankedQuery], model: str) -> Iterator[str]:
    """Yield lines `query Q0 document rank score tag`; scores only give the order, as stages differ in scale."""
    tag = _trec(model)
    for one in queries:
        for rank, name in enumerate(one.results, start=1):
            yield f"{_trec(one.query)} Q0 {_trec(name)} {rank} {len(one.results) - rank + 1} {tag}\n"


def _trec(name: str) -> str:
    """Return a name without white space, because white space separates the columns of TREC files."""
    return quote(name, safe="/#:,;()[]{}@+&='!~*$") or "_"


def shown(rank: float) -> str:
    """Format a rank for tables; empty for an unreadable image, which has no rank."""
    return str(int(rank)) if np.isfinite(rank) else ""
