"""docs/results.md is what the template and the result files make it."""

import re

from benchmarks.provenance import ROOT
from replication.results_page import page

PAGE = ROOT / "docs" / "results.md"


def test_the_committed_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make results`"


def test_everything_the_page_links_to_exists() -> None:
    links = re.findall(r"\]\(((?!http)[^)]+)\)", PAGE.read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not (PAGE.parent / link).exists()] == []
