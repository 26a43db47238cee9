"""Plotting the curves of a run from its log.jsonl, with Pillow, so that no other package is needed."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

from sightline.errors import SightlineError
from sightline.training.curves import scalars

Points = Sequence[tuple[float, float]]
_WIDTH, _HEIGHT, _MARGIN = 900, 260, 56
_COLOURS = ("#1b6ca8", "#d1495b", "#2e8b57", "#e08e0b", "#7b4ea3", "#555555")
_PANELS = ("loss", "parts", "val", "rate", "norm", "temperature")


def plot_log(log: Path, out: Path) -> None:
    """Plot the losses, validation recalls, learning rate, gradient norm and temperatures of a run to an image file."""
    try:
        entries = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise SightlineError(f"{log}: cannot be read: {error}") from error
    panels = curves(entries)
    if not panels:
        raise SightlineError(f"{log}: has no steps to plot")
    image = Image.new("RGB", (_WIDTH, _HEIGHT * len(panels)), "white")
    for number, (name, lines) in enumerate(panels.items()):
        _panel(ImageDraw.Draw(image), number * _HEIGHT, name, lines)
    image.save(out)


def curves(entries: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Points]]:
    """Return the points (step, value) of every line in every panel; of the validation results, only R@1."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for entry in entries:
        for name, value in scalars(entry).items():
            if not name.startswith("val/") or name.endswith("R@1"):
                lines.setdefault(name, []).append((entry["step"], value))
    panels: dict[str, dict[str, Points]] = {}
    for panel in _PANELS:
        own = {name: points for name, points in lines.items() if name == panel or name.startswith(f"{panel}/")}
        if own:
            panels[panel] = {name.removeprefix(f"{panel}/"): points for name, points in own.items()}
    return panels


def _panel(draw: ImageDraw.ImageDraw, top: int, title: str, lines: Mapping[str, Points]) -> None:
    left, right, upper, lower = _MARGIN, _WIDTH - 20, top + 34, top + _HEIGHT - 30
    steps = [step for points in lines.values() for step, _ in points]
    values = [value for points in lines.values() for _, value in points if math.isfinite(value)]
    low, high = min(values, default=0.0), max(values, default=1.0)
    low, high = (low - 0.5, high + 0.5) if low == high else (low, high)
    first, last = min(steps), max(max(steps), min(steps) + 1)

    def place(step: float, value: float) -> tuple[float, float]:
        across, up = (step - first) / (last - first), (value - low) / (high - low)
        return left + across * (right - left), lower - up * (lower - upper)

    draw.rectangle((left, upper, right, lower), outline="#cccccc")
    for value in (low, (low + high) / 2, high):
        height = place(first, value)[1]
        draw.line((left, height, right, height), fill="#eeeeee")
        draw.text((6, height - 6), f"{value:.3g}", fill="#666666")
    for step in (first, last):
        draw.text((place(step, low)[0] - 10, lower + 6), f"{step:g}", fill="#666666")
    draw.text((left, top + 12), title, fill="black")
    across = left + 100
    for number, (name, points) in enumerate(lines.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        draw.line([place(*point) for point in points if math.isfinite(point[1])], fill=colour, width=2)
        if len(points) == 1:
            x, y = place(*points[0])
            draw.ellipse((x - 3, y - 3, x + 3, y + 3), fill=colour)
        draw.text((across, top + 12), name, fill=colour)
        across += 20 + int(draw.textlength(name))
