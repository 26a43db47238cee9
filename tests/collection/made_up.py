"""A model that encodes at once, pictures that are quickly drawn, and what a collection holds in plain terms."""

import hashlib
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from sightline.bundle import Encoded, Model
from sightline.collection import Collection
from sightline.media import Preprocess

LONG_AGO = 1_600_000_000_000_000_000


class Instant(Model):
    """Makes unit vectors of the first numbers it is given, and counts what it encodes."""

    name = "instant"
    sha256 = ""
    abilities = frozenset({"embed"})
    preprocess = Preprocess(size=8, resize="squash", mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))

    def __init__(self, sha256: str = "a" * 64) -> None:
        self.sha256 = sha256
        self.encoded = 0
        self.texts: list[str] = []

    def encode_images(self, pixels: npt.NDArray[np.float32]) -> Encoded:
        self.encoded += len(pixels)
        return _unit(pixels.reshape(len(pixels), -1)[:, :16] + 0.01)

    def encode_texts(self, texts: Sequence[str]) -> Encoded:
        self.texts += texts
        digests = [hashlib.sha256(text.encode()).digest()[:16] for text in texts]
        return _unit(np.array([list(digest) for digest in digests], dtype=np.float32) + 1)

    def match(self, *inputs: Any) -> npt.NDArray[np.float32]:
        raise NotImplementedError


def _unit(vectors: npt.NDArray[np.float32]) -> Encoded:
    embedding = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    return Encoded(embedding, np.ones((len(vectors), 0), dtype=np.bool_))


def picture(seed: int, **options: Any) -> bytes:
    """The bytes of a small picture, another for each seed."""
    pixels = np.random.default_rng(seed).integers(0, 256, (9, 12, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, options.pop("format", "PNG"), **options)
    return file.getvalue()


def scene(seed: int) -> bytes:
    """The bytes of a picture that is not blank, another for each seed: large enough, and in several colours."""
    colours = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(colours).resize((64, 48), Image.Resampling.NEAREST).save(file, "PNG")
    return file.getvalue()


def put(path: Path, data: bytes, mtime_ns: int = LONG_AGO) -> Path:
    """Write a file that looks as if it were old: only then its looks are trusted."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, ns=(mtime_ns, mtime_ns))
    return path


def contents(at: Path) -> dict[str, bytes]:
    """The hash of what a collection has under each path; every one has its vector, and no vector is left over."""
    with Collection.open(at) as collection:
        ids = collection.catalog.ids()
        assert collection.store.ids().tolist() == ids
        rows = collection.catalog.connection.execute(
            "SELECT f.path, c.hash, f.status FROM files f LEFT JOIN contents c ON c.id = f.content"
        ).fetchall()
        assert len(collection) == len({found for _, found, status in rows if status == "ready"}) == len(ids)
    return {path: found for path, found, status in rows if status == "ready"}


def digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=32).digest()


def vectors(at: Path) -> dict[bytes, npt.NDArray[np.float32]]:
    """The embedding of every content, by its hash."""
    with Collection.open(at) as collection:
        rows = collection.catalog.connection.execute("SELECT hash, id FROM contents").fetchall()
        ids = np.array([id for _, id in rows], dtype=np.int64)
        found = collection.store.fetch(ids, "embedding").values[:, 0]
    return {hash: vector for (hash, _), vector in zip(rows, found, strict=True)}
