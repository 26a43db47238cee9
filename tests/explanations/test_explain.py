"""Why an image was found, word by word."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from retrieval.slow_reference import maxsim
from sightline.bundle import Bundle, Encoded, Tokenizer
from sightline.bundle.tokenizer import Word
from sightline.errors import ModelError, QueryError
from sightline.explanations.explain import explain, seen_box
from sightline.media import Preprocess

PARTS = np.eye(4, 8, dtype=np.float32)  # four, a grid of two rows and two columns


def image(parts: np.ndarray) -> Encoded:
    """An image with these fragments."""
    return Encoded(np.zeros((1, 0), np.float32), np.ones((1, len(parts)), np.bool_), parts[None])


IMAGE = image(PARTS)


def test_the_words_of_a_text_are_found_where_they_stand(bundle: Bundle) -> None:
    text = "  A dog,a  cat! "
    words = bundle.tokenizer.words(text)
    assert [text[word.start : word.end] for word in words] == ["A", "dog", "a", "cat"]
    assert [bundle.tokenizer.tokens(text)[row] for word in words for row in word.rows][1:] == ["dog", "a", "cat"]


def test_a_word_of_several_tokens_is_one_word() -> None:
    """With a byte-pair tokenizer that counts the space before a word to the word."""
    vocabulary = {token: number for number, token in enumerate(["Ġ", "d", "o", "g", "s", "do", "Ġdo", "Ġdog"])}
    merges = [("d", "o"), ("Ġ", "do"), ("Ġdo", "g")]
    backend = tokenizers.Tokenizer(models.BPE(vocabulary, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False)
    backend.decoder = decoders.ByteLevel()
    words = Tokenizer(backend, 8).words("dogs dogs")
    assert [("dogs dogs"[word.start : word.end], len(word.rows)) for word in words] == [("dogs", 3), ("dogs", 2)]
    assert [row for word in words for row in word.rows] == [0, 1, 2, 3, 4]


def test_words_beyond_what_the_model_reads_are_left_out(bundle: Bundle) -> None:
    assert len(bundle.tokenizer.words("dog " * 50)) == bundle.tokenizer.max_length - 2  # and [CLS] and [SEP]


def test_each_word_has_its_cosine_with_each_part(bundle: Bundle) -> None:
    text = "a red dog"
    encoded = bundle.encode_texts([text])
    found = explain(text, encoded, bundle, IMAGE)
    assert encoded.fragments is not None
    assert [match.word for match in found] == ["a", "red", "dog"]
    for row, match in enumerate(found, 1):
        expected = encoded.fragments[0, row] @ PARTS.T
        assert np.allclose(match.grid, expected.reshape(2, 2), atol=1e-6)
        assert match.score == pytest.approx(match.grid.max())
    specials = [encoded.fragments[0, row] @ PARTS.T for row in (0, 4)]
    total = sum(match.score for match in found) + sum(cosines.max() for cosines in specials)
    assert total == pytest.approx(maxsim(encoded.fragments[0], PARTS), abs=1e-5)


def test_a_word_is_as_much_alike_as_the_most_alike_of_its_tokens() -> None:
    cosines = np.array([[0.1, 0.9], [0.5, 0.2], [1.0, 1.0]], dtype=np.float32)
    encoded = Encoded(np.ones((1, 1), np.float32), np.ones((1, 3), np.bool_), cosines[None])
    words = SimpleNamespace(words=lambda text: [Word(0, 4, (0, 1))])
    model: Any = SimpleNamespace(name="it", grid=(1, 2), tokenizer=words)
    (match,) = explain("dogs", encoded, model, image(np.eye(2, dtype=np.float32)))
    assert match.grid.tolist() == [[0.5, np.float32(0.9)]]
    assert match.score == pytest.approx(0.9)


def test_json_tells_it_all(bundle: Bundle) -> None:
    told = explain("dog", bundle.encode_texts(["dog"]), bundle, IMAGE)[0].to_json()
    assert (told["word"], told["start"], told["end"]) == ("dog", 0, 3)
    assert told["score"] == max(cosine for row in told["grid"] for cosine in row)


def test_what_cannot_be_explained_says_so(bundle: Bundle) -> None:
    encoded = bundle.encode_texts(["dog"])
    with pytest.raises(QueryError, match="no words"):
        explain("?!", bundle.encode_texts(["?!"]), bundle, IMAGE)
    with pytest.raises(ModelError, match="3 parts"):
        explain("dog", encoded, bundle, image(PARTS[:3]))
    with pytest.raises(ModelError, match="parts of an image"):
        explain("dog", replace(encoded, fragments=None), bundle, IMAGE)


def preprocess(resize: str) -> Preprocess:
    return Preprocess(224, resize=resize, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))  # type: ignore[arg-type]


def test_the_grid_covers_what_the_model_saw() -> None:
    assert seen_box(preprocess("squash"), 400, 100) == (0, 0, 1, 1)
    assert seen_box(preprocess("crop"), 100, 400) == (0, 0.375, 1, 0.625)
    assert seen_box(preprocess("pad"), 400, 200) == (0, -0.5, 1, 1.5)


@pytest.mark.parametrize("side", [(400, 100), (300, 500)])
def test_a_crop_shows_what_the_box_says(side: tuple[int, int]) -> None:
    from PIL import Image

    from sightline.media import fit

    width, height = side
    across = np.tile(np.linspace(0, 255, width), (height, 1))
    down = np.tile(np.linspace(0, 255, height)[:, None], (1, width))
    picture = Image.fromarray(np.stack([across, down, down], axis=-1).astype(np.uint8))
    left, top, right, bottom = seen_box(preprocess("crop"), width, height)
    seen = fit(picture, preprocess("crop")).astype(float) / 255
    assert (seen[:, 0, 0].mean(), seen[:, -1, 0].mean()) == pytest.approx((left, right), abs=0.02)
    assert (seen[0, :, 1].mean(), seen[-1, :, 1].mean()) == pytest.approx((top, bottom), abs=0.02)


def test_fragments_beyond_the_grid_belong_to_no_part(bundle: Bundle) -> None:
    """Such as those of codes, which look at the whole picture."""
    encoded = bundle.encode_texts(["dog"])
    more = np.concatenate([PARTS, encoded.fragments[0][1:2]])  # type: ignore[index]
    assert (
        explain("dog", encoded, bundle, image(more))[0].to_json() == explain("dog", encoded, bundle, IMAGE)[0].to_json()
    )


def test_a_matcher_that_relates_words_to_parts_explains_itself(bundle: Bundle) -> None:
    cosines = np.zeros((1, 3, 4), dtype=np.float32)
    cosines[0, 1] = [0.1, 0.9, -0.2, 0.3]  # of the only word, between [CLS] and [SEP]
    related: Any = SimpleNamespace(
        name="it", grid=bundle.grid, tokenizer=bundle.tokenizer, word_cosines=lambda *given: cosines
    )
    encoded = bundle.encode_texts(["dog"])
    (match,) = explain("dog", encoded, related, replace(IMAGE, states=np.zeros((1, 4, 8), np.float32)))
    np.testing.assert_array_equal(match.grid, cosines[0, 1].reshape(2, 2))
