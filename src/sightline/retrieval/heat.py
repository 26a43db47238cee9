"""Where in a picture each word was found, drawn: the picture once for every word, lit where the word is.

Some parts resemble every word, because something is there at all: half of what the words have in common is taken away
from each. The server's page draws the same heat (page/heatmap.js, which says what that gains).
"""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from sightline.errors import QueryError
from sightline.media import ImageSource, open_image
from sightline.media.frame import Box
from sightline.retrieval.explain import Explanation, Singles, WordMatch

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")

_COMMON = 0.5  # of what all words have in common is taken away
_FAINTEST = 0.35  # how bright the weakest of words still shines
_GREY = 0.8  # of a picture's own colour is taken away: an orange suit must not look warm
_AT = (0.0, 0.3, 0.65, 1.0)  # how strong, and the red, green, blue and opacity of it
_RAMP = np.array([(10, 8, 18, 0.58), (92, 22, 48, 0.52), (232, 88, 30, 0.46), (255, 218, 100, 0.5)])
_WARM = np.array([232, 88, 30])  # on white paper

_SIDE = 300  # of a picture, its longer one
_NARROWEST = 120  # room for a word below a picture
_GAP = 20
_LABEL = 40  # below a picture
_HEADING = 52
_ACROSS = 5  # pictures in a row, at most
_BAND = 24  # a row of cells
_NUMBER = 60  # room behind it
_PAPER, _INK, _PALE = (255, 255, 255), (28, 28, 34), (128, 128, 138)


def check_suffix(path: Path) -> None:
    """Refuse a file whose name does not say which kind of picture it is to be, before the work."""
    if path.suffix.lower() not in SUFFIXES:
        raise QueryError(f"{path}: no kind of picture that can be drawn", f"End its name with {', '.join(SUFFIXES)}.")


def draw(explanation: Explanation) -> Image.Image:
    """Draw an explanation: the picture as it is, and then with the heat of each word, which stands below it."""
    words = explanation.words
    labels = [("", ""), *((word.word, f"{word.score:.2f}") for word in words)]
    return sheet(explanation.text, panels(explanation.picture, words, explanation.box), labels)


def panels(source: ImageSource, words: Sequence[WordMatch], box: Box) -> list[Image.Image]:
    """The picture as it is, and then with the heat of each word."""
    picture = open_image(source, at_least=_SIDE)
    larger = _SIDE / max(picture.size)
    width, height = (max(1, round(side * larger)) for side in picture.size)
    picture = picture.resize((width, height), Image.Resampling.LANCZOS)
    return [picture, *(lit(picture, heat(words, word, box, width, height)) for word in words)]


def sheet(title: str, pictures: Sequence[Image.Image], labels: Sequence[tuple[str, str]]) -> Image.Image:
    """Pictures of one size on white paper, in rows, below a title; under each its label, and a number in grey."""
    width, height = max(_NARROWEST, pictures[0].width), pictures[0].height
    across = min(_ACROSS, len(pictures))
    down = -(-len(pictures) // across)
    across = -(-len(pictures) // down)  # rows as even as can be
    sides = (_GAP + across * (width + _GAP), _HEADING + down * (height + _LABEL + _GAP // 2))
    paper = Image.new("RGB", sides, _PAPER)
    pen = ImageDraw.Draw(paper)
    pen.text((_GAP, _HEADING // 2), _fitting(title, sides[0] - 2 * _GAP, 22), _INK, _font(22), anchor="lm")
    for place, (picture, (label, number)) in enumerate(zip(pictures, labels, strict=True)):
        left = _GAP + place % across * (width + _GAP)
        top = _HEADING + place // across * (height + _LABEL + _GAP // 2)
        paper.paste(picture, (left, top))
        line = top + height + _LABEL // 2 - 2
        room = width - int(_font(15).getlength(number)) - _GAP // 2
        pen.text((left, line), _fitting(label, room, 20), _INK, _font(20), anchor="lm")
        pen.text((left + width, line), number, _PALE, _font(15), anchor="rm")
    return paper


def bands(title: str, heads: Sequence[str], rows: Singles, labels: Sequence[tuple[str, str]]) -> Image.Image:
    """Rows of cells [n, heads] on white paper, the warmer the higher their number, below a title and their heads.

    Before each row stands its label, and behind it a number in grey.
    """
    widths = [round(_font(15).getlength(head)) + _GAP for head in heads]
    margin = 2 * _GAP + round(max(_font(15).getlength(label) for label, _ in labels))
    edges = np.cumsum([margin, *widths]).tolist()
    paper = Image.new("RGB", (edges[-1] + _NUMBER, _HEADING + (len(rows) + 1) * _BAND + _GAP), _PAPER)
    pen = ImageDraw.Draw(paper)
    pen.text((_GAP, _HEADING // 2), _fitting(title, paper.width - 2 * _GAP, 22), _INK, _font(22), anchor="lm")
    for head, (left, right) in zip(heads, pairwise(edges), strict=True):
        pen.text(((left + right) // 2, _HEADING + _BAND // 2), head, _INK, _font(15), anchor="mm")
    colours = np.rint(255 + (rows / max(float(rows.max()), 1e-9))[..., None] * (_WARM - 255)).astype(int).tolist()
    for number, (label, told) in enumerate(labels, 1):
        top = _HEADING + number * _BAND
        pen.text((_GAP, top + _BAND // 2), label, _INK, _font(15), anchor="lm")
        pen.text((edges[-1] + _GAP // 2, top + _BAND // 2), told, _PALE, _font(15), anchor="lm")
        for (left, right), colour in zip(pairwise(edges), colours[number - 1], strict=True):
            pen.rectangle((left + 1, top + 1, right - 1, top + _BAND - 1), tuple(colour))
    return paper


def heat(words: Sequence[WordMatch], word: WordMatch, box: Box, width: int, height: int) -> Singles:
    """How strongly one of the words is found at each pixel of a picture: [height, width], 0 to 1.

    The middle one of the word's values is no heat at all, and the highest is all the heat that the word has beside the
    strongest of the words. Beyond the box that the model saw, there is none.
    """
    grid = word.grid - _COMMON * np.mean([other.grid for other in words], axis=0)
    middle, highest = np.sort(grid, axis=None)[grid.size // 2], grid.max()
    best = max(other.score for other in words)
    most = _FAINTEST + (1 - _FAINTEST) * (max(0.0, word.score) / best if best > 0 else 0.0)
    left, top, right, bottom = box
    across = ((np.arange(width) + 0.5) / width - left) / (right - left)
    down = ((np.arange(height) + 0.5) / height - top) / (bottom - top)
    seen = ((down >= 0) & (down <= 1))[:, None] & ((across >= 0) & (across <= 1))
    if highest <= middle:
        return np.zeros((height, width), dtype=np.float32)
    rows, columns = grid.shape
    smooth = _between(down * rows - 0.5, rows) @ grid @ _between(across * columns - 0.5, columns).T
    warm: Singles = np.where(seen, most * np.clip((smooth - middle) / (highest - middle), 0, 1), 0).astype(np.float32)
    return warm


def lit(picture: Image.Image, warm: Singles) -> Image.Image:
    """A dimmed, greyish picture with warm light over it, as strong as `warm` [height, width] says, 0 to 1."""
    grey = Image.blend(picture, picture.convert("L").convert("RGB"), _GREY)
    colour = np.stack([np.interp(warm, _AT, channel) for channel in _RAMP.T], axis=-1)
    opacity = colour[..., 3:]
    mixed = np.asarray(grey) * (1 - opacity) + colour[..., :3] * opacity
    return Image.fromarray(np.rint(mixed).astype(np.uint8))


def _between(places: npt.NDArray[np.float64], count: int) -> npt.NDArray[np.float64]:
    """What each of `count` points weighs at places [n] between them, by Catmull-Rom splines: [n, count]."""
    whole = np.floor(places).astype(np.int64)
    t = places - whole
    near = 1 + (3 * t**3 - 5 * t**2) / 2, (t + 4 * t**2 - 3 * t**3) / 2
    curve = (-t + 2 * t**2 - t**3) / 2, *near, (t**3 - t**2) / 2
    weights = np.zeros((len(places), count))
    for step, share in zip((-1, 0, 1, 2), curve, strict=True):
        np.add.at(weights, (np.arange(len(places)), np.clip(whole + step, 0, count - 1)), share)
    return weights


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def _fitting(text: str, width: float, size: int) -> str:
    """As much of a text as fits."""
    if _font(size).getlength(text) <= width:
        return text
    while text and _font(size).getlength(text + "…") > width:
        text = text[:-1]
    return text + "…"
