"""Files and folders to ignore: those of other programs, and those listed in `.sightlineignore`."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from sightline.files import read_regular

IGNORE_FILE = ".sightlineignore"
"""The name of a file with rules like those in `.gitignore`, which apply to its folder and all subfolders."""

DEFAULT_RULES = """
@eaDir/
@Recycle/
#recycle/
#snapshot/
$RECYCLE.BIN/
System Volume Information/
lost+found/
__MACOSX/
[Tt]humbs/
[Tt]humbnails/
""".replace("#", "\\#")
"""Rules for other programs' thumbnails and deleted files. A rule such as `!Thumbs/` includes a folder again."""

_LARGEST = 1 << 16  # maximum bytes in a rule file
_LONGEST = 500  # maximum characters in a rule


@dataclass(frozen=True, slots=True)
class Rule:
    """A pattern for paths relative to the folder of its rule file; if `negated`, matching paths are included again."""

    pattern: re.Pattern[str]
    negated: bool
    folders_only: bool


@dataclass(frozen=True, slots=True)
class IgnoreRules:
    """The rules that apply in a folder: those of its parents, then its own, which override them.

    rules: each with the folder that its pattern is relative to.
    """

    rules: tuple[tuple[str, Rule], ...] = ()

    @classmethod
    def default(cls, folder: Path) -> "IgnoreRules":
        """Return the default rules, followed by those in the rule file of `folder`."""
        own = tuple((os.fspath(folder), rule) for rule in parse_rules(DEFAULT_RULES))
        return cls(own).entered(folder)

    def entered(self, folder: Path) -> "IgnoreRules":
        """Return the rules inside a subfolder, including those of its own rule file."""
        try:
            text = read_regular(folder / IGNORE_FILE, _LARGEST).decode("utf-8", "replace")
        except (OSError, ValueError):
            return self
        return IgnoreRules((*self.rules, *((os.fspath(folder), rule) for rule in parse_rules(text))))

    def ignores(self, path: str, is_folder: bool) -> bool:
        """Return whether to ignore a path, which must be inside the folder of every rule."""
        for folder, rule in reversed(self.rules):
            if rule.folders_only and not is_folder:
                continue
            if rule.pattern.fullmatch(os.path.relpath(path, folder).replace(os.sep, "/")):
                return not rule.negated
        return False


def parse_rules(text: str) -> list[Rule]:
    r"""Parse rules as git does; invalid lines are skipped.

    >>> [rule.pattern.pattern for rule in parse_rules("*.tmp\n/raw/\n# a comment\n!a/**/b")]
    ['(?:.*/)?[^/]*\\.tmp', 'raw', 'a/(?:.*/)?b']
    """
    found = []
    for line in text.splitlines():
        rule = _rule(line)
        if rule is not None:
            found.append(rule)
    return found


def _rule(line: str) -> Rule | None:
    line = re.sub(r"(?<!\\)\s+$", "", line)
    if not line or line.startswith("#") or len(line) > _LONGEST:
        return None
    negated = line.startswith("!")
    line = line[negated:]
    folders_only = line.endswith("/")
    line = line.rstrip("/")
    is_anchored = "/" in line
    line = line.removeprefix("/")
    if not line:
        return None
    try:
        pattern = re.compile(("" if is_anchored else "(?:.*/)?") + _regex(line), re.DOTALL)
    except re.error:
        return None
    return Rule(pattern, negated, folders_only)


def _regex(glob: str) -> str:
    parts, at = [], 0
    while at < len(glob):
        rest = glob[at:]
        if rest.startswith("**/") and (at == 0 or glob[at - 1] == "/"):
            parts.append("(?:.*/)?")
            at += 3
        elif rest == "**" and at and glob[at - 1] == "/":
            parts.append(".+")
            at += 2
        elif rest[0] == "*":
            parts.append("[^/]*")
            at += len(rest) - len(rest.lstrip("*"))
        elif rest[0] == "?":
            parts.append("[^/]")
            at += 1
        elif rest[0] == "[" and (found := re.match(r"\[([!^]?)(\]?[^\]/]*)\]", rest)):
            inner = found[2].replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]")
            parts.append(f"[{'^/' if found[1] else ''}{inner}]")
            at += found.end()
        else:
            skip = rest[0] == "\\" and len(rest) > 1
            parts.append(re.escape(rest[skip]))
            at += 1 + skip
    return "".join(parts)
