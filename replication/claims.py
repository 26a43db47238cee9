"""The claims of a paper, and whether our runs support them.

claims.toml holds the claims and the paper's own numbers. A claim compares systems of one table:

- `better` above `worse`, each a name or a list: the claim must hold for every pair, so "best" means better than each of
  the others;
- `pairs = [["A", "B"], …]`: A above B, and so on; a claim with several comparisons counts once;
- `metric` may be a list: the claim must hold in each metric; `reported`, the gain in the paper, is then a list too;
- with `on_par`, `better` and `worse` may differ by no more than that value in either direction;
- `better = "BE half / BE"` compares a percentage with another or with a constant: at least that (`at_least = 100`), or
  `about = 90` with `on_par = 5`.

A comparison is decided by its 95 % interval: it holds if the whole interval is on the claim's side, fails if the whole
interval is on the other side, and is undecided otherwise. A claim holds if all its comparisons hold, and fails if one
fails. Comparisons that have not been measured count only if all others hold. The gain shown is the least favourable of
those that decide the claim. It is not testable if its `premise`, the id of another claim, does not hold here, or if
`not_testable` gives a reason.
"""

import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from replication.estimates import Estimate
from replication.systems import RECALLS, Systems

HELD, NOT_HELD, UNDECIDED = "held", "not held", "undecided"
NOT_TESTABLE, NOT_MEASURED = "not testable", "not measured"
CLAIMS = Path(__file__).with_name("claims.toml")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a claim; gain: of the least favourable comparison that decides it; reported: the paper's gain.

    against: what the gain is over, if the claim has several comparisons.
    """

    claim: Mapping[str, Any]
    verdict: str
    reason: str = ""
    gain: Estimate | None = None
    reported: float | None = None
    against: str = ""

    @property
    def is_below_reported(self) -> bool:
        """Whether the interval is entirely below the paper's gain."""
        interval = None if self.gain is None else self.gain.interval
        return interval is not None and self.reported is not None and interval[1] < self.reported


def read_papers(path: Path = CLAIMS) -> list[dict[str, Any]]:
    """Return every paper: `name`, `title`, `url`, `reported` recalls by system, and `claims`."""
    papers: list[dict[str, Any]] = tomllib.loads(path.read_text(encoding="utf-8"))["papers"]
    return papers


def judge(paper: Mapping[str, Any], systems: Systems) -> list[Verdict]:
    """Return the verdict on each claim of a paper; a premise must come before the claims that need it."""
    verdicts: dict[str, Verdict] = {}
    for claim in paper["claims"]:
        verdicts[claim.get("id", claim["text"])] = _judged(claim, paper, systems, verdicts)
    return list(verdicts.values())


def _judged(
    claim: Mapping[str, Any], paper: Mapping[str, Any], systems: Systems, known: Mapping[str, Verdict]
) -> Verdict:
    others = next((claim[key] for key in ("worse", "at_least", "about") if key in claim), None)
    pairs = list(claim.get("pairs") or product(_listed(claim["better"]), _listed(others)))
    metrics = _listed(claim.get("metric", "rSum"))
    told = dict(zip(metrics, _listed(claim["reported"]), strict=True)) if "reported" in claim else {}
    gains = [
        _Comparison(
            _gain(systems, better, worse, metric),
            told.get(metric, _reported(paper, better, worse, metric)),
            _against(pairs, better, worse),
        )
        for (better, worse), metric in product(pairs, metrics)
    ]
    on_par, measured = claim.get("on_par", 0.0), [one for one in gains if one.gain.by_seed]
    found = {decide(one.gain, on_par) for one in measured}
    if len(measured) < len(gains) and found <= {HELD}:
        return Verdict(claim, NOT_MEASURED)
    verdict = next(one for one in (NOT_HELD, UNDECIDED, HELD) if one in found)
    deciding = (one for one in measured if decide(one.gain, on_par) == verdict)
    worst = min(deciding, key=lambda one: -abs(one.gain.mean) if on_par else one.gain.mean)
    premise, reason = known.get(claim.get("premise", "")), claim.get("not_testable", "")
    if premise is not None and premise.verdict != HELD:
        reason = f'the verdict on "{premise.claim["text"]}" is *{premise.verdict}*'
    if reason:
        verdict = NOT_TESTABLE
    return Verdict(claim, verdict, reason, worst.gain, worst.reported, worst.against)


class _Comparison(NamedTuple):
    gain: Estimate
    reported: float | None
    against: str


def _against(pairs: Sequence[tuple[str, Any]], better: str, worse: Any) -> str:
    """Name the comparison among others, by the systems in which they differ."""
    if len(pairs) == 1:
        return ""
    return f"over {worse}" if len({one for one, _ in pairs}) == 1 else f"{better} over {worse}"


def decide(gain: Estimate, on_par: float = 0.0) -> str:
    """Decide, by its interval, whether a gain is above zero or, with `on_par`, within that distance of zero."""
    if gain.interval is None:
        return UNDECIDED
    low, high = gain.interval
    if on_par:
        if -on_par < low and high < on_par:
            return HELD
        return NOT_HELD if high < -on_par or low > on_par else UNDECIDED
    if low > 0:
        return HELD
    return NOT_HELD if high < 0 else UNDECIDED


def tally(verdicts: Iterable[Verdict]) -> list[int]:
    """Count the claims that were tested, held, not held, undecided, not testable, and not measured."""
    counts = Counter(one.verdict for one in verdicts)
    found = [counts[verdict] for verdict in (HELD, NOT_HELD, UNDECIDED)]
    return [sum(found), *found, counts[NOT_TESTABLE], counts[NOT_MEASURED]]


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _gain(systems: Systems, better: str, worse: str | float, metric: str) -> Estimate:
    """Return the gain over another system or, if `better` is a percentage (`A / B`), over a system or a constant."""
    if not isinstance(worse, str):
        share = _percent(systems, better, metric)
        return share.minus(Estimate(dict.fromkeys(share.by_seed, worse), dict.fromkeys(share.by_seed, (worse, worse))))
    if " / " in better:
        return _percent(systems, better, metric).minus(_percent(systems, worse, metric))
    return systems.gain(better, worse, metric)


def _percent(systems: Systems, pair: str, metric: str) -> Estimate:
    part, whole = pair.split(" / ")
    return systems.estimate(part, metric).percent_of(systems.estimate(whole, metric))


def _reported(paper: Mapping[str, Any], better: str, worse: Any, metric: str) -> float | None:
    """Return the paper's own gain in the sum of its reported recalls, or in one of the six recalls."""
    rows = paper.get("reported", {})
    if better not in rows or worse not in rows:
        return None
    if metric in RECALLS and len(rows[better]) == len(RECALLS):
        at = RECALLS.index(metric)
        return float(rows[better][at] - rows[worse][at])
    return float(sum(rows[better]) - sum(rows[worse])) / (len(rows[better]) if metric == "mR" else 1)
