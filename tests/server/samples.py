"""Pictures, applications and clients for tests of the server."""

import asyncio
import dataclasses
import io
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from fastapi import FastAPI
from PIL import Image

from sightline.server.app import create_app
from sightline.server.limits import Limits
from sightline.server.run import ServedCollection

LIMITS = Limits(seconds=20)
TOKEN = "correct horse battery staple"


def picture(seed: int, size: tuple[int, int] = (40, 30), format: str = "PNG") -> bytes:
    """The bytes of a picture of large coloured squares, another for each seed."""
    pixels = np.random.default_rng(seed).integers(0, 256, (3, 4, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).resize(size, Image.Resampling.NEAREST).save(file, format)
    return file.getvalue()


def bomb(side: int = 10_000) -> bytes:
    """A small PNG that would take hundreds of megabytes when it is opened."""
    file = io.BytesIO()
    Image.new("1", (side, side)).save(file, "PNG", compress_level=9)
    return file.getvalue()


def application(opened: ServedCollection, limits: Limits | None = None, **options: Any) -> FastAPI:
    """An application over an opened collection, with limits of its own."""
    service = opened.service
    if limits is not None:
        service = _with_limits(opened, limits)
    return create_app(service, **options)


def _with_limits(opened: ServedCollection, limits: Limits) -> Any:
    from sightline.server.service import Service

    return Service(opened.library, opened.service.model, limits, opened.service.metrics)


def ask(app: FastAPI, method: str, path: str, *, client: str = "203.0.113.7", **options: Any) -> httpx.Response:
    """The answer of an application to one request, without a network."""
    transport = httpx.ASGITransport(app, client=(client, 50000))

    async def request() -> httpx.Response:
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as asking:
            return await asking.request(method, path, **options)

    return asyncio.run(request())


def limits(**changes: Any) -> Limits:
    return dataclasses.replace(LIMITS, **changes)


def fill(folder: Path, count: int = 8) -> Path:
    for number in range(count):
        place = folder / ("beach" if number % 2 else "town") / f"{number}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(picture(number))
    return folder
