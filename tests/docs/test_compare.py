"""docs/compare.md does what it says: its commands are taken from the page and run, in order."""

from pathlib import Path

import pytest

from docs.commands import ROOT, lines, run_shell
from sightline.demo.shapes import shapes, write
from sightline.registry import loader

PAGE = (ROOT / "docs" / "compare.md").read_text(encoding="utf-8")


def test_every_command_of_the_page_runs(tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "_bundled", lambda: tiny_bundle)
    monkeypatch.chdir(tmp_path)
    Path("my-bundle").symlink_to(tiny_bundle)
    write(Path("photos"), list(shapes(seed=0))[:6]).rename("photos/test.jsonl")
    told = [run_shell(line) for line in lines(PAGE)]
    assert "text to image R@1" in told[0]
    written = {path.name for path in Path().iterdir() if path.is_file()}
    assert {"compare.html", "compare.csv", "ranks.csv"} < written
    for name in ("mine.text_to_image.run", "mine.image_to_text.qrels"):
        assert name in written
        assert name in PAGE
