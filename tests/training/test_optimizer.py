"""AdamW is one computation for all parameters on a GPU; elsewhere it is as ever."""

import dataclasses
from functools import partial

import pytest
import torch
from torch import Tensor

import tiny
from models.test_towers import VISION
from sightline.errors import RecipeError
from sightline.media import require_pixels
from sightline.models import TowerConfig, towers
from sightline.models.retriever import Retriever, Tokens
from sightline.training import modes, optimizer
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


def test_a_missing_compiler_is_reported_before_the_run() -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("No working C++ compiler found")

    with pytest.raises(RecipeError, match=r"optimizer\.compile: .*No working C\+\+ compiler found\nInstall a C\+\+"):
        modes.compile_layers(tiny.retriever(tiny.DUAL), broken)


def test_an_encoder_without_layers_is_not_compiled() -> None:
    image = {"model_type": "resnet", **VISION["resnet"]}
    config = dataclasses.replace(tiny.DUAL, image=TowerConfig(config=image))
    with pytest.raises(RecipeError, match=r'optimizer\.compile: the encoder "image" has no layers to compile'):
        make_optimizer(OptimizerRecipe(compile=True), tiny.retriever(config), [])


def matched(model: Retriever, rows: int, words: int) -> Tensor:
    """Encode and match made-up texts and images, and add up gradients; returns the logits."""
    torch.manual_seed(rows)
    size = require_pixels(model.preprocess).size
    texts = model.encode_texts(Tokens(torch.randint(4, 20, (rows, words)), torch.ones(rows, words, dtype=torch.bool)))
    images = model.encode_images(torch.rand(rows, 3, size, size))
    assert texts.states is not None
    assert images.states is not None
    logits = model.match(texts.states, texts.mask, images.states, images.mask)
    (logits.sum() + (texts.embedding * images.embedding).sum()).backward()  # type: ignore[no-untyped-call]
    return logits.detach()


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch warns of its own code
@pytest.mark.parametrize("config", [tiny.DUAL, tiny.SINGLE], ids=["dual", "single"])
def test_compiled_layers_have_the_same_outputs_gradients_and_names(
    config: tiny.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, compiled = (tiny.retriever(config).eval() for _ in range(2))
    monkeypatch.setattr(optimizer, "compile_layers", partial(modes.compile_layers, backend="aot_eager"))
    make_optimizer(OptimizerRecipe(compile=True, rates={"image": 0.0}), compiled, [])
    make_optimizer(OptimizerRecipe(rates={"image": 0.0}), plain, [])
    layers = {name: towers.layers(part) for name, part in compiled.parts().items()}
    assert {name for name, stack in layers.items() if stack[0]._compiled_call_impl is not None} == {*layers} - {"image"}
    for rows, words in ((3, 5), (2, 7)):
        found = [matched(model, rows, words) for model in (plain, compiled)]
        torch.testing.assert_close(*found)
    for (name, before), (other, after) in zip(plain.named_parameters(), compiled.named_parameters(), strict=True):
        assert name == other
        torch.testing.assert_close(before.grad, after.grad)
