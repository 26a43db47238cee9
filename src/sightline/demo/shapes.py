"""Synthetic captioned images: a coloured shape in a corner, with small variations."""

import itertools
import json
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from PIL import Image, ImageDraw

COLOURS = {
    "red": (220, 40, 40),
    "green": (40, 180, 60),
    "blue": (50, 80, 220),
    "yellow": (230, 210, 50),
    "black": (20, 20, 20),
    "white": (250, 250, 250),
}
SHAPES = ("square", "frame", "cross")
PLACES = {"top left": (0, 0), "top right": (1, 0), "bottom left": (0, 1), "bottom right": (1, 1)}
SIDE = 32


class Drawn(NamedTuple):
    """An image, a name for its file, and its captions."""

    name: str
    picture: Image.Image
    captions: list[str]


def shapes(seed: int, copies: int = 1) -> Iterator[Drawn]:
    """Yield 72 kinds of image: a shape in one quadrant, on grey; shade, size, position and colour vary slightly."""
    chance = random.Random(seed)
    half = SIDE // 2
    for number, colour, shape, place in itertools.product(range(copies), COLOURS, SHAPES, PLACES):
        picture = Image.new("RGB", (SIDE, SIDE), (chance.randrange(110, 150),) * 3)
        size = chance.randrange(half - 4, half - 1)
        left, top = (side * half + chance.randrange(half - size) for side in PLACES[place])
        right, bottom, middle = left + size, top + size, size // 2
        fill = nearly(COLOURS[colour], 20, chance)
        pen = ImageDraw.Draw(picture)
        if shape == "square":
            pen.rectangle((left, top, right, bottom), fill=fill)
        elif shape == "frame":
            pen.rectangle((left, top, right, bottom), outline=fill, width=3)
        else:
            pen.rectangle((left + middle - 1, top, left + middle + 1, bottom), fill=fill)
            pen.rectangle((left, top + middle - 1, right, top + middle + 1), fill=fill)
        captions = [f"a {colour} {shape} at the {place}", f"{place}: one {shape} that is {colour}"]
        yield Drawn(f"{number}-{colour}-{shape}-{place.replace(' ', '-')}.png", picture, captions)


def nearly(colour: tuple[int, int, int], by: int, chance: random.Random) -> tuple[int, ...]:
    """Return a random colour that differs from the given one by at most `by` in each channel."""
    return tuple(max(0, min(255, value + chance.randrange(-by, by + 1))) for value in colour)


def write(folder: Path, pictures: Iterable[Drawn]) -> Path:
    """Write images and a JSONL file of their captions; returns the path of that file."""
    folder.mkdir(parents=True)
    path = folder / "captions.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for drawn in pictures:
            drawn.picture.save(folder / drawn.name)
            file.write(json.dumps({"image": drawn.name, "captions": drawn.captions}) + "\n")
    return path
