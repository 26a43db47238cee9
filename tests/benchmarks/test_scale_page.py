"""docs/scale.md says what the result files say, and its arithmetic is the one that it shows."""

import dataclasses

import pytest

from benchmarks.pages import scale as scale_page

MEASURED = scale_page.Measured(
    widths={"embedding": (1, 512), "fragments": (49, 128)},
    core_rate=2.0,
    pair_rate=3.0,
    written=1000.0,
    own_bytes=20_000.0,
    scan_ms=10.0,
    scan_ms_small=2.0,
    query_ms=8.0,
    rerank_ms=200.0,
    late_ms=5.0,
    store_bytes=1100.0,
)


def test_the_page_is_what_the_results_make_of_it() -> None:
    """After a new measurement: python -m benchmarks.pages.scale."""
    assert scale_page.page(scale_page.RESULTS) == scale_page.PAGE.read_text(encoding="utf-8")


def test_the_arithmetic_of_a_billion() -> None:
    assert MEASURED.bytes_of("embedding", "float16") == 1024
    assert MEASURED.bytes_of("embedding", "1 bit") == 64
    assert MEASURED.bytes_of("fragments", "int8") == 49 * (128 + 4)
    assert MEASURED.core_hours == pytest.approx(1e9 / 2 / 3600)
    assert MEASURED.core_seconds_of_a_query == pytest.approx(1000 * 0.010)
    assert MEASURED.cores_for(10) == pytest.approx(10 * 10.0 / scale_page.LOAD)
    assert MEASURED.memory_gb == pytest.approx(1088)
    assert MEASURED.disk_gb == pytest.approx(20_000)


def test_matching_takes_cores_too_when_machines_are_counted() -> None:
    def last_row(measured: scale_page.Measured) -> str:
        return next(line for line in scale_page._searching(measured).splitlines() if line.startswith("| 100 |"))

    assert last_row(MEASURED) == "| 100 | 2,000 | 40 | 32 |"
    assert last_row(dataclasses.replace(MEASURED, rerank_ms=20_000.0)) == "| 100 | 2,000 | 4,000 | 94 |"
