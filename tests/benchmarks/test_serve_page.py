"""What docs/serve.md says of load is what was measured."""

import json

import pytest

from benchmarks.pages import serve as serve_page


def test_the_page_says_what_was_measured() -> None:
    if not serve_page.RESULT.is_file():
        pytest.skip("the server was not measured yet")
    page = serve_page.PAGE.read_text(encoding="utf-8")
    assert serve_page.filled(page, json.loads(serve_page.RESULT.read_text(encoding="utf-8"))) == page


def test_a_page_without_a_place_for_it_is_refused() -> None:
    run = {"rerank": 0, "clients": 2, "other_clients": 0, "queries_per_second": 9.6, "p50_ms": 1.0, "p99_ms": 2.4}
    run |= {"p99_over_p50": 2.4, "errors": 3, "memory_growth": 0.0123}
    gain = {"median": 1.5, "lowest": 1.4, "highest": 1.6}
    result = {"clients": 2, "items": 1000, "machine": {"cores": 2, "processor": "x"}, "blocks": [{}] * 6, "runs": [run]}
    result["gain_of_together_over"] = {"each alone": gain, "one at a time": gain}
    made = serve_page.filled("a\n<!-- load -->\nold\n<!-- /load -->\nb\n", result)
    assert "| no rerank (2) | 10 | 1 | 2 | 2.4 | 3 | 1.2% |" in made
    assert "1.50 times (1.40 to 1.60)" in made.replace("\n", " ")
    assert "medians of 2 rounds" in made.replace("\n", " ")
    assert made.startswith("a\n<!-- load -->\n2 clients")
    assert made.endswith("<!-- /load -->\nb\n")
    with pytest.raises(SystemExit):
        serve_page.filled("nothing", result)
