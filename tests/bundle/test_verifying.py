"""A file of a bundle is read once to see that it is the right one, and again only when it was touched."""

import os
import shutil
import time
from pathlib import Path

import pytest

from sightline.bundle import Bundle, integrity, spec
from sightline.errors import BundleError


@pytest.fixture
def copy(tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the tiny bundle, in a world where files are old enough to be trusted at once."""
    monkeypatch.setenv("SIGHTLINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(integrity, "_SETTLED_NS", 0)
    return Path(shutil.copytree(tiny_bundle, tmp_path / "copy"))


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that were read to be hashed."""
    names: list[str] = []
    sha256 = spec.sha256
    monkeypatch.setattr(spec, "sha256", lambda path: (names.append(path.name), sha256(path))[1])
    return names


def test_files_are_hashed_at_the_first_opening_only(copy: Path, hashed: list[str]) -> None:
    Bundle.open(copy)
    assert sorted(hashed) == ["image.onnx", "match.onnx", "text.onnx", "tokenizer.json"]
    hashed.clear()
    Bundle.open(copy)
    assert hashed == []


def test_a_changed_file_is_found_also_when_its_size_and_time_are_the_same(copy: Path) -> None:
    Bundle.open(copy)
    path = copy / "text.onnx"
    before = path.stat()
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    time.sleep(0.02)
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    with pytest.raises(BundleError, match=r"text\.onnx: sha256 is"):
        Bundle.open(copy)
    with pytest.raises(BundleError, match=r"text\.onnx: sha256 is"):
        Bundle.open(copy)


def test_only_the_file_that_was_touched_is_read_again(copy: Path, hashed: list[str]) -> None:
    Bundle.open(copy)
    hashed.clear()
    os.utime(copy / "match.onnx")
    Bundle.open(copy)
    assert hashed == ["match.onnx"]


def test_a_file_that_is_gone_is_missed(copy: Path) -> None:
    Bundle.open(copy)
    (copy / "image.onnx").unlink()
    with pytest.raises(BundleError, match=r"image\.onnx cannot be read"):
        Bundle.open(copy)


def test_a_file_that_another_hash_is_wanted_of_is_read_again(copy: Path, hashed: list[str]) -> None:
    Bundle.open(copy)
    text = (copy / "sightline.json").read_text()
    digest = Bundle.open(copy).spec.files["text.onnx"]
    (copy / "sightline.json").write_text(text.replace(digest, "0" * 64))
    with pytest.raises(BundleError, match=r"text\.onnx: sha256 is"):
        Bundle.open(copy)


def test_a_file_written_just_now_is_not_trusted_yet(
    copy: Path, hashed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It could change again within the same tick of the clock, and look the same."""
    monkeypatch.setattr(integrity, "_SETTLED_NS", 3600 * 10**9)
    Bundle.open(copy)
    Bundle.open(copy)
    assert len(hashed) == 8


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": 1}'])
def test_a_damaged_memory_is_started_anew(copy: Path, hashed: list[str], text: str) -> None:
    cache = Path(os.environ["SIGHTLINE_CACHE"])
    cache.mkdir()
    (cache / "verified.json").write_text(text)
    Bundle.open(copy)
    assert len(hashed) == 4
    Bundle.open(copy)
    assert len(hashed) == 4
