"""Write what benchmarks/serve.py measured into docs/serve.md, between the marks that say where.

python -m benchmarks.pages.serve
"""

import json
import re
from pathlib import Path
from typing import Any

from benchmarks.pages.markdown import paragraph, table

ROOT = Path(__file__).resolve().parents[2]
RESULT, PAGE = ROOT / "benchmarks" / "results" / "serve.json", ROOT / "docs" / "serve.md"
BETWEEN = re.compile(r"(<!-- load -->\n).*(<!-- /load -->)", re.DOTALL)
HEADS = ("clients ask for", "answers a second", "p50 ms", "p99 ms", "p99 / p50", "errors", "memory grew by")


def filled(page: str, result: dict[str, Any]) -> str:
    """The page, with what was measured; an error where the page has no place for it."""
    made, places = BETWEEN.subn(lambda marks: f"{marks[1]}{measured(result)}\n{marks[2]}", page)
    if places != 1:
        raise SystemExit("docs/serve.md needs one <!-- load --> … <!-- /load -->")
    return made


def measured(result: dict[str, Any]) -> str:
    """What clients saw, and what answering together gained."""
    machine, gains = result["machine"], result["gain_of_together_over"]
    opening = (
        f"{result['clients']} clients, who share a machine of {machine['cores']} cores ({machine['processor']}) with "
        f"the server, ask a collection of {result['items']:,} items as fast as it answers, no query twice:"
    )
    closing = (
        f"Answering together those that wait gives {_gain(gains['each alone'])} as many answers a second as answering "
        f"each alone on as many threads, and {_gain(gains['one at a time'])} as many as one at a time, with all "
        f"processors for each: medians of {len(result['blocks']) // 3} rounds, and what they ranged over. What is "
        "found is the same."
    )
    return "\n\n".join([paragraph(opening), table(HEADS, [_row(run) for run in result["runs"]]), paragraph(closing)])


def _gain(gain: dict[str, float]) -> str:
    return f"{gain['median']:.2f} times ({gain['lowest']:.2f} to {gain['highest']:.2f})"


def _row(run: dict[str, Any]) -> tuple[str, ...]:
    asked = f"rerank {run['rerank']}" if run["rerank"] else "no rerank"
    others = f", while {run['other_clients']} others do otherwise" if run["other_clients"] else ""
    return (
        f"{asked} ({run['clients']}{others})",
        f"{run['queries_per_second']:.0f}",
        f"{run['p50_ms']:.0f}",
        f"{run['p99_ms']:.0f}",
        f"{run['p99_over_p50']:.1f}",
        str(run["errors"]),
        f"{run['memory_growth']:.1%}",
    )


def main() -> None:
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(filled(page, json.loads(RESULT.read_text(encoding="utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    main()
