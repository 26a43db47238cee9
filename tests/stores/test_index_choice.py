"""docs/index-choice.md says what was measured, and the store does what the page says."""

import json
from pathlib import Path

from sightline.stores.local_search import Effort

ROOT = Path(__file__).parents[2]
RESULT = json.loads((ROOT / "benchmarks" / "results" / "index_choice.json").read_text(encoding="utf-8"))


def test_the_store_searches_as_the_page_says() -> None:
    effort, page = Effort(), " ".join((ROOT / "docs" / "index-choice.md").read_text(encoding="utf-8").split())
    assert f"{effort.candidates:,} of them, or one in {effort.items_per_candidate}" in page
    assert f"Up to {effort.exact_up_to:,} items" in page
    rows = {row["vectors"]: row for row in RESULT["store"]}
    assert all((row["index"] == "exact") == (size <= effort.exact_up_to) for size, row in rows.items())
    assert min(row["recall@20"] for row in rows.values()) >= 0.97
    assert rows[100_000]["ms"] < 5
    assert rows[1_000_000]["ms"] < 25
    assert rows[1_000_000]["open_ms"] < 500
