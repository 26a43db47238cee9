"""Which stages an evaluation runs after `embed`, checked against the model before any work is done."""

from dataclasses import dataclass

from sightline.bundle.model import Ability, Model, check_ability
from sightline.errors import EvaluationError
from sightline.evaluation.encodings import Needs
from sightline.retrieval.scoring import Fusion, check_fusion


@dataclass(frozen=True, slots=True)
class Plan:
    """How many of the best `late` interaction and then `rerank` (matching) rescore, and how the last scores are fused.

    Codebases differ in whether the matcher's score alone ranks, or with the embedding's added, and few say so: here it
    is part of the plan, and of the result.
    """

    late: int | None = None
    rerank: int | None = None
    fusion: Fusion = "ce"
    weight: float = 0.1

    @property
    def names(self) -> tuple[str, ...]:
        """What results call the stages: embed, late@200, match@20."""
        asked = (("late", self.late), ("match", self.rerank))
        return ("embed", *(f"{name}@{k}" for name, k in asked if k is not None))

    @property
    def needs(self) -> Needs:
        """What must be kept of every item for the later stages."""
        return Needs(fragments=self.late is not None, states=self.rerank is not None)

    @property
    def longest(self) -> int:
        """How many of the best any later stage wants to see; 0 without one."""
        return max(self.late or 0, self.rerank or 0)

    def check(self, model: Model, matcher: Model | None = None) -> None:
        """Refuse what cannot be done: a stage of fewer than one, a missing ability, an unknown fusion.

        matcher: the model that matches, where it is another.
        """
        check_ability(model, "embed", "ranking", "A matcher alone scores pairs: let it rerank for another model.")
        self._check_stage("late", self.late, "fragments", model)
        self._check_stage("rerank", self.rerank, "match", matcher or model)
        if matcher is not None and self.rerank is None:
            raise EvaluationError(
                f"{matcher.name} is to match, and nothing is reranked", "Say rerank, or leave out matcher."
            )
        check_fusion(self.fusion, self.weight)

    @staticmethod
    def _check_stage(option: str, k: int | None, ability: Ability, model: Model) -> None:
        if k is None:
            return
        if k < 1:
            raise EvaluationError(f"{option} {k}", "Give how many of the best to rescore, or leave it out.")
        check_ability(model, ability, option, "Leave it out, or choose another model.")
