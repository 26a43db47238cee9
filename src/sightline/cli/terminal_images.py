"""Thumbnails in terminals that can show images: kitty, iTerm2 or sixel graphics."""

import base64
import io
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sightline.errors import MediaError

if TYPE_CHECKING:
    from PIL import Image

Graphics = Literal["kitty", "iterm", "sixel"]

_SIDE = 160
_ROWS = 5
_CHUNK = 4096
_COLOURS = 64
_ITERM = {"iTerm.app", "WezTerm", "mintty"}
_SIXEL = {"foot", "foot-extra", "mlterm", "yaft-256color"}


def graphics(environment: Mapping[str, str] = os.environ) -> Graphics | None:
    """Return the image protocol of the terminal, from the environment; None if it has none or is unknown."""
    if "TMUX" in environment or "STY" in environment:  # these do not pass on images by default
        return None
    term, program = environment.get("TERM", ""), environment.get("TERM_PROGRAM", "")
    if "KITTY_WINDOW_ID" in environment or term in ("xterm-kitty", "xterm-ghostty"):
        return "kitty"
    if program in _ITERM or environment.get("LC_TERMINAL") == "iTerm2":
        return "iterm"
    return "sixel" if term in _SIXEL or "sixel" in term else None


def thumbnail(path: Path, how: Graphics) -> str:
    """Return the escape sequence for a thumbnail of an image; empty if the image can no longer be opened."""
    from sightline.media import ImageFile, open_image

    try:
        picture = open_image(ImageFile(path), at_least=_SIDE)
    except MediaError:
        return ""
    picture.thumbnail((_SIDE, _SIDE))
    return _WAYS[how](picture)


def _kitty(picture: "Image.Image") -> str:
    """Encode as a PNG in chunks, all but the last with m=1 (https://sw.kovidgoyal.net/kitty/graphics-protocol)."""
    data = _png(picture)
    chunks = [data[start : start + _CHUNK] for start in range(0, len(data), _CHUNK)]
    parts = []
    for number, chunk in enumerate(chunks):
        first = f"a=T,f=100,q=2,r={_ROWS}," if number == 0 else ""
        parts.append(f"\x1b_G{first}m={int(number < len(chunks) - 1)};{chunk}\x1b\\")
    return "".join(parts)


def _iterm(picture: "Image.Image") -> str:
    """Encode an image for iTerm2, as an escape sequence with a file (https://iterm2.com/documentation-images.html)."""
    return f"\x1b]1337;File=inline=1;height={_ROWS};preserveAspectRatio=1:{_png(picture)}\x07"


def _sixel(picture: "Image.Image") -> str:
    """Encode bands of six rows, colour by colour; a character from `?` on represents a column of six pixels."""
    import numpy as np

    picked = picture.quantize(_COLOURS)
    palette = np.array(picked.getpalette(), dtype=np.int64).reshape(-1, 3) * 100 // 255
    pixels = np.asarray(picked)
    parts = [f'\x1bPq"1;1;{picked.width};{picked.height}']
    parts += [f"#{number};2;{red};{green};{blue}" for number, (red, green, blue) in enumerate(palette)]
    for top in range(0, len(pixels), 6):
        band = pixels[top : top + 6]
        bits = 1 << np.arange(len(band))[:, None]
        for number in np.unique(band):
            column = ((band == number) * bits).sum(axis=0) + 63
            parts.append(f"#{number}{bytes(column.astype(np.uint8)).decode('ascii')}$")
        parts.append("-")
    return "".join(parts) + "\x1b\\"


def _png(picture: "Image.Image") -> str:
    data = io.BytesIO()
    picture.save(data, "PNG")
    return base64.b64encode(data.getvalue()).decode("ascii")


_WAYS: dict[Graphics, Callable[["Image.Image"], str]] = {"kitty": _kitty, "iterm": _iterm, "sixel": _sixel}
