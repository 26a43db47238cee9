"""Training on streamed data: resumed exactly, shared by processes, in constant memory."""

import io
import itertools
import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import tiny
from sightline.datasets import Record
from sightline.errors import RecipeError
from sightline.models import checkpoint
from sightline.training.captions import DrawnBatch
from sightline.training.decoding import Decoder, ahead
from sightline.training.distributed import ALONE, World
from sightline.training.recipe import Recipe, parse_recipe
from sightline.training.streaming import StreamedBatches, open_streams
from sightline.training.trainer import train
from tar_files import write_tar
from training import shapes

STREAMED: dict[str, Any] = {"batch_size": 6, "streaming": True, "shuffle_buffer": 10}


def recipe(few: Path, **changes: Any) -> Recipe:
    data = {**STREAMED, **changes.pop("data", {})}
    return parse_recipe(shapes.recipe(few, hidden=16, layers=1, data=data, **changes), "it")


def batches(asked: Recipe, world: World = ALONE, saved: Path | None = None) -> StreamedBatches:
    streams = open_streams(asked)
    samples = [stream.sample(100) for stream in streams]
    return StreamedBatches(asked, streams, samples, tiny.tokenizer(), Decoder(tiny.PREPROCESS), world, saved)


def pixels(batch: DrawnBatch) -> np.ndarray:
    assert batch.decoding is not None
    return batch.decoding.result()


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return checkpoint.load(folder)[0].state_dict()


@pytest.mark.parametrize("stop_after", [3, 11])
def test_a_resumed_run_is_the_same_to_the_last_bit(few: Path, tmp_path: Path, stop_after: int) -> None:
    asked = recipe(few, schedule={"steps": 14})  # an epoch has 8 steps
    whole = train(asked, tmp_path / "whole")
    train(asked, tmp_path / "parts", stop_after=stop_after)
    parts = train(asked, tmp_path / "parts", resume=True)
    ours, theirs = weights(parts.folder), weights(whole.folder)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert json.loads((tmp_path / "whole" / "provenance.json").read_text())["sources"]["train"]["streamed"]


def test_processes_draw_the_same_batches_and_decode_their_shares(few: Path) -> None:
    asked = recipe(few, data={"draw": "one"})
    alone, first, second = (batches(asked, world).between(0, 9) for world in (ALONE, World(0, 2), World(1, 2)))
    for whole, one, other in zip(alone, first, second, strict=True):
        assert torch.equal(whole.batch.tokens.ids, other.batch.tokens.ids)
        np.testing.assert_array_equal(whole.batch.text_images, one.batch.text_images)
        np.testing.assert_array_equal(pixels(whole.batch), np.concatenate([pixels(one.batch), pixels(other.batch)]))


def test_epochs_and_sources_are_counted_and_mixed(few: Path, tmp_path: Path) -> None:
    other = shapes.write(tmp_path / "other", list(shapes.cards(seed=1))[:12])
    sources = [{"name": "a", "train": [str(few)], "draw": "one"}, {"name": "b", "train": [str(other)], "draw": "one"}]
    asked = shapes.recipe(few, hidden=16, layers=1, schedule={"epochs": 2})
    asked["data"] = {**STREAMED, "sources": sources}
    drawn = batches(parse_recipe(asked, "it"))
    assert drawn.batches_per_epoch == 6
    steps = [one.source for one in drawn.between(0, 24)]
    assert steps.count("a") == 16
    resumed = [one.batch.tokens.ids.tolist() for one in batches(parse_recipe(asked, "it")).between(13, 24)]
    assert resumed == [one.batch.tokens.ids.tolist() for one in batches(parse_recipe(asked, "it")).between(0, 24)][13:]
    assert train(parse_recipe(asked, "it"), tmp_path / "run").steps == 12


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"data": {"limit": 5}}, "data.streaming cannot be combined with limit"),
        ({"data": {"neighbours": {"per_cluster": 2}}}, "data.streaming cannot be combined with neighbours"),
        ({"teacher": {"model": "x"}}, "data.streaming cannot be combined with teacher"),
        ({"augment": {"views": 2}}, r"data.streaming cannot be combined with augment\.views"),
    ],
)
def test_what_needs_a_list_of_all_images_is_refused(few: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        recipe(few, **changes)


def write_shard(path: Path, count: int) -> None:
    image = io.BytesIO()
    Image.new("RGB", (8, 8), "red").save(image, "PNG")
    files = [[(f"{n:06}.png", image.getvalue()), (f"{n:06}.txt", f"a dog {n}")] for n in range(count)]
    write_tar(path, itertools.chain.from_iterable(files))


def test_memory_does_not_grow_with_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Decoder, "start", lambda *_: None)  # nothing but reading, shuffling and tokenising
    write_shard(tmp_path / "0.tar", 200)
    peaks = []
    for copies in (2, 8):
        for number in range(1, copies):
            if not (tmp_path / f"{number}.tar").exists():
                (tmp_path / f"{number}.tar").symlink_to(tmp_path / "0.tar")
        asked = recipe(tmp_path / "*.tar", data={"batch_size": 50, "shuffle_buffer": 100, "draw": "one"})
        drawn = batches(asked)
        assert drawn.batches_per_epoch == 4 * copies
        tracemalloc.start()
        assert sum(1 for _ in ahead(drawn.between(0, 4 * copies))) == 4 * copies
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]


def test_images_that_are_not_kept_are_decoded_ahead(few: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = recipe(few, data={"streaming": False}, schedule={"steps": 5})
    kept = train(plain, tmp_path / "kept")
    monkeypatch.setattr("sightline.training.corpus._KEPT_BYTES", 10)
    started: list[int] = []
    start = Decoder.start

    def counted(self: Decoder, records: list[Record]) -> Any:
        started.append(len(records))
        return start(self, records)

    monkeypatch.setattr(Decoder, "start", counted)
    steps: list[int] = []
    decoded = train(plain, tmp_path / "decoded", report=lambda entry: steps.append(len(started)))
    assert steps[0] == 3, "two batches are decoded while the first is used"
    assert len(started) == 5
    ours, theirs = weights(kept.folder), weights(decoded.folder)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
