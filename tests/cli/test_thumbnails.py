"""Pictures go to terminals that can show them, and to nothing else."""

import base64
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sightline.cli import formatting
from sightline.cli.terminal_images import graphics, thumbnail
from sightline.retrieval.query import Query
from sightline.retrieval.results import Hit, SearchResult


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    path = tmp_path / "photo.png"
    pixels = np.random.default_rng(0).integers(0, 256, (300, 400, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return path


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"TERM": "xterm-kitty"}, "kitty"),
        ({"TERM": "xterm-256color", "KITTY_WINDOW_ID": "1"}, "kitty"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app"}, "iterm"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "WezTerm"}, "iterm"),
        ({"LC_TERMINAL": "iTerm2"}, "iterm"),
        ({"TERM": "foot"}, "sixel"),
        ({"TERM": "xterm-sixel"}, "sixel"),
        ({"TERM": "xterm-256color"}, None),
        ({"TERM": "dumb"}, None),
        ({}, None),
        ({"TERM": "xterm-kitty", "TMUX": "/x"}, None),
        ({"TERM": "foot", "STY": "1"}, None),
    ],
)
def test_a_terminal_is_known_by_what_it_says_of_itself(environment: dict[str, str], expected: str | None) -> None:
    assert graphics(environment) == expected


def test_kitty_gets_a_whole_png_in_chunks(photo: Path) -> None:
    parts = re.findall(r"\x1b_G([^;]*);([^\x1b]*)\x1b\\", thumbnail(photo, "kitty"))
    assert len(parts) > 2
    assert [re.search(r"m=(\d)", keys)[1] for keys, _ in parts] == ["1"] * (len(parts) - 1) + ["0"]  # type: ignore[index]
    assert all(len(data) <= 4096 for _, data in parts)
    assert parts[0][0].startswith("a=T,f=100,")
    opened = Image.open(io.BytesIO(base64.b64decode("".join(data for _, data in parts))))
    assert opened.size == (160, 120)


def test_iterm_gets_a_whole_png(photo: Path) -> None:
    shown = thumbnail(photo, "iterm")
    data = re.fullmatch(r"\x1b\]1337;File=inline=1;[^:]*:([A-Za-z0-9+/=]+)\x07", shown)
    assert data is not None
    assert Image.open(io.BytesIO(base64.b64decode(data[1]))).size == (160, 120)


def test_sixels_decode_to_the_picture(tmp_path: Path) -> None:
    picture = Image.new("RGB", (40, 20), (255, 0, 0))
    picture.paste((0, 0, 255), (0, 10, 40, 20))
    picture.save(tmp_path / "flag.png")
    shown = thumbnail(tmp_path / "flag.png", "sixel")
    decoded = unsixel(shown)
    assert decoded.shape == (20, 40, 3)
    assert np.abs(decoded[:10].astype(int) - [255, 0, 0]).max() <= 4
    assert np.abs(decoded[10:].astype(int) - [0, 0, 255]).max() <= 4


def unsixel(text: str) -> np.ndarray:
    """A decoder of just what is written: colours, bands and rows."""
    size = re.match(r'\x1bPq"1;1;(\d+);(\d+)', text)
    assert size is not None
    assert text.endswith("\x1b\\")
    width, height = int(size[1]), int(size[2])
    body = text[size.end() : -2]
    colours = {
        int(n): [round(int(v) * 2.55) for v in rgb] for n, *rgb in re.findall(r"#(\d+);2;(\d+);(\d+);(\d+)", body)
    }
    out = np.zeros((-(-height // 6) * 6, width, 3), np.uint8)
    body = re.sub(r"#\d+;2;\d+;\d+;\d+", "", body)
    for top, band in enumerate(body.split("-")[:-1]):
        for row in band.split("$"):
            found = re.match(r"#(\d+)(.*)", row, re.DOTALL)
            for x, character in enumerate(found[2] if found else ""):
                for bit in range(6):
                    if (ord(character) - 63) >> bit & 1:
                        out[top * 6 + bit, x] = colours[int(found[1])]  # type: ignore[index]
    return out[:height]


def test_a_picture_that_is_gone_shows_nothing(tmp_path: Path) -> None:
    assert thumbnail(tmp_path / "gone.png", "kitty") == ""


class Terminal(io.StringIO):
    encoding = "utf-8"

    def __init__(self, is_terminal: bool) -> None:
        super().__init__()
        self.is_terminal = is_terminal

    def isatty(self) -> bool:
        return self.is_terminal


def shown(photo: Path, monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool, **options: Any) -> str:
    monkeypatch.setenv("TERM", "xterm-kitty")
    for name in ("TMUX", "STY"):
        monkeypatch.delenv(name, raising=False)
    out = Terminal(is_terminal)
    monkeypatch.setattr("sys.stdout", out)
    hit = Hit(1, 1, "photo.png", photo, photo.parent, 0.5, 0.5, "embed")
    formatting.show(SearchResult(Query("a"), (hit,)), "lines", **options)
    return out.getvalue()


def test_escapes_are_written_to_a_terminal_only(photo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b_G" in shown(photo, monkeypatch, is_terminal=True)
    assert "\x1b" not in shown(photo, monkeypatch, is_terminal=False)
    assert "\x1b" not in shown(photo, monkeypatch, is_terminal=True, pictures=False)


def test_names_cannot_play_tricks_on_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", out := Terminal(True))
    hit = Hit(1, 1, "x", tmp_path / "red\x1b[31m\nnew.png", tmp_path, 0.5, None, "embed")
    formatting.show(SearchResult(Query("a"), (hit,)), "lines", pictures=False)
    assert "\x1b" not in out.getvalue()
    assert out.getvalue().count("\n") == 1
