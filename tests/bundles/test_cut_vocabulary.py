"""A cut vocabulary encodes what it kept as before, and spells the rest."""

import gzip
import json
from pathlib import Path

import pytest
import tokenizers
import torch
from PIL import Image
from tokenizers import models, pre_tokenizers, processors
from transformers import AutoModel, BertConfig, BertModel

from bundles.cut_vocabulary import main

PIECES = ["<s>", "<pad>", "</s>", "<unk>", "▁", "▁Hund", "▁Katze", "▁Wal", *"abdeHknutzWl", "犬"]


def test_kept_pieces_have_their_vectors_and_others_are_spelt(tmp_path: Path) -> None:
    torch.manual_seed(0)
    vocabulary = [(piece, -1.0 if len(piece) > 2 else -5.0) for piece in PIECES]
    whole = tokenizers.Tokenizer(models.Unigram(vocabulary, unk_id=3))
    whole.pre_tokenizer = pre_tokenizers.Metaspace()
    whole.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    whole.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>"])
    start, text, out = (tmp_path / name for name in ("start", "text", "out"))
    text.mkdir()
    config = BertConfig(
        vocab_size=len(PIECES), hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
        pad_token_id=1,
    )  # fmt: skip
    BertModel(config, add_pooling_layer=False).save_pretrained(start)
    whole.save(str(start / "tokenizer.json"))
    with gzip.open(text / "captions.jsonl.gz", "wt") as file:
        for _ in range(3):
            file.write(json.dumps({"en": "a dog", "lang": "de", "text": "Hund", "source": "flickr8k"}) + "\n")
    with gzip.open(text / "held-nouns.jsonl.gz", "wt") as file:
        file.write(json.dumps({"en": "cat", "text": "Katze", "source": "held"}) + "\n")
    (start / "tokenizer_config.json").write_text("{}")
    main([str(start), "--text", str(text), "--out", str(out), "--pieces", "19"])
    assert (out / "tokenizer_config.json").read_text() == "{}"
    cut = tokenizers.Tokenizer.from_file(str(out / "tokenizer.json"))
    assert cut.encode("Hund").tokens == ["<s>", "▁Hund", "</s>"]
    assert cut.encode("Wal").tokens == ["<s>", "▁", "W", "a", "l", "</s>"]
    assert cut.token_to_id("▁Katze") is None, "held-out text must not be counted"
    before, after = AutoModel.from_pretrained(start), AutoModel.from_pretrained(out)
    old, new = whole.token_to_id("▁Hund"), cut.token_to_id("▁Hund")
    torch.testing.assert_close(
        after.get_input_embeddings().weight[new], before.get_input_embeddings().weight[old].to(after.dtype)
    )
    data = tmp_path / "data.jsonl"
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    captions = {"de": ["Katze"] * 3, "en": ["Wal"]}
    data.write_text(json.dumps({"image": "a.png", "captions": captions}))
    main([str(start), "--captions", str(data), "--out", str(tmp_path / "captions"), "--pieces", "19"])
    cut = tokenizers.Tokenizer.from_file(str(tmp_path / "captions" / "tokenizer.json"))
    assert cut.encode("Katze").tokens == ["<s>", "▁Katze", "</s>"]
    assert cut.token_to_id("▁Hund") is None


def test_a_tokenizer_of_another_kind_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokenizers.Tokenizer(models.WordPiece({"[UNK]": 0}, unk_token="[UNK]")).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(SystemExit):
        main([str(tmp_path), "--captions", "nowhere.tar", "--out", str(tmp_path / "out")])
    assert "the tokenizer's model is WordPiece, but only Unigram can be cut" in capsys.readouterr().err
