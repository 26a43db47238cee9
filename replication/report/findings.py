"""What paper 1 finds in its tables and figures, as gains that can be measured: there and here, by the same rules."""

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from benchmarks.pages.markdown import Finding
from replication.report.estimates import Estimate
from replication.report.paper import BE, CE, JOINT, JOINT_BE, JOINT_CE, REPORTED, SEP, TABLE_5
from replication.report.results import R_SUM, T2I_1, T2I_10, Metric, System

ON_PAR = 6.0
"""How much rSum two systems on par may differ by: a point of mean recall."""
KEPT = 85.0
"""Per cent of the full model's rSum that the halved one must keep to count as "around 90 %"."""
WEIGHTS = (0.1, 0.5, 0.9)


class Measured(Protocol):
    """Numbers of systems: our own, or those of the paper."""

    def estimate(self, system: System, metric: Metric = R_SUM) -> Estimate:
        """One number of a system; empty where it was not measured."""


def judged(claims: Callable[[Measured], list[Finding]], here: Measured) -> tuple[Finding, ...]:
    """Make the claims of our numbers and of the paper's, and put the paper's gains beside ours."""
    there = claims(REPORTED)
    reported = [claim.gain.mean if claim.gain.by_seed else None for claim in there]
    return tuple(replace(claim, reported=gain) for claim, gain in zip(claims(here), reported, strict=True))


def gain(measured: Measured, better: System, worse: System, metric: Metric = R_SUM) -> Estimate:
    """How much more one system has than another."""
    return measured.estimate(better, metric).minus(measured.estimate(worse, metric))


def systems(m: Measured) -> list[Finding]:
    """Table 1."""
    return [
        Finding("CE puts the right picture first more often than BE (t2i R@1)", gain(m, CE, BE, T2I_1)),
        Finding("but BE is mostly on par among the first ten: within 2 (t2i R@10)", gain(m, BE, CE, T2I_10), 2.0),
        Finding("reranking lifts BE: SEP+COOP over BE (rSum)", gain(m, SEP, BE)),
        Finding("SEP+COOP improves slightly on CE (t2i R@1)", gain(m, SEP, CE, T2I_1)),
        Finding(f"JOINT+COOP is on par with CE: within {ON_PAR:g} (rSum)", gain(m, JOINT, CE), ON_PAR),
        Finding("JOINT+COOP is the best: over SEP+COOP (rSum)", gain(m, JOINT, SEP)),
        Finding(f"objectives do not interfere: JOINT+BE within {ON_PAR:g} of BE (rSum)", gain(m, JOINT_BE, BE), ON_PAR),
        Finding(f"and JOINT+CE within {ON_PAR:g} of CE (rSum)", gain(m, JOINT_CE, CE), ON_PAR),
    ]


def gallery(m: Measured) -> list[Finding]:
    """Table 5."""
    be, sep, joint = TABLE_5
    widened = gain(m, sep, be, T2I_1).minus(gain(m, SEP, BE, T2I_1))
    return [
        Finding("BE substantially underperforms SEP+COOP (t2i R@1)", gain(m, sep, be, T2I_1)),
        Finding("and JOINT+COOP (t2i R@1)", gain(m, joint, be, T2I_1)),
        Finding("JOINT+COOP remains the best: over SEP+COOP (t2i R@1)", gain(m, joint, sep, T2I_1)),
        Finding("BE is further behind SEP+COOP than in the small gallery (t2i R@1)", widened),
    ]


def transfer(m: Measured) -> list[Finding]:
    """Table 6."""
    joint = JOINT.of("coco")
    return [
        Finding(f"JOINT+COOP gains considerably over {other.name} (rSum)", gain(m, joint, other.of("coco")))
        for other in (CE, BE, SEP)
    ]


def top_k(m: Measured) -> list[Finding]:
    """Table 8."""
    found = []
    for system in (SEP, JOINT):
        few = gain(m, system, replace(system, k=10), T2I_10)
        many = gain(m, system, replace(system, k=50))
        found += [
            Finding(f"too small a k costs precision: {system.name} at 20 over 10 (t2i R@10)", few),
            Finding(f"beyond 20 little is gained: {system.name} at 20 within {ON_PAR:g} of 50 (rSum)", many, ON_PAR),
        ]
    return found


def fusions(m: Measured) -> list[Finding]:
    """Table 9: the matcher alone against the best weight of each sum."""
    found = []
    for alone in (SEP, JOINT):
        for rule in ("add", "norm_add"):
            sums = (m.estimate(replace(alone, fusion=rule, weight=weight)) for weight in WEIGHTS)
            best = max(sums, key=lambda one: one.mean if one.by_seed else 0.0)
            lead = m.estimate(alone).minus(best)
            found.append(Finding(f"{alone.name}: the matcher alone ranks best, over {rule.upper()} (rSum)", lead))
    return found


def data_size(m: Measured) -> list[Finding]:
    """Figure 3."""
    of_be, of_ce, of_sep = (kept(m, system, "1k") for system in (BE, CE, SEP))
    return [
        Finding("BE is less sample-efficient: with 1,000 CE keeps more of its rSum (per cent)", of_ce.minus(of_be)),
        Finding("and so does what CE reranks: SEP+COOP keeps more than BE (per cent)", of_sep.minus(of_be)),
        Finding("it shows in JOINT+COOP: below CE with 1,000 (rSum)", gain(m, CE.of("1k"), JOINT.of("1k"))),
        Finding("and below SEP+COOP (rSum)", gain(m, SEP.of("1k"), JOINT.of("1k"))),
    ]


def halved(m: Measured) -> list[Finding]:
    """Figure 4."""
    remains = [
        Finding(f"{system.name} keeps around 90 %: above {KEPT:g} (per cent)", kept(m, system, "half").plus(-KEPT))
        for system in (BE, SEP, JOINT)
    ]
    best = [
        Finding(f"JOINT+COOP is again the best: over {other.name} (rSum)", gain(m, JOINT.of("half"), other.of("half")))
        for other in (BE, SEP)
    ]
    return remains + best


def kept(m: Measured, system: System, variant: str) -> Estimate:
    """Per cent of a system's rSum that it has when trained in another way."""
    return m.estimate(system.of(variant)).over(m.estimate(system)).times(100)
