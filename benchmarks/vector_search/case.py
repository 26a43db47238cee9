"""A number of vectors to find the nearest of: where they are, what is asked, and what the right answers are."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.photo_vectors import Bools, Halves, Longs, Real, Singles, real, truth
from benchmarks.vector_search.indexes import OURS, vectors_of

SHARES = (0.01, 0.1, 0.5)
"""Of the vectors that filters allow; the last is also what is left when the others are deleted."""


@dataclass(frozen=True)
class Settings:
    """What a run is about: photos and queries, the care that graphs take when built, seconds for a figure, cores."""

    model: str
    photos: int
    queries: int
    care: int
    seconds: float
    cores: int


def begin(work: Path, settings: Settings) -> None:
    """Make the work folder, or see that it is one, begun with the same settings: at the end it is deleted."""
    file, wanted = work / "settings.json", json.dumps(asdict(settings))
    work.mkdir(parents=True, exist_ok=True)
    if file.exists() and file.read_text() != wanted:
        raise SystemExit(f"{work} was begun with other settings: {file.read_text()}. Choose another, or delete it.")
    if not file.exists() and any(work.iterdir()):
        raise SystemExit(f"{work} holds other files. Choose a folder that is empty, or not there yet.")
    file.write_text(wanted)


@dataclass(frozen=True)
class Case:
    """So many vectors, in a work folder that was begun."""

    work: Path
    size: int

    @property
    def at(self) -> Path:
        """Where what was built lies."""
        return self.work / f"{self.size}"

    @property
    def settings(self) -> Settings:
        """Those of the run."""
        return Settings(**json.loads((self.work / "settings.json").read_text()))

    def real(self) -> Real:
        """Embeddings of photos and captions, which are made once."""
        return real(self.work / "embeddings.npz", self.settings.model, self.settings.photos)

    def vectors(self) -> Halves:
        """Those of Sightline's store [size, dim]."""
        return vectors_of(self.at / OURS.folder)

    def queries(self) -> Singles:
        """Captions [queries, dim], taken evenly out of all."""
        captions = self.real().captions
        evenly: Singles = captions[np.linspace(0, len(captions) - 1, self.settings.queries).astype(int)]
        return evenly

    def allowed(self, share: float) -> Bools:
        """Which rows [size] a filter allows."""
        return np.random.default_rng(int(1000 * share)).random(self.size) < share

    def right(self, share: float | None) -> Longs:
        """The right answers [queries, TOP], of all or of what a filter allows; found once, by comparing everything."""
        shares, file = (None, *SHARES), self.at / "right.npy"
        if not file.exists():
            masks = [None if some is None else self.allowed(some) for some in shares]
            begun = file.with_name("right-begun.npy")
            np.save(begun, np.stack(truth(self.vectors(), self.queries(), masks)))
            begun.replace(file)
        found: Longs = np.load(file)[shares.index(share)]
        return found

    def note(self, name: str) -> Path:
        """Where a result of this case is noted."""
        return self.work / "notes" / f"{self.size}-{name}.json"

    def noted(self, name: str) -> Any:
        """A result that was noted."""
        return json.loads(self.note(name).read_text())
