"""Generated pages are what templates and result files make them, and their arithmetic is right."""

import dataclasses
import json
import re
from pathlib import Path

import pytest

from benchmarks import bench
from benchmarks.bench import TARGETS, Target
from benchmarks.markdown import fill, replace_block
from benchmarks.pages import blocks, bundled_model, performance, plots, scale
from benchmarks.provenance import RESULTS, ROOT
from replication import results_page

DOCS = ROOT / "docs"


def read(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def test_the_performance_page_its_plots_and_the_readme_are_up_to_date(tmp_path: Path) -> None:
    results = performance.read()
    drawn = plots.draw(results, tmp_path)
    assert read("performance.md") == performance.page(results, drawn), "run `make results`"
    for name in drawn:
        assert (DOCS / performance.PLOTS / name).read_text() == (tmp_path / name).read_text(), name
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    assert blocks.readme(page, drawn) == page, "run `make results`"
    assert blocks.readme(page, drawn, "x") != page


def test_the_other_pages_are_up_to_date() -> None:
    assert read("scale.md") == scale.page(), "run `make results`"
    assert read("bundled-model.md") == bundled_model.page()
    assert read("results.md") == results_page.page()
    assert [name for name in blocks.BLOCKS if blocks.page(name, read(name)) != read(name)] == []


def test_commands_on_pages_name_scripts_that_exist() -> None:
    texts = [path.read_text(encoding="utf-8") for path in [*DOCS.glob("*.md"), *RESULTS.rglob("*.json")]]
    named = set(re.findall(r"python -m\s((?:benchmarks|replication|bundles)[\w.]+)", "\n".join(texts)))
    places = [ROOT / module.replace(".", "/") for module in named]
    assert places
    assert [at for at in places if not at.with_suffix(".py").is_file() and not (at / "__main__.py").is_file()] == []


def test_a_template_and_its_values_must_fit(tmp_path: Path) -> None:
    template = tmp_path / "page.md"
    template.write_text("{{a b}} and {{c}}")
    assert fill(template, {"a b": "1", "c": "\\2"}) == "1 and \\2"
    for values in ({"a b": "1"}, {"a b": "1", "c": "2", "d": "3"}):
        with pytest.raises(SystemExit, match="placeholders"):
            fill(template, values)


def test_a_block_is_replaced_between_its_marks_and_may_be_replaced_again() -> None:
    once = replace_block("before\n<!-- x -->\nold\n<!-- /x -->\nafter\n", "x", "line \\1\n\n")
    assert once == "before\n<!-- x -->\nline \\1\n<!-- /x -->\nafter\n"
    assert replace_block(once, "x", "line \\1") == once
    with pytest.raises(SystemExit, match="x"):
        replace_block("no marks", "x", "line")


def test_a_target_is_of_a_benchmark_met_or_missed_and_shown_with_its_bound() -> None:
    least, most = Target("", "it", "speed", at_least=3.0, unit="x"), Target("", "it", "time", at_most=1.0, unit=" s")
    assert (least.bound, most.bound) == ("≥ 3x", "≤ 1 s")
    assert (least.is_met(3.0), least.is_met(2.9), most.is_met(1.0), most.is_met(1.1)) == (True, False, True, False)
    shown = bench.table({"indexing": {TARGETS[0].ratio: 2.81, "other": 0.5}})
    assert [line.split("  ", 1)[1].strip() for line in shown.splitlines()] == ["2.81x (target ≥ 3x)  missed", "0.5"]
    assert [name for name in bench.SCRIPTS if not (ROOT / "benchmarks" / f"{name}.py").is_file()] == []
    assert {target.experiment for target in TARGETS if "GPU" not in target.what} <= set(bench.SCRIPTS)


def test_a_benchmark_that_fails_hangs_or_writes_nothing_is_noticed(tmp_path: Path) -> None:
    bodies = {
        "good": "json.dump({'ratios': {'it': 2.5}}, open(path, 'w'))",
        "bad": "raise ValueError('no luck')",
        "late": "json.dump({'ratios': {}}, open(path, 'w'))\nsys.exit('no luck in the end')",
        "slow": "time.sleep(60)",
        "silent": "pass",
    }
    (tmp_path / "benchmarks").mkdir()
    for name, body in bodies.items():
        code = f"import json, sys, time\npath = sys.argv[sys.argv.index('--json') + 1]\n{body}\n"
        (tmp_path / "benchmarks" / f"{name}.py").write_text(code)
    (tmp_path / "silent.json").write_text(json.dumps({"ratios": {"of an earlier run": 1}}))
    assert bench.run("good", tmp_path, 30.0, tmp_path) == {"it": 2.5}
    for name in ("bad", "late", "slow", "silent"):
        with pytest.raises(bench.FAILURES):
            bench.run(name, tmp_path, 1.0 if name == "slow" else 30.0, tmp_path)


def test_the_arithmetic_of_a_billion_images() -> None:
    measured = scale.Measured(
        widths={"embedding": (1, 512), "fragments": (49, 128)}, core_rate=2.0, pair_rate=3.0, written=1000.0,
        item_bytes=20_000.0, scan_ms=10.0, scan_ms_small=2.0, query_ms=8.0, rerank_ms=200.0, late_ms=5.0,
    )  # fmt: skip
    assert measured.bytes_of("embedding", "float16") == 1024
    assert measured.bytes_of("embedding", "1 bit") == 64
    assert measured.bytes_of("fragments", "int8") == 49 * (128 + 4)
    assert measured.core_hours == pytest.approx(1e9 / 2 / 3600)
    assert measured.query_core_seconds == pytest.approx(1000 * 0.010)
    assert measured.memory_gb == pytest.approx(1088)
    assert measured.machines(100) == (2000, 40, 32)
    assert dataclasses.replace(measured, rerank_ms=20_000.0).machines(100) == (2000, 4000, 94), "matching takes cores"
