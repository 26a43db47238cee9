"""docs/large-data.md does what it says."""

import json
from pathlib import Path

from docs.pages import followed


def test_the_page_trains_on_its_shards(tmp_path: Path) -> None:
    with followed("large-data.md", tmp_path):
        log = [json.loads(line) for line in Path("runs/streamed/log.jsonl").read_text().splitlines()]
        provenance = json.loads(Path("runs/streamed/provenance.json").read_text())
    assert len(log) == provenance["steps"]
    assert len(provenance["parts"]) == 2
    assert log[-1]["loss"]["embed"] < log[0]["loss"]["embed"]
    assert provenance["sources"]["train"]["files"] == ["shard-000.tar", "shard-001.tar", "shard-002.tar"]
