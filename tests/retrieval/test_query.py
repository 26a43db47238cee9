"""What can be asked, and what of it each kind of item is matched with."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from retrieval.made_up import PIXEL, MadeUp, unit
from sightline.errors import MediaError, QueryError
from sightline.retrieval.options import SearchOptions
from sightline.retrieval.query import encode

MODEL = MadeUp(vectors={"a dog": unit(1, 1), "snow": unit(0, 1), "rain": unit(0, 0, 1)}, picture=unit(0, 0, 0, 1))


@pytest.mark.parametrize(
    "arguments",
    [{}, {"text": "  "}, {"text": "a", "not_": [" "]}, {"text": "a", "image_weight": 1.5}, {"not_": "snow"},
     {"text": "a", "image_weight": float("nan")},
     {"text": "d\udcffog"}, {"text": "a", "not_": ["d\udcffog"]}],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_with_the_way_out(arguments: dict) -> None:  # type: ignore[type-arg]
    with pytest.raises(QueryError) as caught:
        encode(SearchOptions(**arguments).query, MODEL, "images")
    assert str(caught.value)


def test_an_image_may_be_a_path_bytes_a_source_a_pil_image_or_an_array(tmp_path: Path) -> None:
    data = io.BytesIO()
    Image.new("RGB", (3, 3)).save(data, "PNG")
    (tmp_path / "a.png").write_bytes(data.getvalue())
    for picture in (
        tmp_path / "a.png",
        str(tmp_path / "a.png"),
        data.getvalue(),
        PIXEL,
        Image.open(data),
        np.zeros((3, 3, 3), np.uint8),
    ):
        assert encode(SearchOptions(image=picture).query, MODEL, "images").vector.tolist() == unit(0, 0, 0, 1).tolist()


def test_a_picture_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    with pytest.raises(MediaError, match="no such file"):
        encode(SearchOptions(image=tmp_path / "missing.png").query, MODEL, "images")


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
    found = encode(SearchOptions(text, image).query, MODEL, kind)
    expected = {"words": unit(1, 1), "picture": unit(0, 0, 0, 1), None: None}[across]
    if expected is None:
        assert found.across is None
    else:
        np.testing.assert_allclose(found.across.embedding[0], expected)
    assert (found.beside is not None) == (text is not None and image is not None)


def test_what_is_not_wanted_is_encoded_beside_the_rest() -> None:
    found = encode(SearchOptions("a dog", not_=("snow", "rain")).query, MODEL, "images")
    np.testing.assert_allclose(found.vector, unit(1, 1))
    np.testing.assert_allclose(found.without, [unit(0, 1), unit(0, 0, 1)])


def test_opposite_words_and_picture_still_have_a_direction() -> None:
    model = MadeUp(vectors={"up": unit(1)}, picture=-unit(1))
    assert np.isfinite(encode(SearchOptions("up", PIXEL).query, model, "images").vector).all()
