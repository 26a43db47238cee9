"""Short videos, made of pictures that are shown one after another."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import av
import numpy as np
from PIL import Image

CODECS = {".mp4": "libx264", ".mov": "libx264", ".webm": "libvpx", ".avi": "mpeg4", ".mkv": "libx264"}
FPS = 5


def scene(seed: int, size: tuple[int, int] = (64, 48)) -> Image.Image:
    """A picture of large coloured squares, another for each seed."""
    pixels = np.random.default_rng(seed).integers(0, 256, (3, 4, 3), dtype=np.uint8)
    return Image.fromarray(pixels).resize(size, Image.Resampling.NEAREST)


def film(
    path: Path,
    scenes: Sequence[Image.Image],
    seconds: float = 3.0,
    *,
    keys: int = FPS,
    fps: int = FPS,
    rotation: int = 0,
    notes: dict[str, str] | None = None,
) -> Path:
    """Write a video that shows each scene for some seconds. keys: frames from one key frame to the next."""
    path.parent.mkdir(parents=True, exist_ok=True)
    options: dict[str, Any] = {"movflags": "use_metadata_tags"} if path.suffix in (".mp4", ".mov") else {}
    with av.open(str(path), "w", options=options) as container:
        stream = container.add_stream(CODECS[path.suffix], rate=fps)
        stream.width, stream.height = scenes[0].size
        stream.pix_fmt = "yuv420p"
        stream.codec_context.gop_size = keys
        if keys > 2 * FPS:
            stream.options = {"sc_threshold": "0"}  # also not where the scene changes
        if rotation:
            stream.set_display_rotation(rotation)
        container.metadata.update(notes or {})
        for shown in scenes:
            for _ in range(round(seconds * fps)):
                container.mux(stream.encode(av.VideoFrame.from_image(shown)))
        container.mux(stream.encode(None))
    return path
