"""The benchmark of indexing: every way indexes the same photos, and the best of its runs counts."""

import json
from pathlib import Path

import pytest

from benchmarks.scripts import script
from server.samples import picture
from sightline.datasets import Record
from sightline.media import ImageBytes


def records(*_: object) -> list[Record]:
    return [Record(f"{n}", ImageBytes(f"{n}.png", picture(n)), {"en": ("a dog",)}) for n in range(3)]


def test_the_best_of_two_runs_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    indexing = script("benchmarks.indexing")
    seconds = {("loop", 2): [9.0, 6.0], ("index", 1): [4.0, 5.0], ("index", 2): [2.0, 3.0]}

    def in_a_process(what: str, folder: Path, model: str, cores: int) -> dict[str, float]:
        assert len(list(folder.glob("*.jpg"))) == 3
        return {"seconds": seconds[what, cores].pop(0), "MB": 7.0}

    monkeypatch.setattr(indexing, "read_all", records)
    monkeypatch.setattr(indexing, "in_a_process", in_a_process)
    monkeypatch.setattr(indexing.os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setenv("SIGHTLINE_DATA", "nowhere")
    monkeypatch.setattr("sys.argv", ["indexing.py", "--photos", "3", "--json", str(tmp_path / "result.json")])
    indexing.main()
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["ratios"] == {
        "photos a second, times a plain transformers loop": 3.0,
        "photos a second, times one core": 2.0,
    }
    assert result["ways"]["loop"]["photos_per_second"] == 0.5
    assert [row["way"] for row in result["rows"]] == ["loop", "one core", "index"]
    assert capsys.readouterr().out.startswith("indexing: ")


def test_both_ways_encode_the_photos_of_a_folder(
    tmp_path: Path, tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    indexing = script("benchmarks.indexing")
    monkeypatch.setattr(indexing, "read_all", records)
    monkeypatch.setenv("SIGHTLINE_DATA", "nowhere")
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}
    monkeypatch.setattr(indexing, "IMAGE_TOWER", {**shape, "image_size": 32, "patch_size": 16})
    indexing.write_photos(tmp_path, 2)
    assert len(list(tmp_path.iterdir())) == 2
    assert indexing.plain_loop(tmp_path, str(tiny_bundle))["seconds"] > 0
    assert indexing.indexed(tmp_path, str(tiny_bundle)).keys() == {"seconds", "MB"}
