"""Write the results of benchmarks/attack to docs/security.md, between `<!-- attacks -->` and `<!-- /attacks -->`.

python -m benchmarks.pages.security
"""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.markdown import replace_block, sources, table
from benchmarks.provenance import RESULTS, ROOT, read_result

PAGE = ROOT / "docs" / "security.md"


def page(text: str, result: Mapping[str, Any]) -> str:
    """The page with the attacks of a result."""
    return replace_block(text, "attacks", f"{rows(result['rows'])}\n\n{sources([result], 'attack.json')}")


def rows(found: Sequence[Mapping[str, Any]]) -> str:
    """The attacks as a table: tried, survived, the server's peak memory, and the time of other clients' searches."""
    lines = []
    for row in found:
        peak = f"{row['peak'] / 1e6:.0f}" if "peak" in row else ""
        slower = f"{row['search_ms']:.0f} ({row['usual_ms']:.0f})" if "search_ms" in row else ""
        lines.append([row["attack"], f"{row['tried']}", f"{row['survived']}", peak, slower])
    return table(["attack", "tried", "survived", "peak MB", "search by others, ms (before)"], lines)


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(page(text, read_result(RESULTS / "attack.json")), encoding="utf-8")


if __name__ == "__main__":
    main()
