from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import tiny
from models import published
from sightline.errors import ModelError
from sightline.models import Tokens, TowerConfig, towers
from sightline.models.heads import UnitProjection
from sightline.models.image_tower import ImageTower
from sightline.models.text_tower import TextTower

PIXELS = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
WIDTH = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
SMALL = {**WIDTH, "intermediate_size": 64}
VISION: dict[str, dict[str, Any]] = {
    "clip_vision_model": {**SMALL, "image_size": 32, "patch_size": 8},
    "siglip_vision_model": {**SMALL, "image_size": 32, "patch_size": 8},
    "vit": {**SMALL, "image_size": 32, "patch_size": 8},
    "dinov2": {**WIDTH, "mlp_ratio": 2, "image_size": 32, "patch_size": 8},
    "swin": {
        "image_size": 32,
        "patch_size": 2,
        "embed_dim": 8,
        "depths": [1, 1],
        "num_heads": [2, 2],
        "window_size": 4,
    },
    "convnext": {"image_size": 32, "patch_size": 2, "hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2},
    "resnet": {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]},
    "mobilevit": {
        "image_size": 64,  # a convolutional tower reads any size
        "hidden_sizes": [8, 12, 16],
        "neck_hidden_sizes": [4, 4, 8, 8, 12, 12, 24],
        "num_attention_heads": 2,
        "hidden_dropout_prob": 0.0,
    },
}
WORDS = {**SMALL, "vocab_size": 50, "max_position_embeddings": 40}
TEXT: dict[str, dict[str, Any]] = {
    "bert": WORDS,
    "roberta": {**WORDS, "pad_token_id": 1},
    "xlm-roberta": {**WORDS, "pad_token_id": 1},
    "mpnet": {**WORDS, "pad_token_id": 1},
    "clip_text_model": {**WORDS, "eos_token_id": 49},
    "distilbert": {
        "dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 4, "vocab_size": 50, "max_position_embeddings": 40,
    },
}  # fmt: skip


def vision(kind: str, pool_to: int | None = None) -> ImageTower:
    torch.manual_seed(0)
    encoder, _ = towers.build(TowerConfig(config={"model_type": kind, **VISION[kind]}), "vision")
    return ImageTower(encoder.eval(), 32, pool_to)


@pytest.mark.parametrize("kind", VISION)
@torch.inference_mode()
def test_an_image_tower_gives_the_vectors_of_transformers(kind: str) -> None:
    tower, pixels = vision(kind), torch.randn(2, 3, 32, 32)
    seen, out = tower(pixels), tower.encoder(pixel_values=pixels)
    assert seen.patches.shape == (2, tower.grid[0] * tower.grid[1], tower.hidden)
    if kind in ("clip_vision_model", "siglip_vision_model"):
        torch.testing.assert_close(seen.pooled, out.pooler_output)
    elif kind in ("vit", "dinov2"):
        torch.testing.assert_close(seen.pooled, out.last_hidden_state[:, 0])
    else:
        torch.testing.assert_close(seen.pooled, seen.patches.mean(1))


def test_what_cannot_see_is_refused_by_name() -> None:
    encoder, _ = towers.build(TowerConfig(config={"model_type": "bert", **TEXT["bert"]}), "vision")
    with pytest.raises(ModelError, match="bert cannot be an image tower: "):
        ImageTower(encoder, 32, None)


@pytest.mark.parametrize("kind", ["resnet", "mobilevit"])
def test_a_convolutional_tower_refuses_what_it_has_no_layers_for(kind: str) -> None:
    encoder = vision(kind).encoder
    for asked in ({"codes": 2}, {"pool_layer": 1, "pool_to": 1}):
        with pytest.raises(ModelError, match=f"{kind} cannot"):
            ImageTower(encoder, 32, **{"pool_to": None, **asked})


@pytest.mark.parametrize("kind", ["clip_vision_model", "vit", "siglip_vision_model", "dinov2"])
@torch.inference_mode()
def test_the_patches_of_a_layer_below_are_those_of_transformers(kind: str) -> None:
    tower, pixels = vision(kind), torch.randn(2, 3, 32, 32)
    assert tower(pixels).below is None
    tower.below = 1
    out = tower.encoder(pixel_values=pixels, output_hidden_states=True)
    said = out.hidden_states[1][:, -(tower.rows**2) :]
    below = tower(pixels).below
    torch.testing.assert_close(below, torch.nn.functional.layer_norm(said, said.shape[-1:]))
    torch.testing.assert_close(tower(pixels).below, below)  # no hook stays behind


def test_what_comes_before_a_layer_is_everything_below_it() -> None:
    encoder = vision("clip_vision_model").encoder
    count = len(towers.layers(encoder))
    below = {id(p) for p in towers.before(encoder, count - 1)}
    names = {name for name, p in encoder.named_parameters() if id(p) not in below}
    assert {name.split(".")[0] for name in names if f"layers.{count - 1}." not in name} == {"post_layernorm"}
    assert sum(f"layers.{count - 1}." in name for name in names) == len(list(towers.layers(encoder)[-1].parameters()))
    with pytest.raises(ModelError, match="there is none above layer"):
        towers.before(encoder, count)


@pytest.mark.parametrize("rows", [1, 2, 3])
@torch.inference_mode()
def test_pooled_patches_are_means_of_their_cells(rows: int) -> None:
    pixels = torch.randn(1, 3, 32, 32)
    full = vision("vit")(pixels).patches.reshape(4, 4, 32)
    pooled = vision("vit", rows)(pixels).patches.reshape(rows, rows, 32)
    for r in range(rows):
        for c in range(rows):
            top, bottom = r * 4 // rows, -((-(r + 1) * 4) // rows)
            left, right = c * 4 // rows, -((-(c + 1) * 4) // rows)
            torch.testing.assert_close(pooled[r, c], full[top:bottom, left:right].mean((0, 1)))


@pytest.mark.parametrize("kind", TEXT)
@torch.inference_mode()
def test_a_text_tower_gives_the_vectors_of_transformers_whatever_the_padding(kind: str) -> None:
    torch.manual_seed(0)
    encoder, _ = towers.build(TowerConfig(config={"model_type": kind, **TEXT[kind]}), "text")
    tower = TextTower(encoder.eval(), 12)
    ids = torch.tensor([[5, 9, 8, 49]])
    alone = tower(Tokens(ids, torch.ones(1, 4, dtype=torch.bool)))
    torch.testing.assert_close(alone, encoder(input_ids=ids).last_hidden_state)
    pad = getattr(encoder.config, "pad_token_id", 0) or 0
    longer = torch.nn.functional.pad(ids, (0, 3), value=pad)
    mask = torch.tensor([[True] * 4 + [False] * 3])
    torch.testing.assert_close(tower(Tokens(longer, mask))[:, :4], alone, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", ["bert", "roberta", "xlm-roberta", "mpnet"])
@torch.inference_mode()
def test_reading_words_as_vectors_equals_reading_their_ids(kind: str) -> None:
    torch.manual_seed(0)
    encoder, _ = towers.build(TowerConfig(config={"model_type": kind, **TEXT[kind]}), "text")
    tower = TextTower(encoder.eval(), 12)
    tokens = Tokens(torch.tensor([[5, 9, 8, 7]]), torch.ones(1, 4, dtype=torch.bool))
    torch.testing.assert_close(
        tower.read(tower.words(tokens.ids), tokens.mask, None, None), tower(tokens), atol=1e-5, rtol=1e-4
    )


def test_an_encoder_that_cannot_read_vectors_says_so() -> None:
    encoder, _ = towers.build(TowerConfig(config={"model_type": "clip_text_model", **TEXT["clip_text_model"]}), "text")
    with pytest.raises(ModelError, match="cannot read image fragments"):
        TextTower(encoder, 12).check_reads_images()


def test_texts_longer_than_the_position_table_are_refused_when_building() -> None:
    encoder, _ = towers.build(TowerConfig(config={"model_type": "bert", **TEXT["bert"]}), "text")
    with pytest.raises(ModelError, match="at most 39"):
        TextTower(encoder, 40)


def test_every_second_layer_is_kept_and_saved(tmp_path: Path) -> None:
    config = {"model_type": "bert", **TEXT["bert"], "num_hidden_layers": 5}
    torch.manual_seed(0)
    whole, _ = towers.build(TowerConfig(config=config), "text")
    whole.save_pretrained(tmp_path / "whole")
    half, _ = towers.build(TowerConfig(source=str(tmp_path / "whole"), layer_step=2), "text")
    assert half.config.num_hidden_layers == 3
    for kept, original in zip(half.encoder.layer, list(whole.encoder.layer)[::2], strict=True):
        torch.testing.assert_close(kept.output.dense.weight, original.output.dense.weight)
    lower, _ = towers.build(TowerConfig(source=str(tmp_path / "whole"), layers=2), "text")
    assert [layer.output.dense.weight.sum() for layer in lower.encoder.layer] == [
        layer.output.dense.weight.sum() for layer in whole.encoder.layer[:2]
    ]
    with pytest.raises(ModelError, match="the first 6 layers"):
        towers.build(TowerConfig(source=str(tmp_path / "whole"), layers=6), "text")
    half.save_pretrained(tmp_path / "half")
    again, _ = towers.build(TowerConfig(source=str(tmp_path / "half")), "text")
    assert len(again.encoder.layer) == 3


def test_the_vision_half_of_a_two_tower_checkpoint_comes_with_its_projection(tmp_path: Path) -> None:
    part = {**SMALL, "projection_dim": 16}
    clip = transformers.CLIPModel(
        transformers.CLIPConfig(
            text_config={**part, "vocab_size": 50},
            vision_config={**part, "image_size": 32, "patch_size": 8},
            projection_dim=16,
        )
    ).eval()
    clip.save_pretrained(tmp_path)
    encoder, weight = towers.build(TowerConfig(source=str(tmp_path)), "vision")
    pixels = torch.randn(2, 3, 32, 32)
    with torch.inference_mode():
        pooled = ImageTower(encoder.eval(), 32, None)(pixels).pooled
        ours = UnitProjection(32, 16, weight)(pooled)
        theirs = torch.nn.functional.normalize(clip.get_image_features(pixel_values=pixels).pooler_output, dim=-1)
    torch.testing.assert_close(ours, theirs)


def test_a_checkpoint_that_lacks_weights_is_refused_by_name(tmp_path: Path) -> None:
    encoder, _ = towers.build(TowerConfig(config={"model_type": "bert", **TEXT["bert"]}), "text")
    encoder.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["encoder.layer.1.output.dense.weight"]
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError, match=r"encoder\.layer\.1\.output\.dense\.weight"):
        towers.build(TowerConfig(source=str(tmp_path)), "text")


def test_a_checkpoint_whose_weights_have_other_shapes_is_refused_by_name(tmp_path: Path) -> None:
    encoder, _ = towers.build(TowerConfig(config={"model_type": "bert", **TEXT["bert"]}), "text")
    encoder.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    weights["encoder.layer.1.output.dense.bias"] = torch.zeros(3)
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError, match=r"encoder\.layer\.1\.output\.dense\.bias \[\d+\] \(it has \[3\]\)"):
        towers.build(TowerConfig(source=str(tmp_path)), "text")


@pytest.mark.parametrize("source", ["./nowhere", "/no/where", "some/folder/or/other"])
def test_a_folder_that_is_not_there_is_not_taken_for_a_name(source: str) -> None:
    with pytest.raises(ModelError, match="no such folder"):
        towers.build(TowerConfig(source=source), "text")


def test_a_source_that_is_no_model_is_refused_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"config\.json"):
        towers.build(TowerConfig(source=str(tmp_path)), "text")


@pytest.mark.parametrize(
    "arguments", [{}, {"source": "x", "config": {"model_type": "bert"}}, {"source": "x", "layer_step": 0}]
)
def test_a_tower_of_nothing_or_of_two_things_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ModelError):
        TowerConfig(**arguments)


def test_an_image_size_the_tower_does_not_read_is_refused() -> None:
    encoder, _ = towers.build(TowerConfig(config=tiny.VISION), "vision")
    with pytest.raises(ModelError, match="32 x 32"):
        ImageTower(encoder, 64, None)


def test_a_tower_loads_by_hub_name_from_the_hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, _ = towers.build(TowerConfig(config={"model_type": "bert", **TEXT["bert"]}), "text")
    encoder.save_pretrained(published.in_hub(tmp_path, "someone/tiny-bert", monkeypatch))
    found, _ = towers.build(TowerConfig(source="someone/tiny-bert"), "text")
    torch.testing.assert_close(found.state_dict(), encoder.state_dict())


@pytest.mark.parametrize("kind", ["clip_vision_model", "siglip_vision_model", "vit", "dinov2"])
@torch.inference_mode()
def test_patches_pooled_between_layers_are_fewer_for_those_above_alone(kind: str) -> None:
    torch.manual_seed(0)
    settings = {"model_type": kind, **VISION[kind], "num_hidden_layers": 3}
    encoder, _ = towers.build(TowerConfig(config=settings), "vision")
    whole = ImageTower(encoder.eval(), 32, 2, below=1)(PIXELS)
    early = ImageTower(encoder, 32, 2, below=1, pool_layer=1)(PIXELS)
    assert early.patches.shape == whole.patches.shape == (2, 4, 32)
    assert early.below is not None
    assert whole.below is not None
    torch.testing.assert_close(early.below, whole.below)
    assert (early.patches - whole.patches).abs().max() > 1e-5
    read: list[int] = []
    for layer in towers.layers(encoder):
        layer.register_forward_hook(lambda _, given, __: read.append(given[0].shape[1]))
    tower = ImageTower(encoder, 32, 2, below=2, pool_layer=1)
    above = tower(PIXELS).below
    assert above is not None
    assert above.shape == (2, 4, 32)
    assert read[0] - read[1] == 16 - 4
    assert read[1] == read[2]
    torch.testing.assert_close(ImageTower(encoder, 32, 2)(PIXELS).patches, whole.patches)  # no hook stays behind


@torch.inference_mode()
def test_what_was_pooled_between_layers_is_the_mean_of_each_square() -> None:
    torch.manual_seed(0)
    settings = {"model_type": "vit", **SMALL, "image_size": 32, "patch_size": 8, "num_hidden_layers": 2}
    encoder, _ = towers.build(TowerConfig(config=settings), "vision")
    first, second = towers.layers(encoder.eval())
    given: list[torch.Tensor] = []
    first.register_forward_hook(lambda _, __, out: given.append(out))
    tower = ImageTower(encoder, 32, 2, pool_layer=1)
    second.register_forward_hook(lambda _, read, __: given.append(read[0]))
    tower(PIXELS)
    said, read = given
    squares = [
        said[:, [1 + 4 * row + column for row in rows for column in columns]].mean(1)
        for rows in ((0, 1), (2, 3))
        for columns in ((0, 1), (2, 3))
    ]
    torch.testing.assert_close(read, torch.stack([said[:, 0], *squares], 1))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"pool_to": 2, "pool_layer": 4}, "pool_layer is 4, but the image tower has 4 layers"),
        ({"pool_to": None, "pool_layer": 1}, "Set pool_to with"),
        ({"pool_to": 3, "pool": "kmeans", "pool_layer": 1}, "cannot be combined with clusters"),
        ({"pool_to": 2, "codes": 1, "pool_layer": 1}, "clusters or codes"),
    ],
)
def test_pooling_between_layers_that_cannot_be_is_refused(changes: dict[str, Any], said: str) -> None:
    encoder, _ = towers.build(TowerConfig(config=tiny.VISION), "vision")
    with pytest.raises(ModelError, match=said):
        ImageTower(encoder, 32, **changes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model_type": "brt"}, 'model_type = "brt": there is no such encoder\nDid you mean "bert"?'),
        ({"hidden_sise": 8}, 'its config has no setting "hidden_sise"\nDid you mean "hidden_size"?'),
        ({"num_attention_heads": 5}, "cannot build an encoder from its config: The hidden size (32) is not a multiple"),
        ({"hidden_size": "wide"}, "cannot build an encoder from its config: "),
    ],
    ids=["kind", "key", "sizes", "type"],
)
def test_a_config_that_makes_no_encoder_or_would_not_be_heard_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ModelError) as refused:
        towers.build(TowerConfig(config={"model_type": "bert", **TEXT["bert"], **changes}), "text")
    assert said in str(refused.value)


@pytest.mark.parametrize("safe", [True, False], ids=["safetensors", "pickled"])
def test_weights_that_were_cut_short_are_refused(tmp_path: Path, safe: bool) -> None:
    encoder, _ = towers.build(TowerConfig(config={"model_type": "bert", **TEXT["bert"]}), "text")
    encoder.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    if not safe:
        torch.save(load_file(path), tmp_path / "pytorch_model.bin")
        path.unlink()
        path = tmp_path / "pytorch_model.bin"
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(ModelError, match="cannot load a model from it"):
        towers.build(TowerConfig(source=str(tmp_path)), "text")
