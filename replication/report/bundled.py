"""How the bundled model came about, and how good it is: candidates, reranking with its control, the bundle itself."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.pages.markdown import MISSING, Finding, findings_of_ours, number, paragraph, sources, table
from replication.report.estimates import Estimate
from replication.report.findings import ON_PAR
from replication.report.replica import Section
from replication.report.results import R_SUM, ResultFile, estimate, read_folder
from sightline.evaluation.report import compare

PLACES = {"flickr8k-test": "Flickr8k", "coco-val": "COCO", "stamps": "stamps"}
"""Where candidates are measured: at home, on other photos, and on drawings."""


def sections(results: Path, bundle: Path, root: Path, plots: Mapping[str, str]) -> list[Section]:
    """The candidates, what reranking adds, and the bundle that ships; each says so where it has nothing to show."""
    return [
        _candidates(read_folder(results / "candidates"), root, plots),
        _reranking(read_folder(results / "reranking"), root),
        _shipped(read_folder(results / "default"), bundle, root),
    ]


def candidate_rows(files: Sequence[ResultFile]) -> dict[tuple[str, float], dict[str, Mapping[str, Any]]]:
    """By candidate and share of its image tower: its row for each data set."""
    found: dict[tuple[str, float], dict[str, Mapping[str, Any]]] = {}
    for file in files:
        for row in file.content["rows"]:
            found.setdefault((file.content["name"], row["share"]), {})[row["data"]] = row
    return found


def _candidates(files: Sequence[ResultFile], root: Path, plots: Mapping[str, str]) -> Section:
    title = "Candidates, at home and away"
    if not files:
        return Section(title, "Left out: there is nothing in `benchmarks/results/candidates` yet.")
    words = paragraph(
        "Two towers, fine-tuned in different ways, by embedding alone. At home is the test set of Flickr8k, whose "
        "training set all of them saw; away are photos of COCO and drawings of things with a line of description "
        "(stamps). *Share* is how much of the trained image tower remains: at 0.5 its weights lie halfway back to "
        "where they began (WiSE-FT)."
    )
    training = table(
        ["candidate", "recipe", "changes to it", "seconds to train"],
        [[file.content["name"], *_recipe(file), f"{file.content['train_seconds']:.0f}"] for file in files],
        words=3,
    )
    found = candidate_rows(files)
    heads = ["candidate", "share", *(f"{place} {what}" for place in PLACES.values() for what in ("t2i R@1", "rSum"))]
    measured = table(heads, [[name, f"{share:g}", *_at_places(rows)] for (name, share), rows in found.items()])
    findings = _lessons(found)
    picture = [f"![{title}](plots/{plots[title]})"] if title in plots else []
    origin = sources(files, root)
    judged = findings_of_ours(findings)
    return Section(title, "\n\n".join([words, training, measured, *picture, judged, origin]), tuple(findings))


def _recipe(file: ResultFile) -> list[str]:
    """The recipe that the command named, or the one it takes by itself, and what it changed in it."""
    named = re.search(r"--recipe (\S+)", file.content["command"])
    changes = ", ".join(f"`{change}`" for change in file.content["changes"])
    return [f"`{named[1] if named else 'default-embed'}`", changes or "none"]


def _at_places(rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    cells = []
    for place in PLACES:
        row = rows.get(place)
        cells += [MISSING] * 2 if row is None else [number(row["text_to_image"]["R@1"]), number(row["rSum"])]
    return cells


def _lessons(found: Mapping[tuple[str, float], Mapping[str, Mapping[str, Any]]]) -> list[Finding]:
    """What the candidates were made to find out; one that was not measured is left out."""

    def gain(better: tuple[str, float], worse: tuple[str, float], place: str) -> Estimate:
        return _of(found.get(better, {}).get(place)).minus(_of(found.get(worse, {}).get(place)))

    both, alone, frozen = ("both", 1.0), ("flickr-only", 1.0), ("frozen", 1.0)
    asked = [
        Finding("COCO beside Flickr8k helps at home (rSum)", gain(both, alone, "flickr8k-test")),
        Finding("and keeps the model general: on stamps (rSum)", gain(both, alone, "stamps")),
        Finding("training the image tower helps at home, against frozen (rSum)", gain(both, frozen, "flickr8k-test")),
        Finding(f"and costs nothing on stamps: within {ON_PAR:g} (rSum)", gain(both, frozen, "stamps"), ON_PAR),
        Finding("drawing the tower halfway back helps on stamps (rSum)", gain(("both", 0.5), both, "stamps")),
    ]
    return [one for one in asked if one.gain.by_seed]


def _of(row: Mapping[str, Any] | None) -> Estimate:
    return Estimate({}) if row is None else estimate({0: row}, R_SUM)


def _reranking(files: Sequence[ResultFile], root: Path) -> Section:
    """What matchers add, beside the honest control: a second bi-encoder, whose vectors are joined to the first's."""
    title = "Reranking: the matchers that were tried"
    if not files:
        return Section(title, "Left out: there is nothing in `benchmarks/results/reranking` yet.")
    words = paragraph(
        "The 20 best by embedding, reranked by a matcher alone, or by its logit plus a weighted cosine (fused; the "
        "weight was chosen on val). *Two bi-encoders* joins the vectors of a second bi-encoder to those of the first: "
        "it tells what is gained by matching from what is gained by having two models. *default* is the one that ships."
    )
    rows = {file.path.stem: _by_place_and_system(file) for file in files}
    heads = ["matcher", "system", *(f"{place} {what}" for place in PLACES.values() for what in ("t2i R@1", "rSum"))]
    systems = ("embed", "match alone", "fused", "two bi-encoders")
    cells = []
    for name, found in rows.items():
        for system in systems:
            at = {place: row for (place, its), row in found.items() if its == system}
            if at:
                cells.append([name, system, *_at_places(at)])
    told = table(
        ["matcher", "how it was made"], [[file.path.stem, file.content.get("note", "")] for file in files], words=2
    )
    parts = [words, told, table(heads, cells, words=2), sources(files, root)]
    return Section(title, "\n\n".join(parts))


def _by_place_and_system(file: ResultFile) -> dict[tuple[str, str], Mapping[str, Any]]:
    return {(row["data"], row["system"]): row for row in file.content["rows"]}


def _shipped(files: Sequence[ResultFile], bundle: Path, root: Path) -> Section:
    """What `sightline eval` found of the bundle in the repository, and how its scores become probabilities."""
    title = "The bundle that ships"
    parts = [_gains(file, root) for file in files if "gain_of_reranking" in file.content]
    if (bundle / "sightline.json").is_file():
        spec = json.loads((bundle / "sightline.json").read_text(encoding="utf-8"))
        if spec["results"]:
            parts += ["What the bundle says of itself:", compare(spec["results"]).rstrip()]
        if spec["calibration"]:
            fitted = [[stage, f"{c['scale']:.3g}", f"{c['bias']:.3g}"] for stage, c in spec["calibration"].items()]
            words = (
                "A score becomes a probability by 1 / (1 + exp(−(scale × score + bias))), fitted on held-out captions:"
            )
            parts += [words, table(["stage", "scale", "bias"], fitted)]
    else:
        parts.append("There is no bundle in `bundles/default` yet.")
    return Section(title, "\n\n".join(parts))


def _gains(file: ResultFile, root: Path) -> str:
    """What reranking changes in each recall, query by query: an interval that excludes zero is no accident."""
    cells = [
        [way.replace("_", " "), name, f"{gain['value']:+.2f}", f"[{gain['low']:+.2f}, {gain['high']:+.2f}]"]
        for way, gains in file.content["gain_of_reranking"].items()
        for name, gain in gains.items()
    ]
    words = "What reranking gains, paired query by query, with 95 % intervals (bootstrap over the test images):"
    return "\n\n".join(
        [words, table(["direction", "recall", "gain", "interval"], cells, words=2), sources([file], root)]
    )
