"""Records that are streamed: shuffled in a buffer, each once in an epoch, the same again for the same seed."""

import json
import random
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from sightline.datasets import Record
from sightline.datasets.sampler import DrawRule
from sightline.datasets.stream import RecordStream, StreamBatch, StreamSampler, buffer_shuffled
from sightline.errors import DataError

FILES, LINES, CAPTIONS = 4, 10, 3


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> RecordStream:
    """Four files of ten images with three captions each, and a file to test on, which is not to be drawn from."""
    folder = tmp_path_factory.mktemp("stream")
    for number in range(FILES + 1):
        entries = [
            {"image": f"{number}-{line}.png", "captions": [f"{number} {line} {n}" for n in range(CAPTIONS)]}
            | ({"split": "test"} if number == FILES else {})
            for line in range(LINES)
        ]
        (folder / f"part-{number}.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return RecordStream([str(folder / "part-*.jsonl")])


def sampler(stream: RecordStream, draw: DrawRule, batch_size: int = 8, **options: int) -> StreamSampler:
    return StreamSampler(stream, lambda record: len(record.captions["en"]), batch_size, draw=draw, **options)


def drawn(batch: StreamBatch) -> list[str]:
    return [batch.records[place].captions["en"][caption] for place, caption in batch.pairs.tolist()]


@pytest.mark.parametrize(("draw", "batches"), [("one", 5), ("all", 5), ("pairs", 15), ("unique", 15)])
def test_an_epoch_has_every_item_once_and_another_order_than_the_last(
    stream: RecordStream, draw: DrawRule, batches: int
) -> None:
    drawer = sampler(stream, draw, buffer=12)
    epochs = [[drawn(batch) for batch in drawer.batches(epoch)] for epoch in (0, 1)]
    for epoch in epochs:
        assert abs(len(epoch) - batches) <= (draw == "unique"), "captions of one image may be left at the end"
        captions = [caption for batch in epoch for caption in batch]
        assert len(set(captions)) == len(captions)
        if draw != "unique":
            per_image = Counter(caption.rsplit(" ", 1)[0] for caption in captions)
            assert set(per_image.values()) == ({1} if draw == "one" else {CAPTIONS})
            assert len(per_image) == FILES * LINES
    assert epochs[0] != epochs[1]
    assert epochs[0] == [drawn(batch) for batch in drawer.batches(0)]
    assert drawer.count() == batches


def test_a_batch_has_no_image_twice_unless_it_may(stream: RecordStream) -> None:
    for batch in sampler(stream, "unique", buffer=6).batches(0):
        assert len(batch.records) == len(batch.pairs) == 8
    assert any(len(batch.records) < 8 for batch in sampler(stream, "pairs", buffer=6).batches(0))


def test_seed_and_epoch_determine_the_batches(stream: RecordStream) -> None:
    whole = [drawn(batch) for batch in sampler(stream, "unique", buffer=20, seed=3).batches(2)]
    assert [drawn(batch) for batch in sampler(stream, "unique", buffer=20, seed=3).batches(2)] == whole
    assert whole != [drawn(batch) for batch in sampler(stream, "unique", buffer=20, seed=4).batches(2)]


def test_a_buffer_holds_no_more_than_its_size_and_mixes_what_it_holds() -> None:
    taken = 0

    def items() -> Iterator[int]:
        nonlocal taken
        for item in range(1000):
            taken += 1
            yield item

    found = []
    for item in buffer_shuffled(items(), 100, random.Random(0)):
        found.append(item)
        assert taken - len(found) <= 100
    assert sorted(found) == list(range(1000))
    moved = [abs(place - item) for place, item in enumerate(found)]
    assert 50 < sum(moved) / len(moved) < 200


def test_what_cannot_be_drawn_is_refused(stream: RecordStream, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"batches of 41 cannot be drawn from .*too few pictures"):
        list(sampler(stream, "one", 41).batches(0))
    with pytest.raises(DataError, match="no file matches"):
        RecordStream([str(tmp_path / "*.tar")])
    test_only = RecordStream([str(stream.files[-1][0])])
    with pytest.raises(DataError, match="no captioned images to train on"):
        test_only.sample(5)


def test_records_can_be_changed_or_left_out(stream: RecordStream) -> None:
    def prepare(record: Record) -> Record | None:
        return None if record.key.endswith("3.png") else record

    chosen = RecordStream(stream.paths, prepare)
    assert len(list(chosen.records())) == FILES * (LINES - 1)
    assert len(list(islice(chosen.records([1]), 20))) == LINES - 1
