"""Shards of photos without captions, from git directories."""

import io
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from bundles import photos
from sightline.datasets import read_all
from sightline.errors import DataError
from tar_files import write_tar


def squares(seed: int, width: int = 160, height: int = 140) -> Image.Image:
    """A picture of large random squares."""
    levels = np.random.default_rng(seed).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    return Image.fromarray(levels).resize((width, height), Image.Resampling.NEAREST)


def jpeg(image: Image.Image) -> bytes:
    content = io.BytesIO()
    image.save(content, "JPEG", quality=90)
    return content.getvalue()


FILES = {
    "in/good.jpg": jpeg(squares(1)),
    "in/deep/GOOD.JPEG": jpeg(squares(2)),
    "in/copy.jpg": jpeg(squares(1)),
    "in/held-out.jpg": jpeg(squares(0, 320, 280)),
    "in/mirrored.jpg": jpeg(squares(0).transpose(Image.Transpose.FLIP_LEFT_RIGHT)),
    "in/small.jpg": jpeg(squares(3, 160, 120)),
    "in/long.jpg": jpeg(squares(4, 600, 150)),
    "in/pointer.jpg": b"version https://git-lfs.github.com/spec/v1",
    "in/notes.txt": b"no image",
    "in/.hidden/other.jpg": jpeg(squares(5)),
    "out/other.jpg": jpeg(squares(6)),
}


@pytest.fixture(scope="module")
def clones(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bare clone of a repository whose second commit deletes everything."""
    folder = tmp_path_factory.mktemp("clones")
    for name, content in FILES.items():
        path = folder / "work" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        subprocess.run(["git", *identity, *arguments], cwd=folder / "work", check=True, capture_output=True)

    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "All")
    git("tag", "all")
    git("rm", "-rq", ".")
    git("commit", "-qm", "None")
    git("clone", "-q", "--bare", ".", str(folder / "owner+name"))
    return folder


@pytest.fixture(scope="module")
def held_out(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("held-out") / "some-val.tar"
    return str(write_tar(path, [("a.jpg", jpeg(squares(0))), ("a.json", {"captions": {"en": ["x"]}})]))


def source(repository: str = "owner/name", most: int = 99, most_each: int = 99) -> photos.Source:
    return photos.Source(repository, "all", ("in",), "squares", "none", most, most_each)


def test_good_photos_are_scaled_and_the_others_left_out(
    clones: Path, held_out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(photos, "sources", lambda: [source(), source("not/cloned")])
    monkeypatch.setattr(photos, "_BATCH", 2)
    for out in ("first", "second"):
        photos.main([str(clones), "--out", str(tmp_path / out), "--held-out", held_out])
    shard = tmp_path / "first" / "photos-000.tar"
    records = read_all([str(shard)])
    assert [len(one.captions) for one in records] == [0, 0]
    for one in records:
        with Image.open(io.BytesIO(one.image.read())) as image:
            assert image.size == (224, 224)
    assert (tmp_path / "second" / "photos-000.tar").read_bytes() == shard.read_bytes()


def test_photos_like_those_of_a_held_out_repository_are_left_out(
    clones: Path, held_out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = replace(source(), folders=("in/deep",), held_out=True)
    monkeypatch.setattr(photos, "sources", lambda: [source(), other])
    given = ["--out", str(tmp_path), "--held-out", held_out]
    photos.main([str(clones), *given])
    assert len(read_all([str(tmp_path / "photos-000.tar")])) == 1  # without the one in `deep`
    monkeypatch.setattr(photos, "sources", lambda: [source(), replace(other, repository="not/cloned")])
    with pytest.raises(DataError, match=r"not\+cloned: no such clone"):
        photos.main([str(clones), *given])


def test_only_so_many_photos_are_taken_of_all_or_of_each_folder(clones: Path) -> None:
    git = clones / "owner+name"
    assert len(source().blobs(git)) == 7  # the copy is the same blob
    assert len(source(most=3).blobs(git)) == 3
    assert len(source(most_each=1).blobs(git)) == 2
    assert set(source(most=3).blobs(git)) < set(source().blobs(git))


def test_a_frame_of_one_colour_is_cut_off() -> None:
    framed = ImageOps.expand(squares(7).convert("RGB"), (30, 10), (250, 250, 250))
    near = np.abs(np.asarray(photos.without_frame(framed), dtype=int) - np.asarray(squares(7), dtype=int))
    assert near.max() == 0
    blank = Image.new("RGB", (200, 200), (9, 9, 9))
    assert photos.without_frame(blank).size == (200, 200)


def test_the_table_of_sources_is_complete() -> None:
    found = photos.sources()
    assert len({one.repository for one in found}) == len(found) > 10
    assert [one.repository for one in found if one.held_out] == ["EliSchwartz/imagenet-sample-images"]
    assert all(len(one.commit) == 40 and one.folders and one.what and one.terms for one in found)
