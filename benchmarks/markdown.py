"""Markdown pages from templates: `{{name}}` in a template is replaced by a table, a number or a line."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

MISSING = "–"
_EACH = re.compile(r"^\{\{\*(.+?)\}\}(.*\n)", re.MULTILINE)


def fill(template: Path, values: Mapping[str, Any]) -> str:
    """Replace every `{{name}}` in a template; a name without a value, or an unused value, is an error.

    As in `str.format`, a name may have a format, a key or a field: `{{name:.1f}}`, `{{name[key]}}`, `{{name.field}}`.
    A line that begins with `{{*name}}` is repeated for every item of a list; its other names are keys of the item.
    """
    text = template.read_text(encoding="utf-8")
    used = {each[1] for each in _EACH.finditer(text)} | set(re.findall(r"\{\{([^.\[:}]+)", _EACH.sub("", text)))
    if used != set(values):
        raise SystemExit(f"{template}: unknown or unused placeholders: {sorted(used ^ set(values))}")
    return _filled(_EACH.sub(lambda each: "".join(_filled(each[2], row) for row in values[each[1]]), text), values)


def _filled(text: str, values: Mapping[str, Any]) -> str:
    return re.sub(r"\{\{(.+?)\}\}", lambda found: f"{{{found[1]}}}".format(**values), text)


def replace_block(page: str, name: str, block: str) -> str:
    """Replace the text between `<!-- name -->` and `<!-- /name -->`."""
    marks = re.compile(rf"(<!-- {name} -->\n).*(<!-- /{name} -->)", re.DOTALL)
    made, places = marks.subn(lambda found: f"{found[1]}{block.rstrip()}\n{found[2]}", page)
    if places != 1:
        raise SystemExit(f"the page needs one <!-- {name} --> … <!-- /{name} -->")
    return made


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], words: int = 1) -> str:
    """Return a Markdown table whose first `words` columns are text, and whose other columns are numbers."""
    rule = ["---"] * words + ["---:"] * (len(heads) - words)
    return "\n".join("| " + " | ".join(row) + " |" for row in [heads, rule, *rows])


def machine_of(result: Mapping[str, Any]) -> str:
    """Describe the machine that a result was measured on: its GPU, if one was used, or its CPU cores."""
    machine = result["machine"]
    return machine.get("gpu") or f"{machine['cores']} {machine['processor']} cores"


def sources(results: Sequence[Mapping[str, Any]], where: str) -> str:
    """Return the line below a table: its source file or folder, the machines, the commits and the scripts.

    where: the path below benchmarks/results; the files there have the complete commands.
    """
    commits: dict[str, dict[str, None]] = {}
    for one in results:
        place = ("an " if one["machine"].get("gpu") else "") + machine_of(one)
        commits.setdefault(place, {}).update({_short(one["commit"]): None} if one["commit"] != "unknown" else {})
    places = [
        f"{place} at commit{'s' * (len(own) > 1)} {', '.join(own)}" if own else place for place, own in commits.items()
    ]
    scripts = dict.fromkeys(f"`{' '.join(one['command'].split()[:3])}`" for one in results)
    origins = f"{' and '.join(places)} with {' and '.join(scripts)}"
    return f"Source: [{where}](../benchmarks/results/{where}), measured on {origins}."


def _short(commit: str) -> str:
    """Return the first digits of a commit, and whether there were uncommitted changes."""
    digits, dash, changes = commit.partition("-")
    return digits[:7] + dash + changes
