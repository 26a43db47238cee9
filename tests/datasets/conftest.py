from collections.abc import Callable
from pathlib import Path

import pytest

from sightline.datasets import Problem, Record, read
from sightline.errors import DataError
from tar_files import Contents, write_tar


@pytest.fixture(scope="session")
def write_shard() -> Callable[[Path, list[tuple[str, Contents]]], Path]:
    """Write a tar archive of (name, contents), dictionaries as JSON; compressed if its name says so."""
    return write_tar


@pytest.fixture(scope="session")
def lenient() -> Callable[..., tuple[list[Record], list[Problem]]]:
    """Read a data set to its end: its records, and the problems met on the way."""

    def read_on(path: Path, **options: object) -> tuple[list[Record], list[Problem]]:
        problems: list[Problem] = []
        return list(read(path, on_problem=problems.append, **options)), problems

    return read_on


@pytest.fixture(scope="session")
def broken_at(lenient) -> Callable[..., list[Record]]:
    """Assert that one problem is at `place`: fatal by default, reported and skipped with a callback."""

    def check(path: Path, place: str, reason: str, **options: object) -> list[Record]:
        with pytest.raises(DataError) as caught:
            list(read(path, **options))
        assert caught.value.what.startswith(f"{place}: ")
        assert reason in caught.value.what
        assert "on_problem" in caught.value.way_out
        records, problems = lenient(path, **options)
        assert [problem.place for problem in problems] == [place]
        assert reason in problems[0].reason
        return records

    return check
