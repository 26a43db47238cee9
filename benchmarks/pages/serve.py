"""Write the results of benchmarks/serve.py to docs/serve.md, between `<!-- load -->` and `<!-- /load -->`.

python -m benchmarks.pages.serve
"""

from pathlib import Path
from typing import Any

from benchmarks.markdown import fill, machine_of, replace_block, table
from benchmarks.provenance import RESULTS, ROOT, read_result

TEMPLATE, PAGE = Path(__file__).with_name("serve.md"), ROOT / "docs" / "serve.md"


def page(text: str, result: dict[str, Any]) -> str:
    """The page with the measurements of a result."""
    gains = {
        name: "{median:.2f} times ({lowest:.2f} to {highest:.2f})".format(**gain)
        for name, gain in result["gain_of_together_over"].items()
    }
    values = {
        "clients": f"{result['clients']}",
        "items": f"{result['items']:,}",
        "machine": machine_of(result),
        "runs": _runs(result["runs"]),
        "rounds": f"{len(result['blocks']) // 3}",
    }
    return replace_block(text, "load", fill(TEMPLATE, values | gains))


def _runs(runs: list[dict[str, Any]]) -> str:
    rows, most = [], max(run["rerank"] for run in runs)
    for run in runs:
        asked = f"rerank {run['rerank']}" if run["rerank"] else "no rerank"
        theirs = "do not rerank" if run["rerank"] else f"rerank {most}"
        others = f", while {run['other_clients']} others {theirs}" if run["other_clients"] else ""
        rows.append(
            [f"{asked} ({run['clients']}{others})", f"{run['queries_per_second']:.0f}", f"{run['p50_ms']:.0f}",
             f"{run['p99_ms']:.0f}", f"{run['errors']}", f"{run['memory_growth']:.1%}"]
        )  # fmt: skip
    return table(["search (clients)", "responses/s", "p50 ms", "p99 ms", "errors", "memory growth"], rows)


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(page(text, read_result(RESULTS / "serve.json")), encoding="utf-8")


if __name__ == "__main__":
    main()
