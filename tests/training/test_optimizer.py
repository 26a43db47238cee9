"""AdamW is one computation for all parameters on a GPU; elsewhere it is as ever."""

import pytest

import tiny
from sightline.errors import RecipeError
from sightline.models import towers
from sightline.training.optimizer import make_optimizer
from sightline.training.tables import OptimizerRecipe


def test_on_a_cpu_steps_are_not_fused() -> None:
    optimizer = make_optimizer(OptimizerRecipe(), tiny.retriever(tiny.DUAL), [])
    assert not any(group["fused"] for group in optimizer.param_groups)


def test_rates_fall_towards_the_input_of_an_encoder() -> None:
    model = tiny.retriever(tiny.DUAL)
    recipe = OptimizerRecipe(lr=1.0, rates={"image": 0.5}, layer_decay={"image": 0.5})
    groups = make_optimizer(recipe, model, []).param_groups
    rate_of = {id(parameter): group["initial_lr"] for group in groups for parameter in group["params"]}
    assert model.image is not None
    encoder = model.image.encoder
    stack = towers.layers(encoder)
    for number, layer in enumerate(stack):
        assert {rate_of[id(p)] for p in layer.parameters()} == {0.5 * 0.5 ** (len(stack) - 1 - number)}
    assert {rate_of[id(p)] for p in towers.before(encoder, 0)} == {0.5 * 0.5 ** len(stack)}
    others = [p for name, part in model.parts().items() if name != "image" for p in part.parameters()]
    assert {rate_of[id(p)] for p in others} == {1.0}
    assert len(rate_of) == len(list(model.parameters()))


def test_a_layer_decay_for_an_encoder_that_is_not_there_is_refused() -> None:
    with pytest.raises(RecipeError, match=r'optimizer\.layer_decay: this model has no encoder "imgae"'):
        make_optimizer(OptimizerRecipe(layer_decay={"imgae": 0.5}), tiny.retriever(tiny.DUAL), [])
