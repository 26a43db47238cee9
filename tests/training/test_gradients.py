"""A batch encoded in chunks has the gradients of the whole batch."""

import math

import pytest
import torch

import tiny
from sightline.errors import RecipeError
from sightline.losses import Contrastive, Loss, Matching
from sightline.models.retriever import EncodedTensors
from sightline.training.gradients import Side, backward
from sightline.training.optimizer import make_optimizer
from sightline.training.tables import OptimizerRecipe
from training.sides import LOSSES, gradients, plain_gradients, sides

ALONE = ["triplet hardest", "contrastive", "matching hard"]
CASES = [
    *((kind, name) for kind in ("dual-shared", "dual-own", "single") for name in (*ALONE, "all")),
    *(("dual-shared", name) for name in LOSSES if name not in (*ALONE, "all")),
    ("dual-states", "all"),
    ("dual-reader-aligned", "all"),
    ("single-mean", "all"),
    ("dual-late-codes", "triplet on fragments"),
    ("dual-clusters", "distill on fragments"),
    ("single-codes", "all"),
]


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_chunks_give_the_gradients_of_the_whole_batch(kind: str, name: str) -> None:
    model = tiny.retriever({**tiny.PIXEL_MODELS, **tiny.INFLATED_MODELS}[kind])
    losses, whole = plain_gradients(model, LOSSES[name])
    scale = max(float(g.abs().max()) for g in whole.values() if g is not None)
    assert scale > 1e-3, "nothing to compare"
    for chunk in (0, 3, 6):  # of seven texts and five images: 3 + 3 + 1 and 3 + 2, 6 + 1 and 5
        chunked_losses, chunked = gradients(model, LOSSES[name], chunk)
        assert chunked_losses == pytest.approx(losses, rel=1e-5)
        for parameter, gradient in whole.items():
            other = chunked[parameter]
            assert (gradient is None) == (other is None), parameter
            if gradient is not None and other is not None:
                assert float((other - gradient).abs().max()) <= 1e-5 * scale, (parameter, chunk)


@pytest.mark.parametrize(("chunk", "starts"), [(0, [0]), (3, [0, 3, 6, 3, 0])])
def test_every_chunk_is_encoded_twice_but_the_last(chunk: int, starts: list[int]) -> None:
    model, encoded = tiny.retriever(tiny.DUAL), list[int]()
    texts, images = sides(model)

    def counted(rows: slice) -> EncodedTensors:
        encoded.append(rows.start)
        return texts.encode(rows)

    backward(model, {"0": (Contrastive(), 1.0)}, Side(counted, texts.ids), images, seed=0, chunk=chunk)
    assert encoded == starts


def test_weights_of_objectives_scale_their_gradients() -> None:
    model = tiny.retriever(tiny.DUAL)
    _, alone = gradients(model, [Contrastive()], chunk=0)
    backward(model, {"twice": (Contrastive(), 1.0)}, *sides(model), seed=3)  # on top of the half that is there
    weight = "model.text_embedding.linear.weight"
    there, half = dict(torch.nn.ModuleDict({"model": model}).named_parameters())[weight].grad, alone[weight]
    assert there is not None
    assert half is not None
    torch.testing.assert_close(there, 3 * half)


@pytest.mark.parametrize("chunk", [0, 2])
def test_with_dropout_the_gradient_is_that_of_the_loss_it_gives(chunk: int) -> None:
    """Were the second encoding of a chunk to drop other units than the first, its gradient would be of another loss."""
    model = tiny.retriever(tiny.PIXEL_MODELS["single"]).train()
    objectives: list[Loss] = [Contrastive(temperature=0.5)]
    _, found = gradients(model, objectives, chunk)
    direction = {name: torch.sign(g) for name, g in found.items() if g is not None and name.startswith("model")}
    slope = math.fsum(float(g.abs().sum()) for name, g in found.items() if name in direction and g is not None)
    parameters = dict(torch.nn.ModuleDict({"model": model}).named_parameters())

    def loss_at(distance: float) -> float:
        with torch.no_grad():
            for name, d in direction.items():
                parameters[name].add_(distance * d)
        losses, _ = gradients(model, objectives, chunk)
        with torch.no_grad():
            for name, d in direction.items():
                parameters[name].sub_(distance * d)
        return losses["0"]

    step = 1e-4
    assert 0.5 * (loss_at(step) - loss_at(-step)) / (2 * step) == pytest.approx(slope, rel=0.03)


@pytest.mark.filterwarnings("ignore:TF32 acceleration")
def test_in_half_precision_chunks_reach_every_parameter_too() -> None:
    """Autocast may keep weights that it cast where no gradient was wanted, and cut the second encoding off them."""
    model = tiny.retriever(tiny.DUAL)
    # On a processor without half precision of its own, oneDNN would be switched off for good, for all tests after this.
    with torch.backends.mkldnn.flags(enabled=False), torch.autocast("cpu", torch.bfloat16):
        _, whole = gradients(model, LOSSES["all"], chunk=0)
        _, chunked = gradients(model, LOSSES["all"], chunk=2)
    flat = []
    for found in (whole, chunked):
        flat.append(torch.cat([g.flatten() for g in found.values() if g is not None]))
    assert len(flat[0]) == len(flat[1])
    assert torch.cosine_similarity(flat[0], flat[1], dim=0) > 0.98


def test_what_no_objective_of_a_step_uses_gets_no_gradient() -> None:
    """A gradient of zeros would let AdamW decay the embedding's weights in every turn of the matcher."""
    model = tiny.retriever(tiny.DUAL)
    _, found = gradients(model, [Matching()], chunk=2)
    assert found["model.text_embedding.linear.weight"] is None
    assert found["model.image_fragments.linear.weight"] is None
    assert found["model.match_score.score.weight"] is not None
    _, found = gradients(model, [Contrastive()], chunk=2)
    assert found["model.text_embedding.linear.weight"] is not None
    assert found["model.match_score.score.weight"] is None


@pytest.mark.parametrize("chunk", [0, 2])
def test_a_frozen_tower_gets_no_gradient_and_the_rest_the_same_as_ever(chunk: int) -> None:
    model = tiny.retriever(tiny.DUAL)
    _, whole = gradients(model, [Contrastive()], chunk=0)
    make_optimizer(OptimizerRecipe(rates={"image": 0.0}), model, [])
    _, found = gradients(model, [Contrastive()], chunk)
    for name, gradient in found.items():
        if name.startswith("model.image.encoder"):
            assert gradient is None
        elif whole[name] is not None:
            torch.testing.assert_close(gradient, whole[name], rtol=1e-4, atol=1e-6)


def test_layers_that_are_frozen_get_no_gradient_and_those_above_do() -> None:
    model = tiny.retriever(tiny.DUAL)
    make_optimizer(OptimizerRecipe(frozen_layers={"image": 3}), model, [])
    _, found = gradients(model, [Contrastive()], chunk=0)
    trained = {n for n, gradient in found.items() if n.startswith("model.image.encoder") and gradient is not None}
    assert trained
    assert all(".layers.3." in name or "post_layernorm" in name for name in trained)
    with pytest.raises(RecipeError, match="no encoder"):
        make_optimizer(OptimizerRecipe(frozen_layers={"pictures": 3}), model, [])


def test_dropout_of_one_encoder_leaves_the_others_alone() -> None:
    model = tiny.retriever(tiny.PIXEL_MODELS["dual-own"])
    make_optimizer(OptimizerRecipe(dropout={"matcher": 0.25}), model, [])
    found = {
        part: {place.p for place in encoder.modules() if isinstance(place, torch.nn.Dropout)}
        for part, encoder in model.parts().items()
    }
    assert found["matcher"] == {0.25}
    assert 0.25 not in found["text"]
    with pytest.raises(RecipeError, match="no encoder"):
        make_optimizer(OptimizerRecipe(dropout={"pictures": 0.2}), model, [])
    with pytest.raises(RecipeError, match="no dropout setting"):
        make_optimizer(OptimizerRecipe(dropout={"image": 0.2}), model, [])
    with pytest.raises(RecipeError, match="below 1"):
        OptimizerRecipe(dropout={"matcher": 1.0})
