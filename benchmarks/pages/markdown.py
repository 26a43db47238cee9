"""Pieces of a Markdown page: tables, numbers, and where a section's numbers come from."""

import shlex
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from replication.report.estimates import Estimate, verdict
from replication.report.results import ResultFile

MISSING = "–"


@dataclass(frozen=True, slots=True)
class Finding:
    """What is claimed, in words; the gain that must be above zero, or above minus `margin`, for it to hold.

    reported: how large the gain is where the claim comes from, if that is known.
    """

    claim: str
    gain: Estimate
    margin: float = 0.0
    reported: float | None = None

    @property
    def verdict(self) -> str:
        """Computed from the gain and its interval."""
        return verdict(self.gain, self.margin)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> str:
    """A table whose first `words` columns are text, and the others numbers."""
    rule = ["---"] * words + ["---:"] * (len(heads) - words)
    return "\n".join("| " + " | ".join(row) + " |" for row in [heads, rule, *rows])


def findings_of_paper(findings: Sequence[Finding], paper: str = "paper 1") -> str:
    """What a paper claims, how large the gain is there and here, and whether that confirms it."""
    rows = [
        [
            one.claim,
            MISSING if one.reported is None else signed(one.reported),
            with_interval(one.gain),
            _bold(one.verdict),
        ]
        for one in findings
    ]
    return table([f"{paper} finds", "there", "here", "verdict"], rows, words=4)


def findings_of_ours(findings: Sequence[Finding]) -> str:
    """What we expected, how large the gain is, and whether that confirms it."""
    rows = [[one.claim, with_interval(one.gain), _bold(one.verdict)] for one in findings]
    return table(["expected", "here", "verdict"], rows, words=3)


def _bold(text: str) -> str:
    return f"**{text}**"


def paragraph(words: str) -> str:
    """Words in lines of at most 120 characters."""
    return textwrap.fill(" ".join(words.split()), 120, break_long_words=False, break_on_hyphens=False)


def number(value: float) -> str:
    """With one decimal, and never a negative zero."""
    return f"{round(value, 1) + 0.0:.1f}"


def signed(value: float) -> str:
    """With its sign and one decimal."""
    return f"{round(value, 1) + 0.0:+.1f}"


def with_deviation(estimate: Estimate) -> str:
    """The mean over seeds, ± their standard deviation where there are several."""
    if not estimate.by_seed:
        return MISSING
    spread = "" if estimate.deviation is None else f" ± {number(estimate.deviation)}"
    return number(estimate.mean) + spread


def with_interval(gain: Estimate) -> str:
    """A gain with its sign, and its interval in brackets."""
    if not gain.by_seed:
        return MISSING
    around = "" if gain.interval is None else " [{}, {}]".format(*map(signed, gain.interval))
    return signed(gain.mean) + around


_RESULTS = "benchmarks/results"


def sources(files: Sequence[ResultFile], root: Path) -> str:
    """Say which files a section was made from, what they were measured on, with which code, and by which commands."""
    origins = " and ".join(dict.fromkeys(file.origin for file in files))
    told = [file.content["command"] for file in files if "command" in file.content]
    made = f" Made by {', '.join(f'`{one}`' for one in commands(told))}." if told else ""
    return paragraph(f"From {links(files, root)}; measured on {origins}.{made}")


def commands(told: Iterable[str]) -> list[str]:
    """Commands that made result files, without the folders they were given; those of several seeds or runs are one.

    What was not written where a command writes by itself keeps its place: else what is there would be written over.
    """
    found = []
    for command in told:
        words = shlex.split(command)
        for option in ("--work", "--out", "--json"):
            if option in words:
                at = words.index(option)
                apart = option == "--out" and words[at + 1].startswith(f"{_RESULTS}/{Path(words[1]).stem}-")
                words[at : at + 2] = words[at : at + 2] if apart else []
        found.append(tuple(words))
    for option in ("--seeds", "--runs"):
        found = _as_one(found, option)
    return [shlex.join(words) for words in found]


def _as_one(told: Iterable[tuple[str, ...]], option: str) -> list[tuple[str, ...]]:
    """Make one of commands that differ in the values of an option alone."""
    values: dict[tuple[str, ...], dict[str, None]] = {}
    for words in told:
        at = words.index(option) + 1 if option in words else len(words)
        some = values.setdefault((*words[:at], *words[at + 1 :]), {})
        some.update(dict.fromkeys(words[at].split(",") if at < len(words) else ()))
    made = []
    for words, found in values.items():
        at = words.index(option) + 1 if found else 0
        joined = ",".join(sorted(found, key=int) if option == "--seeds" else found)
        made.append((*words[:at], joined, *words[at:]) if found else words)
    return made


def links(files: Sequence[ResultFile], root: Path) -> str:
    """Links to result files, as the page in `root/docs` has them."""
    return ", ".join(f"[{file.path.name}](../{file.path.relative_to(root).as_posix()})" for file in files)
