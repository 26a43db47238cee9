"""The scripts of the papers as they are called: a few steps of tiny models, and what they leave."""

import importlib
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModel, PreTrainedTokenizerFast

import tiny
from replication import training_runs
from sightline.datasets.regions import write_regions
from tar_files import Contents, write_tar
from training import region_cards, shapes

VISION = {**tiny.VISION, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 12, "num_attention_heads": 2}
SHARDS = {"flickr8k-train-000": 16, "flickr8k-val": 8, "flickr8k-test": 8, "coco-train-000": 8, "coco-val": 4,
          "coco-distractors": 4, "coco72k-000": 8, "web-train-000": 8}  # fmt: skip
LANGUAGES = ("en", "de", "zh", "pt", "ar", "fr", "cs")


def write_shard(path: Path, count: int, seed: int) -> None:
    """Captioned pictures, five captions each; the last has only English ones, like some of Flickr8k."""
    files: list[tuple[str, Contents]] = []
    for number, card in enumerate(list(shapes.cards(seed))[:count]):
        image, key = io.BytesIO(), f"{path.stem}-{number}"
        card.picture.save(image, "PNG")
        captions = [f"{card.captions[0]} {n}" for n in range(5)]
        spoken = LANGUAGES if number < count - 1 else ("en",)
        files += [(f"{key}.png", image.getvalue()), (f"{key}.json", {"captions": dict.fromkeys(spoken, captions)})]
    write_tar(path, files)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of shards and one of pretrained encoders, as the scripts expect them."""
    folder = tmp_path_factory.mktemp("papers")
    (folder / "data").mkdir()
    for seed, (name, count) in enumerate(SHARDS.items()):
        write_shard(folder / "data" / f"{name}.tar", count, seed)
    torch.manual_seed(0)
    vision = AutoConfig.for_model(**{**VISION, "image_size": 224, "patch_size": 32})
    for name in ("clip-vit-base-patch16-vision", "dinov2-small"):
        AutoModel.from_config(vision).save_pretrained(folder / "pre" / name)
    layers = {"all-MiniLM-L6-v2": 1, "gte-small": 1, "e5-small-captions": 4}
    tiny.tokenizer().save(folder / "words.json")
    words = PreTrainedTokenizerFast(tokenizer_file=str(folder / "words.json"), pad_token="[PAD]", unk_token="[UNK]")
    for name, count in layers.items():
        text = AutoConfig.for_model(**{**tiny.TEXT, "max_position_embeddings": 80, "num_hidden_layers": count})
        AutoModel.from_config(text).save_pretrained(folder / "pre" / name)
        words.save_pretrained(folder / "pre" / name)
    return folder


@pytest.fixture(autouse=True)
def somewhere(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIGHTLINE_DATA", str(place / "data"))
    monkeypatch.setenv("SIGHTLINE_PRETRAINED", str(place / "pre"))
    monkeypatch.setenv("SIGHTLINE_COMMIT", "0" * 40)


CALLS = {
    "paper2": ["--runs", "base,fusion", "--set", "model.embedding_dim=32", "--set", "model.fragment_dim=32"],
    "paper3": ["--runs", "F,I-B-F"],
    "paper4": ["--runs", "none,cmr"],
}
GAINS = {"paper2": ("fusion-test-seed0", "base"), "paper3": ("I-B-F-paper-test-seed0", "F"),
         "paper4": ("cmr-minilm-seed0", "none")}  # fmt: skip
PARTS = {"paper2": ["result"], "paper3": ["result"], "paper4": ["test", "full", "everything"]}


def call(name: str, arguments: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Call a script briefly; returns the results it wrote."""
    folders = ["--work", str(folder / "work"), "--out", str(folder / "out" / name)]
    monkeypatch.setattr(sys, "argv", [name, "--brief", *arguments, *folders])
    importlib.import_module(f"replication.{name}").main()
    return {path.stem: json.loads(path.read_text()) for path in (folder / "out").rglob("*.json")}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_leaves_a_result_a_run_and_the_same_call_trains_and_measures_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module: Any = importlib.import_module(f"replication.{name}")
    found = call(name, CALLS[name], tmp_path, monkeypatch)
    assert len(found) == 2
    run, other = GAINS[name]
    assert (found[run]["experiment"], found[run]["seed"], found[run]["commit"]) == (name, 0, "0" * 40)
    for part in PARTS[name]:
        assert found[run][part]["images"] == 8
        assert 0 <= found[run][part]["rSum"] <= 600
    assert found[run]["gain_over"][other].keys() == {"rSum", "low", "high"}
    assert "runs left: 0" in capsys.readouterr().out
    monkeypatch.setattr(module.TorchModel, "open", None)
    monkeypatch.setattr(importlib.import_module("replication.training_runs"), "train", None)
    again = call(name, CALLS[name], tmp_path, monkeypatch)
    assert again[run] == found[run]
    first = next(stem for stem in found if stem != run)
    assert again[first] | {"gain_over": {}} == found[first] | {"gain_over": {}}
    if name != "paper3":
        assert list(again[first]["gain_over"]) == [run.split("-")[0]], "the gain over what came later is added"


def test_the_cost_of_relations_is_measured_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = [word for one in ("embedding_dim", "fragment_dim") for word in ("--set", f"model.{one}=32")]
    arguments = ["relations_cost", "--brief", *small, "--out", str(tmp_path / "cost.json")]
    monkeypatch.setattr(sys, "argv", arguments)
    importlib.import_module("replication.relations_cost").main()
    rows = json.loads((tmp_path / "cost.json").read_text())["rows"]
    assert [(row["run"], row["steps"]) for row in rows] == [("base-neighbours", 12), ("fusion", 12)] * 2
    assert all(0 < row["seconds_per_step"] < row["seconds"] for row in rows)


def test_paper_1_measures_every_system_and_its_ce_teaches_paper_3_and_reranks_paper_4(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = call("paper1", ["--part", "tables"], tmp_path / "1", monkeypatch)["full-be-ce-joint-seed0"]
    rows = [row["row"] for row in found["rows"]]
    assert set(rows) == {"BE", "CE", "SEP+COOP", "JOINT+BE", "JOINT+COOP", "JOINT+CE"}
    assert rows.count("SEP+COOP") == 1 + 2 + 6 + 1, "k, weighted sums, a larger gallery"
    be, ce, joint = (f"{run}-towers-full-0" for run in ("be", "ce", "joint"))
    assert {(row["row"], row["model"]) for row in found["rows"]} == {
        ("BE", be), ("CE", ce), ("SEP+COOP", f"{be} + {ce}"),
        *((system, joint) for system in ("JOINT+BE", "JOINT+COOP", "JOINT+CE")),
    }  # fmt: skip
    cross = str(tmp_path / "1/work/ce-towers-full-{seed}/best")
    arguments = ["--runs", "C-F", "--variant", "kl", "--split", "val", "--cross", cross]
    taught = call("paper3", arguments, tmp_path / "3", monkeypatch)
    assert taught["C-F-kl-val-seed0"]["teacher"] == "C"
    assert (tmp_path / "3/out/paper3/val/C-F-kl-val-seed0.json").exists(), "the page shows results of test alone"
    reranked = call("paper4", ["--runs", "none", "--matcher", cross], tmp_path / "4", monkeypatch)
    assert reranked["none-minilm-seed0"]["reranked"]["20"]["stages"] == ["embed", "match@20"]


def test_paper_1_measures_several_languages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replication.paper1.LANGUAGES", ("en", "zh"))
    found = call("paper1", ["--part", "languages"], tmp_path, monkeypatch)
    assert found.keys() == {"english-be-ce-joint-seed0", "languages-be-ce-joint-seed0"}
    names = {"BE", "CE", "SEP+COOP", "JOINT+BE", "JOINT+COOP"}
    for content in found.values():
        rows = [(row["lang"], row["row"]) for row in content["rows"]]
        assert set(rows) == {("en", "JOINT+CE"), *((lang, name) for lang in ("en", "zh") for name in names)}
        assert {(row["lang"], row["images"]) for row in content["rows"]} == {("en", 8), ("zh", 7)}


@pytest.mark.parametrize(
    ("features", "recipe", "processes"), [("towers-joint", "towers-{}", "3"), ("lower", "{}", "1")]
)
def test_paper_1_starts_every_run_from_one_pre_training(
    features: str, recipe: str, processes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["--part", "tables", "--features", features, "--processes", processes]
    content = call("paper1", arguments, tmp_path, monkeypatch)["full-be-ce-joint-seed0"]
    assert [one.name for one in (tmp_path / "out").iterdir()] == [f"paper1-{features}"], (
        "not among the default's results"
    )
    assert len((tmp_path / f"work/pretrain-{features}/log.jsonl").read_text().splitlines()) == 2, "trained once"
    assert {row["row"] for row in content["rows"]} == {"BE", "CE", "SEP+COOP", "JOINT+BE", "JOINT+COOP", "JOINT+CE"}
    start = f'model.start="{tmp_path}/work/pretrain-{features}/best"'
    for run, cost in content["training"].items():
        assert cost["recipe"] == f"recipes/{recipe.format(run)}.toml"
        assert start in cost["changes"]


def test_paper_1_drops_every_second_layer_of_both_towers_and_of_the_matcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call("paper1", ["--part", "figure4", "--runs", "ce"], tmp_path, monkeypatch)
    config = {
        name: json.loads((tmp_path / "work/ce-towers-half-0/best" / name / "config.json").read_text())
        for name in ("image", "text", "image_reader", "matcher")
    }
    layers = {name: one["num_hidden_layers"] for name, one in config.items()}
    assert layers == {"image": 12, "text": 2, "image_reader": 1, "matcher": 1}


def test_paper_1_on_regions_starts_ce_from_be_and_has_no_larger_gallery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [*region_cards.found(0), *region_cards.found(1, split="test"), *region_cards.found(2, split="val")]
    monkeypatch.setenv("SIGHTLINE_DATA", str(tmp_path))
    write_regions(iter(found), tmp_path / "flickr8k.regions")
    content = call("paper1", ["--part", "tables", "--features", "regions"], tmp_path, monkeypatch)[
        "full-be-ce-joint-seed0"
    ]
    rows = [row["row"] for row in content["rows"]]
    assert set(rows) == {"BE", "CE", "SEP+COOP", "JOINT+BE", "JOINT+COOP", "JOINT+CE"}
    assert rows.count("SEP+COOP") == 1 + 2 + 6, "k and weighted sums"
    assert {row["distractors"] for row in content["rows"]} == {0}
    assert f'model.start="{tmp_path / "work/be-regions-full-0/best"}"' in content["training"]["ce"]["changes"]
    assert content["data"] == ["flickr8k-test"]
    with pytest.raises(SystemExit):
        call("paper1", ["--part", "table6", "--features", "regions"], tmp_path, monkeypatch)
    assert "--part table6 cannot be run with regions" in capsys.readouterr().err


def test_a_brief_call_keeps_nothing_among_complete_runs_and_an_unknown_run_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = training_runs.options(None, "paper2", "base", ("base", "fusion"), {})
    monkeypatch.setattr(sys, "argv", ["paper2", "--brief"])
    brief = training_runs.parsed(parser)
    assert (brief.work, brief.out) == (Path("runs/brief/work/paper2"), Path("runs/brief/out/paper2"))
    monkeypatch.setattr(sys, "argv", ["paper2", "--runs", "base,fussion"])
    with pytest.raises(SystemExit):
        training_runs.parsed(parser)
    assert "--runs: fussion is not among base, fusion" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["paper2", "--brief"])
    monkeypatch.delenv("SIGHTLINE_PRETRAINED")
    with pytest.raises(SystemExit):
        training_runs.parsed(parser)
    assert "SIGHTLINE_PRETRAINED is not set" in capsys.readouterr().err
