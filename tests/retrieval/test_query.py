"""What can be asked, and what of it each kind of item is matched with."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from retrieval.made_up import PIXEL, MadeUp, unit
from sightline.errors import MediaError, QueryError
from sightline.retrieval.query import ask, encode

MODEL = MadeUp(words={"a dog": unit(1, 1), "snow": unit(0, 1), "rain": unit(0, 0, 1)}, picture=unit(0, 0, 0, 1))


@pytest.mark.parametrize(
    "arguments",
    [{}, {"text": "  "}, {"text": "a", "without": [" "]}, {"text": "a", "image_weight": 1.5}, {"without": "snow"},
     {"text": "a", "image_weight": float("nan")}, {"image": Image.new("RGB", (3, 3))},
     {"text": "d\udcffog"}, {"text": "a", "without": ["d\udcffog"]}],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_with_the_way_out(arguments: dict) -> None:  # type: ignore[type-arg]
    with pytest.raises(QueryError) as caught:
        ask(**arguments)
    assert caught.value.way_out


def test_a_picture_may_be_a_path_bytes_or_a_source(tmp_path: Path) -> None:
    data = io.BytesIO()
    Image.new("RGB", (3, 3)).save(data, "PNG")
    (tmp_path / "a.png").write_bytes(data.getvalue())
    for picture in (tmp_path / "a.png", str(tmp_path / "a.png"), data.getvalue(), PIXEL):
        assert encode(ask(image=picture), MODEL, "images").vector.tolist() == unit(0, 0, 0, 1).tolist()


def test_a_picture_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    with pytest.raises(MediaError, match="no such file"):
        encode(ask(image=tmp_path / "missing.png"), MODEL, "images")


@pytest.mark.parametrize(
    ("text", "image", "kind", "across"),
    [
        ("a dog", None, "images", "words"),
        ("a dog", None, "texts", None),
        (None, PIXEL, "texts", "picture"),
        (None, PIXEL, "images", None),
        ("a dog", PIXEL, "images", "words"),
        ("a dog", PIXEL, "texts", "picture"),
    ],
)
def test_only_the_part_of_another_kind_is_matched(text, image, kind, across) -> None:  # type: ignore[no-untyped-def]
    found = encode(ask(text, image), MODEL, kind)
    expected = {"words": unit(1, 1), "picture": unit(0, 0, 0, 1), None: None}[across]
    if expected is None:
        assert found.across is None
    else:
        np.testing.assert_allclose(found.across.embedding[0], expected)
    assert (found.beside is not None) == (text is not None and image is not None)


def test_what_is_not_wanted_is_encoded_beside_the_rest() -> None:
    found = encode(ask("a dog", without=["snow", "rain"]), MODEL, "images")
    np.testing.assert_allclose(found.vector, unit(1, 1))
    np.testing.assert_allclose(found.without, [unit(0, 1), unit(0, 0, 1)])


def test_opposite_words_and_picture_still_have_a_direction() -> None:
    model = MadeUp(words={"up": unit(1)}, picture=-unit(1))
    assert np.isfinite(encode(ask("up", PIXEL), model, "images").vector).all()
