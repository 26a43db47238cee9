"""Which cascade the bundled model has by default, and what the others find and take."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.pages.markdown import (
    MISSING,
    Finding,
    findings_of_ours,
    number,
    paragraph,
    sources,
    table,
    with_interval,
)
from replication.report.estimates import Estimate
from replication.report.replica import Section
from replication.report.results import ResultFile

TITLE = "The default cascade"


def section(path: Path, root: Path) -> Section:
    """The cascades of the grid, each beside matching alone in the same time."""
    if not path.is_file():
        return Section(TITLE, "Left out: `python -m benchmarks.cascade` makes what it needs.")
    file = ResultFile(path, json.loads(path.read_text(encoding="utf-8")))
    rows, chosen = file.content["rows"], file.content["chosen"]
    words = paragraph(
        f"Captions of Flickr8k's test set ({file.content['questions']:,}) among {file.content['items']:,} pictures, "
        "most of them distractors from COCO. *late* is how many of the best by embedding are rescored by late "
        "interaction, *match* how many of the best of those are matched. *Alone* is how many can be matched in the "
        "same time without late interaction; the gain over that is in the sum of R@1, R@5 and R@10, query by query, "
        "with its 95 % interval (bootstrap over the test images)."
    )
    heads = ["late", "match", "ms", "R@1", "R@5", "R@10", "alone", "gain over that"]
    told = paragraph(
        f"The bundle searches by late@{chosen['late']} and match@{chosen['rerank']} unless told otherwise. Another "
        "cascade than late@0 and match@20 is chosen if it takes no longer, is the best on half of the pictures, and is "
        "better on the other half too."
    )
    findings = _findings(rows)
    shown = table(heads, [_cells(row) for row in rows], words=0)
    sums = [paragraph(_added(file.content["added"]))] if file.content.get("added") else []
    parts = [words, shown, findings_of_ours(findings), *sums, told]
    return Section(TITLE, "\n\n".join([*parts, sources([file], root)]), tuple(findings))


def _added(rows: Sequence[Mapping[str, Any]]) -> str:
    """What is gained where late interaction is added to the cosine, at best."""
    best = max(rows, key=lambda row: row["gain"]["low"])
    gain = best["gain"]
    return (
        f"Added to the cosine instead of put in its place, by {len({row['weight'] for row in rows})} weights, late "
        f"interaction gains at best {gain['value']:+.1f} [{gain['low']:+.1f}, {gain['high']:+.1f}] over as many "
        f"matched without it, at late@{best['late']} and match@{best['rerank']}; of {len(rows)} cascades "
        f"{sum(row['gain']['low'] > 0 for row in rows)} have an interval above zero."
    )


def _cells(row: Mapping[str, Any]) -> list[str]:
    recalls = [number(row["text_to_image"][f"R@{k}"]) for k in (1, 5, 10)]
    gain = with_interval(_gain(row)) if row["late"] else MISSING
    return [str(row["late"]), str(row["rerank"]), f"{row['ms']:.0f}", *recalls, str(row["alone"]["rerank"]), gain]


def _findings(rows: list[Mapping[str, Any]]) -> list[Finding]:
    """Late interaction before 20 matches, against as many matches alone as take the same time."""
    return [
        Finding(f"late@{row['late']} before match@20 finds more in the same time (sum of recalls)", _gain(row))
        for row in rows
        if row["late"] and row["rerank"] == 20
    ]


def _gain(row: Mapping[str, Any]) -> Estimate:
    gain = row["alone"]["gain"]["sum"]
    return Estimate({0: gain["value"]}, {0: (gain["low"], gain["high"])})
