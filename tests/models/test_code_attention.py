"""What codes attend to is what the model's own layers say, and is drawn."""

import dataclasses
import inspect
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import sightline
import tiny
from collection.made_up import picture
from collection.shards import write_shard
from sightline import cli
from sightline.errors import CollectionError, ModelError, QueryError, SightlineError
from sightline.explanations.heatmap import draw
from sightline.models import checkpoint
from sightline.models.code_attention import code_attention, overheard
from sightline.models.fragments import clusters
from sightline.models.retriever import Tokens
from sightline.models.torch_model import TorchModel

IDS = torch.tensor([[2, 6, 9, 11, 3]])
TOKENS = Tokens(IDS, IDS != 0)
PIXELS = torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(3))
WITH_GRID = {"dual-codes": (4, 4), "dual-late-codes": (4, 4), "dual-clusters": (4, 4), "single-codes": (2, 2),
             "dual-reader-clusters": (4, 4), "single-first": (4, 4)}  # fmt: skip


@pytest.mark.parametrize("name", WITH_GRID)
def test_shares_are_of_all_attention_and_leave_out_codes_and_marks(name: str) -> None:
    config = tiny.INFLATED_MODELS[name]
    found = code_attention(tiny.retriever(config), TOKENS, PIXELS)
    assert found.to_tokens.shape == (config.codes, 5)
    assert found.to_parts.shape == (config.codes, *WITH_GRID[name])
    for shares in (found.to_tokens, found.to_parts.reshape(config.codes, -1)):
        assert (shares >= 0).all()
        assert (shares.sum(axis=1) > 0).all()
        assert (shares.sum(axis=1) < 1).all(), "some attention goes to the codes themselves"


def test_attention_is_what_decides_what_codes_become() -> None:
    """By hand: what the last layer's heads make of its own inputs, with its own weights."""
    model = tiny.retriever(tiny.INFLATED_MODELS["dual-codes"])
    layer = model.text.encoder.encoder.layer[-1].attention.self
    inputs: list[torch.Tensor] = []
    hook = layer.register_forward_pre_hook(lambda _, given: inputs.append(given[0]))
    found = code_attention(model, TOKENS, PIXELS)
    hook.remove()
    given = inputs[0].clone()  # 5 tokens and 3 codes; 4 heads of 6
    query, key = (part(given).view(1, 8, 4, 6).transpose(1, 2) for part in (layer.query, layer.key))
    by_hand = (query @ key.transpose(2, 3) / 6**0.5).softmax(-1).mean(1)[0, -3:, :5]
    np.testing.assert_allclose(found.to_tokens, by_hand.detach().numpy(), atol=1e-5)


def test_a_code_that_is_drawn_to_a_patch_looks_there() -> None:
    """With keys of one patch far above all others, every code of the image side attends to that patch alone."""
    model = tiny.retriever(tiny.INFLATED_MODELS["dual-late-codes"])
    layer = model.image.encoder.encoder.layers[-1].self_attn
    pulled = torch.zeros(1, 1 + 16 + 3, 32)
    hooks = [
        layer.q_proj.register_forward_hook(lambda _, __, out: torch.ones_like(out)),
        layer.k_proj.register_forward_hook(lambda _, __, out: pulled.to(out)),
    ]
    pulled[0, 1 + 6] = 50  # behind the class token: second row, third column
    found = code_attention(model, TOKENS, PIXELS).to_parts
    for hook in hooks:
        hook.remove()
    assert found[:, 1, 2] == pytest.approx(1, abs=1e-4)


def test_what_a_code_pays_to_a_cluster_is_shared_out_among_its_patches() -> None:
    model = tiny.retriever(tiny.INFLATED_MODELS["dual-reader-clusters"])
    layer = model.image_reader.tower.encoder.encoder.layer[-1].attention.self
    pulled = torch.zeros(1, 1 + 5 + 2, 24)
    hooks = [
        layer.query.register_forward_hook(lambda _, __, out: torch.ones_like(out)),
        layer.key.register_forward_hook(lambda _, __, out: pulled.to(out)),
    ]
    pulled[0, 1 + 3] = 50  # behind [CLS]: the fourth cluster
    found = code_attention(model, TOKENS, PIXELS).to_parts
    for hook in hooks:
        hook.remove()
    shares, _ = clusters(model.image.patches(PIXELS), 5)
    assert 0 < (shares[0, 3] > 0).sum() < 16
    np.testing.assert_allclose(found, shares[0, 3].reshape(1, 4, 4).expand(2, -1, -1).detach(), atol=1e-4)


def test_the_encoder_is_as_before_when_nobody_listens_any_more() -> None:
    model = tiny.retriever(tiny.INFLATED_MODELS["dual-codes"])
    before, encoder = model.encode_texts(TOKENS).fragments, model.text.encoder
    usual = encoder.config._attn_implementation
    with overheard(encoder) as heard:
        assert encoder.config._attn_implementation == "eager"
        model.encode_texts(TOKENS)
        model.encode_texts(TOKENS)
    assert [tuple(one.shape) for one in heard] == [(1, 8, 8)] * 2
    assert (encoder.config._attn_implementation, encoder.config.output_attentions) == (usual, False)
    assert torch.equal(model.encode_texts(TOKENS).fragments, before)
    assert len(heard) == 2


def test_a_model_without_codes_or_without_a_grid_is_refused() -> None:
    for config, says in (
        (tiny.DUAL, "has no codes"),
        (dataclasses.replace(tiny.REGION_MODEL, codes=2), "do not form a grid"),
    ):
        with pytest.raises(ModelError, match=says):
            code_attention(tiny.retriever(config), TOKENS, PIXELS)


@pytest.fixture(scope="module")
def inflated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoints") / "inflated"
    checkpoint.save(tiny.retriever(tiny.INFLATED_MODELS["dual-codes"]), tiny.tokenizer(), folder)  # type: ignore[arg-type]
    return folder


@pytest.fixture(scope="module")
def photo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("photos") / "a.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (30, 40, 3), dtype=np.uint8)).save(path)
    return path


def test_the_command_draws_every_code_and_tells_the_numbers(inflated: Path, photo: Path, tmp_path: Path) -> None:
    asked = ["explain", "a red dog", str(photo), "--codes", "--model", str(inflated)]
    done = CliRunner().invoke(cli.app, [*asked, "--out", str(tmp_path / "codes.png")])
    assert done.exit_code == 0, done.output
    assert "3 codes" in done.stdout
    with Image.open(tmp_path / "codes.png") as drawn:
        assert drawn.width > 4 * 300, "the picture and three codes beside one another"
        assert drawn.height > 52 + 225 + 40 + 52 + 4 * 24, "and three rows of words below them"
    told = json.loads(CliRunner().invoke(cli.app, [*asked, "--json"]).stdout)
    assert told["words"] == ["a", "red", "dog"]
    assert np.shape(told["text_codes"]) == (3, 3)
    assert np.shape(told["image_codes"]) == (3, 4, 4)


def test_the_words_of_a_drawing_are_as_warm_as_the_attention_they_get(inflated: Path, photo: Path) -> None:
    explained = sightline.explain_codes("a red dog", photo, model=inflated)
    pixels = np.asarray(draw(explained).convert("RGB")).astype(int)
    warm = (pixels == (232, 88, 30)).all(axis=2)
    assert warm.any(), "the word with most attention of all has the full colour"
    rows = np.flatnonzero(warm.any(axis=1))
    band = 24
    first = pixels.shape[0] - 20 - 3 * band  # three codes, and a margin below them
    assert (rows.mean() - first) // band == explained.to_words.max(axis=1).argmax()


def test_an_item_is_looked_at_as_its_file_is(inflated: Path, photo: Path, tiny_bundle: Path) -> None:
    sightline.index(photo.parent, model=tiny_bundle)
    model = TorchModel.open(inflated)
    by_id = sightline.explain_codes("a dog", 1, at=photo.parent, model=model)
    by_file = sightline.explain_codes("a dog", photo, model=model)
    np.testing.assert_allclose(by_id.to_parts, by_file.to_parts, atol=1e-6)


def test_an_item_of_a_shard_is_looked_at_as_its_picture_is(inflated: Path, tiny_bundle: Path, tmp_path: Path) -> None:
    report = sightline.index(write_shard(tmp_path / "shard.tar", [1]), at=tmp_path / "c", model=tiny_bundle)
    model = TorchModel.open(inflated)
    by_id = sightline.explain_codes("a dog", 1, at=report.at, model=model)
    np.testing.assert_allclose(
        by_id.to_parts, sightline.explain_codes("a dog", picture(1), model=model).to_parts, atol=1e-6
    )


def test_codes_attend_to_no_parts_of_a_text(inflated: Path, tiny_bundle: Path, tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("two cats")
    report = sightline.index(notes, at=tmp_path / "c", model=tiny_bundle)
    with pytest.raises(CollectionError, match="only images can be explained"):
        sightline.explain_codes("cats", 1, at=report.at, model=inflated)


def test_what_explains_words_and_what_explains_codes_take_the_same_options_in_the_same_order() -> None:
    words, codes = (list(inspect.signature(one).parameters) for one in (sightline.explain, sightline.explain_codes))
    assert codes == [name for name in words if name != "lang"]


def test_a_language_is_refused_with_codes(inflated: Path, photo: Path) -> None:
    asked = ["explain", "ein Hund", str(photo), "--codes", "--model", str(inflated), "--lang", "de"]
    done = CliRunner().invoke(cli.app, asked)
    assert isinstance(done.exception, SightlineError)
    assert str(done.exception).startswith("--lang cannot be combined with --codes\n")


def test_full_width_letters_are_explained_like_plain_ones(inflated: Path, photo: Path) -> None:
    plain, wide = (sightline.explain_codes(text, photo, model=inflated) for text in ("a red dog", "ａ ｒｅｄ ｄｏｇ"))
    assert wide.words == plain.words
    np.testing.assert_array_equal(wide.to_words, plain.to_words)


def test_bundles_tell_no_attention_and_texts_need_words(inflated: Path, photo: Path, tiny_bundle: Path) -> None:
    with pytest.raises(ModelError, match="checkpoint"):
        sightline.explain_codes("a dog", photo, model=tiny_bundle)
    with pytest.raises(QueryError, match="no words"):
        sightline.explain_codes("?!", photo, model=inflated)
