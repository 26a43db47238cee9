"""Make shards of photos without captions, for `bundles.fast --sources …,photos`.

    python -m bundles.photos CLONES --out SHARDS --held-out $SIGHTLINE_DATA/*-val.tar $SIGHTLINE_DATA/*-test.tar

CLONES has a bare clone OWNER+NAME of each repository in `bundles/photos.toml`. Missing clones are skipped, but those of
held-out photos are required. Photos are scaled to 224 × 224 pixels. Left out are those with a side of less than 128
pixels or more than three times as long as wide, copies, and photos that look like a held-out one or like its mirror
image.
"""

import argparse
import hashlib
import io
import itertools
import json
import random
import subprocess
import tarfile
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageChops

from sightline.arrays import Float32Array
from sightline.datasets import read_all
from sightline.errors import DataError

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")
SIZE, SMALLEST, LONGEST = 224, 128, 3.0
ALIKE = 0.95  # correlation of two small grey images, above which they show the same
_SIDE = 16
_BATCH = 512  # files in memory
_FRAME = 40  # grey levels by which a photo differs from the frame around it


@dataclass(frozen=True, slots=True)
class Source:
    """Folders of a commit of a repository, see `photos.toml`."""

    repository: str
    commit: str
    folders: tuple[str, ...]
    what: str
    terms: str
    most: int = 10**9
    most_each: int = 10**9
    framed: bool = False
    held_out: bool = False

    def blobs(self, git: Path) -> list[str]:
        """Return the blobs of the photos that are taken: the same ones every time, in any order of the files."""
        command = ["git", f"--git-dir={git}", "ls-tree", "-rlz", "--full-tree", self.commit]
        listed = subprocess.run(command, capture_output=True, check=True).stdout.decode(errors="replace")
        found = defaultdict(set)
        for facts, name in (line.split("\t", 1) for line in listed.split("\0") if line):
            _, _, blob, size = facts.split()
            inside = any(not folder or name.startswith(f"{folder}/") for folder in self.folders)
            if inside and name.lower().endswith(SUFFIXES) and "/." not in name and size.isdecimal():  # else not cloned
                found[name.rpartition("/")[0]].add(blob)
        some = itertools.chain.from_iterable(sorted(blobs)[: self.most_each] for blobs in found.values())
        return sorted(set(some))[: self.most]


class Photo(NamedTuple):
    """A scaled photo as it is stored, the number of the original's content, and its small grey version."""

    content: bytes
    number: int
    grey: Float32Array


def sources() -> list[Source]:
    """Return the sources in `photos.toml`."""
    table = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return [Source(**one | {"folders": tuple(one["folders"])}) for one in table["photos"]]


def contents(git: Path, blobs: Sequence[str]) -> Iterator[bytes]:
    """Yield the contents of blobs of a git directory."""
    command = ["git", f"--git-dir={git}", "cat-file", "--batch"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as batch:
        assert batch.stdin is not None
        assert batch.stdout is not None
        for blob in blobs:
            batch.stdin.write(blob.encode() + b"\n")
            batch.stdin.flush()
            size = int(batch.stdout.readline().split()[2])
            yield batch.stdout.read(size)
            batch.stdout.read(1)
        batch.terminate()  # it would wait for an end of input that the pool's processes keep open


def photo_of(content: bytes, framed: bool = False) -> Photo | None:
    """Scale a photo; None if it cannot be read, or is too small or too long. framed: cut its frame off first."""
    try:
        image = Image.open(io.BytesIO(content))
        image.draft("RGB", (2 * SIZE, 2 * SIZE))
        whole = image.convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return None
    whole = without_frame(whole) if framed else whole
    short, long = sorted(whole.size)
    if short < SMALLEST or long > LONGEST * short:
        return None
    squashed, stored = whole.resize((SIZE, SIZE), Image.Resampling.LANCZOS), io.BytesIO()
    squashed.save(stored, "WEBP", quality=60, method=2)
    return Photo(stored.getvalue(), int.from_bytes(hashlib.sha256(content).digest()[:8]), grey_of(squashed))


def without_frame(image: Image.Image) -> Image.Image:
    """Cut off the border that has the colour of the first pixel."""
    corner = Image.new("RGB", image.size, image.getpixel((0, 0)))
    away = ImageChops.difference(image, corner).convert("L").point(lambda level: 255 * (level > _FRAME))
    return image.crop(away.getbbox())


def grey_of(image: Image.Image) -> Float32Array:
    """Return a small grey version of an image as a vector of unit length, without its mean."""
    small = image.convert("L").resize((_SIDE, _SIDE), Image.Resampling.BOX)
    pixels: Float32Array = np.asarray(small, dtype=np.float32).ravel()
    pixels = pixels - pixels.mean()
    return pixels / np.float32(max(float(np.linalg.norm(pixels)), 1e-6))


def held_out_greys(shards: Sequence[str]) -> Float32Array:
    """Return the small grey versions of all images in shards."""
    greys = []
    for record in read_all(list(shards)):
        with Image.open(io.BytesIO(record.image.read())) as image:
            greys.append(grey_of(image.convert("RGB").resize((SIZE, SIZE))))
    return np.array(greys, dtype=np.float32).reshape(-1, _SIDE**2)


def with_mirrored(greys: Float32Array) -> Float32Array:
    """Return small grey versions, and those of the mirrored images."""
    mirrored = greys.reshape(-1, _SIDE, _SIDE)[..., ::-1].reshape(-1, _SIDE**2)
    return np.concatenate([greys, mirrored])


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
    """Read all repositories that are there, and write the shards."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clones", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--held-out", nargs="+", required=True, metavar="SHARD")
    parser.add_argument("--per-shard", type=int, default=3000)
    args = parser.parse_args(argv)
    kept, held_out = list[Photo](), [held_out_greys(args.held_out)]
    with ProcessPoolExecutor() as pool:
        for source in sources():
            git, scaled = args.clones / source.repository.replace("/", "+"), list[Photo]()
            if source.held_out and not git.exists():
                raise DataError(f"{git}: no such clone, but its photos must be held out", "Clone the repository first.")
            files = contents(git, source.blobs(git)) if git.exists() else iter(())
            while batch := list(itertools.islice(files, _BATCH)):
                scaled += filter(None, pool.map(partial(photo_of, framed=source.framed), batch, chunksize=16))
            print(f"{source.repository}: {len(scaled):,}{' held out' if source.held_out else ''}", flush=True)
            if source.held_out:
                held_out.append(np.array([photo.grey for photo in scaled]))
            else:
                kept += scaled
    write_shards(list(distinct(kept, with_mirrored(np.concatenate(held_out)))), args.out, args.per_shard)


if __name__ == "__main__":
    main()
