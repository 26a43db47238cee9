from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from stores.places import BY_SIGNS, EXACT, LocalPlace, Place


@pytest.fixture(params=["local, exact", "local, by signs"])
def store_factory(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Place]:
    """Makes a new place for a store each time it is called, for every kind of store there is."""
    effort = EXACT if request.param == "local, exact" else BY_SIGNS
    numbers = count()
    return lambda: LocalPlace(tmp_path / f"store-{next(numbers)}", effort)
