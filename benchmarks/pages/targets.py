"""The targets in targets.toml, and whether measurements meet them."""

import tomllib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Target:
    """A ratio in a result file, and its lower (`at_least`) or upper (`at_most`) bound."""

    what: str
    experiment: str
    ratio: str
    at_least: float | None = None
    at_most: float | None = None
    unit: str = ""

    @property
    def bound(self) -> str:
        """The bound as text, such as `≥ 3x`."""
        return f"≥ {self.at_least:g}{self.unit}" if self.at_least is not None else f"≤ {self.at_most:g}{self.unit}"

    def is_met(self, value: float) -> bool:
        """Whether a measured value meets the target."""
        return (self.at_least is None or value >= self.at_least) and (self.at_most is None or value <= self.at_most)


TARGETS = tuple(
    Target(**fields)
    for fields in tomllib.loads(Path(__file__).with_name("targets.toml").read_text(encoding="utf-8"))["targets"]
)
