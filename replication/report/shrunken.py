"""Whether shrinking helped, in words; and the runs of paper 3 in which the image tower was trained."""

from collections.abc import Sequence
from math import exp
from pathlib import Path

from benchmarks.pages.markdown import MISSING, number, paragraph, sources, table, with_interval
from replication.report.estimates import CONFIRMED, NOT_CONFIRMED, UNDECIDED, verdict
from replication.report.replica import Section
from replication.report.results import R_SUM, RECALLS, ResultFile
from replication.report.runs import Runs
from replication.report.runs3 import FACTORS, PAPER, TUNED, Variant, variants

STUDENTS = {"B-F": ("F", "B"), "I-F": ("F", "I32"), "I-B-F": ("F", "I-B"), "I-B": ("B", "I32")}
"""Shrunken runs: the same model untaught, and the teacher."""
TOWER = "With the upper layers of the tower trained"
_SETTING = (
    "Earlier runs, in another setting than the paper's: late interaction with 32 clusters of CLIP's own patches, where "
    "three of its twelve layers were trained, on crops and flips of the pictures; the fast model was its class token."
)
_REASONS = (
    "In the paper B is far above F, and both read outputs of the same three layers over the regions of a frozen "
    "detector. Here F began with CLIP's projection of its class token, which 400 million pairs had trained for just "
    "this, and B with a new projection of patches that nobody had compared with words before: the teacher was the one "
    "who had to catch up. Tuned, scores are divided by 0.5 and 0.08, which is about to multiply them by 2 and 12. The "
    "tables above are of the paper's own setting."
)
_BATCH, _DIVISOR = 128, 12
_DIVIDED = (
    f"As printed, a student of one vector cannot learn: cosines divided by {_DIVISOR} differ by a sixth at most, so "
    f"that of {_BATCH} answers it gives the right one {100 / (1 + (_BATCH - 1) * exp(-2 / _DIVISOR)):.2f} % at best, "
    f"where even chances are {100 / _BATCH:.2f} %."
)

_OPENINGS = {
    CONFIRMED: "Shrinking helped",
    NOT_CONFIRMED: "Shrinking did harm to",
    UNDECIDED: "Whether shrinking helped is undecided for",
}


def in_words(runs: Runs) -> str:
    """Whether each student that was measured gained by its teacher, and where it stands beside it; empty of none."""
    helped: dict[str, list[str]] = {opening: [] for opening in _OPENINGS}
    beside = []
    for student, (plain, teacher) in STUDENTS.items():
        over_plain, over_teacher = runs.gain(student, plain), runs.gain(student, teacher)
        if over_plain.by_seed:
            helped[verdict(over_plain)].append(f"{student} ({with_interval(over_plain)} rSum over {plain})")
        if over_teacher.by_seed:
            beside.append(f"{student} {with_interval(over_teacher)} over {teacher}")
    told = [f"{_OPENINGS[found]} {', '.join(those)}." for found, those in helped.items() if those]
    return " ".join([*told, f"Beside their teachers: {', '.join(beside)}."] if beside else told)


def why(files: Sequence[ResultFile]) -> str:
    """Why shrinking helps by one reading of the paper and not by another; empty where there is nothing to compare."""
    told = [_DIVIDED] if Variant(files, PAPER).files_of("B-F") else []
    read, tuned = Variant(files, FACTORS), Variant(files, TUNED)
    if read.files_of("F") and read.files_of("B-F") and tuned.files_of("F"):
        plain, taught, other = (runs.estimate(name, R_SUM) for runs, name in ((read, "F"), (read, "B-F"), (tuned, "F")))
        told.append(
            f"Read as factors, a teacher takes F from {number(plain.mean)} to {number(taught.mean)} rSum; the "
            f"contrastive loss takes it to {number(other.mean)} without one. To learn from a teacher's chances is to "
            "have a loss that weighs all answers at once, which the triplet loss with its margin does not: that much "
            "of the gain is the loss's, and not the teacher's."
        )
    return " ".join(told)


def with_tower(files: Sequence[ResultFile], root: Path) -> list[Section]:
    """The earlier runs, a short table with what is to be learned from them; nothing where there are none."""
    if not files:
        return []
    each = [Variant(files, name) for name in variants(files)]
    told = [f"*{runs.name}*: {words}" for runs in each if (words := in_words(runs))]
    rows = [_row(runs, name) for runs in each for name in ("F", "B", *STUDENTS) if runs.files_of(name)]
    heads = ["variant", "run", "t2i R@1", "i2t R@1", "rSum", "over F", "over its teacher"]
    shown = table(heads, rows, words=2)
    parts = [*map(paragraph, (_SETTING, *told)), shown, paragraph(_REASONS), sources(files, root)]
    return [Section(TOWER, "\n\n".join(parts))]


def _row(runs: Variant, name: str) -> list[str]:
    values = [number(runs.estimate(name, metric).mean) for metric in (RECALLS[0], RECALLS[3], R_SUM)]
    _, teacher = STUDENTS.get(name, ("", ""))
    gains = [with_interval(runs.gain(name, other)) if name != other else MISSING for other in ("F", teacher)]
    return [runs.name, name, *values, *gains]
