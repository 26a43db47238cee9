"""Bundles on the Hugging Face hub: pushed by an export, and loaded by their name."""

import hashlib
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import numpy as np
import pytest
from huggingface_hub import CommitOperationAdd
from typer.testing import CliRunner

import sightline
import tiny
from models import published
from sightline.bundle import Bundle
from sightline.cli import app
from sightline.errors import ModelError
from sightline.models import checkpoint
from sightline.registry import hub


class FakeApi:
    """A hub that keeps what is pushed where a download would put it: files by their hash, and links to them."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, user: str | None = "me") -> None:
        self._folder, self._patch, self._user = folder, patch, user
        self.said: list[Any] = []
        patch.setattr(huggingface_hub, "HfApi", lambda: self)

    def whoami(self) -> dict[str, str]:
        if self._user is None:
            raise OSError("you are not logged in")
        return {"name": self._user}

    def create_repo(self, name: str, private: bool | None, exist_ok: bool) -> None:
        self.said.append(("create", name, private, exist_ok))

    def file_exists(self, name: str, file: str) -> bool:
        return False

    def create_commit(self, name: str, operations: list[CommitOperationAdd], commit_message: str) -> Any:
        snapshot = published.in_hub(self._folder, name, self._patch)
        snapshot.mkdir(parents=True)
        blobs = snapshot.parents[1] / "blobs"
        blobs.mkdir()
        for one in operations:
            with one.as_file() as file:
                data = file.read()
            blob = blobs / hashlib.sha256(data).hexdigest()
            blob.write_bytes(data)
            place = snapshot / one.path_in_repo
            place.parent.mkdir(exist_ok=True)
            place.symlink_to(os.path.relpath(blob, place.parent))
        self.said.append(("commit", sorted(one.path_in_repo for one in operations), commit_message))
        return SimpleNamespace(repo_url=f"https://huggingface.co/{name}")


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    checkpoint.save(tiny.retriever(tiny.DUAL), tiny.tokenizer(), tmp_path / "checkpoint")  # type: ignore[arg-type]
    return tmp_path / "checkpoint"


@pytest.mark.usefixtures("traced")
def test_an_exported_bundle_is_pushed_and_loaded_by_its_name(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = FakeApi(tmp_path / "hub", monkeypatch)
    out = tmp_path / "mine"
    done = CliRunner().invoke(app, ["export", str(trained), "--out", str(out), "--push", "hf:me/mine", "--private"])
    assert done.exit_code == 0, done.output
    assert "--model hf:me/mine" in done.output
    assert api.said[0] == ("create", "me/mine", True, True)
    assert api.said[1][1] == sorted(["README.md", "sightline.json", *Bundle.open(out).spec.files])
    shutil.rmtree(out)
    model = sightline.load("hf:me/mine")
    assert isinstance(model, Bundle)
    texts = ["a red ball", "two dogs"]
    ours = sightline.load(trained).encode_texts(texts).embedding
    np.testing.assert_allclose(model.encode_texts(texts).embedding, ours, atol=1e-4)
    assert "hf:me/mine" in (tmp_path / "hub/models--me--mine/snapshots" / ("0" * 40) / "README.md").read_text()


def test_a_bundle_keeps_its_own_card(tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FakeApi(tmp_path / "hub", monkeypatch)
    folder = Path(shutil.copytree(tiny_bundle, tmp_path / "mine"))
    (folder / "README.md").write_text("My own words.")
    (folder / "notes.txt").write_text("Nobody's business.")
    assert hub.push(folder, "hf:me/mine") == "https://huggingface.co/me/mine"
    pushed = hub.download("me/mine")
    assert (pushed / "README.md").read_text() == "My own words."
    assert not (pushed / "notes.txt").exists()


def test_languages_are_pushed_with_their_bundle(
    german_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FakeApi(tmp_path / "hub", monkeypatch)
    hub.push(german_bundle, "hf:me/mine")
    assert sightline.load("hf:me/mine").for_language("de").languages == ("en", "de")
    assert "- de\n" in (hub.download("me/mine") / "README.md").read_text()


@pytest.mark.parametrize("name", ["me/mine", "hf:mine", "hf:me/mine/too", "hf:me/my bundle"])
def test_a_wrong_name_is_refused_before_the_export(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FakeApi(tmp_path / "hub", monkeypatch)
    with pytest.raises(ModelError, match=name):
        sightline.export("no-such-folder", tmp_path / "out", push=name)


def test_whoever_is_not_logged_in_is_told_before_the_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FakeApi(tmp_path / "hub", monkeypatch, user=None)
    with pytest.raises(ModelError, match="not logged in") as refused:
        sightline.export("no-such-folder", tmp_path / "out", push="hf:me/mine")
    assert "hf auth login" in refused.value.way_out


def test_a_failed_push_leaves_the_bundle(tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    api = FakeApi(tmp_path / "hub", monkeypatch)
    monkeypatch.setattr(api, "create_commit", lambda *_, **__: Path("/no/such/file").read_text())
    with pytest.raises(ModelError, match="cannot be pushed") as refused:
        hub.push(tiny_bundle, "hf:me/mine")
    assert str(tiny_bundle) in refused.value.way_out
