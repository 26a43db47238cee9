"""Heat maps: an image for every word of a query, or every code of a model, bright where the word or code matches.

Some parts of an image match every word, so half of what all words have in common is subtracted from each. The server's
page draws the same heat maps (see page/heatmap.js, which describes the effect).
"""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from sightline.arrays import Float32Array, Float64Array
from sightline.errors import QueryError
from sightline.explanations.explain import CodesExplained, Explanation, WordMatch
from sightline.media import ImageSource, open_image
from sightline.media.frame import Box

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")

_COMMON = 0.5  # fraction of what all words have in common that is subtracted
_FAINTEST = 0.35  # brightness of the weakest word
_GREY = 0.8  # fraction of the image's colour that is removed: an orange suit must not look warm
_AT = (0.0, 0.3, 0.65, 1.0)  # heat levels; _RAMP has the red, green, blue and opacity of each
_RAMP = np.array([(10, 8, 18, 0.58), (92, 22, 48, 0.52), (232, 88, 30, 0.46), (255, 218, 100, 0.5)])
_WARM = np.array([232, 88, 30])  # the warmest colour on a white background

_SIDE = 300  # the longer side of an image
_NARROWEST = 120  # minimum width for a label below an image
_GAP = 20
_LABEL = 40  # height of a label
_HEADING = 52
_ACROSS = 5  # maximum images in a row
_BAND = 24  # height of a row of cells
_NUMBER = 60  # width of the number after a row
_PAPER, _INK, _PALE = (255, 255, 255), (28, 28, 34), (128, 128, 138)


def check_suffix(path: Path) -> None:
    """Reject an output file without the suffix of an image format, before any work is done."""
    if path.suffix.lower() not in SUFFIXES:
        raise QueryError(f"{path}: unknown image format", f"End its name with {', '.join(SUFFIXES)}.")


def draw(found: Explanation | CodesExplained) -> Image.Image:
    """Draw an explanation: the original image, then the image with the heat of each word or code, labelled below.

    For codes, a second section shows the codes of the text, with a row of words for each.
    """
    if isinstance(found, Explanation):
        labels = [("", ""), *((word.word, f"{word.score:.2f}") for word in found.words)]
        return sheet(found.text, panels(found.image, found.words, found.box), labels)
    codes = [WordMatch(f"code {n}", 0, 0, float(grid.max()), grid) for n, grid in enumerate(found.to_parts, 1)]
    labels = [("", ""), *((code.word, f"{code.grid.sum():.0%}") for code in codes)]
    above = sheet("What each code sees", panels(found.image, codes, found.box), labels)
    shares = [(f"code {n}", f"{share.sum():.0%}") for n, share in enumerate(found.to_words, 1)]
    below = bands("What each code reads", found.words, found.to_words, shares)
    paper = Image.new("RGB", (max(above.width, below.width), above.height + below.height), _PAPER)
    paper.paste(above, (0, 0))
    paper.paste(below, (0, above.height))
    return paper


def panels(source: ImageSource, words: Sequence[WordMatch], box: Box) -> list[Image.Image]:
    """Return the original image, then the image with the heat of each word."""
    image = open_image(source, at_least=_SIDE)
    larger = _SIDE / max(image.size)
    width, height = (max(1, round(side * larger)) for side in image.size)
    image = image.resize((width, height), Image.Resampling.LANCZOS)
    return [image, *(lit(image, heat(words, word, box, width, height)) for word in words)]


def sheet(title: str, images: Sequence[Image.Image], labels: Sequence[tuple[str, str]]) -> Image.Image:
    """Arrange images of one size in rows below a title; under each are its label and a number in grey."""
    width, height = max(_NARROWEST, images[0].width), images[0].height
    across = min(_ACROSS, len(images))
    down = -(-len(images) // across)
    across = -(-len(images) // down)  # rows of nearly equal length
    sides = (_GAP + across * (width + _GAP), _HEADING + down * (height + _LABEL + _GAP // 2))
    paper, pen = _titled(title, sides)
    for place, (image, (label, number)) in enumerate(zip(images, labels, strict=True)):
        left = _GAP + place % across * (width + _GAP)
        top = _HEADING + place // across * (height + _LABEL + _GAP // 2)
        paper.paste(image, (left, top))
        line = top + height + _LABEL // 2 - 2
        room = width - int(_font(15).getlength(number)) - _GAP // 2
        pen.text((left, line), _fitting(label, room, 20), _INK, _font(20), anchor="lm")
        pen.text((left + width, line), number, _PALE, _font(15), anchor="rm")
    return paper


def bands(title: str, heads: Sequence[str], rows: Float32Array, labels: Sequence[tuple[str, str]]) -> Image.Image:
    """Draw rows of cells [n, heads], warmer for higher numbers, below a title and column headings.

    Each row starts with its label and ends with a number in grey.
    """
    widths = [round(_font(15).getlength(head)) + _GAP for head in heads]
    margin = 2 * _GAP + round(max(_font(15).getlength(label) for label, _ in labels))
    edges = np.cumsum([margin, *widths]).tolist()
    paper, pen = _titled(title, (edges[-1] + _NUMBER, _HEADING + (len(rows) + 1) * _BAND + _GAP))
    for head, (left, right) in zip(heads, pairwise(edges), strict=True):
        pen.text(((left + right) // 2, _HEADING + _BAND // 2), head, _INK, _font(15), anchor="mm")
    colours = np.rint(255 + (rows / max(float(rows.max()), 1e-9))[..., None] * (_WARM - 255)).astype(int).tolist()
    for number, (label, share) in enumerate(labels, 1):
        top = _HEADING + number * _BAND
        pen.text((_GAP, top + _BAND // 2), label, _INK, _font(15), anchor="lm")
        pen.text((edges[-1] + _GAP // 2, top + _BAND // 2), share, _PALE, _font(15), anchor="lm")
        for (left, right), colour in zip(pairwise(edges), colours[number - 1], strict=True):
            pen.rectangle((left + 1, top + 1, right - 1, top + _BAND - 1), tuple(colour))
    return paper


def heat(words: Sequence[WordMatch], word: WordMatch, box: Box, width: int, height: int) -> Float32Array:
    """Return how well one of the words matches each pixel of an image: [height, width], 0 to 1.

    The median of the word's grid is zero heat; its maximum is the word's full heat, which is less for words that score
    below the best one. Outside the box that the model saw, heat is zero.
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
    smooth = spline_weights(down * rows - 0.5, rows) @ grid @ spline_weights(across * columns - 0.5, columns).T
    warm = np.where(seen, most * np.clip((smooth - middle) / (highest - middle), 0, 1), 0)
    return warm.astype(np.float32)


def lit(image: Image.Image, warm: Float32Array) -> Image.Image:
    """Return the image dimmed and almost grey, overlaid with warm colour of strength `warm` [height, width], 0 to 1."""
    grey = Image.blend(image, image.convert("L").convert("RGB"), _GREY)
    colour = np.stack([np.interp(warm, _AT, channel) for channel in _RAMP.T], axis=-1)
    opacity = colour[..., 3:]
    mixed = np.asarray(grey) * (1 - opacity) + colour[..., :3] * opacity
    return Image.fromarray(np.rint(mixed).astype(np.uint8))


def spline_weights(places: Float64Array, count: int) -> Float64Array:
    """Return Catmull-Rom weights [n, count] to interpolate `count` points at the positions `places` [n]."""
    whole = np.floor(places).astype(np.int64)
    t = places - whole
    near = 1 + (3 * t**3 - 5 * t**2) / 2, (t + 4 * t**2 - 3 * t**3) / 2
    curve = (-t + 2 * t**2 - t**3) / 2, *near, (t**3 - t**2) / 2
    weights = np.zeros((len(places), count))
    for step, share in zip((-1, 0, 1, 2), curve, strict=True):
        np.add.at(weights, (np.arange(len(places)), np.clip(whole + step, 0, count - 1)), share)
    return weights


def _titled(title: str, sides: tuple[int, int]) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    """Return a white image with a title, and a drawing context for it."""
    paper = Image.new("RGB", sides, _PAPER)
    pen = ImageDraw.Draw(paper)
    pen.text((_GAP, _HEADING // 2), _fitting(title, sides[0] - 2 * _GAP, 22), _INK, _font(22), anchor="lm")
    return paper, pen


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def _fitting(text: str, width: float, size: int) -> str:
    """Return the text, shortened to fit a width."""
    if _font(size).getlength(text) <= width:
        return text
    while text and _font(size).getlength(text + "…") > width:
        text = text[:-1]
    return text + "…"
