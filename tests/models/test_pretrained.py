"""Published models give here what they give in transformers, or what their authors' formula gives."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from safetensors.torch import load_file, save_file
from torch.nn import functional as F
from transformers import AutoImageProcessor, PreTrainedModel

from media.sample_pictures import photo
from models import published
from sightline.bundle import Tokenizer
from sightline.errors import ModelError
from sightline.media import Preprocess, RegionConfig, fit
from sightline.models import Regions, Tokens, pretrained
from sightline.models.pretrained_model import Pretrained
from sightline.registry.loader import load

TEXTS = ["a red dog", "dog", "A small dog, in the GREEN grass"]
CLOSE = {"atol": 1e-4, "rtol": 1e-4}


class Case:
    """A tiny model as transformers has it, and as Sightline opens it from its folder."""

    def __init__(self, family: str, folder: Path) -> None:
        torch.manual_seed(0)
        self.family, self.folder = family, folder
        self.theirs: PreTrainedModel = published.PIXEL_FAMILIES[family](folder)
        self.ours: Pretrained
        self.tokenizer: Tokenizer
        self.ours, self.tokenizer = pretrained.load(folder)
        self.pixels = torch.randn(len(TEXTS), 3, 32, 32, generator=torch.Generator().manual_seed(1))

    def tokens(self, texts: list[str] = TEXTS) -> Tokens:
        found = self.tokenizer(texts)
        return Tokens(torch.from_numpy(found.ids), torch.from_numpy(found.mask))


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    return {name: Case(name, tmp_path_factory.mktemp(name)) for name in published.PIXEL_FAMILIES}


def patches_of(pixels: torch.Tensor) -> dict[str, torch.Tensor]:
    """What SigLIP 2's own processor makes of square pictures."""
    cut = [published.Siglip2ImageProcessorPil(patch_size=8, max_num_patches=16, do_resize=False, do_rescale=False,
                                              do_normalize=False)(picture.numpy()) for picture in pixels]  # fmt: skip
    return {
        key: torch.as_tensor(np.concatenate([np.asarray(one[key]) for one in cut]))
        for key in ("pixel_values", "pixel_attention_mask", "spatial_shapes")
    }


@pytest.mark.parametrize("family", ["clip", "siglip", "siglip2", "vit-bert", "dinov2-bert"])
@torch.inference_mode()
def test_two_towers_embed_as_in_transformers(cases: dict[str, Case], family: str) -> None:
    case = cases[family]
    images, texts = case.ours.encode_images(case.pixels), case.ours.encode_texts(case.tokens())
    seen = patches_of(case.pixels) if family == "siglip2" else {"pixel_values": case.pixels}
    theirs = F.normalize(case.theirs.get_image_features(**seen).pooler_output, dim=-1)
    torch.testing.assert_close(images.embedding, theirs, **CLOSE)
    for row, text in enumerate(TEXTS):
        theirs = F.normalize(case.theirs.get_text_features(**own_tokens(case, text)).pooler_output, dim=-1)
        torch.testing.assert_close(texts.embedding[row : row + 1], theirs, **CLOSE)
    assert case.ours.abilities == {"embed"}
    assert images.embedding.shape[1] == case.ours.embedding_dim
    assert (images.embedding[0] - images.embedding[1]).abs().max() > 1e-3
    assert (texts.embedding[0] - texts.embedding[1]).abs().max() > 1e-3


def own_tokens(case: Case, text: str) -> dict[str, torch.Tensor]:
    """The tokens of one text as transformers hands them to the model, its SigLIPs' padded and without a mask."""
    ids = case.tokens([text]).ids
    if "siglip" not in case.family:
        return {"input_ids": ids}
    pad = {"siglip": 1, "siglip2": 0}[case.family]
    return {"input_ids": F.pad(ids, (0, 16 - ids.shape[1]), value=pad)}


@torch.inference_mode()
def test_blip_embeds_and_matches_as_in_transformers(cases: dict[str, Case]) -> None:
    case = cases["blip"]
    images, texts = case.ours.encode_images(case.pixels), case.ours.encode_texts(case.tokens())
    logits = case.ours.match(texts.states, texts.mask, images.states, images.mask)
    for row, text in enumerate(TEXTS):
        given = {"input_ids": case.tokens([text]).ids, "pixel_values": case.pixels[row : row + 1]}
        cosine = case.theirs(**given, use_itm_head=False).itm_score[0, 0]
        torch.testing.assert_close(images.embedding[row] @ texts.embedding[row], cosine, **CLOSE)
        chance = case.theirs(**given).itm_score.softmax(-1)[0, 1]
        torch.testing.assert_close(logits[row].sigmoid(), chance, **CLOSE)
    assert case.ours.abilities == {"embed", "match"}
    assert (images.embedding[0] - images.embedding[1]).abs().max() > 1e-3
    other = case.ours.match(texts.states, texts.mask, images.states.flip(0), images.mask)
    assert (other - logits).abs().max() > 1e-3


@torch.inference_mode()
def test_vilt_matches_as_in_transformers_and_embeds_nothing(cases: dict[str, Case]) -> None:
    case = cases["vilt"]
    images, texts = case.ours.encode_images(case.pixels), case.ours.encode_texts(case.tokens())
    logits = case.ours.match(texts.states, texts.mask, images.states, images.mask)
    for row, text in enumerate(TEXTS):
        given = {"input_ids": case.tokens([text]).ids, "pixel_values": case.pixels[row : row + 1]}
        torch.testing.assert_close(logits[row], case.theirs(**given).logits[0, 0], **CLOSE)
    assert case.ours.abilities == {"match"}
    assert images.embedding.shape == texts.embedding.shape == (3, 0)
    other = case.ours.match(texts.states, texts.mask, images.states.flip(0), images.mask)
    assert (other - logits).abs().max() > 1e-3


@pytest.mark.parametrize("family", published.PIXEL_FAMILIES)
@torch.inference_mode()
def test_padding_changes_nothing(cases: dict[str, Case], family: str) -> None:
    case = cases[family]
    images = case.ours.encode_images(case.pixels[:1])
    alone = case.ours.encode_texts(case.tokens(TEXTS[:1]))
    ids, mask = case.tokens(TEXTS[:1])
    longer = Tokens(F.pad(ids, (0, 3), value=7), F.pad(mask, (0, 3), value=False))
    padded = case.ours.encode_texts(longer)
    torch.testing.assert_close(padded.embedding, alone.embedding, atol=1e-5, rtol=1e-4)
    if "match" in case.ours.abilities:
        assert padded.states is not None
        together = case.ours.match(padded.states, longer.mask, images.states, images.mask)
        apart = case.ours.match(alone.states, mask, images.states, images.mask)
        torch.testing.assert_close(together, apart, atol=1e-5, rtol=1e-4)


@torch.inference_mode()
def test_a_clip_of_the_first_hour_ends_texts_where_transformers_does(tmp_path: Path) -> None:
    """Old configurations give 2 as the end of a text, and mean the highest id."""
    theirs = published.clip(tmp_path, eos_token_id=2)
    ours, tokenizer = pretrained.load(tmp_path)
    found = tokenizer(TEXTS[:2])
    tokens = Tokens(torch.from_numpy(found.ids), torch.from_numpy(found.mask))
    expected = theirs.get_text_features(input_ids=tokens.ids[1:, :3]).pooler_output
    torch.testing.assert_close(ours.encode_texts(tokens).embedding[1:], F.normalize(expected, dim=-1), **CLOSE)


@torch.inference_mode()
def test_siglip_knows_how_likely_a_pair_is(cases: dict[str, Case]) -> None:
    case = cases["siglip"]
    learned = case.ours.calibration["embed"]
    images, texts = case.ours.encode_images(case.pixels[:1]), case.ours.encode_texts(case.tokens(TEXTS[:1]))
    ours = torch.sigmoid(learned.scale * (images.embedding @ texts.embedding.T) + learned.bias)
    theirs = case.theirs(**own_tokens(case, TEXTS[0]), pixel_values=case.pixels[:1]).logits_per_image.sigmoid()
    torch.testing.assert_close(ours, theirs, **CLOSE)
    assert cases["clip"].ours.calibration == {}


@pytest.mark.parametrize(("family", "at_most"), [("clip", 2), ("dinov2-bert", 2), ("siglip", 0), ("blip", 0)])
def test_pictures_are_prepared_as_by_the_models_own_processor(
    cases: dict[str, Case], family: str, at_most: int
) -> None:
    """Squashed to the last bit; cropped within two gray levels, as only the part that is kept is resampled."""
    case, picture = cases[family], photo(90, 60).point(lambda level: 60 + level // 2)
    wanted = case.ours.preprocess
    assert isinstance(wanted, Preprocess)
    processor = AutoImageProcessor.from_pretrained(case.folder, do_normalize=False, do_rescale=False)
    theirs = np.asarray(processor(picture)["pixel_values"][0]).transpose(1, 2, 0)
    ours = fit(picture, wanted)
    assert np.abs(ours.astype(int) - theirs).max() <= at_most
    assert (wanted.mean, wanted.std) == (tuple(processor.image_mean), tuple(processor.image_std))


def test_pictures_of_models_that_keep_their_shape_are_squares(cases: dict[str, Case]) -> None:
    for family in ("siglip2", "vilt"):
        wanted = cases[family].ours.preprocess
        assert isinstance(wanted, Preprocess)
        assert (wanted.size, wanted.resize) == (32, "squash")


def test_a_processor_that_cannot_be_followed_is_refused(cases: dict[str, Case], tmp_path: Path) -> None:
    for changes, said in (
        ({"size": {"height": 32, "width": 48}}, "'width': 48"),
        ({"resample": 0}, "unsupported resampling method 0"),
    ):
        published.siglip(tmp_path)
        path = tmp_path / "preprocessor_config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
        with pytest.raises(ModelError, match=said):
            pretrained.load(tmp_path)
    path.unlink()
    with pytest.raises(ModelError, match="preprocessor_config"):
        pretrained.load(tmp_path)


@pytest.mark.parametrize("family", ["clip", "siglip2", "blip"])
def test_texts_become_the_tokens_of_transformers(cases: dict[str, Case], family: str) -> None:
    case = cases[family]
    theirs = transformers.AutoTokenizer.from_pretrained(case.folder)
    for text in [*TEXTS, "Red, RED dogs!"]:
        assert case.tokenizer([text]).ids[0].tolist() == theirs(text, truncation=True)["input_ids"]


def test_a_siglip_that_pads_on_the_left_is_refused(tmp_path: Path) -> None:
    published.siglip(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "padding_side": "left"}))
    with pytest.raises(ModelError, match="padding on the right"):
        pretrained.load(tmp_path)


def test_a_siglips_sentencepiece_file_becomes_the_tokens_of_transformers(tmp_path: Path) -> None:
    sentencepiece = pytest.importorskip("sentencepiece")
    published.siglip(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    captions = tmp_path / "captions.txt"
    captions.write_text("\n".join(f"a {one} dog on the {other}" for one in ("red", "big") for other in ("ball", "sea")))
    layout = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
    sentencepiece.SentencePieceTrainer.train(
        input=str(captions), model_prefix=str(tmp_path / "spiece"), vocab_size=24, minloglevel=2, **layout
    )
    _, ours = pretrained.load(tmp_path)
    theirs = transformers.SiglipTokenizer(str(tmp_path / "spiece.model"))
    for text in ["a red dog", "A big, RED dog!", "the   ball", "a zebra"]:
        assert ours([text]).ids[0].tolist() == theirs(text)["input_ids"]
    assert ours.pad_id == theirs.pad_token_id == 1


def test_a_word_list_with_capitals_is_read_with_capitals(tmp_path: Path) -> None:
    """UNITER is, and its authors' files do not say so."""
    published.save_regions(published.region_weights("uniter"), tmp_path)
    listed = [word.replace("dog", "Dog") for word in published.WORDS]
    (tmp_path / "vocab.txt").write_text("\n".join(listed) + "\n")
    _, tokenizer = pretrained.load(tmp_path)
    assert tokenizer(["Dog", "dog"]).ids[:, 1].tolist() == [listed.index("Dog"), listed.index("[UNK]")]


def oscar_formula(weights: dict[str, torch.Tensor], ids: torch.Tensor, regions: Regions) -> torch.Tensor:
    """Oscar's score of one pair, as its authors compute it: no position and no type for regions."""
    given = torch.cat([regions.features, regions.boxes], -1)
    seen = F.linear(given, weights["bert.img_embedding.weight"], weights["bert.img_embedding.bias"])
    pooled = read(weights, "bert", torch.cat([words(weights, "bert", ids), seen], 1))
    return F.linear(pooled, weights["classifier.weight"], weights["classifier.bias"]).softmax(-1)[0, 1]


def uniter_formula(weights: dict[str, torch.Tensor], ids: torch.Tensor, regions: Regions) -> torch.Tensor:
    """UNITER's score of one pair: features and boxes normalised apart, then together with a picture's type."""
    own = "uniter.img_embeddings."
    parts = []
    for given, part in ((regions.features, "img"), (regions.boxes, "pos")):
        mapped = F.linear(given, weights[f"{own}{part}_linear.weight"], weights[f"{own}{part}_linear.bias"])
        parts.append(norm(weights, f"{own}{part}_layer_norm", mapped))
    of_a_picture = weights["uniter.embeddings.token_type_embeddings.weight"][1]
    seen = norm(weights, f"{own}LayerNorm", parts[0] + parts[1] + of_a_picture)
    pooled = read(weights, "uniter", torch.cat([words(weights, "uniter", ids), seen], 1))
    return F.linear(pooled, weights["itm_output.weight"], weights["itm_output.bias"]).softmax(-1)[0, 1]


def words(weights: dict[str, torch.Tensor], root: str, ids: torch.Tensor) -> torch.Tensor:
    own = f"{root}.embeddings"
    vectors = weights[f"{own}.word_embeddings.weight"][ids]
    positions = weights[f"{own}.position_embeddings.weight"][: ids.shape[1]]
    return norm(weights, f"{own}.LayerNorm", vectors + positions + weights[f"{own}.token_type_embeddings.weight"][0])


def norm(weights: dict[str, torch.Tensor], name: str, values: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(values, values.shape[-1:], weights[f"{name}.weight"], weights[f"{name}.bias"], 1e-12)


def read(weights: dict[str, torch.Tensor], root: str, row: torch.Tensor) -> torch.Tensor:
    """A BERT over a row of vectors [1, n, hidden], written out: its pooled first vector."""

    def linear(name: str, values: torch.Tensor) -> torch.Tensor:
        return F.linear(values, weights[f"{name}.weight"], weights[f"{name}.bias"])

    for layer in range(published.REGION_LAYERS):
        own = f"{root}.encoder.layer.{layer}"
        query, key, value = (
            linear(f"{own}.attention.self.{part}", row).unflatten(-1, (4, 8)).transpose(1, 2)
            for part in ("query", "key", "value")
        )
        found = ((query @ key.transpose(-1, -2) / 8**0.5).softmax(-1) @ value).transpose(1, 2).flatten(2)
        row = norm(weights, f"{own}.attention.output.LayerNorm", row + linear(f"{own}.attention.output.dense", found))
        inner = F.gelu(linear(f"{own}.intermediate.dense", row))
        row = norm(weights, f"{own}.output.LayerNorm", row + linear(f"{own}.output.dense", inner))
    return torch.tanh(linear(f"{root}.pooler.dense", row[:, 0]))


FORMULAS = {"oscar": (oscar_formula, 6), "uniter": (uniter_formula, 7)}


@pytest.mark.parametrize("family", FORMULAS)
@torch.inference_mode()
def test_region_models_match_by_the_published_formula_whatever_the_padding(family: str, tmp_path: Path) -> None:
    formula, box = FORMULAS[family]
    weights = published.region_weights(family)
    published.save_regions(weights, tmp_path, "pytorch_model.bin" if family == "oscar" else "uniter-base.pt")
    model, tokenizer = pretrained.load(tmp_path)
    assert model.preprocess == RegionConfig(published.FEATURES, box)
    assert model.abilities == {"match"}
    generator = torch.Generator().manual_seed(3)
    features, boxes = torch.randn(2, 5, 10, generator=generator), torch.rand(2, 5, box, generator=generator)
    mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    images = model.encode_images(Regions(features, boxes, mask))
    tokens = tokenizer(["a red dog in the grass", "A dog"])
    ids, real = torch.from_numpy(tokens.ids), torch.from_numpy(tokens.mask)
    texts = model.encode_texts(Tokens(ids, real))
    chances = model.match(texts.states, texts.mask, images.states, images.mask).sigmoid()
    for row in range(2):
        alone = Regions(*(part[row : row + 1, : int(mask[row].sum())] for part in (features, boxes, mask)))
        torch.testing.assert_close(chances[row], formula(weights, ids[row : row + 1, real[row]], alone), **CLOSE)


@torch.inference_mode()
def test_region_models_have_other_forms(tmp_path: Path) -> None:
    """Oscar may normalise its regions; UNITER fine-tuned for retrieval has one score; old layer norms a gamma."""
    weights = published.region_weights("oscar")
    weights |= {"bert.LayerNorm.gamma": torch.full((32,), 2.0), "bert.LayerNorm.beta": torch.ones(32)}
    published.save_regions(weights, tmp_path / "oscar")
    model, _ = pretrained.load(tmp_path / "oscar")
    regions = Regions(torch.randn(1, 3, 10), torch.rand(1, 3, 6), torch.ones(1, 3, dtype=torch.bool))
    states = model.encode_images(regions).states
    assert states is not None
    torch.testing.assert_close(states.mean(-1), torch.ones(1, 3), atol=1e-4, rtol=0)
    torch.testing.assert_close(states.var(-1, unbiased=False), torch.full((1, 3), 4.0), atol=1e-4, rtol=0)
    ranked = published.region_weights("uniter") | {
        "rank_output.weight": torch.ones(1, 32),
        "rank_output.bias": torch.zeros(1),
    }
    published.save_regions(ranked, tmp_path / "uniter")
    assert pretrained.load(tmp_path / "uniter")[0].head.weight.shape == (1, 32)


def without(folder: Path, name: str) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights[name]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def test_a_model_without_a_tokenizer_or_with_weights_cut_short_is_refused(tmp_path: Path) -> None:
    published.clip(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).rename(tmp_path / f"{name}.away")
    with pytest.raises(ModelError, match="has no tokenizer"):
        pretrained.load(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-500])
    with pytest.raises(ModelError, match="cannot load a CLIPModel from it"):
        pretrained.load(tmp_path)


@pytest.mark.parametrize(
    ("family", "name"),
    [
        ("clip", "visual_projection.weight"),
        ("siglip", "logit_bias"),
        ("blip", "itm_head.weight"),
        ("vilt", "rank_output.bias"),
        ("vit-bert", "vision_model.pooler.dense.weight"),
    ],
)
def test_a_partial_checkpoint_is_refused_with_the_missing_names(family: str, name: str, tmp_path: Path) -> None:
    published.PIXEL_FAMILIES[family](tmp_path)
    without(tmp_path, name)
    with pytest.raises(ModelError, match=name.replace(".", r"\.")):
        pretrained.load(tmp_path)


@pytest.mark.parametrize(
    ("family", "name"),
    [
        ("oscar", "classifier.weight"),
        ("oscar", "bert.encoder.layer.1.output.dense.bias"),
        ("uniter", "uniter.img_embeddings.pos_layer_norm.weight"),
        ("uniter", "uniter.pooler.dense.weight"),
    ],
)
def test_a_partial_region_checkpoint_is_refused_with_the_published_names(
    family: str, name: str, tmp_path: Path
) -> None:
    weights = published.region_weights(family)
    del weights[name]
    published.save_regions(weights, tmp_path)
    with pytest.raises(ModelError, match=name.replace(".", r"\.")):
        pretrained.load(tmp_path)


def test_a_region_model_for_another_task_is_refused(tmp_path: Path) -> None:
    weights = published.region_weights("oscar")
    weights |= {"classifier.weight": torch.zeros(31, 32), "classifier.bias": torch.zeros(31)}
    published.save_regions(weights, tmp_path)
    with pytest.raises(ModelError, match="31 classes"):
        pretrained.load(tmp_path)


def test_a_region_model_whose_shapes_are_others_is_refused(tmp_path: Path) -> None:
    weights = published.region_weights("oscar")
    weights["bert.pooler.dense.weight"] = torch.zeros(16, 32)
    published.save_regions(weights, tmp_path)
    with pytest.raises(ModelError, match="do not fit"):
        pretrained.load(tmp_path)


@pytest.mark.parametrize("config", [{"model_type": "vit"}, {"model_type": "bert"}, {}, []])
def test_a_model_of_another_kind_is_refused_with_the_kinds_there_are(config: Any, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match=r"not a model configuration|is not a supported image-text model"):
        pretrained.load(tmp_path)


def test_a_published_model_opens_by_hub_name_and_is_called_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published.clip(published.in_hub(tmp_path, "someone/tiny-clip", monkeypatch))
    model = load("hf:someone/tiny-clip")
    assert (model.name, model.abilities) == ("tiny-clip", {"embed"})
    assert model.encode_texts(["a dog"]).embedding.shape == (1, 16)
    assert model.encode_texts(["a dog"]).fragments is None


def test_the_middle_of_a_larger_square_is_what_resize_and_crop_give() -> None:
    image = photo(100, 60)
    wanted = Preprocess(24, resize="crop", mean=(0, 0, 0), std=(1, 1, 1), short=30)
    resized = image.resize((50, 30), Image.Resampling.BICUBIC)
    expected = np.asarray(resized.crop((13, 3, 37, 27)))
    assert np.abs(fit(image, wanted).astype(int) - expected).max() <= 2
    for changes in ({"short": 20}, {"resize": "squash"}):
        with pytest.raises(ModelError, match="short side"):
            Preprocess(**{"size": 24, "resize": "crop", "mean": (0, 0, 0), "std": (1, 1, 1), "short": 30, **changes})
