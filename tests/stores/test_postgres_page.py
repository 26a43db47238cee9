"""docs/postgres.md says what was measured."""

import json
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_says_what_was_measured() -> None:
    result = json.loads((ROOT / "benchmarks" / "results" / "postgres.json").read_text(encoding="utf-8"))
    page = " ".join((ROOT / "docs" / "postgres.md").read_text(encoding="utf-8").split())
    for row in result["stores"]:
        recalls = [row[name] for name in ("recall@10", "recall@20", "filtered_recall@20")]
        assert " | ".join([f"{row['vectors']:,}", *(f"{100 * one:.1f} %" for one in recalls)]) in page
        assert min(recalls) >= 0.95
    assert f"PostgreSQL {result['postgresql']} with pgvector {result['pgvector']}" in page
