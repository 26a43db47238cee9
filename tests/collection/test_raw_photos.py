"""RAW photos in a collection: indexed by their previews, in processes of their own."""

from pathlib import Path

import pytest

import sightline
from collection.made_up import Instant, picture, put
from media.raw_files import cr2, dng, nef
from sightline.cli.formatting import report_lines
from sightline.media import raw
from sightline.packages import install_extra

pytest.importorskip("rawpy", reason="the extra raw is not installed")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    put(tmp_path / "a.DNG", dng(1))
    put(tmp_path / "b.cr2", cr2(2))
    put(tmp_path / "c.nef", nef(3))
    put(tmp_path / "plain.png", picture(4))
    return tmp_path


def test_they_are_indexed_with_time_place_and_size(photos: Path) -> None:
    put(photos / "broken.nef", dng(None)[:2000])
    report = sightline.index(photos, model=Instant())
    assert (report.new, [Path(one.path).name for one in report.broken]) == (4, ["broken.nef"])
    assert "RAW photo that is damaged" in report.broken[0].reason
    with sightline.open(photos, model=Instant()) as collection:
        found = {item.files[0].path: item for item in collection.browse(k=9)}
        assert [found[name].taken for name in ("a.DNG", "b.cr2", "c.nef")] == [
            "2023-08-01T10:00:00+02:00",
            "2021-01-02T03:04:05+02:00",
            "2022-05-06T07:08:09+02:00",
        ]
        assert (found["b.cr2"].width, found["b.cr2"].height) == (64, 96)
        assert found["a.DNG"].place is not None
        assert len(collection.search("a dog", where="name like '%.nef'")) == 1
    assert sightline.index(photos, model=Instant()).unchanged == 4


def test_without_the_extra_they_are_counted_and_what_was_indexed_stays(
    photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sightline.index(photos, model=Instant())
    put(photos / "new.dng", dng(6))
    monkeypatch.setattr(raw, "is_installed", lambda: False)
    report = sightline.index(photos, model=Instant())
    assert (report.unchanged, report.deleted) == (4, 0)
    assert f"Not indexed: 1 RAW photo (.dng). To index them: {install_extra('raw')}" in [*report_lines(report)]
