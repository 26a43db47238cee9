"""Synthetic documents with known text: receipts, code, charts, signs and letters; rotated, noisy and compressed."""

import re
import textwrap
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from sightline.demo import PICTURES

FONTS = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
_PROSE = ("DejaVuSans.ttf", "DejaVuSerif.ttf", "STIXGeneral.ttf", "DejaVuSans-Oblique.ttf", "DejaVuSerif-Italic.ttf")
_BOLD = ("DejaVuSans-Bold.ttf", "DejaVuSerif-Bold.ttf", "STIXGeneralBol.ttf")
_WHITE = (255, 255, 255)
_MONO = ("DejaVuSansMono.ttf", "DejaVuSansMono-Bold.ttf")
_LISTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_WORDS: dict[str, list[str]] = {name: words.split() for name, words in _LISTS.items()}


@dataclass(frozen=True, slots=True)
class Document:
    """A synthetic document: its kind, image, text, a query of five of its words, and its JPEG quality."""

    kind: str
    image: Image.Image
    text: str
    query: str
    quality: int


def make_documents(count: int, seed: int) -> list[Document]:
    """Make documents, cycling through all kinds; the same seed gives the same documents."""
    rng = np.random.default_rng(seed)
    kinds = [list(_KINDS)[place % len(_KINDS)] for place in range(count)]
    texts = [_KINDS[kind](rng) for kind in kinds]
    found = []
    for place, (kind, lines) in enumerate(zip(kinds, texts, strict=True)):
        image = _worn(_drawn(kind, lines, rng), kind, rng)
        others = [_words(other) for at, other in enumerate(texts) if at != place]
        query = _query(sorted(_words(lines)), others, rng)
        found.append(Document(kind, image, "\n".join(lines), query, int(rng.integers(35, 85))))
    return found


def _query(words: Sequence[str], others: Sequence[set[str]], rng: np.random.Generator) -> str:
    """Five words of a document, such that every other document lacks at least one of them."""
    while True:
        chosen = _some(rng, words, 5)
        if not any(set(chosen) <= other for other in others):
            return " ".join(chosen)


def _words(lines: Sequence[str]) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Za-z]{4,}", " ".join(lines))}


def _some(rng: np.random.Generator, words: Sequence[str], count: int) -> list[str]:
    return [words[place] for place in rng.choice(len(words), count, replace=False)]


def _receipt(rng: np.random.Generator) -> list[str]:
    goods = [(name, rng.integers(50, 2000) / 100) for name in _some(rng, _WORDS["goods"], 6)]
    lines = [f"{_some(rng, _WORDS['places'], 1)[0]} Grocery Store", f"Served by {_some(rng, _WORDS['names'], 1)[0]}"]
    lines += [f"{rng.integers(1, 5)} x {name} {price:.2f}" for name, price in goods]
    return [*lines, f"Total amount {sum(price for _, price in goods):.2f}", "Thank you for shopping"]


def _code(rng: np.random.Generator) -> list[str]:
    one, two, three, four = _some(rng, _WORDS["code"], 4)
    return [
        f"def open_{one}({two}, limit={rng.integers(2, 999)}):",
        f"    if {two}.is_closed():",
        f'        raise ValueError("{three} missing")',
        f"    for {four} in {two}.{three}s:",
        f"        yield {one}.update({four})",
        "    return None",
    ]


def _chart(rng: np.random.Generator) -> list[str]:
    first, second = _some(rng, _WORDS["topics"], 2)
    place = _some(rng, _WORDS["places"], 1)[0]
    year = int(rng.integers(1990, 2024))
    title = f"Yearly {first} and {second} in {place} County"
    return [title, f"Source: {_some(rng, _WORDS['names'], 1)[0]} Institute, survey {year}"]


def _sign(rng: np.random.Generator) -> list[str]:
    place, name = _some(rng, _WORDS["places"], 2)
    return [
        f"{place} {name} Road",
        f"No {_some(rng, _WORDS['warnings'], 1)[0]}",
        f"closed for {_some(rng, _WORDS['reasons'], 1)[0]}",
    ]


def _letter(rng: np.random.Generator) -> list[str]:
    name, other = _some(rng, _WORDS["names"], 2)
    words = _some(rng, _WORDS["letter"], 6)
    body = (
        f"Dear Doctor {name}, we write about the {words[0]} of your {words[1]}. The {words[2]} has received the "
        f"{words[3]} and will answer before the {words[4]} on the twelfth of March. Please bring the {words[5]} with "
        f"you. Yours sincerely, {other}"
    )
    return [f"{_some(rng, _WORDS['places'], 1)[0]} Society", *textwrap.wrap(body, 46)]


_KINDS: dict[str, Callable[[np.random.Generator], list[str]]] = {
    "receipt": _receipt,
    "code": _code,
    "chart": _chart,
    "sign": _sign,
    "letter": _letter,
}


def _font(rng: np.random.Generator, names: Sequence[str], size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(FONTS / names[int(rng.integers(len(names)))], size)


def _drawn(kind: str, lines: Sequence[str], rng: np.random.Generator) -> Image.Image:
    if kind == "sign":
        return _drawn_sign(lines, rng)
    if kind == "chart":
        return _drawn_chart(lines, rng)
    fonts = {"receipt": _MONO, "code": _MONO, "letter": _PROSE}[kind]
    font = _font(rng, fonts, int(rng.integers(17, 24)))
    step = int(font.size * 1.6)
    width = 80 + max(int(font.getlength(line)) for line in lines)
    dark = kind == "code" and rng.random() < 0.5
    paper = (30, 32, 40) if dark else (250, 248, 240)
    image = Image.new("RGB", (width, 80 + step * len(lines)), paper)
    pen = ImageDraw.Draw(image)
    for place, line in enumerate(lines):
        pen.text((40, 40 + step * place), line, font=font, fill=(225, 225, 215) if dark else (25, 25, 30))
    return image


def _drawn_chart(lines: Sequence[str], rng: np.random.Generator) -> Image.Image:
    image = Image.new("RGB", (860, 560), "white")
    pen = ImageDraw.Draw(image)
    pen.text((40, 24), lines[0], font=_font(rng, _BOLD, 24), fill="black")
    for place, height in enumerate(rng.integers(40, 360, 9)):
        colour = tuple(int(value) for value in rng.integers(40, 210, 3))
        pen.rectangle((80 + place * 80, 480 - int(height), 130 + place * 80, 480), fill=colour)
    pen.line((60, 480, 820, 480), fill="black", width=2)
    pen.text((60, 510), lines[1], font=_font(rng, _PROSE, 18), fill=(70, 70, 70))
    return image


def _drawn_sign(lines: Sequence[str], rng: np.random.Generator) -> Image.Image:
    """A sign in front of a photo."""
    behind = sorted(PICTURES.glob("*.jpg"))
    with Image.open(behind[int(rng.integers(len(behind)))]) as photo:
        image = photo.convert("RGB").resize((900, 650))
    font = _font(rng, _BOLD, 40)
    width = 60 + max(int(font.getlength(line)) for line in lines)
    paints = [(20, 90, 40), (250, 210, 40), (180, 20, 30), _WHITE]
    inks = [_WHITE, (0, 0, 0), _WHITE, (20, 20, 120)]
    chosen = int(rng.integers(len(paints)))
    paint, ink = paints[chosen], inks[chosen]
    board = Image.new("RGB", (width, 50 + 62 * len(lines)), paint)
    pen = ImageDraw.Draw(board)
    for place, line in enumerate(lines):
        pen.text((30, 25 + 62 * place), line, font=font, fill=ink)
    turned = board.convert("RGBA").rotate(float(rng.uniform(-6, 6)), Image.Resampling.BICUBIC, expand=True)
    turned.thumbnail((860, 620))
    image.paste(turned, ((900 - turned.width) // 2, (650 - turned.height) // 2), turned)
    return image


def _worn(image: Image.Image, kind: str, rng: np.random.Generator) -> Image.Image:
    """Rotate a document slightly, and add the shadow, blur and noise of a scanner or a camera."""
    if kind in ("receipt", "letter"):
        image = image.rotate(
            float(rng.uniform(-5, 5)), Image.Resampling.BICUBIC, expand=True, fillcolor=(150, 140, 130)
        )
    if kind != "code":
        image = image.filter(ImageFilter.GaussianBlur(float(rng.uniform(0, 0.7))))
    pixels = np.asarray(image).astype(np.float32)
    shade = np.linspace(1, float(rng.uniform(0.75, 1)), pixels.shape[1], dtype=np.float32)
    noise = rng.normal(0, float(rng.uniform(0, 8)), pixels.shape).astype(np.float32)
    return Image.fromarray(np.clip(pixels * shade[:, None] + noise, 0, 255).astype(np.uint8))
