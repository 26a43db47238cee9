"""Evaluation reports: a table for the terminal for one result, a Markdown table for several."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sightline.errors import EvaluationError
from sightline.evaluation.languages import Languages
from sightline.evaluation.metrics import DIRECTIONS, RECALLS
from sightline.evaluation.names import NamesEvaluation
from sightline.evaluation.result import Evaluation
from sightline.unicode_text import as_unicode

if TYPE_CHECKING:
    from rich.table import Table

_COLUMNS = tuple(f"{side} {name}" for side in ("t2i", "i2t") for name in RECALLS)


def table(found: Evaluation | Languages | NamesEvaluation) -> "Table":
    """Show a result as a table for the terminal."""
    if isinstance(found, Languages):
        return _languages(found)
    return _names(found) if isinstance(found, NamesEvaluation) else _both_directions(found.to_json())


def empty_table(title: str, headings: Sequence[str], caption: str | None = None) -> "Table":
    """Return a table without rows; columns with a heading are for numbers, the others for text."""
    from rich.table import Table

    shown = Table(title=title, caption=caption, caption_justify="left")
    for heading in headings:
        shown.add_column(heading, justify="right" if heading else "left")
    return shown


def _both_directions(result: Mapping[str, Any]) -> "Table":
    """Return a row for each direction, with each recall ± half the width of its 95 % interval."""
    title = f"{result['model']} on {_task_words(result)}: {_stages(result)}"
    shown = empty_table(title, ("", *RECALLS, "medR"), _notes(result))
    for direction, words in DIRECTIONS.items():
        recalls = [_with_interval(result, direction, name) for name in RECALLS]
        shown.add_row(words, *recalls, _number(result[direction]["medR"]))
    shown.add_section()
    shown.add_row(f"rSum {_number(result['rSum'])}", f"mR {_number(result['mR'])}")
    return shown


def _languages(found: Languages) -> "Table":
    """Return a row for each language, and one for their mean."""
    whole = found.to_json()
    first = next(iter(whole["languages"].values()))
    title = f"{whole['model']} on {_task_words({**first, 'lang': 'by language'})}: {_stages(first)}"
    shown = empty_table(title, ("", "images", *_COLUMNS, "mR"), "± is half the 95 % interval")
    for lang, result in whole["languages"].items():
        recalls = [_with_interval(result, way, name) for way in DIRECTIONS for name in RECALLS]
        shown.add_row(lang, f"{result['images']:,}", *recalls, _plus_minus(result["mR"], result["ci95"]["mR"]))
    shown.add_section()
    means = [whole[way][name] for way in DIRECTIONS for name in RECALLS]
    shown.add_row("mean", "", *(_number(value) for value in (*means, whole["mR"])))
    return shown


def _names(found: NamesEvaluation) -> "Table":
    """Return the top-1 and top-5 percentages with their 95 % intervals."""
    title = f"{found.model} on {as_unicode(found.data) or 'unnamed data'}: {', '.join(found.stages)}"
    caption = f"{len(found.ranks):,} images, {len(found.labels):,} labels, {len(found.prompts)} prompts"
    shown = empty_table(title, [name.replace("top", "top ") for name in found.names], caption)
    intervals = found.ci95
    shown.add_row(*(f"{value:.1f} ({intervals[k][0]:.1f}-{intervals[k][1]:.1f})" for k, value in found.names.items()))
    return shown


def compare(results: Sequence[Mapping[str, Any]]) -> str:
    """Compare several results (the JSON of `Evaluation.to_json`) in a Markdown table, in the order given.

    Only rows with the same data, language, protocol and gallery are comparable; among these, the best number in each
    column is bold. A missing number is an error, not a blank cell.
    """
    if not results:
        raise EvaluationError("no results to compare", "Pass at least one result file from `sightline eval --json`.")
    heads = ["model", "stages", "data", "images", *_COLUMNS, "rSum"]
    numbers = [_numbers(result) for result in results]
    rows = []
    for result, own in zip(results, numbers, strict=True):
        rivals = [other for peer, other in zip(results, numbers, strict=True) if _task(peer) == _task(result)]
        cells = [_bold_if_best(value, column, rivals) for column, value in enumerate(own)]
        rows.append([_cell(result["model"]), _stages(result), _cell(_task_words(result)), _gallery(result), *cells])
    rule = ["---"] * 4 + ["---:"] * (len(heads) - 4)
    return "\n".join("| " + " | ".join(row) + " |" for row in [heads, rule, *rows]) + "\n"


def _notes(result: Mapping[str, Any]) -> str:
    gallery = f"{result['captions']:,} captions, {_gallery(result)} images; ± is half the 95 % interval"
    problems = [f"{name.replace('_', ' ')}: {count:,}" for name, count in result["problems"].items() if count]
    return "\n".join([gallery, *problems])


def _with_interval(result: Mapping[str, Any], direction: str, name: str) -> str:
    return _plus_minus(result[direction][name], result["ci95"][direction][name])


def _plus_minus(value: float, interval: Sequence[float]) -> str:
    return f"{value:.1f} ± {(interval[1] - interval[0]) / 2:.1f}"


def _numbers(result: Mapping[str, Any]) -> list[float]:
    missing = [name for name in ("model", "stages", "lang", "protocol", "images") if name not in result]
    try:
        if missing:
            raise KeyError(*missing)
        recalls = [float(result[direction][name]) for direction in DIRECTIONS for name in RECALLS]
        return [*recalls, float(result["rSum"])]
    except (KeyError, TypeError, ValueError) as error:
        raise EvaluationError(
            f"the result of {result.get('model', 'an unnamed model')} is incomplete: {error!r}",
            "Create it again with `sightline eval --json`.",
        ) from error


def _bold_if_best(value: float, column: int, rivals: Sequence[Sequence[float]]) -> str:
    text = f"{value:.1f}"
    best = len(rivals) > 1 and text == f"{max(rival[column] for rival in rivals):.1f}"
    return f"**{text}**" if best else text


def _task(result: Mapping[str, Any]) -> tuple[Any, ...]:
    names = ("data", "lang", "translated_by", "protocol", "images", "captions", "distractors")
    return tuple(result.get(name) for name in names)


def _task_words(result: Mapping[str, Any]) -> str:
    lang = f"{result['lang']} translated" if result.get("translated_by") else result["lang"]
    return f"{result.get('data') or 'unnamed data'} ({lang}, {result['protocol']})"


def _gallery(result: Mapping[str, Any]) -> str:
    extra = result.get("distractors") or 0
    return f"{result['images']:,} + {extra:,}" if extra else f"{result['images']:,}"


def _stages(result: Mapping[str, Any]) -> str:
    fusion = result.get("fusion")
    weight = "" if result.get("weight") is None else f" {result['weight']:g}"
    return ", ".join(result["stages"]) + (f" ({fusion}{weight})" if fusion else "")


def _number(value: float | None) -> str:
    return "never" if value is None else f"{value:.1f}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
