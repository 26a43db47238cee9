"""How every plot looks, and what makes its SVG file come out the same every time."""

from typing import Any

STYLE: dict[Any, Any] = {
    "svg.hashsalt": "sightline",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "figure.facecolor": "white",
}
