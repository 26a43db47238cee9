"""The table of `make bench`, the page and the README say what the result files say."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import replication.results_page as report
from benchmarks.scripts import script

bench, targets = script("benchmarks.bench"), script("benchmarks.pages.targets")
speed_plots, performance_page, readme = (
    script("benchmarks.pages.speed_plots"),
    script("benchmarks.pages.performance"),
    script("benchmarks.pages.readme"),
)
MACHINE = {"cores": 2, "processor": "aarch64"}


def result(**more: Any) -> dict[str, Any]:
    return {"command": "python -m benchmarks.it", "commit": "0123456789ab", "machine": MACHINE, **more}


MATCHING = result(
    rows=[
        {"pairs": 20, "sightline": {"pairs_per_second": 150.0}, "cross_encoder": {"pairs_per_second": 60.0}},
        {
            "pairs": 100,
            "sightline": {"pairs_per_second": 150.0},
            "cross_encoder": "it is not installed",
        },
    ],
    ratios={
        "pairs a second, 20 at once, times a CrossEncoder": 2.5,
        "pairs a second, 100 at once, times a CrossEncoder": 1.6,
    },
)
STAGES = {"encode": 6.0, "retrieve": 4.0, "interact": 0.0, "match": 0.0, "http": 1.0}
END_TO_END = result(
    items=10_000,
    rows=[
        {"start": "cold", "way": "sightline, none matched", "p50_seconds": 0.5},
        {"start": "cold", "way": "sightline, 20 matched", "p50_seconds": 0.7},
        {"start": "cold", "way": "plain script", "p50_seconds": 5.0},
        {"start": "warm", "way": "sightline, none matched", "p50_ms": 11.0, "stages_ms": STAGES},
        {"start": "warm", "way": "sightline, 20 matched", "p50_ms": 131.0, "stages_ms": STAGES | {"match": 120.0}},
        {"start": "warm", "way": "plain script", "p50_ms": 30.0},
    ],
    ratios={"seconds of a cold command, 20 matched": 0.7},
)


def asked(way: str, items: int, ms: float) -> dict[str, Any]:
    return {"way": way, "items": items, "cores": {"1": {}, "2": {"finding as much as Sightline": {"p50_ms": ms}}}}


def cut(dtype: str, batch: int, steps: dict[str, float], each: int) -> dict[str, Any]:
    own = {"each": each, "rows": 128, "numbers": 64, "warps": 4, "stages": 3}
    return {"vectors": 1000, "dtype": dtype, "batch": batch, "cut": own, "steps_ms": steps}


RETRIEVAL = result(
    rows=[
        asked("Sightline", 10_000, 1.1),
        asked("FAISS flat", 10_000, 2.2),
        asked("Sightline", 1_000_000, 13.3),
        asked("FAISS flat", 1_000_000, 133.7),
        {"way": "usearch HNSW", "items": 1_000_000, "left_out": "usearch is not installed"},
        asked("Sightline", 10_000_000, 140.0),
    ],
    ratios={"times as quick as paper 1's 1.6 s at 1,000,000": 120.0},
)
FLOOR = {"path": "match 20 candidates", "bytes": 6e6, "operations": 1.35e10, "floor_ms": 60.0, "bound_by": "operations"}
SCAN = {"path": "retrieve from 1,000,000 items", "bytes": 6.8e7, "operations": 0, "floor_ms": 6.65, "bound_by": "bytes"}
RESULTS = {
    "retrieval": RETRIEVAL,
    "matching": MATCHING,
    "end_to_end": END_TO_END,
    "floors": result(bytes_per_second=2e10, operations_per_second=1e11, rows=[FLOOR, SCAN], ratios={}),
    "growing": result(rows=[{"stage": "open", "of": "items", "sizes": [10, 1000], "exponent": 0.296}], ratios={}),
    "training": result(
        rows=[
            {"model": "small", "batch": 1024, "encoded": "at once", "note": "does not fit into memory"},
            {"model": "small", "batch": 1024, "encoded": "in chunks", "chunk": 64, "steps_per_second": 2.5, "MB": 70.0},
        ]
    ),
    "evaluation": result(
        rows=[{"dim": 512, "cpu_seconds": 4.0}],
        rates={"images": 4.0, "captions": 250.0, "pairs": 150.0, "measured_on": {"images": 24, "captions": 120}},
        table4=[{"images": 1000, "seconds": {"rerank 20": 1020.0}, "paper_seconds": {"rerank 20": 300.0}}],
    ),
    "gpu": result(
        machine=MACHINE | {"gpu": "NVIDIA H200"},
        rows=[
            {"what": "encode a query", "p50_ms": 0.5, "floor_ms": 0.01, "times_floor": 50.0, "launched_p50_ms": 4.0},
            {"what": "encode pictures", "batch": 8, "pictures_per_second": 3e3, "on_device_per_second": 4e3}
            | {"floor_per_second": 2e4},
            {"what": "retrieve and rerank", "vectors": 1000, "p50_ms": 3.25, "retrieve_p50_ms": 0.375},
            {"what": "retrieve and rerank", "vectors": 2000, "p50_ms": 2.0, "parts_ms": {"encode": 0.5, "match": 1.0}},
            {"what": "evaluate", "images": 5000, "seconds": 40.0, "parts": {"rank": 12.0, "match": 28.0}},
        ],
    ),
    "scan-gpu": result(
        machine=MACHINE | {"gpu": "NVIDIA H200"},
        rows=[
            {"vectors": 1000, "dtype": "int8", "batch": 1, "p50_ms": 0.25, "floor_ms": 0.125, "times_floor": 2.0}
            | {"plain_torch": {"p50_ms": 0.125}, "times_as_quick": 0.5},
            {"vectors": 1000, "dtype": "int8", "batch": 1, "filter": 0.1, "p50_ms": 0.75},
            {
                "vectors": 1000,
                "dtype": "int8",
                "batch": 1,
                "filter": 0.1,
                "p50_ms": 0.5,
                "told": "rows",
                "given": "again",
            },
            cut("int8", 1, {"scan": 0.25, "exact": 0.5, "best rows": 0.125}, 32),
            cut("int8", 64, {"scan": 0.5, "exact": 0.5, "best rows": 0.25}, 32),
            cut("int8", 1, {"scan": 0.125, "exact": 1.0, "best rows": 0.5}, 64),
            {"vectors": 1000, "dtype": "int8", "batch": 64, "cut": {}, "failed": "no room"},
        ],
    ),
    "late-gpu": result(
        machine=MACHINE | {"gpu": "NVIDIA H200"},
        gpu=[
            {"images": 1000, "words": 32, "fragments": 49, "dtype": "int8", "ms": 0.5, "floor_ms": 0.25, "ratio": 2.0}
            | {"with_top_20_ms": 0.75}
        ],
    ),
}


def test_a_target_is_met_missed_or_open() -> None:
    least = targets.Target("speed", "it", "ratio", 3.0)
    most = targets.Target("time", "it", "ratio", 1.0, limit=True, unit=" s")
    assert (least.asked, most.asked) == ("at least 3", "at most 1 s")
    assert [least.verdict(value) for value in (3.0, 2.0, None)] == ["met", "missed, by 1.50 times", "not measured yet"]
    assert [most.verdict(value) for value in (1.0, 1.25)] == ["met", "missed, by 1.25 times"]


def write_script(folder: Path, name: str, body: str) -> None:
    (folder / "benchmarks").mkdir(exist_ok=True)
    (folder / "benchmarks" / f"{name}.py").write_text(
        f"import json, sys, time\npath = sys.argv[sys.argv.index('--json') + 1]\n{body}\n"
    )


def test_a_benchmark_that_fails_or_hangs_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    write_script(tmp_path, "good", "assert '--quick' in sys.argv\njson.dump({'ratios': {'it': 2.5}}, open(path, 'w'))")
    write_script(tmp_path, "bad", "raise ValueError('no luck')")
    write_script(tmp_path, "late", "json.dump({'ratios': {}}, open(path, 'w'))\nsys.exit('no luck in the end')")
    write_script(tmp_path, "slow", "time.sleep(60)")
    write_script(tmp_path, "silent", "pass")
    (tmp_path / "silent.json").write_text('{"ratios": {"of an earlier run": 1}}')
    good, bad, late, slow, silent = (
        bench.run(name, tmp_path, limit=1.0 if name == "slow" else 30.0, root=tmp_path)
        for name in ("good", "bad", "late", "slow", "silent")
    )
    assert (good.ratios, good.trouble) == ({"it": 2.5}, "")
    assert bad.trouble == "exit status 1: ValueError: no luck"
    assert late.trouble == "exit status 1: no luck in the end"
    assert slow.trouble == "took more than 1 s"
    assert silent.trouble == "exit status 0: it wrote no result"


def test_the_table_has_every_ratio_with_its_target_where_it_has_one() -> None:
    shown = bench.table([bench.Outcome("matching", 1.0, MATCHING["ratios"]), bench.Outcome("it", 1.0, {"other": 0.5})])
    _, twenty, hundred, other = shown.splitlines()
    assert twenty.split("  ")[0].strip() == "matching: pairs a second, 20 at once, times a CrossEncoder"
    assert twenty.endswith("2.5  at least 2  met")
    assert hundred.endswith("1.6  at least 2  missed, by 1.25 times")
    assert other.endswith("0.5")


def test_every_benchmark_of_the_table_is_there_and_every_target_is_of_one() -> None:
    assert [name for name in bench.SCRIPTS if not (bench.ROOT / "benchmarks" / f"{name}.py").is_file()] == []
    assert {target.experiment for target in targets.TARGETS if "GPU" not in target.what} <= set(bench.SCRIPTS)


def test_without_data_nothing_is_measured_and_that_is_said(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.bench"], env={}, cwd=bench.ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "SIGHTLINE_DATA" in done.stderr


def test_the_page_has_the_verdicts_the_floors_and_the_origins() -> None:
    page = performance_page.page(RESULTS, "## Notes\n\nTried this.\n", {"matching.svg": "Matching"})
    for line in (
        "| matching 20 pairs, times a CrossEncoder of the same shape | at least 2 | 2.5 | met |",
        "| matching 100 pairs, times a CrossEncoder of the same shape | at least 2 | 1.6 | missed, by 1.25 times |",
        "| a cold command at 10,000 items, with 20 matched | at most 1 s | 0.7 s | met |",
        "| indexing, times a plain transformers loop | at least 3 | – | not measured yet |",
        "| match 20 candidates | 6.0 | 13.50 | 60.0 (operations) | 120.0 | 2.0 |",
        "| retrieve from 1,000,000 items | 68.0 | 0.00 | 6.7 (bytes) | 13.3 | 2.0 |",
        "| open | items | 10, 1,000 | 0.30 |",
        "| small | 1,024 at once | does not fit into memory | – |",
        "| small | 1,024 in chunks of 64 | 2.50 | 70 |",
        "| 1,000 | rerank 20 | 2 cores, aarch64 | 17 min | 5 min |",
        "| 5,000 | embed | NVIDIA H200 | 12.0 s | 30.0 s |",
        "| 5,000 | rerank 20 | NVIDIA H200 | 40.0 s | 25 min |",
        "| 1,000 | 1 | int8 | 0.25 | 0.125 | 2.0 | 0.12 | 0.50 |",
        "| 1,000 | int8 | as a mask, anew | 0.75 | 0.25 |",
        "| 1,000 | int8 | as rows, again | 0.50 | 0.25 |",
        "| rows in a group | rows in a tile | numbers | warps | stages | int8, 1 query | int8, 64 queries |",
        "| 32 | 128 | 64 | 4 | 3 | 0.250 + 0.625 | 0.500 + 0.750 |",
        "| 64 | 128 | 64 | 4 | 3 | 0.125 + 1.500 | – |",
        "| 1,000 | 32 x 49 | int8 | 0.500 | 0.250 | 2.00 | 0.750 |",
        "| encode a query | 0.5 | 0.01 | 50 | 4 |",
        "| 1,000 | 3.25 | – | 0.38 | – | – |",
        "| 2,000 | 2.00 | 0.50 | – | – | 1.00 |",
        "| 8 | 3,000 | 4,000 | – | 20,000 |",
        "![Matching](plots/speed/matching.svg)",
        "Tried this.",
        "| [gpu.json](../benchmarks/results/gpu.json) | `python -m benchmarks.it` | 0123456789 | NVIDIA H200 |",
    ):
        assert line in page
    assert "met: 3;" in page.replace("\n", " ")


def test_what_was_not_measured_is_said_not_left_out() -> None:
    page = performance_page.page({}, "", {})
    assert page.count("Not measured yet.") == 5
    assert "| met |" not in page


def test_plots_are_drawn_of_what_there_is_and_the_same_every_time(tmp_path: Path) -> None:
    drawn = speed_plots.draw(RESULTS, tmp_path / "once")
    assert list(drawn) == ["retrieval.svg", "matching.svg", "end_to_end.svg"]
    speed_plots.draw(RESULTS, tmp_path / "twice")
    for name in drawn:
        first = (tmp_path / "once" / name).read_text()
        assert first == (tmp_path / "twice" / name).read_text()
        assert "Sightline" in first
    over_a_million = (tmp_path / "once" / "retrieval.svg").read_text()
    assert ">133.7<" in over_a_million
    assert "usearch" not in over_a_million
    assert ">131<" in (tmp_path / "once" / "end_to_end.svg").read_text()


def test_plots_are_put_between_their_marks() -> None:
    page = "before\n<!-- speed -->\nold\n<!-- /speed -->\nafter\n"
    made = readme.with_plots(page, {"matching.svg": "Matching"})
    assert made == (
        "before\n<!-- speed -->\nMatching:\n\n![Matching](docs/plots/speed/matching.svg)\n<!-- /speed -->\nafter\n"
    )
    assert readme.with_plots(made, {}) == "before\n<!-- speed -->\nNot measured yet.\n<!-- /speed -->\nafter\n"
    with pytest.raises(SystemExit):
        readme.with_plots("no marks", {})


def test_page_and_readme_are_what_the_results_make_of_them() -> None:
    """After a new measurement: make results, and python -m benchmarks.pages.readme --speed."""
    results = performance_page.read(performance_page.RESULTS)
    drawn = {f"{name}.svg": title for name, (_, title) in speed_plots.PLOTS.items() if name in results}
    notes = performance_page.NOTES.read_text(encoding="utf-8")
    page = (performance_page.DOCS / "performance.md").read_text(encoding="utf-8")
    assert page == performance_page.page(results, notes, drawn)
    own = (report.ROOT / "README.md").read_text(encoding="utf-8")
    assert own == readme.with_plots(own, drawn)
    for name in drawn:
        assert (performance_page.DOCS / performance_page.PLOTS / name).is_file()


def test_every_result_file_is_one(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text(json.dumps({"rows": []}))
    (tmp_path / "quick").mkdir()
    (tmp_path / "quick" / "two.json").write_text("{}")
    assert performance_page.read(tmp_path) == {"one": {"rows": []}}
