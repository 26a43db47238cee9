"""Tar archives, such as the shards of a data set."""

import io
import json
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Contents = bytes | str | dict[str, Any]


def write_tar(path: Path, members: Iterable[tuple[str, Contents]]) -> Path:
    """Write an archive of (name, contents), dictionaries as JSON; compressed if its name says so."""
    with tarfile.open(path, "w:gz" if path.suffix in {".gz", ".tgz"} else "w") as tar:
        for name, contents in members:
            text = json.dumps(contents) if isinstance(contents, dict) else contents
            data = text.encode() if isinstance(text, str) else text
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path
