from pathlib import Path

import pytest
import tokenizers
from tokenizers import models, pre_tokenizers

import tiny
from sightline.bundle import Bundle, Tokenizer
from sightline.errors import BundleError


def test_a_batch_is_padded_to_its_longest_text() -> None:
    batch = tiny.tokenizer()(["dog", "the red ball"])
    assert batch.ids.tolist() == [[2, 6, 3, 0, 0], [2, 5, 16, 20, 3]]
    assert batch.mask.tolist() == [[True, True, True, False, False], [True] * 5]


def test_a_text_longer_than_the_limit_is_cut_and_marked() -> None:
    batch = tiny.tokenizer()(["a dog", "a dog " * 20, "a " * 10, "a " * 11])
    assert batch.ids.shape == (4, tiny.MAX_LENGTH)
    assert batch.truncated.tolist() == [False, True, False, True]
    assert batch.ids[1, -1] == 3, "a cut text still ends with [SEP]"


def test_an_empty_text_is_its_special_tokens() -> None:
    assert tiny.tokenizer()([""]).ids.tolist() == [[2, 3]]


def test_tokens_are_in_step_with_the_rows_of_an_encoding(bundle: Bundle) -> None:
    text = "a dog with the red ball"
    assert bundle.tokenizer.tokens(text) == ["[CLS]", "a", "dog", "with", "the", "red", "ball", "[SEP]"]
    assert bundle.encode_texts([text]).mask.shape[1] == 8


def test_a_saved_tokenizer_has_no_limit_of_its_own(tmp_path: Path) -> None:
    short = tiny.tokenizer()
    short.save(tmp_path / "tokenizer.json")
    assert short(["a dog " * 20]).truncated.all(), "saving must not lift the limit"
    longer = Tokenizer.open(tmp_path / "tokenizer.json", 50)
    assert longer(["a dog " * 20]).ids.shape == (1, 42)


@pytest.mark.parametrize("limit", [0, 1, 2])
def test_a_limit_without_room_for_words_is_refused(limit: int, tmp_path: Path) -> None:
    tiny.tokenizer().save(tmp_path / "tokenizer.json")
    with pytest.raises(BundleError, match=r"no room for words: the tokenizer adds 2 .*\nSet max_length to at least 3"):
        Tokenizer.open(tmp_path / "tokenizer.json", limit)
    assert Tokenizer.open(tmp_path / "tokenizer.json", 3)(["a dog"]).ids.shape == (1, 3)


@pytest.mark.parametrize("text", ["ein Hund", "小狗", "كلب", "\x00", "🐕" * 100, "a" * 10_000])
def test_any_text_is_tokenised(text: str) -> None:
    assert tiny.tokenizer()([text]).mask.any()


def test_words_of_pieces_leave_punctuation_out_and_split_what_has_no_spaces() -> None:
    pieces = ["<unk>", "▁", "▁rot", "▁Ker", "zen", ",", "!", "海滩", "上的", "狗"]
    backend = tokenizers.Tokenizer(models.Unigram([(piece, -1.0) for piece in pieces], unk_id=0))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer = Tokenizer(backend, 16)
    for text, words in (("Kerzen, rot!", ["Kerzen", "rot"]), ("海滩上的狗", ["海滩", "上的", "狗"]), ("!", [])):
        found = tokenizer.words(text)
        assert [text[word.start : word.end] for word in found] == words
        assert all("▁" != tokenizer.tokens(text)[row] != "," for word in found for row in word.rows)


def unigrams() -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(models.Unigram([("<unk>", 0.0), ("▁", -1.0), ("♥", -1.0)], unk_id=0))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    return backend


def word_pieces() -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(models.WordPiece({"[UNK]": 0, "♥": 1}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return backend


def bytes_as_letters() -> tokenizers.Tokenizer:
    letters = {letter: place for place, letter in enumerate(pre_tokenizers.ByteLevel.alphabet())}
    backend = tokenizers.Tokenizer(models.BPE({**letters, "<|end|>": 256}, [], unk_token="<|end|>"))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel()
    return backend


@pytest.mark.parametrize(
    ("backend", "knows_dog"), [(unigrams(), False), (word_pieces(), False), (bytes_as_letters(), True)]
)
def test_a_tokenizer_knows_the_symbols_in_its_vocabulary(backend: tokenizers.Tokenizer, knows_dog: bool) -> None:
    tokenizer = Tokenizer(backend, 16)
    assert tokenizer.knows_any("♥")
    assert tokenizer.knows_any("🐶 ♥")
    assert tokenizer.knows_any("🐶") == knows_dog
    assert not tokenizer.knows_any("")
