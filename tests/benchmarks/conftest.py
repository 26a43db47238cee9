"""The generator of the results page is no package: it is imported here, once, from its folder."""

import sys
from pathlib import Path

BENCHMARKS = str(Path(__file__).parents[2] / "benchmarks")
sys.path.insert(0, BENCHMARKS)
import report  # noqa: E402, F401

sys.path.remove(BENCHMARKS)  # so that none of its scripts is taken for a folder of tests of the same name
