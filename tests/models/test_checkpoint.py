import dataclasses
import json
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import tiny
from sightline.errors import ModelError
from sightline.models import DualStream, EncodedTensors, Tokens, TowerConfig, checkpoint
from sightline.models.retriever import Retriever
from sightline.models.torch_model import TorchModel
from sightline.registry.loader import load


def both_sides(model: Retriever) -> tuple[EncodedTensors, EncodedTensors]:
    ids = torch.tensor([[2, 6, 9, 3], [2, 11, 3, 0]])
    pixels = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(5))
    with torch.inference_mode():
        return model.encode_images(pixels), model.encode_texts(Tokens(ids, ids != 0))


@pytest.mark.parametrize("name", [*tiny.PIXEL_MODELS, *tiny.INFLATED_MODELS])
def test_a_saved_model_loads_by_path_and_gives_the_same(name: str, tmp_path: Path) -> None:
    model = tiny.retriever({**tiny.PIXEL_MODELS, **tiny.INFLATED_MODELS}[name])
    checkpoint.save(model, tiny.tokenizer(), tmp_path)
    loaded, tokenizer = checkpoint.load(tmp_path)
    for before, after in zip(both_sides(model), both_sides(loaded.eval()), strict=True):
        for one, other in zip(before, after, strict=True):
            assert (one is None) == (other is None)
            if one is not None:
                torch.testing.assert_close(one, other, atol=0, rtol=0)
    assert tokenizer(["a dog runs"]).ids.tolist() == tiny.tokenizer()(["a dog runs"]).ids.tolist()


def test_each_encoder_inside_has_the_transformers_layout(tmp_path: Path) -> None:
    model = tiny.retriever(tiny.DUAL)
    checkpoint.save(model, tiny.tokenizer(), tmp_path)
    text = transformers.AutoModel.from_pretrained(tmp_path / "text").eval()
    assert isinstance(model, DualStream)
    ids = torch.tensor([[2, 6, 9, 3]])
    with torch.inference_mode():
        torch.testing.assert_close(text(ids).last_hidden_state, model.text.encoder(ids).last_hidden_state)


def test_a_shared_matcher_is_saved_once_and_an_own_one_by_itself(tmp_path: Path) -> None:
    checkpoint.save(tiny.retriever(tiny.PIXEL_MODELS["dual-shared"]), tiny.tokenizer(), tmp_path / "shared")
    checkpoint.save(tiny.retriever(tiny.PIXEL_MODELS["dual-own"]), tiny.tokenizer(), tmp_path / "own")
    assert not (tmp_path / "shared" / "matcher").exists()
    assert (tmp_path / "own" / "matcher" / "model.safetensors").exists()


def test_halved_towers_load_as_they_were_saved(tmp_path: Path) -> None:
    halved = dataclasses.replace(tiny.DUAL, image=TowerConfig(config=tiny.VISION, layer_step=2))
    model = tiny.retriever(halved)
    checkpoint.save(model, tiny.tokenizer(), tmp_path)
    loaded, _ = checkpoint.load(tmp_path)
    assert isinstance(loaded, DualStream)
    assert loaded.image.encoder.config.num_hidden_layers == 2
    torch.testing.assert_close(both_sides(model)[0].embedding, both_sides(loaded.eval())[0].embedding)


def test_heads_that_lack_a_weight_are_refused_by_name(tmp_path: Path) -> None:
    checkpoint.save(tiny.retriever(tiny.DUAL), tiny.tokenizer(), tmp_path)
    heads = load_file(tmp_path / "heads.safetensors")
    del heads["image_embedding.linear.weight"]
    save_file(heads, tmp_path / "heads.safetensors")
    with pytest.raises(ModelError, match=r"image_embedding\.linear\.weight"):
        checkpoint.load(tmp_path)


def test_truncated_heads_are_refused(tmp_path: Path) -> None:
    checkpoint.save(tiny.retriever(tiny.DUAL), tiny.tokenizer(), tmp_path)
    path = tmp_path / "heads.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ModelError, match=r"heads\.safetensors: cannot be read"):
        checkpoint.load(tmp_path)


def test_a_folder_that_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no retriever\.json"):
        checkpoint.load(tmp_path)
    (tmp_path / "retriever.json").write_text(json.dumps({"format": 99, "kind": "dual_stream"}))
    with pytest.raises(ModelError, match="format 1"):
        checkpoint.load(tmp_path)


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("nowhere", "nowhere: no such folder\nUse the folder of a checkpoint, such as runs/NAME/best."),
        ("runs/mine", "mine: a training run, not a checkpoint\nUse its best checkpoint: "),
        ("bundle", "bundle: a bundle, not a checkpoint\nA bundle can only search; "),
    ],
    ids=["nothing", "run", "bundle"],
)
def test_what_is_there_instead_of_a_checkpoint_is_told(tmp_path: Path, place: str, said: str) -> None:
    for file in ("runs/mine/best/retriever.json", "bundle/sightline.json"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("{}")
    with pytest.raises(ModelError) as refused:
        checkpoint.load(tmp_path / place)
    assert said in str(refused.value)


def test_the_best_checkpoint_of_a_run_is_called_as_the_run_is(tmp_path: Path) -> None:
    checkpoint.save(tiny.retriever(tiny.DUAL), tiny.tokenizer(), tmp_path / "mine" / "best")
    assert TorchModel.open(tmp_path / "mine" / "best").name == load(tmp_path / "mine" / "best").name == "mine"


def test_a_text_encoder_without_a_tokenizer_gets_none_that_knows_no_words(tmp_path: Path) -> None:
    transformers.BertConfig(**tiny.TEXT).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="has no tokenizer"):
        checkpoint.tokenizer_of(TowerConfig(source=str(tmp_path)), 12)


def test_the_tokenizer_of_a_text_encoder_is_found_beside_it(tmp_path: Path) -> None:
    tiny.tokenizer().save(tmp_path / "tokenizer.json")
    transformers.BertConfig(**tiny.TEXT).save_pretrained(tmp_path)
    transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(tmp_path / "tokenizer.json"), pad_token="[PAD]", unk_token="[UNK]"
    ).save_pretrained(tmp_path)
    found = checkpoint.tokenizer_of(TowerConfig(source=str(tmp_path)), 12)
    assert found(["the red ball"]).ids.tolist() == tiny.tokenizer()(["the red ball"]).ids.tolist()
    with pytest.raises(ModelError, match="cannot load a tokenizer"):
        checkpoint.tokenizer_of(TowerConfig(source=str(tmp_path / "nothing")), 12)
