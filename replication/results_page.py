"""Write docs/results.md from its template, results.md, and the files in benchmarks/results.

python -m replication.results_page
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.markdown import MISSING, fill, sources, table
from benchmarks.provenance import RESULTS, ROOT, read_result, read_results
from replication.claims import NOT_MEASURED, UNDECIDED, Verdict, judge, read_papers, tally
from replication.estimates import Estimate
from replication.paper2 import PARTS
from replication.paper3 import CHOSEN, RUNS
from replication.systems import RECALLS, Systems, read_systems

TEMPLATE = Path(__file__).with_name("results.md")
TASKS = {"none": "none", "cmr": "CMR", "vmlm": "CMR, VMLM", "smrm": "CMR, SMRM", "mlm-mrm": "CMR, MLM, MRM",
         "vmlm-smrm": "CMR, VMLM, SMRM"}  # fmt: skip
number, signed = "{:z.1f}".format, "{:+z.1f}".format  # z: never a negative zero
REGIONS = "paper1-regions"
FIGURE6 = {  # of paper 2: runs by the value of a parameter
    "λ": {"0": "lambda-0", "0.5": "lambda-0.5", "1": "fusion", "1.5": "lambda-1.5", "2": "lambda-2"},
    "K": {"1": "k-1", "5": "k-5", "10": "fusion", "15": "k-15", "20": "k-20"},
    "τ": {"0.1": "tau-0.1", "0.25": "tau-0.25", "0.5": "fusion", "0.75": "tau-0.75", "1": "no-connection"},
}
SYSTEMS = ("CE", "BE", "SEP+COOP", "JOINT+COOP", "JOINT+CE", "JOINT+BE")  # of paper 1
RERANKINGS = {  # of paper 1: suffixes of systems' names
    "top 20": "", "top 10": "k=10", "top 50": "k=50",
    **{f"{rule} {weight}": f"{rule} {weight}" for rule in ("add", "norm_add") for weight in ("0.1", "0.5", "0.9")},
    "top 20, larger gallery": "enlarged",
}  # fmt: skip


def page(results: Path = RESULTS) -> str:
    """Return the complete page."""
    papers = {paper["name"]: paper for paper in read_papers()}
    systems = {name: read_systems(results, name) for name in papers}
    verdicts = {name: judge(paper, systems[name]) for name, paper in papers.items()}
    tallies = [[papers[name]["title"], *map(str, tally(found))] for name, found in verdicts.items()]
    heads = ["paper", "claims tested", "held", "not held", "undecided", "not testable", "not measured"]
    values: dict[str, Any] = {"tally": table(heads, tallies), "short": _short(systems, verdicts)}
    values |= {f"{name} claims": _claims(found) for name, found in verdicts.items()}
    values |= {f"{name} sources": _sources(results, name) for name in papers}
    values |= _paper1(systems["paper1"], papers["paper1"]["reported"], results)
    values |= _paper2(systems["paper2"], papers["paper2"]["reported"], results) | _longer(results)
    values |= _paper3(systems["paper3"], results) | _paper4(results / "paper4")
    return fill(TEMPLATE, values)


def _short(systems: Mapping[str, Systems], verdicts: Mapping[str, Sequence[Verdict]]) -> dict[str, str]:
    """Return the numbers of the summary; width: the median half-width of the intervals of all tested claims."""
    third, fourth = systems["paper3"], systems["paper4"]
    shrunken = [third.gain(f"{name} kl", "F").mean for name in ("B-F", "I-F", "I-B-F")]
    intervals = [one.gain.interval for found in verdicts.values() for one in found if one.gain and one.gain.interval]
    return {
        "late": with_interval(third.gain("B", "F")),
        "least": number(min(shrunken)),
        "most": number(max(shrunken)),
        "cmr": with_interval(fourth.gain("cmr", "none", "mR")),
        "width": number(median((high - low) / 2 for low, high in intervals)),
    }


def _claims(verdicts: Sequence[Verdict]) -> str:
    """Return a table of the claims, then lists of those whose premise fails, and of those not measured."""
    rows, lists = [], defaultdict[str, list[str]](list)
    for one in verdicts:
        if one.verdict == NOT_MEASURED:
            lists["Not measured yet"].append(one.claim["text"])
        elif one.reason and "not_testable" not in one.claim:
            lists[f"Not testable, because {one.reason}"].append(one.claim["text"])
        else:
            reported = MISSING if one.reported is None else signed(one.reported)
            verdict = f"{one.verdict}: {one.reason}" if one.reason else one.verdict
            if one.verdict == UNDECIDED and one.is_below_reported:
                verdict += ", below the paper's gain"
            here = with_interval(one.gain) + (f" ({one.against})" if one.against else "")
            rows.append([one.claim["text"] + _measure(one.claim), reported, here, verdict])
    notes = [f"{title}:\n\n" + "\n".join(f"- {text}" for text in texts) for title, texts in lists.items()]
    return "\n\n".join([table(["claim", "in the paper", "here", "verdict"], rows, words=4), *notes])


def _measure(claim: Mapping[str, Any]) -> str:
    """Return a claim's metrics (unless rSum or a loss), what it is compared with, and its margin, in brackets."""
    metric = claim.get("metric", [])
    metrics = [one for one in ([metric] if isinstance(metric, str) else metric) if one != "loss"]
    parts = [" and ".join(metrics)] if metrics else []
    parts += [f"points above {claim['about']:g} %"] if "about" in claim else []
    parts += [f"margin {claim['on_par']:g}"] if "on_par" in claim else []
    return f" ({', '.join(parts)})" if parts else ""


def _sources(results: Path, paper: str) -> str:
    folders = (folder for folder in sorted(results.glob(f"{paper}*")) if folder.name != REGIONS)
    return "\n\n".join(sources(read_results(folder), folder.name) for folder in folders)


def _recalls(systems: Systems, names: Iterable[str], reported: Mapping[str, Sequence[float]]) -> str:
    """Return the six recalls and rSum of each system, and the paper's rSum if the paper gives all six recalls."""
    rows = []
    for name in names:
        theirs = number(sum(reported[name])) if len(reported.get(name, ())) == len(RECALLS) else MISSING
        rows.append([name, *(with_deviation(systems.estimate(name, metric)) for metric in (*RECALLS, "rSum")), theirs])
    return table(["system", *RECALLS, "rSum", "paper's rSum"], rows)


def _grid(systems: Systems, names: Iterable[str], columns: Mapping[str, str], head: str = "system") -> str:
    """Return the rSum of each system, in a column for each suffix of its name; columns: column headings by suffix."""
    rows = [
        [name, *(with_deviation(systems.estimate(f"{name} {suffix}".strip())) for suffix in columns)] for name in names
    ]
    return table([head, *columns.values()], rows)


def _paper2(systems: Systems, reported: Mapping[str, Sequence[float]], results: Path) -> dict[str, Any]:
    parts = dict.fromkeys(name for part in ("table3a", "table3b") for name in PARTS[part])
    rows = [
        [name, with_deviation(systems.estimate(name)), with_interval(systems.gain("fusion", name))]
        for name in parts
        if name in systems.rows and name not in ("base", "fusion")
    ]
    gru = [name for name in PARTS["bigru"] if name in systems.rows]
    pairs = [("no-neighbours", "base"), ("base-neighbours", "base"), ("fusion", "base-neighbours")]
    pairs += [("standalone", "base-neighbours"), ("base", "plain"), ("full", "base"), ("full", "base-twice")]
    pairs += [("fusion", "base"), ("standalone", "base")]
    pairs += [("bigru", "bigru-base-neighbours"), ("bigru-base-neighbours", "bigru-base")]
    cost = read_result(results / "relations-cost.json")
    return {
        "cost": {
            run: _list(number(1000 * row["seconds_per_step"]) for row in cost["rows"] if row["run"] == run)
            for run in ("base-neighbours", "fusion")
        },
        "cost sources": sources([cost], "relations-cost.json"),
        "paper2 hardest": {
            f"{kind} {way}": systems.estimate(name, f"{way} R@1").mean
            for kind, name in (("hardest", "base hardest beside fusion"), ("all", "base"))
            for way in ("t2i", "i2t")
        },
        **{f"paper2 {one} over {other}": with_interval(systems.gain(one, other)) for one, other in pairs},
        "paper2 figure6": _figure6(systems),
        "paper2 bigru": _recalls(systems, gru, reported),
        "paper2 systems": _recalls(systems, [name for name in PARTS["table1"] if name in systems.rows], reported),
        "paper2 parts": table(["run", "rSum", "fusion's gain over it"], rows) if rows else "Not measured so far.",
    }


def _figure6(systems: Systems) -> str:
    """Return rSum by the values of λ, K and τ, each over the seeds that all runs of its row have."""
    rows = []
    for parameter, runs in FIGURE6.items():
        found = {value: systems.estimate(name).by_seed for value, name in runs.items()}
        seeds = sorted(set.intersection(*(set(by_seed) for by_seed in found.values())))
        shown = [
            f"{value}: {with_deviation(Estimate({seed: by_seed[seed] for seed in seeds}))}"
            for value, by_seed in found.items()
        ]
        rows.append([parameter, *shown, str(len(seeds))])
    return table(["parameter", "lowest", "lower", "as in fusion", "higher", "highest", "seeds"], rows)


def _paper1(systems: Systems, reported: Mapping[str, Sequence[float]], results: Path) -> dict[str, Any]:
    """Return the recalls of paper 1's systems, gains over BE, curves on val, and the same on regions."""
    on_val = read_result(results / "towers-val.json")
    rerankers = ("SEP+COOP", "JOINT+COOP")
    rows = [
        [name, *(MISSING if (suffix, metric) == ("enlarged", "rSum")  # in which only one direction has a larger gallery
                 else with_deviation(systems.estimate(f"{one} {suffix}".strip(), metric))
                 for one in rerankers for metric in ("t2i R@1", "rSum"))]
        for name, suffix in RERANKINGS.items()
    ]  # fmt: skip
    gains = {
        f"{suffix}{name} over {suffix}BE {metric}": with_interval(
            systems.gain(f"{name} {suffix}".strip(), f"BE {suffix}".strip(), metric)
        )
        for suffix in ("", "regions ")
        for name in ("CE", *rerankers)
        for metric in ("t2i R@1", "rSum")
    }
    larger = {"BE": with_deviation(systems.estimate("BE enlarged", "t2i R@1"))}
    for one in rerankers:
        lead = systems.gain(f"{one} enlarged", "BE enlarged", "t2i R@1")
        larger[one] = with_interval(lead)
        larger[f"{one} growth"] = with_interval(lead.minus(systems.gain(one, "BE", "t2i R@1")))
    return {
        **{f"paper1 {name}": gain for name, gain in gains.items()},
        "paper1 kept": _kept(on_val["pretraining"]["val"], results),
        "paper1 larger": larger,
        "paper1 second CE": with_deviation(systems.estimate("CE second", "t2i R@1")),
        "paper1 systems": _recalls(systems, SYSTEMS, reported),
        "paper1 rerankings": table(
            ["reranking", *(f"{one}, {metric}" for one in rerankers for metric in ("t2i R@1", "rSum"))], rows
        ),
        "paper1 rates": {
            "tried": _list(f"{row['rate']:.0e}".replace("e-0", "e-") for row in on_val["rates"]),
            "rSum": _list(number(_best(row["val"])["rSum"]) for row in on_val["rates"]),
        },
        "paper1 val sources": sources([on_val], "towers-val.json"),
        "regions": {name: with_deviation(systems.estimate(f"{name} regions")) for name in ("BE", "CE", *rerankers)},
        "regions sources": sources(read_results(results / REGIONS), REGIONS),
    }


def _kept(pretraining: Sequence[Mapping[str, float]], results: Path) -> dict[str, Any]:
    """Return which checkpoints paper 1's runs kept."""
    trained = [one["training"] for one in read_results(results / "paper1")]
    kept = {run: [_best(one[run]["val"]) for one in trained] for run in ("ce", "joint")}
    start = _best(pretraining)
    return {
        "start step": start["step"],
        "steps": _list(f"{point['step']:,}" for point in pretraining),
        "curve": _list(number(point["rSum"]) for point in pretraining),
        "start": start["rSum"],
        "start R@1": start["t2i R@1"],
        "CE": _list(number(point["rSum"]) for point in kept["ce"]),
        "CE R@1": _list(number(point["t2i R@1"]) for point in kept["ce"]),
        **{f"{run.upper()} steps": _list(f"{point['step']:,}" for point in kept[run]) for run in kept},
    }


def _best(val: Iterable[Mapping[str, float]]) -> Mapping[str, float]:
    """Return the validation of the checkpoint that a run keeps: the highest rSum, the last of equal ones."""
    return max(val, key=itemgetter("rSum", "step"))


def _list(items: Iterable[str]) -> str:
    """Join items as in a sentence: `1, 2 and 3`."""
    *first, last = items
    return " and ".join([", ".join(first), last] if first else [last])


def _longer(results: Path) -> dict[str, Any]:
    """Return rSum of paper 2's runs of 30 epochs: on val by epoch, and on the test set."""
    found = {one["run"]: one for one in read_results(results / "paper2-long")}
    curves = {
        run: {point["step"]: point["rSum"] for point in one["training"][run]["val"]} for run, one in found.items()
    }
    steps = sorted(curves["base"])
    now = {run: one["result"]["rSum"] for run, one in found.items()}
    before = {run: read_result(results / "paper2" / f"{run}-test-seed0.json")["result"]["rSum"] for run in found}
    return {
        "longer": now
        | {f"{run} before": rsum for run, rsum in before.items()}
        | {f"{run} change": now[run] - rsum for run, rsum in before.items()}
        | {
            f"{run} epoch": round(30 * max(curve, key=lambda step: curve[step]) / steps[-1])
            for run, curve in curves.items()
        }
        | {"gain": "{rSum:+.1f} [{low:+.1f}, {high:+.1f}]".format(**found["fusion"]["gain_over"]["base"])},
    }


def _paper3(systems: Systems, results: Path) -> dict[str, Any]:
    every = ("F", "B", "I16", "I32", "I64", "B-F", "I-F", "I-B", "I-B-F", "B-F-unique", "C-F")
    names = [name for name in every if not systems.rows.keys().isdisjoint((name, f"{name} kl"))]
    again = {
        f"{name} {which}": with_deviation(systems.estimate(f"{name} {which}"))
        for name, which in (("I32", "third"), ("I-B kl", "third"), ("I32", "fourth"))
    }
    again["B fifth"] = with_deviation(systems.estimate("B fifth"))
    runs = _grid(systems, names, {"": "paper", "kl": "kl", "contrastive": "contrastive"}, "run")
    kept = [one["training"]["val"] for folder in sorted(results.glob("paper3*")) for one in read_results(folder)
            if one["training"].get("val")]  # fmt: skip
    rising = sum(_best(val)["step"] == val[-1]["step"] for val in kept)
    return {
        "paper3 runs": runs,
        "paper3 temperatures": _temperatures(results),
        "paper3 contrastive I32 over B": with_interval(systems.gain("I32 contrastive", "B contrastive")),
        "paper3 curves": {"all": len(kept), "rising": rising},
        **again,
    }


def _temperatures(results: Path) -> str:
    """Return the temperatures chosen for each model with one vector, and rSum on val, for two sets of teachers."""
    tried: dict[str, dict[str, dict[tuple[float, float], float]]] = defaultdict(lambda: {"first": {}, "later": {}})
    for when, folder in (("first", "paper3"), ("later", "paper3-fourth")):
        for one in read_results(results / folder / "val"):
            name, _, both = one["run"].partition("@")
            teacher, student = map(float, both.split("x"))
            tried[name][when][teacher, student] = one["result"]["rSum"]
    rows = []
    for name, found in sorted(tried.items()):
        chosen, row = CHOSEN[RUNS[name].teacher], []
        for by_temperatures in found.values():
            others = [rsum for both, rsum in by_temperatures.items() if both != chosen]
            span = f"{number(min(others))} to {number(max(others))} ({len(others)})" if others else MISSING
            row += [number(by_temperatures[chosen]) if chosen in by_temperatures else MISSING, span]
        rows.append([name, *(f"{one:g}" for one in chosen), *row])
    heads = ["run", "teacher", "student", "rSum on val", "other temperatures", "later teachers", "other temperatures"]
    return table(heads, rows)


def _paper4(folder: Path) -> dict[str, Any]:
    contents = read_results(folder)
    rows, galleries = [], ("test", "full", "everything")
    for run, tasks in TASKS.items():
        found = [one for one in contents if one["run"] == run]
        measured = [{one["seed"]: one[gallery]["mR"] for one in found} for gallery in galleries]
        reranked = [one for one in found if "reranked" in one]
        measured += [{one["seed"]: one["reranked"][k]["mR"] for one in reranked} for k in ("20", "50")]
        rows.append([tasks, *(with_deviation(Estimate(by_seed)) for by_seed in measured)])
    sizes = next(one for one in contents if one["run"] == "cmr")
    counts = [f"{sizes[gallery]['images'] + sizes[gallery]['distractors']:,} images" for gallery in galleries]
    counts += [f"{counts[1]}, top {k} reranked" for k in (20, 50)]
    by_language = next(one for one in contents if one["run"] == "languages")["result"]["mR_by_language"]
    larger = {
        f"{run} {gallery}": with_interval(
            Estimate({one["seed"]: one[gallery]["mR"] for one in contents if one["run"] == run}).minus(
                Estimate({one["seed"]: one[gallery]["mR"] for one in contents if one["run"] == "cmr"})
            )
        )
        for run in ("vmlm", "vmlm-smrm")
        for gallery in ("full", "everything")
    }
    translated = read_result(folder.parent / "translated.json")
    return {
        "paper4 tasks": table(["tasks", *counts], rows),
        "paper4 languages": _list(f"{number(mR)} ({lang})" for lang, mR in by_language.items()),
        "paper4 larger": larger,
        "translated rows": translated["rows"],
        "translated sources": sources([translated], "translated.json"),
    }


def with_deviation(estimate: Estimate) -> str:
    """Return the mean over seeds, with ± their standard deviation if there are several."""
    if not estimate.by_seed:
        return MISSING
    return number(estimate.mean) + ("" if estimate.deviation is None else f" ± {number(estimate.deviation)}")


def with_interval(gain: Estimate | None) -> str:
    """Return a gain with its sign, and its interval in brackets."""
    if gain is None or not gain.by_seed:
        return MISSING
    return signed(gain.mean) + ("" if gain.interval is None else " [{}, {}]".format(*map(signed, gain.interval)))


def main() -> None:
    (ROOT / "docs" / "results.md").write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
