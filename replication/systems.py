"""The systems in a paper's result files, by name and seed, and comparisons between them."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.provenance import read_results
from replication.estimates import Estimate, Interval

Row = Mapping[str, Any]
WAYS = {"t2i": "text_to_image", "i2t": "image_to_text"}
SPOKEN = ("english", "languages")  # variants of paper 1 that are measured in several languages
RECALLS = tuple(f"{way} R@{k}" for way in WAYS for k in (1, 5, 10))


@dataclass
class Systems:
    """Result rows by system and seed, and intervals of the gain in rSum of one system over another."""

    rows: dict[str, dict[int, Row]] = field(default_factory=dict)
    gains: dict[tuple[str, str], dict[int, Interval]] = field(default_factory=dict)

    def add(self, name: str, seed: int, row: Row) -> None:
        """Add a row; raises an error if two files disagree about a system."""
        known = self.rows.setdefault(name, {}).setdefault(seed, row)
        if known.get("rSum") != row.get("rSum"):
            raise SystemExit(f"two result files disagree about {name}, seed {seed}: remove one of them")

    def add_gain(self, name: str, other: str, seed: int, gain: Row) -> None:
        """Add the interval of a gain in rSum; raises an error if one of the systems has been trained anew since."""
        now = self.rows[name][seed]["rSum"] - self.rows.get(other, {}).get(seed, {}).get("rSum", math.nan)
        if not math.isclose(now, gain["rSum"], abs_tol=0.1):
            raise SystemExit(f"{name}, seed {seed}: its gain over {other} was {gain['rSum']}, is {now:.2f}: remove it")
        self.gains.setdefault((name, other), {})[seed] = gain["low"], gain["high"]

    def estimate(self, name: str, metric: str = "rSum") -> Estimate:
        """Return a metric of a system, such as `rSum`, `mR` or `t2i R@1`; empty if it was not measured."""
        rows = self.rows.get(name, {})
        bounds = {seed: value(row["ci95"], metric) for seed, row in rows.items() if "ci95" in row}
        return Estimate({seed: float(value(row, metric)) for seed, row in rows.items()},
                        {seed: (low, high) for seed, (low, high) in bounds.items()})  # fmt: skip

    def gain(self, better: str, worse: str, metric: str = "rSum") -> Estimate:
        """Return the gain of one system over another, with the paired bootstrap interval if it was measured."""
        apart = self.estimate(better, metric).minus(self.estimate(worse, metric))
        if metric not in ("rSum", "mR"):
            return apart
        paired = {seed: (-high, -low) for seed, (low, high) in self.gains.get((worse, better), {}).items()}
        paired |= self.gains.get((better, worse), {})
        scale = 1.0 if metric == "rSum" else 1 / 6
        known = {seed: (low * scale, high * scale) for seed, (low, high) in paired.items() if seed in apart.by_seed}
        return Estimate(apart.by_seed, {**apart.intervals, **known})


def value(row: Row, metric: str) -> Any:
    """Return a number from a row, or its interval from `ci95`.

    metric: such as rSum, `t2i R@1`, or `R@1+R@5` for the sum of these recalls in both directions. The interval of a sum
    is the sum of the intervals, which is wider than needed.
    """
    if "+" in metric:
        found = [row[way][recall] for way in WAYS.values() for recall in metric.split("+")]
        return tuple(map(sum, zip(*found, strict=True))) if isinstance(found[0], list) else sum(found)
    way, _, recall = metric.partition(" ")
    return row[WAYS[way]][recall] if recall else row[metric]


def read_systems(results: Path, paper: str) -> Systems:
    """Return all runs of a paper, from the result folders named after it; see `named_rows` for the names."""
    found = Systems()
    gains: list[tuple[str, str, int, Row]] = []
    for folder in sorted(results.glob(f"{paper}*")):
        suffix = folder.name.removeprefix(paper).replace("-", " ")
        for content in read_results(folder):
            rows = [(f"{name}{suffix}", row) for name, row in named_rows(content)]
            for name, row in rows:
                found.add(name, content["seed"], row)
            others = content.get("gain_over", {}).items()
            gains += [(rows[0][0], other + suffix, content["seed"], gain) for other, gain in others]
    for name, other, seed, gain in gains:
        found.add_gain(name, other, seed, gain)
    return found


def named_rows(content: Row) -> Iterator[tuple[str, Row]]:
    """Yield the systems in a result file, with the file's own system first.

    For paper 1, these have the paper's names, with a suffix for anything other than k = 20, the matcher alone and
    training on Flickr8k, such as `SEP+COOP add 0.5`, `BE coco` or `BE enlarged` (a larger gallery). For other papers,
    they have the script's run names, with the variant or start.
    """
    if "rows" in content:
        for row in content["rows"]:
            yield " ".join([row["row"], *_differences(row, content["variant"])]), row
        if content["variant"] in SPOKEN:
            yield from _other_languages(content)
        return
    yield name_of(content["run"], content), content.get("result") or content["test"]
    for which, name in (("base", "base"), ("run", content["run"])) if content.get("special") else ():
        for kind in ("hardest", "infrequent"):  # a fifth of the queries each
            ways = {way: content["special"][which][way][kind]["20%"] for way in WAYS.values()}
            yield f"{name} {kind} beside {content['run']}", ways
    if content.get("curve"):
        later = content["curve"][len(content["curve"]) // 2 :]
        for kind in ("initial", "enhanced"):
            yield f"{content['run']} {kind}", {"loss": sum(point[kind] for point in later) / len(later)}


def _other_languages(content: Row) -> Iterator[tuple[str, Row]]:
    """Yield the mean of each system over all languages but English."""
    others = [row for row in content["rows"] if row["lang"] != "en"]
    for name in dict.fromkeys(row["row"] for row in others):
        own = [row for row in others if row["row"] == name]
        means = {metric: fmean(row[metric] for row in own) for metric in ("rSum", "mR")}
        yield f"{name} {content['variant']} others", means


def _differences(row: Row, variant: str) -> Iterator[str]:
    yield from [variant] if variant != "full" else []
    yield from [row["lang"]] if variant in SPOKEN else []
    yield from ["enlarged"] if row["distractors"] else []
    stage = row["stages"][-1]
    if stage.startswith("match@") and stage not in ("match@20", "match@all"):
        yield f"k={stage.removeprefix('match@')}"
    if row["fusion"] not in (None, "ce"):
        yield f"{row['fusion']} {row['weight']:g}"


def name_of(run: str, content: Row) -> str:
    """Return the name of a run of papers 2 to 4, with its variant or start if that is not the paper's."""
    other = content.get("variant", "paper"), content.get("start", "minilm")
    return " ".join([run, *(one for one in other if one not in ("paper", "minilm"))])
