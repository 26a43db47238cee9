"""Format results of indexing and searching as plain text for terminals, pipes and logs."""

import json
import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from sightline.collection.catalog.files import File, Item
from sightline.collection.indexing.report import Report
from sightline.explanations.explain import Explanation
from sightline.languages.scripts import NAMES
from sightline.media import raw, video
from sightline.media.file_types import RAW_SUFFIXES, VIDEO_SUFFIXES
from sightline.retrieval.results import Hit, SearchResult
from sightline.unicode_text import as_unicode

Form = Literal["lines", "json", "paths", "null"]

GROUPED = 4  # files with the same problem share a line if there are at least this many
_LISTED = 20  # problems listed per kind
_DIVIDER = "     -- less likely --"
_JOINERS = "\u200c\u200d"  # invisible, but part of emoji and of words in Persian and Indian scripts
_BAR = 20  # width in characters
_WIDEST = 60  # longer names do not shift the column after the names of all others


def printable(text: str) -> str:
    """Return a name on one line, with question marks for line breaks and control characters."""
    return "".join(one if one.isprintable() or one in _JOINERS else "?" for one in text)


def percent(chance: float) -> str:
    """Format a probability as a percentage; small ones as <1%.

    >>> percent(0.934), percent(0.001)
    ('93%', '<1%')
    """
    return f"{chance:.0%}" if chance >= 0.005 else "<1%"


def clock(seconds: float) -> str:
    """Format a time in a video.

    >>> clock(7.4), clock(125), clock(3725)
    ('0:07', '2:05', '1:02:05')
    """
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def report_lines(report: Report, model: str | None = None) -> Iterator[str]:
    """Yield the result of an indexing run, skipped files with reasons, and the next command.

    model: the model that searches must specify, if the collection does not record its location.
    """
    yield str(report)
    yield from problem_lines("Cannot be read", [(one.path, one.reason) for one in report.broken], GROUPED)
    yield from problem_lines("Not examined", [(one.path, one.reason) for one in report.skipped], GROUPED)
    yield from left_out_lines(report.left_out)
    if report.truncated:
        yield f"{report.truncated:,} texts are longer than the model can read; their ends were cut off."
    if not report.new + report.changed + report.moved + report.unchanged:
        return
    ask = "--image photo.jpg" if report.kind == "texts" else "'a dog on a beach'"
    named = f" --model {shlex.quote(model)}" if model else ""
    yield f"Next: sightline search {ask} --at {shlex.quote(_near(report.at))}{named}"
    if report.to_refine:
        yield refine_line(report.to_refine, report.at)


def refine_line(count: int, at: str | Path) -> str:
    """Return a line with the number of items that the fast image graph encoded, and the command to re-encode them."""
    where = shlex.quote(_near(Path(at)))
    return f"Encoded by the fast model: {count:,}. To refine them: sightline index --refine --at {where}"


def problem_lines(title: str, problems: Sequence[tuple[str, str]], group: int = 1_000_000) -> Iterator[str]:
    """Yield the names of the first few files with problems, with reasons, and the number of others.

    group: names with the same reason share a line if there are at least this many.
    """
    if not problems:
        return
    yield f"{title}:"
    grouped: dict[str, list[str]] = {}
    for name, reason in problems:
        grouped.setdefault(reason, []).append(name)
    lines = [line for reason, names in grouped.items() for line in _groups(names, reason, group)]
    yield from (f"  {line}" for line, _ in lines[:_LISTED])
    if left := sum(count for _, count in lines[_LISTED:]):
        yield f"  … and {left:,} more"


def _groups(names: list[str], reason: str, group: int) -> list[tuple[str, int]]:
    """Return lines for files with the same problem, one per file or, for many files, a single one; with file counts."""
    if len(names) < group:
        return [(f"{printable(name)}: {reason}", 1) for name in names]
    return [(f"{printable(names[0])} and {len(names) - 1:,} more: {reason}", len(names))]


def left_out_lines(suffixes: Mapping[str, int]) -> Iterator[str]:
    """Yield the number of RAW photos and videos that were not indexed, and the extras that they need."""
    for known, one, many, extra in (
        (RAW_SUFFIXES, "RAW photo", "RAW photos", raw),
        (VIDEO_SUFFIXES, "video", "videos", video),
    ):
        found = {suffix: count for suffix, count in suffixes.items() if suffix in known}
        if found:
            count = sum(found.values())
            names = f"{count:,} {one if count == 1 else many} ({', '.join(sorted(found))})"
            on_server = "Collections on a server cannot hold them."
            yield f"Not indexed: {names}. " + (on_server if extra.is_installed() else f"To index them: {extra.INSTALL}")


def hit_lines(hits: Sequence[Hit], start: int = 0) -> list[str]:
    """Return a line per result, in columns: number, relevance, name, size and date, and the number of folded results.

    start: the number of results before these.
    """
    names = [_name(hit) for hit in hits]
    widest = min(max((len(name) for name in names), default=0), _WIDEST)
    lines = []
    for number, (hit, name) in enumerate(zip(hits, names, strict=True), start + 1):
        sure = "" if hit.relevance is None else f"{percent(hit.relevance):>5}  "
        lines.append(f"{number:3}  {sure}{name:{widest}}  {_details(hit)}".rstrip())
    return lines


def _name(hit: Hit) -> str:
    return printable(hit.path if hit.text is not None or _is_url(hit) else _near(hit.file))


def _is_url(hit: Hit) -> bool:
    """Return whether a result is at a URL; file paths never contain `//`."""
    return "://" in hit.path


def _near(path: Path) -> str:
    """Return a path relative to the current folder, if that is shorter."""
    try:
        seen = os.path.relpath(path)
    except (ValueError, FileNotFoundError):  # on another drive, or the current folder was deleted
        return str(path)
    return seen if len(seen) < len(str(path)) else str(path)


def _details(hit: Hit) -> str:
    if hit.text is not None:
        return printable(hit.text)
    details = [_facts(hit.width, hit.height, hit.taken)] if hit.width or hit.taken else []
    if hit.quote is not None:
        details.insert(0, f"“{printable(hit.quote)}”")
    if hit.moments:
        details.insert(0, f"at {', '.join(clock(seconds) for seconds in hit.moments)}")
    if hit.copies:
        details.append("+1 copy" if len(hit.copies) == 1 else f"+{len(hit.copies)} copies")
    if hit.folded:
        details.append(f"+{len(hit.folded)} alike")
    return "  ".join(details)


def _facts(width: int | None, height: int | None, taken: str | None, text: str | None = None) -> str:
    facts = [printable(text)] if text is not None else []
    if width and height:
        facts.append(f"{width} x {height}")
    if taken:
        facts.append(taken[:10])
    return "  ".join(facts)


def item_lines(items: Sequence[Item]) -> list[str]:
    """Return a line per item: its name, size and date."""
    names = [printable(item.files[0].path if item.text is not None else _near(item.files[0].where)) for item in items]
    widest = min(max((len(name) for name in names), default=0), _WIDEST)
    return [
        f"{name:{widest}}  {_facts(item.width, item.height, item.taken, item.text)}".rstrip()
        for name, item in zip(names, items, strict=True)
    ]


def explanation_lines(found: Explanation) -> Iterator[str]:
    """Yield a line per word: its score, a bar, and the part of the picture where it was found."""
    widest = max(len(word.word) for word in found.words)
    for word in found.words:
        bar = "█" * round(_BAR * max(0.0, min(1.0, word.score)))
        yield f"{printable(word.word):{widest}}  {word.score:5.2f}  {bar:{_BAR}}  {_part(word.grid)}"


def _part(grid: Any) -> str:
    """Describe the part of a picture where a grid has its maximum."""
    rows, columns = grid.shape
    row, column = divmod(int(grid.argmax()), columns)
    down, across = (int(3 * (row + 0.5) / rows), int(3 * (column + 0.5) / columns))
    if (down, across) == (1, 1):
        return "centre"
    return f"{('top', 'middle', 'bottom')[down]} {('left', 'centre', 'right')[across]}"


def nothing_found(result: SearchResult, least: float | None, start: int = 0) -> str:
    """Return a message that explains why there are no results. start: the number of results that were skipped."""
    if start:
        return no_more(start)
    if least is not None and result.best_relevance is not None:
        return f"Nothing found with a relevance of at least {least:.0%}; the best is {percent(result.best_relevance)}."
    if least and not result.has_content:
        return f"Nothing found with a relevance of at least {least:.0%}."
    return "Nothing found: nothing passes the filter." if result.where else "Nothing found: the collection is empty."


def no_more(start: int) -> str:
    """Return a message for a search that skipped all of its results, or had none."""
    return f"Nothing found after the first {start:,} results."


def show(
    result: SearchResult,
    form: Form,
    least: float | None = None,
    pictures: bool = True,
    start: int = 0,
    lang_given: bool = False,
) -> None:
    """Write results to stdout: as lines, as JSON, or as paths that each end with a line break or a null byte.

    Nothing else goes to stdout. start: the number of results that were skipped. lang_given: whether the user named the
    language of the query.
    """
    if form == "json":
        print(json.dumps(result.to_json(), indent=2))
    elif form in ("paths", "null"):
        sys.stdout.buffer.writelines(exact_path(hit) + (b"\0" if form == "null" else b"\n") for hit in result)
    else:
        _show_lines(replace(result, lang=None) if lang_given else result, least, pictures, start)


def show_items(items: Sequence[Item], form: Form, start: int = 0) -> None:
    """Write a list of items to stdout, in the same forms as `show`."""
    if form == "json":
        print(json.dumps({"items": [_item_json(item) for item in items]}, indent=2))
    elif form in ("paths", "null"):
        end = b"\0" if form == "null" else b"\n"
        sys.stdout.buffer.writelines(_exact(item.files[0]) + end for item in items)
    elif items:
        print(*item_lines(items), sep="\n")
    else:
        print(no_more(start) if start else "Nothing found: nothing passes the filter.", file=sys.stderr)


def _exact(file: File) -> bytes:
    is_url = "://" in file.path
    return os.fsencode(file.path if is_url else file.where) + (b":%d" % file.line if file.line else b"")


def _item_json(item: Item) -> dict[str, Any]:
    file = item.files[0]
    known = {
        "id": item.id,
        "path": file.path,
        "file": as_unicode(file.where),
        "root": as_unicode(file.root),
        "text": item.text,
        "width": item.width,
        "height": item.height,
        "taken": item.taken,
        "duration": item.duration,
    }
    return {name: value for name, value in known.items() if value is not None}


def exact_path(hit: Hit) -> bytes:
    """Return the exact bytes of a result's path, or its URL; for a text, with its line number."""
    return os.fsencode(hit.path if _is_url(hit) else hit.file) + (b":%d" % hit.line if hit.line else b"")


def remarks(result: SearchResult) -> Iterator[str]:
    """Yield notices about a query and its results, one per line."""
    if result.lang not in (None, "en"):
        yield f"Searched in {NAMES.get(result.lang, result.lang)}. If that is wrong: --lang CODE"
    if result.notice:
        yield result.notice
    if result.did_you_mean:
        yield f"Did you mean: {printable(result.did_you_mean)}"
    if result.truncated:
        yield "The query is longer than the model can read; its end was ignored."
    if result.is_older_kind:
        yield "Relevance uses the older method: it falls as more images match. Export the model again with --calibrate."
    if result.hits and result.line is not None and not result.matches and not result.notice:
        yield "No sure matches: the closest are below."


def _show_lines(result: SearchResult, least: float | None, pictures: bool, start: int) -> None:
    for remark in remarks(result):
        print(remark, file=sys.stderr)
    if not result.hits:
        print(nothing_found(result, least, start), file=sys.stderr)
        return
    how = None
    if pictures and sys.stdout.isatty():
        from sightline.cli.terminal_images import graphics, thumbnail

        how = graphics()
    shown_hits = (*result.matches, *result.rest)
    for place, (hit, line) in enumerate(zip(shown_hits, hit_lines(shown_hits, start), strict=True)):
        if place == len(result.matches) > 0:
            print(_DIVIDER)
        if how and hit.text is None and (shown := thumbnail(hit.file, how)):
            print(shown)
        print(line.encode(sys.stdout.encoding or "utf-8", "replace").decode(sys.stdout.encoding or "utf-8"))
