"""Training on several sources: recipes, what is never a negative, resuming, processes that train together."""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tiny
from sightline.datasets import Record
from sightline.errors import RecipeError
from sightline.media import ImageBytes, Preprocess
from sightline.models import checkpoint
from sightline.training import distributed
from sightline.training.batch_inputs import BatchInputs
from sightline.training.corpus import Corpus
from sightline.training.recipe import parse_recipe, read_recipe
from sightline.training.same_rows import SameRule
from sightline.training.setup import training_records
from sightline.training.trainer import train
from training import processes, shapes

PREPROCESS = Preprocess(size=32, resize="squash", mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
CAPTIONS = ["a dog", "A  dog.", "a cat", "two cat", "a red ball", "a ball"]


def labelled(few: Path, out: Path) -> Path:
    """The same pictures, each labelled by the colour of its square, which is a caption of its own."""
    lines = [json.loads(line) for line in few.read_text().splitlines()]
    for line in lines:
        line["image"] = str(few.parent / line["image"])
        line["label"] = line["captions"][0].split()[1]
        line["captions"] = [line["label"], f"a {line['label']} thing"]
    out.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return out


def recipe(few: Path, named: Path, **changes: Any) -> dict[str, Any]:
    sources = [
        {"name": "cards", "train": [str(few)], "share": 0.6, "draw": "unique"},
        {"name": "colours", "train": [str(named)], "share": 0.4, "draw": "one", "batch_size": 8, "same": ["label"]},
    ]
    made = shapes.recipe(few, hidden=16, schedule={"steps": 9}, **{"optimizer": {"chunk": 4}} | changes)
    made["data"] = {"sources": sources, "batch_size": 10, "val": [str(few)]} | changes.get("data", {})
    return made


@pytest.fixture(scope="module")
def named(few: Path) -> Path:
    return labelled(few, few.parent / "named.jsonl")


def log(out: Path) -> list[dict[str, Any]]:
    entries = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    return [{key: value for key, value in entry.items() if key != "seconds"} for entry in entries]


def test_a_resumed_run_ends_with_the_weights_and_the_log_of_one_left_alone(
    few: Path, named: Path, tmp_path: Path
) -> None:
    asked = parse_recipe(recipe(few, named, augment={"crop": 0.6}), "it")
    whole = train(asked, tmp_path / "whole")
    for steps in (2, 5):
        train(asked, tmp_path / "parts", resume=True, stop_after=steps)
    parts = train(asked, tmp_path / "parts", resume=True)
    assert {entry["source"] for entry in log(tmp_path / "whole")} == {"cards", "colours"}
    assert log(tmp_path / "parts") == log(tmp_path / "whole")
    expected, found = (checkpoint.load(one.folder)[0].state_dict() for one in (whole, parts))
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_two_processes_train_on_the_batches_of_one(few: Path, named: Path, tmp_path: Path) -> None:
    asked = recipe(few, named)
    processes.together(processes.train_each, {"two": (asked, {})}, tmp_path)
    train(parse_recipe(asked, "one"), tmp_path / "one")
    for one, two in zip(log(tmp_path / "one"), log(tmp_path / "two"), strict=True):
        assert two["source"] == one["source"]
        assert two["loss"] == pytest.approx(one["loss"], rel=1e-4)


def test_a_frozen_tower_is_cached_over_all_sources(few: Path, named: Path, tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    asked = recipe(few, named, optimizer={"rates": {"image": 0.0}})
    train(parse_recipe(asked, "it"), tmp_path / "run", on_prepare=lambda *part: told.append(part))
    assert [part for part in told if not part[0].startswith("validating")][-1] == ("encoding images", 48, 48)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), caption=st.booleans(), label=st.booleans(), positive=st.booleans())
def test_no_forbidden_negatives(data: st.DataObject, caption: bool, label: bool, positive: bool) -> None:
    count = data.draw(st.integers(2, 7))
    records = [
        Record(
            str(number),
            ImageBytes("none", b""),
            {"en": tuple(data.draw(st.lists(st.sampled_from(CAPTIONS), min_size=1, max_size=3, unique=True)))},
            label=data.draw(st.sampled_from(["dog", "cat", None])),
        )
        for number in range(count)
    ]
    corpus = Corpus(records, "en", PREPROCESS, tiny.tokenizer())
    every = [(i, c) for i, record in enumerate(records) for c in range(len(record.captions["en"]))]
    chosen = data.draw(st.lists(st.sampled_from(every), min_size=1, max_size=8, unique=True))
    rule = SameRule(caption, label, positive)
    batch = corpus.draw(np.array(chosen), rule)
    cpu = torch.device("cpu")
    feed = BatchInputs(None, corpus, None, None, None, distributed.ALONE, cpu)  # type: ignore[arg-type]
    also, excluded = (torch.zeros(len(chosen), len(batch.images)).bool() if m is None else m for m in feed.masks(batch))

    def plain(text: str) -> str:
        return " ".join(text.lower().split()).rstrip(".")

    for (row, (image, number)), (column, other) in itertools.product(enumerate(chosen), enumerate(batch.images)):
        text = plain(records[image].captions["en"][number])
        shares_label = records[image].label is not None and records[image].label == records[other].label
        shares_caption = text in [plain(one) for one in records[other].captions["en"]]
        right = positive and shares_label and image != other
        spared = image != other and not right and ((label and shares_label) or (caption and shares_caption))
        assert bool(also[row, column]) == right
        assert bool(excluded[row, column]) == spared


def test_an_epoch_goes_through_each_source_as_often_as_it_has_passes(few: Path, named: Path, tmp_path: Path) -> None:
    sources = [
        {"name": "cards", "train": [str(few)], "draw": "one", "batch_size": 8},
        {"name": "colours", "train": [str(named)], "draw": "one", "batch_size": 8, "passes": 2},
    ]
    asked = recipe(few, named, data={"sources": sources}) | {"schedule": {"epochs": 2}}
    assert train(parse_recipe(asked, "it"), tmp_path / "run").steps == 2 * (3 + 6)
    drawn = [entry["source"] for entry in log(tmp_path / "run")]
    assert abs(drawn.count("colours") - 12) <= 1


def test_several_validation_sets_count_by_their_weights(few: Path, named: Path, tmp_path: Path) -> None:
    sets = [{"name": "cards", "data": [str(few)]}, {"name": "colours", "data": [str(named)], "weight": 3.0}]
    trained = train(parse_recipe(recipe(few, named, data={"val": sets}), "it"), tmp_path / "run")
    val = log(tmp_path / "run")[-1]["val"]
    each = {name: one["rSum"] for name, one in val["sets"].items()}
    assert val["rSum"] == pytest.approx((each["cards"] + 3 * each["colours"]) / 4)
    assert trained.validation is not None
    assert trained.validation["rSum"] == pytest.approx(val["rSum"])
    assert list(trained.validation["sets"]) == ["cards", "colours"]


def test_names_are_validated_by_how_often_they_come_first(few: Path, named: Path, tmp_path: Path) -> None:
    sets = [{"name": "cards", "data": [str(few)]}, {"name": "colours", "data": [str(named)], "kind": "names"}]
    train(parse_recipe(recipe(few, named, data={"val": sets}), "it"), tmp_path / "run")
    val = log(tmp_path / "run")[-1]["val"]
    assert set(val["sets"]["colours"]) == {"top1", "top5"}
    assert val["rSum"] == pytest.approx((val["sets"]["cards"]["rSum"] + 6 * val["sets"]["colours"]["top1"]) / 2)
    assert val["t2i"] == val["sets"]["cards"]["t2i"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"train": ["x"]}, "both train and sources"),
        ({"limit": 3}, r"data\.limit cannot be combined with data\.sources"),
        ({"neighbours": {}}, r"data\.neighbours cannot be combined with data\.sources"),
        ({"batch_tokens": 99, "draw": "pairs"}, r"data\.batch_tokens cannot be combined with data\.sources"),
        (
            {"sources": [{"name": "a", "train": ["x"], "share": 1, "passes": 2}]},
            r"sources\.a has both share and passes",
        ),
        ({"sources": [{"name": "a", "train": ["x"]}] * 2}, 'the name "a" is used twice'),
        ({"sources": [{"name": "a", "train": ["x"], "share": 1}, {"name": "b", "train": ["x"]}]}, "b has no share"),
        ({"sources": [{"name": "a", "train": []}]}, r"sources\.a\.train is empty"),
        ({"sources": [{"name": "a", "train": ["x"], "shaer": 1}]}, 'unknown key "shaer"'),
        ({"sources": [{"name": "a", "train": ["x"], "same": ["colour"]}]}, "'colour' is not an allowed value"),
        ({"val": ["x", {"name": "a", "data": ["y"]}]}, r"data\.val: some sets have names"),
        ({"val": [{"name": "a", "data": ["y"], "weight": 0}]}, r"data\.val: all weights are 0"),
    ],
)
def test_a_mixture_that_makes_no_sense_is_refused(few: Path, named: Path, data: dict[str, Any], said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        parse_recipe(recipe(few, named, data=data), "it")


def test_a_rule_about_labels_is_refused_for_data_without_labels(few: Path, named: Path, tmp_path: Path) -> None:
    source = {"name": "cards", "train": [str(few)], "positives": "label"}
    with pytest.raises(RecipeError, match='the records of "cards" have no label'):
        train(parse_recipe(recipe(few, named, data={"sources": [source]}), "it"), tmp_path / "run")


def test_images_decoded_ahead_are_those_decoded_when_drawn(few: Path, named: Path) -> None:
    from sightline.training.setup import training_records

    (records,) = training_records(parse_recipe(shapes.recipe(few), "it"))
    lazy, ahead = (Corpus(records, "en", PREPROCESS, tiny.tokenizer()) for _ in range(2))
    told: list[tuple[str, int, int]] = []
    ahead.decode_all(lambda *part: told.append(part))
    numbers = np.arange(len(records))[::-1].copy()
    assert torch.equal(ahead.pixels(numbers), lazy.pixels(numbers))
    assert told == [("decoding images", 24, 24)]


def test_to_set_train_is_to_replace_the_sources_and_the_other_way_round(tmp_path: Path) -> None:
    path = tmp_path / "it.toml"
    table = 'name = "it"\nmodel.start = "x"\nlosses.embed.loss = "contrastive"\nschedule.steps = 1\n'
    path.write_text(table + '[[data.sources]]\nname = "a"\ntrain = ["${NOT_THERE}/a.tar"]\n')
    assert read_recipe(path, ['data.train=["b.tar"]']).data.mixture[0].train == ("b.tar",)
    path.write_text(table + '[data]\ntrain = ["a.tar"]\n')
    assert read_recipe(path, ['data.sources=[{name="b", train=["b.tar"]}]']).data.mixture[0].name == "b"


def test_prompts_make_captions_of_labels(few: Path, named: Path) -> None:
    asked = recipe(few, named)
    asked["data"]["sources"][1]["prompts"] = ["a photo of a {}", "{}"]
    _, records = training_records(parse_recipe(asked, "it"))
    label = records[0].label
    assert records[0].captions["en"] == (label, f"a {label} thing", f"a photo of a {label}")
    asked["data"]["sources"][0]["prompts"] = ["a {}"]
    with pytest.raises(RecipeError, match="cards: prompts and wordnet need records with labels"):
        training_records(parse_recipe(asked, "it"))
    asked["data"]["sources"][0]["prompts"] = ["a photo"]
    with pytest.raises(RecipeError, match=r'"a photo" must contain \{\} once'):
        parse_recipe(asked, "it")


def test_a_loss_takes_part_in_batches_of_its_sources_alone(few: Path, named: Path, tmp_path: Path) -> None:
    asked = recipe(few, named)
    asked["losses"]["colours only"] = {"loss": "contrastive", "sources": ["colours"]}
    train(parse_recipe(asked, "it"), tmp_path / "run")
    entries = log(tmp_path / "run")
    assert {("colours only" in entry["loss"]) == (entry["source"] == "colours") for entry in entries} == {True}
    assert {entry["source"] for entry in entries} == {"cards", "colours"}


def test_sources_of_losses_that_make_no_sense_are_refused(few: Path, named: Path) -> None:
    asked = recipe(few, named)
    (name,) = asked["losses"]
    asked["losses"][name]["sources"] = ["colour"]
    with pytest.raises(RecipeError, match=r'sources: no source is called "colour"\nDid you mean "colours"'):
        parse_recipe(asked, "it")
    asked["losses"][name]["sources"] = ["colours"]
    with pytest.raises(RecipeError, match="no loss uses batches from cards"):
        parse_recipe(asked, "it")


def test_records_with_a_skipped_label_are_left_out(few: Path, named: Path) -> None:
    asked = recipe(few, named)
    _, whole = training_records(parse_recipe(asked, "it"))
    asked["data"]["sources"][1]["skip_labels"] = [whole[0].label]
    _, cut = training_records(parse_recipe(asked, "it"))
    assert [one.key for one in cut] == [one.key for one in whole if one.label != whole[0].label]
    assert len(cut) < len(whole)
