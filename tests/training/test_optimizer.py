"""AdamW is one computation for all parameters on a GPU; elsewhere it is as ever."""

import tiny
from sightline.training.optimizer import make_optimizer
from sightline.training.tables import OptimizerRecipe


def test_on_a_cpu_steps_are_not_fused() -> None:
    optimizer = make_optimizer(OptimizerRecipe(), tiny.retriever(tiny.DUAL), [])
    assert not any(group["fused"] for group in optimizer.param_groups)
