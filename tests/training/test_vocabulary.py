"""A tokenizer learned from captions: any script, never larger than asked for, and the same in every process."""

import hashlib
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

from sightline.bundle import Tokenizer
from sightline.errors import RecipeError
from sightline.training.vocabulary import SPECIAL, learn_tokenizer

CAPTIONS = {
    "English": "Two dogs run on the beach.",
    "German": "Ein weißer Hund läuft über die Straße.",
    "Russian": "Красная собака бежит по пляжу",
    "Greek": "Ένας σκύλος τρέχει",
    "Arabic": "كلب أحمر يجري على الشاطئ",
    "Hindi": "एक लाल कुत्ता दौड़ रहा है",
    "Thai": "สุนัขสีแดงวิ่งบนชายหาด",
    "Korean": "빨간 개가 해변을 달린다",
    "Chinese": "一只红狗在海滩上奔跑",
    "Japanese": "赤い犬がビーチを走っている",
}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return learn_tokenizer(CAPTIONS.values(), vocabulary=1000, max_length=64)


def said(tokenizer: Tokenizer, text: str) -> str:
    """The text that the tokens spell, without the spaces that the splitting of words adds."""
    tokens = tokenizer.tokens(text)
    assert (tokens[0], tokens[-1]) == ("[CLS]", "[SEP]")
    return "".join(token.removeprefix("##") for token in tokens[1:-1])


@pytest.mark.parametrize("language", CAPTIONS)
def test_every_script_comes_back_whole_in_lower_case(tokenizer: Tokenizer, language: str) -> None:
    caption = CAPTIONS[language]
    assert said(tokenizer, caption) == caption.lower().replace(" ", "")


@pytest.mark.parametrize("language", CAPTIONS)
def test_a_tokenizer_saved_and_opened_gives_the_same_tokens(
    tokenizer: Tokenizer, language: str, tmp_path: Path
) -> None:
    tokenizer.save(tmp_path / "tokenizer.json")
    opened = Tokenizer.open(tmp_path / "tokenizer.json", tokenizer.max_length, tokenizer.pad_id)
    assert opened.tokens(CAPTIONS[language]) == tokenizer.tokens(CAPTIONS[language])
    batches = [one([CAPTIONS[language], "dogs"]) for one in (tokenizer, opened)]
    assert batches[0].ids.tolist() == batches[1].ids.tolist()


def test_letters_and_their_marks_may_be_written_as_one_or_as_two(tokenizer: Tokenizer) -> None:
    for caption in CAPTIONS.values():
        assert tokenizer.tokens(unicodedata.normalize("NFD", caption)) == tokenizer.tokens(caption)


def test_frequent_words_are_whole_and_new_ones_are_spelt(tokenizer: Tokenizer) -> None:
    assert tokenizer.tokens("the dogs run")[1:-1] == ["the", "dogs", "run"]
    unseen = tokenizer.tokens("the bens")[1:-1]
    assert unseen[0] == "the"
    assert "[UNK]" not in unseen
    assert tokenizer.tokens("ж")[1:-1] == ["[UNK]"]  # no caption has a word that begins with it


@pytest.mark.parametrize("vocabulary", [5, 30, 60, 200, 1000])
def test_no_id_is_beyond_the_vocabulary_asked_for(vocabulary: int) -> None:
    """An id beyond it would have no word vector, which shows only when that caption is drawn."""
    tokenizer = learn_tokenizer(CAPTIONS.values(), vocabulary, max_length=64)
    assert tokenizer(list(CAPTIONS.values())).ids.max() < vocabulary


def test_a_vocabulary_without_room_for_words_is_refused() -> None:
    with pytest.raises(RecipeError, match="a vocabulary of 4 is too small for any words"):
        learn_tokenizer(["a dog"], len(SPECIAL), 8)


def test_every_process_learns_the_same_vocabulary() -> None:
    """Each process of a distributed run learns the vocabulary itself, so all must give words the same ids."""
    script = (
        "import sys, hashlib; from sightline.training.vocabulary import learn_tokenizer;"
        "found = learn_tokenizer(sys.argv[1:], 300, 64);"
        "print(hashlib.md5(str(found(sys.argv[1:]).ids.tolist()).encode()).hexdigest())"
    )
    captions = list(CAPTIONS.values())
    here = learn_tokenizer(captions, 300, 64)
    expected = hashlib.md5(str(here(captions).ids.tolist()).encode()).hexdigest()
    for _ in range(2):
        found = subprocess.run([sys.executable, "-c", script, *captions], capture_output=True, text=True, check=True)
        assert found.stdout.strip() == expected
