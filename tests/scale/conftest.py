from pathlib import Path

import pytest

from scale.photos import make_photos


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Pictures in folders, some with a date and a place, one of them twice."""
    return make_photos(tmp_path / "photos")
