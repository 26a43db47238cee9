"""How a question is to be answered: how many results, by which stages, in what time; and how much of it is spent."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from sightline.bundle.model import DEFAULT_WEIGHT, Ability, Model, check_ability
from sightline.errors import QueryError
from sightline.retrieval.scoring import Fusion, check_fusion

MOST_RERANK = 100
"""How many of the best are matched at most, where nobody says and there is a time limit."""

_CAUTION = 0.9  # of the time that is left is planned with


@dataclass(frozen=True, slots=True)
class Plan:
    """How a question is answered.

    k: how many results are wanted.
    late, rerank: how many of the best are rescored by late interaction, and then by matching; with `budget_ms` both are
        upper limits. `late` may be `all`: then it ranks everything, in the place of embeddings. For None see `stages`.
    budget_ms: how long the whole search may take. None: as long as it takes.
    fusion, weight: how the matcher's logit and the cosine are joined; None for what the model's makers chose.
    late_fragments: how many fragments of either side, the first ones, take part in late interaction; None for all.
    """

    k: int = 10
    late: int | Literal["all"] | None = None
    rerank: int | None = None
    budget_ms: float | None = None
    fusion: Fusion | None = None
    weight: float | None = None
    late_fragments: int | None = None

    def check(self, model: Model) -> None:
        """Refuse what cannot be done, before any work is."""
        if self.k < 1:
            raise QueryError(f"the best {self.k} are asked for", "Ask for at least one.")
        self._check_late(model)
        self._check_stage("rerank", self.rerank, "match", model)
        if self.budget_ms is not None and not self.budget_ms > 0:
            raise QueryError(f"a time limit of {self.budget_ms} milliseconds", "Give more, or leave it out.")
        joined = self.joined(model)
        check_fusion(joined.rule, joined.weight)

    def stages(self, model: Model) -> tuple[int | Literal["all"], int]:
        """How many of the best late interaction and then matching get, if the model is able.

        Where nobody says, as many as the model's makers chose. Whoever says how many are matched, perhaps none, is
        spared a late interaction that nobody asked for.
        """
        usual = model.defaults
        late = usual.late if self.late is None and self.rerank is None else self.late or 0
        if self.rerank is not None:
            return late, self.rerank
        return late, usual.rerank if self.budget_ms is None else MOST_RERANK

    def joined(self, model: Model) -> "Joined":
        """How scores are joined, from what was asked and what the model's makers chose."""
        rule = self.fusion or model.defaults.fusion
        own = model.defaults.weight if rule == model.defaults.fusion else DEFAULT_WEIGHT
        return Joined(rule, own if self.weight is None else self.weight)

    def _check_late(self, model: Model) -> None:
        if self.late == "all":
            self._check_stage("late", MOST_RERANK, "fragments", model)
        elif isinstance(self.late, str):
            raise QueryError(f"late {self.late!r}", "Give how many of the best to look at more closely, or all.")
        else:
            self._check_stage("late", self.late, "fragments", model)
        if self.late == "all" and self.budget_ms is not None:
            raise QueryError("late interaction with all, and a time limit", "Leave out one of them.")
        if self.late_fragments is not None and self.late_fragments < 1:
            raise QueryError(f"late interaction of {self.late_fragments} fragments", "Give at least one.")

    @staticmethod
    def _check_stage(option: str, k: int | None, ability: Ability, model: Model) -> None:
        if not k:
            return
        if k < 0:
            raise QueryError(f"{option} {k}", "Give how many of the best to look at more closely, or 0.")
        check_ability(model, ability, option, "Leave it out, or index again with another model.")


class Joined(NamedTuple):
    """How the scores of `match` and the cosines are combined."""

    rule: Fusion
    weight: float


@dataclass(slots=True)
class Watch:
    """Adds up how long each part of a search takes, and knows when its time is over."""

    clock: Callable[[], float] = time.perf_counter
    budget_ms: float | None = None
    took_ms: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("encode", "retrieve", "interact", "match"), 0.0)
    )
    began: float = field(init=False)

    def __post_init__(self) -> None:
        self.began = self.clock()

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        """Time what is done inside as a part of the work."""
        began = self.clock()
        try:
            yield
        finally:
            self.took_ms[part] += 1000 * (self.clock() - began)

    def left(self) -> float:
        """Seconds that may still be planned with."""
        if self.budget_ms is None:
            return float("inf")
        return _CAUTION * (self.budget_ms / 1000 - (self.clock() - self.began))
