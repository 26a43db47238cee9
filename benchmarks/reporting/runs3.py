"""The runs of paper 3's experiments, apart by variant."""

from collections.abc import Iterable, Mapping
from typing import Any

from reporting.results import ResultFile
from reporting.runs import Runs

TEST = "flickr8k-test"
PAPER = "paper"
_SWAPPED = {"B-F", "I-F", "I-B-F"}  # the only runs in which the variant of swapped temperatures differs


class Variant(Runs):
    """All runs of one variant on the test set; the files of `benchmarks/paper3.py`."""

    def __init__(self, files: Iterable[ResultFile], name: str = PAPER) -> None:
        self.name = name
        super().__init__(file for file in files if self._is_one(file.content))

    def _is_one(self, content: Mapping[str, Any]) -> bool:
        shared = self.name == "swapped" and content["run"] not in _SWAPPED
        return bool(content["result"]["data"] == TEST and content["variant"] == (PAPER if shared else self.name))


def variants(files: Iterable[ResultFile]) -> list[str]:
    """The variants that there are runs of, that of the paper first."""
    found = {file.content["variant"] for file in files if file.content["result"]["data"] == TEST}
    return sorted(found, key=lambda name: (name != PAPER, name))
