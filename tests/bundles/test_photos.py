"""Shards of photos without captions, from folders and git directories."""

import io
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bundles import photos
from sightline.datasets import read_all
from tar_files import write_tar


def noise(seed: int, width: int = 160, height: int = 140) -> Image.Image:
    """A picture of large random squares."""
    squares = np.random.default_rng(seed).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    return Image.fromarray(squares).resize((width, height), Image.Resampling.NEAREST)


def jpeg(image: Image.Image) -> bytes:
    content = io.BytesIO()
    image.save(content, "JPEG", quality=90)
    return content.getvalue()


@pytest.fixture
def held_out(tmp_path: Path) -> Path:
    return write_tar(tmp_path / "some-val.tar", [("a.jpg", jpeg(noise(0))), ("a.json", {"captions": {"en": ["x"]}})])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two good photos, and six that are to be left out."""
    made = tmp_path / "pictures"
    (made / "deep").mkdir(parents=True)
    files = {
        "good.jpg": jpeg(noise(1)),
        "deep/GOOD.JPEG": jpeg(noise(2)),
        "copy.jpg": jpeg(noise(1)),
        "held-out.jpg": jpeg(noise(0, 320, 280)),
        "mirrored.jpg": jpeg(noise(0).transpose(Image.Transpose.FLIP_LEFT_RIGHT)),
        "small.jpg": jpeg(noise(3, 160, 120)),
        "long.jpg": jpeg(noise(4, 600, 150)),
        "broken.jpg": b"version https://git-lfs.github.com/spec/v1",
        "notes.txt": b"no image",
    }
    for name, content in files.items():
        (made / name).write_bytes(content)
    return made


def test_good_photos_are_scaled_and_the_others_left_out(folder: Path, held_out: Path, tmp_path: Path) -> None:
    for out in ("first", "second"):
        photos.main([str(folder), "--out", str(tmp_path / out), "--held-out", str(held_out)])
    shard = tmp_path / "first" / "photos-000.tar"
    records = read_all([str(shard)])
    assert [len(one.captions) for one in records] == [0, 0]
    for one in records:
        with Image.open(io.BytesIO(one.image.read())) as image:
            assert image.size == (224, 224)
    assert (tmp_path / "second" / "photos-000.tar").read_bytes() == shard.read_bytes()


def test_a_git_directory_has_the_photos_of_its_newest_commit(folder: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)

    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "All")
    git("rm", "-q", "copy.jpg")
    git("commit", "-qm", "Fewer")
    found = list(photos.files_of(folder / ".git"))
    assert sorted(found) == sorted(path.read_bytes() for path in folder.rglob("*.[jJ]*") if ".git" not in path.parts)


def test_each_folder_gives_at_most_so_many_photos(folder: Path, held_out: Path, tmp_path: Path) -> None:
    photos.main([str(folder), "--out", str(tmp_path / "few"), "--held-out", str(held_out), "--most", "0"])
    assert not list((tmp_path / "few").iterdir())
