"""docs/pictures.md does what it says."""

from pathlib import Path

import pytest

from docs.pages import followed
from sightline.demo import PICTURES
from sightline.registry import loader


def test_the_page_can_be_followed(
    tmp_path: Path, quick_bundle: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(loader, "_bundled", lambda: quick_bundle)
    pytest.importorskip("rapidocr_onnxruntime", reason="the extra ocr is not installed")
    for place, name in (("photos", "dog"), ("scans", "coffee"), ("scans/drafts", "owl")):
        (tmp_path / place).mkdir(parents=True, exist_ok=True)
        (tmp_path / place / f"{name}.jpg").write_bytes((PICTURES / f"{name}.jpg").read_bytes())
    with followed("pictures.md", tmp_path):
        assert (tmp_path / "photos" / ".sightline" / "text" / "text.db").exists()
        assert not (tmp_path / "scans" / ".sightline").exists()
        assert (tmp_path / "scans" / "drafts" / "owl.jpg").exists()
