from pathlib import Path

import pytest

from collection.made_up import Instant, picture, put


@pytest.fixture
def model() -> Instant:
    return Instant()


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Six different pictures in two folders, written long ago."""
    folder = tmp_path / "photos"
    for number in range(6):
        put(folder / ("beach" if number % 2 else "town") / f"{number}.png", picture(number))
    return folder
