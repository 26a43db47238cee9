"""docs/fine-tune-clip.md does what it says: its commands are run, in order, with a tiny CLIP."""

from itertools import islice
from pathlib import Path

import pytest
import torch

from docs.commands import ROOT, lines, run_shell
from models import published
from sightline.demo.shapes import shapes, write

PAGE = (ROOT / "docs" / "fine-tune-clip.md").read_text(encoding="utf-8")


def test_every_command_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    published.clip(published.in_hub(tmp_path / "hub", "openai/clip-vit-base-patch16", monkeypatch))
    monkeypatch.chdir(tmp_path)
    Path("recipes").symlink_to(ROOT / "recipes")
    captions = write(Path("photos"), islice(shapes(seed=0), 24)).read_text()
    for name in ("train", "val", "test"):
        Path("photos", f"{name}.jsonl").write_text(captions)
    Path("photos", "captions.jsonl").unlink()
    small = " --set data.batch_size=16 --set schedule.epochs=2"
    told = {line: run_shell(line + small * line.startswith("sightline train")) for line in lines(PAGE)}
    assert [line.split()[1] for line in told] == ["eval", "train", "train", "compare", "export", "index", "search"]
    assert Path("runs/clip-lora/best/retriever.json").exists()
