import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from sightline.datasets import Problem, Record, read
from sightline.errors import DataError

Contents = bytes | str | dict


@pytest.fixture(scope="session")
def write_shard() -> Callable[[Path, list[tuple[str, Contents]]], Path]:
    """Write a tar archive of (name, contents), dictionaries as JSON; compressed if its name says so."""

    def write(path: Path, members: list[tuple[str, Contents]]) -> Path:
        with tarfile.open(path, "w:gz" if path.suffix in {".gz", ".tgz"} else "w") as tar:
            for name, contents in members:
                if isinstance(contents, dict):
                    contents = json.dumps(contents)
                data = contents.encode() if isinstance(contents, str) else contents
                member = tarfile.TarInfo(name)
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
        return path

    return write


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
