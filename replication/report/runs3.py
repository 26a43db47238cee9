"""The runs of paper 3's experiments, apart by variant."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from replication.report.results import ResultFile
from replication.report.runs import Runs

TEST = "flickr8k-test"
PAPER, FACTORS, TUNED = "paper", "factors", "tuned"


class Variant(Runs):
    """All runs of one variant on the test set; the files of `benchmarks/paper3.py`."""

    def __init__(self, files: Iterable[ResultFile], name: str = PAPER) -> None:
        self.name = name
        super().__init__(file for file in files if self._is_one(file.content))

    def _is_one(self, content: Mapping[str, Any]) -> bool:
        """Whether a file is of this variant: read as factors, temperatures matter only to runs with a teacher (B-F)."""
        shared = self.name == FACTORS and "-" not in content["run"]
        return bool(content["result"]["data"] == TEST and content["variant"] == (PAPER if shared else self.name))


def variants(files: Iterable[ResultFile]) -> list[str]:
    """The variants that there are runs of, that of the paper first."""
    found = {file.content["variant"] for file in files if file.content["result"]["data"] == TEST}
    return sorted(found, key=lambda name: (name != PAPER, name))


def fullest(files: Sequence[ResultFile], names: Sequence[str]) -> Variant:
    """The variant with most runs of these names; that of the paper, if no other has more."""
    return max((Variant(files, name) for name in [PAPER, *variants(files)]), key=lambda one: len(one.files_of(*names)))
