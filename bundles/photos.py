"""Make shards of photos without captions, for `bundles.fast --sources …,photos`.

    python -m bundles.photos DIR [DIR …] --out SHARDS --held-out SIGHTLINE_DATA/*-val.tar SIGHTLINE_DATA/*-test.tar

A DIR is a folder of images or a git directory, of which the newest commit is read. Images are scaled to 224 × 224
pixels. Left out are images with a side of less than 128 pixels or more than three times as long as wide, copies, and
images that look like one in the held-out shards, or like its mirror image. --most images are taken from each DIR.
"""

import argparse
import hashlib
import io
import itertools
import json
import random
import subprocess
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from sightline.arrays import Float32Array
from sightline.datasets import read_all

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")
SIZE, SMALLEST, LONGEST = 224, 128, 3.0
ALIKE = 0.95  # correlation of two small grey images, above which they show the same
_SIDE = 16
_LARGEST = 25_000_000  # bytes of a file
_BATCH = 512  # files in memory


class Photo(NamedTuple):
    """An image as it is stored, the number of its content, and its small grey version."""

    content: bytes
    number: int
    grey: Float32Array


def files_of(folder: Path) -> Iterator[bytes]:
    """Yield the contents of all images in a folder or a git directory."""
    if not (folder / "HEAD").is_file():
        for path in sorted(folder.rglob("*")):
            if path.suffix.lower() in SUFFIXES and path.stat().st_size < _LARGEST:
                yield path.read_bytes()
        return
    git = ["git", f"--git-dir={folder}"]
    listed = subprocess.run([*git, "ls-tree", "-rlz", "HEAD"], capture_output=True, check=True).stdout.decode()
    about = (line.split("\t", 1) for line in listed.split("\0") if line)
    wanted = [facts.split()[2] for facts, name in about if name.lower().endswith(SUFFIXES) and _small(facts.split()[3])]
    with subprocess.Popen([*git, "cat-file", "--batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as batch:
        assert batch.stdin is not None
        assert batch.stdout is not None
        for blob in wanted:
            batch.stdin.write(blob.encode() + b"\n")
            batch.stdin.flush()
            answer = batch.stdout.readline().split()
            if answer[1] == b"blob":
                yield batch.stdout.read(int(answer[2]))
                batch.stdout.read(1)
        batch.stdin.close()


def _small(size: str) -> bool:
    """Return whether git has a blob, which may be missing from a partial clone, and it is not too large."""
    return size.isdecimal() and int(size) < _LARGEST


def photo_of(content: bytes) -> Photo | None:
    """Scale an image; None if it cannot be read, or is too small or too long."""
    try:
        image = Image.open(io.BytesIO(content))
        image.draft("RGB", (2 * SIZE, 2 * SIZE))
        short, long = sorted(image.size)
        if short < SMALLEST or long > LONGEST * short:
            return None
        squashed = image.convert("RGB").resize((SIZE, SIZE), Image.Resampling.LANCZOS)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return None
    stored = io.BytesIO()
    squashed.save(stored, "WEBP", quality=60, method=2)
    number = int.from_bytes(hashlib.sha256(content).digest()[:8])
    return Photo(stored.getvalue(), number, grey_of(squashed))


def grey_of(image: Image.Image) -> Float32Array:
    """Return a small grey version of an image as a vector of unit length, without its mean."""
    small = image.convert("L").resize((_SIDE, _SIDE), Image.Resampling.BOX)
    pixels: Float32Array = np.asarray(small, dtype=np.float32).ravel()
    pixels = pixels - pixels.mean()
    return pixels / np.float32(max(float(np.linalg.norm(pixels)), 1e-6))


def held_out_greys(shards: Sequence[str]) -> Float32Array:
    """Return the small grey versions of all images in shards, and of the mirrored ones."""
    greys = []
    for record in read_all(list(shards)):
        with Image.open(io.BytesIO(record.image.read())) as image:
            whole = image.convert("RGB").resize((SIZE, SIZE))
            greys += [grey_of(whole), grey_of(whole.transpose(Image.Transpose.FLIP_LEFT_RIGHT))]
    return np.array(greys, dtype=np.float32).reshape(-1, _SIDE**2)


def distinct(photos: Iterable[Photo], held_out: Float32Array) -> Iterator[Photo]:
    """Yield the photos that are neither copies of one before them nor like a held-out one."""
    seen: set[int] = set()
    for photo in photos:
        if photo.number in seen or (held_out @ photo.grey).max(initial=0.0) > ALIKE:
            continue
        seen.add(photo.number)
        yield photo


def write_shards(photos: Sequence[Photo], out: Path, per_shard: int) -> None:
    """Write photos in a random order that is the same every time."""
    ordered = sorted(photos, key=lambda photo: photo.number)
    random.Random(0).shuffle(ordered)
    out.mkdir(parents=True, exist_ok=True)
    for shard, start in enumerate(range(0, len(ordered), per_shard)):
        with tarfile.open(out / f"photos-{shard:03}.tar", "w") as tar:
            for number, photo in enumerate(ordered[start : start + per_shard], start):
                for suffix, content in (("webp", photo.content), ("json", json.dumps({"captions": {}}).encode())):
                    member = tarfile.TarInfo(f"{number:06}.{suffix}")
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
        print(f"photos-{shard:03}.tar: {min(start + per_shard, len(ordered)):,} of {len(ordered):,}", flush=True)


def main(argv: Sequence[str] | None = None) -> None:
    """Read all folders, and write the shards."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", metavar="DIR")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--held-out", nargs="+", required=True, metavar="SHARD")
    parser.add_argument("--most", type=int, default=20_000)
    parser.add_argument("--per-shard", type=int, default=3000)
    args = parser.parse_args(argv)
    held_out, kept = held_out_greys(args.held_out), list[Photo]()
    with ProcessPoolExecutor() as pool:
        for folder in args.folders:
            files, some = files_of(folder), list[Photo]()
            while batch := list(itertools.islice(files, _BATCH)):
                some += [one for one in pool.map(photo_of, batch, chunksize=16) if one is not None]
            random.Random(0).shuffle(some)
            kept += some[: args.most]
            print(f"{folder}: {len(some[: args.most]):,} of {len(some):,}", flush=True)
    write_shards(list(distinct(kept, held_out)), args.out, args.per_shard)


if __name__ == "__main__":
    main()
