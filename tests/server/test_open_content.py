"""The file of an item is closed unless it is handed out."""

import hashlib
from pathlib import Path
from typing import BinaryIO

import pytest

from sightline.media.source import ImageFile
from sightline.server import image_files
from sightline.server.limits import Limits


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[BinaryIO]:
    """The files that were opened."""
    found: list[BinaryIO] = []
    original = image_files.open_regular_file

    def remembered(path: Path, most: int) -> BinaryIO | None:
        file = original(path, most)
        if file is not None:
            found.append(file)
        return file

    monkeypatch.setattr(image_files, "open_regular_file", remembered)
    return found


def test_the_file_with_the_content_stays_open_and_others_are_closed(tmp_path: Path, opened: list[BinaryIO]) -> None:
    for name in ("other", "wanted"):
        (tmp_path / name).write_bytes(name.encode())
    wanted = hashlib.blake2b(b"wanted", digest_size=32).digest()
    sources = [ImageFile(tmp_path / name) for name in ("other", "wanted")]
    found = image_files.open_content(sources, wanted, Limits())
    assert [file.closed for file in opened] == [True, False]
    assert not isinstance(found, bytes)
    assert found is not None
    found.close()


def test_the_file_is_closed_if_the_client_leaves_meanwhile(
    tmp_path: Path, opened: list[BinaryIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave() -> None:
        raise RuntimeError("the client has left")

    monkeypatch.setattr(image_files, "stop_if_cancelled", leave)
    (tmp_path / "photo").write_bytes(b"anything")
    with pytest.raises(RuntimeError, match="left"):
        image_files.open_content([ImageFile(tmp_path / "photo")], b"", Limits())
    assert [file.closed for file in opened] == [True]
