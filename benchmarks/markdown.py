"""Markdown pages from templates: `{{name}}` in a template is replaced by a generated table, number or line."""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

MISSING = "–"


def fill(template: Path, values: Mapping[str, str]) -> str:
    """Replace every `{{name}}` of a template; a name without a value, or a value without a place, is an error."""
    text = template.read_text(encoding="utf-8")
    wanted = set(re.findall(r"\{\{(.+?)\}\}", text))
    if wanted != set(values):
        raise SystemExit(f"{template}: unknown or unused placeholders: {sorted(wanted ^ set(values))}")
    return re.sub(r"\{\{(.+?)\}\}", lambda found: values[found[1]], text)


def replace_block(page: str, name: str, block: str) -> str:
    """Replace what stands between `<!-- name -->` and `<!-- /name -->`."""
    marks = re.compile(rf"(<!-- {name} -->\n).*(<!-- /{name} -->)", re.DOTALL)
    made, places = marks.subn(lambda found: f"{found[1]}{block.rstrip()}\n{found[2]}", page)
    if places != 1:
        raise SystemExit(f"the page needs one <!-- {name} --> … <!-- /{name} -->")
    return made


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], words: int = 1) -> str:
    """A table whose first `words` columns are text, and the others numbers."""
    rule = ["---"] * words + ["---:"] * (len(heads) - words)
    return "\n".join("| " + " | ".join(row) + " |" for row in [heads, rule, *rows])


def number(value: float) -> str:
    """With one decimal, and never a negative zero."""
    return f"{round(value, 1) + 0.0:.1f}"


def signed(value: float) -> str:
    """With its sign and one decimal."""
    return f"{round(value, 1) + 0.0:+.1f}"


def machine_of(result: Mapping[str, Any]) -> str:
    """The GPU that a result was measured on, or else the CPU's cores."""
    machine = result["machine"]
    return machine.get("gpu") or f"{machine['cores']} cores, {machine['processor']}"


def sources(results: Iterable[Mapping[str, Any]], where: str) -> str:
    """The line below a table: the files or folders it was made from, on which machines, and by which commands.

    where: path below benchmarks/results.
    """
    found = list(results)
    origins = " and ".join(dict.fromkeys(f"{machine_of(one)} at commit {one['commit'][:7]}" for one in found))
    made = ", ".join(f"`{command}`" for command in merged_commands(one["command"] for one in found))
    return f"From [{where}](../benchmarks/results/{where}), measured on {origins} by {made}."


def merged_commands(commands: Iterable[str]) -> list[str]:
    """Commands without their folders; those that differ in `--seeds` or `--runs` alone become one."""
    found = []
    for command in commands:
        words = shlex.split(command)
        for option in ("--work", "--out", "--json"):
            if option in words:
                at = words.index(option)
                is_default = option != "--out" or Path(words[at + 1]).name == words[2].rpartition(".")[2]
                words[at : at + 2] = [] if is_default else words[at : at + 2]
        found.append(tuple(words))
    for option in ("--seeds", "--runs"):
        values: dict[tuple[str, ...], dict[str, None]] = {}
        for given in found:
            at = given.index(option) + 1 if option in given else len(given)
            some = values.setdefault((*given[:at], *given[at + 1 :]), {})
            some.update(dict.fromkeys(given[at].split(",") if at < len(given) else ()))
        found = []
        for rest, some in values.items():
            at = rest.index(option) + 1 if some else 0
            joined = ",".join(sorted(some, key=int) if option == "--seeds" else some)
            found.append((*rest[:at], joined, *rest[at:]) if some else rest)
    return [shlex.join(words) for words in found]
