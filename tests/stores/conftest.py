from collections.abc import Callable
from itertools import count
from pathlib import Path
from uuid import uuid4

import pytest

from stores.places import BY_SIGNS, EXACT, LocalPlace, MilvusPlace, Place, PostgresPlace

KINDS = ["local, exact", "local, by signs", "postgres, exact", "postgres, hnsw"]


@pytest.fixture(params=[*KINDS, pytest.param("milvus", marks=pytest.mark.scale)])
def store_factory(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Place]:
    """Makes a new place for a store each time it is called, for every kind of store there is."""
    numbers = count()
    if request.param == "milvus":
        milvus = request.getfixturevalue("milvus")
        return lambda: MilvusPlace(milvus.url(f"store_{next(numbers)}_{uuid4().hex}"))
    if request.param.startswith("postgres"):
        postgres = request.getfixturevalue("postgres")
        index = "flat" if request.param == "postgres, exact" else "hnsw"
        return lambda: PostgresPlace(postgres.url(options=f"index={index}"))
    effort = EXACT if request.param == "local, exact" else BY_SIGNS
    return lambda: LocalPlace(tmp_path / f"store-{next(numbers)}", effort)
