"""What the doctor finds: an installation and a collection that are well, and each thing that can be wrong with them."""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from sightline import cli, doctor
from sightline.collection import index
from sightline.collection.locks import write_lock
from sightline.doctor import Finding, examine
from sightline.registry import loader
from sightline.stores.local import LocalStore


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


def found(at: Path | None = None) -> dict[str, Finding]:
    return {finding.subject: finding for finding in examine(at)}


@pytest.fixture(autouse=True)
def installed(tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A healthy installation whose bundled model is a copy of the tiny one, in a folder without a collection."""
    bundle = Path(shutil.copytree(tiny_bundle, tmp_path / "bundled"))
    monkeypatch.setattr(loader, "_bundled", lambda: bundle)
    monkeypatch.setenv("SIGHTLINE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return bundle


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Two pictures and a file that is none, indexed by the bundled model."""
    folder = tmp_path / "my photos"
    folder.mkdir()
    for name in ("red", "blue"):
        Image.new("RGB", (40, 30), name).save(folder / f"{name}.png")
    (folder / "broken.jpg").write_bytes(b"no picture")
    index(folder)
    return folder


def test_a_healthy_installation_is_well(tmp_path: Path) -> None:
    findings = found()
    assert not [one for one in findings.values() if one.state == "broken"]
    assert "Collection" not in findings
    assert findings["Bundled model"].says.startswith("tiny (embed, fragments, match; float32")
    assert "CPU" in findings["ONNX Runtime"].says
    assert f"numpy {np.__version__}" in findings["Packages"].says
    assert findings["Cache"].says == str(tmp_path / "cache")
    assert run("doctor").exit_code == 0


def test_every_finding_that_is_not_good_has_a_way_out(photos: Path, installed: Path) -> None:
    (installed / "text.onnx").write_bytes(b"something else")
    poor = [finding for finding in examine(photos) if finding.state != "good"]
    assert {"Bundled model", "Its model", "Its files"} <= {finding.subject for finding in poor}
    assert all(finding.way_out for finding in poor)


def test_a_broken_installation_fails_the_command_and_says_what_to_do(installed: Path) -> None:
    (installed / "text.onnx").unlink()
    done = run("doctor")
    assert done.exit_code == 1
    assert "FAIL  Bundled model: " in done.output
    assert "→ The bundle is incomplete: copy or export it again." in done.output


def test_json_holds_the_same_findings_and_nothing_else_is_printed(photos: Path) -> None:
    done = run("doctor", "--at", photos, "--json")
    told = json.loads(done.stdout)
    assert told["well"] is True
    assert {one["subject"]: one["state"] for one in told["findings"]} == {
        subject: finding.state for subject, finding in found(photos).items()
    }


def test_a_file_of_the_model_that_was_altered_is_found_though_it_was_once_verified(installed: Path) -> None:
    loader.load("default")
    data = bytearray((installed / "image.onnx").read_bytes())
    data[len(data) // 2] ^= 1
    (installed / "image.onnx").write_bytes(data)
    finding = found()["Bundled model"]
    assert finding.state == "broken"
    assert "image.onnx: sha256" in finding.says


class Installed(NamedTuple):
    """What the metadata of an installation say, in place of the real ones."""

    requires: list[str]
    versions: dict[str, str]


def pretend(monkeypatch: pytest.MonkeyPatch, there: Installed) -> None:
    def version(name: str) -> str:
        if name not in there.versions:
            raise metadata.PackageNotFoundError(name)
        return there.versions[name]

    monkeypatch.setattr(metadata, "requires", lambda name: there.requires)
    monkeypatch.setattr(metadata, "version", version)


@pytest.mark.parametrize(
    ("version", "state"),
    [("1.26", "good"), ("1.26.4", "good"), ("2.0rc1", "good"), ("1.9.3", "broken"), ("", "broken")],
)
def test_a_package_must_be_there_and_new_enough(version: str, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, Installed(["numpy>=1.26"], {"numpy": version} if version else {}))
    (finding,) = doctor._packages()
    assert finding.state == state
    assert "numpy" in finding.says


def test_optional_parts_are_noted_not_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = ['pillow-heif>=0.20; extra == "heic"', "ray[data]>=2.40; extra == 'scale'", "typer>=0.15"]
    pretend(monkeypatch, Installed(wanted, {"pillow-heif": "1.0", "typer": "0.20"}))
    findings = {finding.subject: finding for finding in doctor._extras()}
    assert findings["heic"].state == "good"
    assert findings["scale"].state == "warning"
    assert "ray is missing" in findings["scale"].says
    assert "pip install 'sightline-search[scale]'" in findings["scale"].way_out


def test_a_package_that_is_too_new_is_a_problem_too(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, Installed(["typer>=0.15,<0.21", "rich>=13"], {"typer": "0.21.1", "rich": "14.0"}))
    (finding,) = doctor._packages()
    assert finding.state == "broken"
    assert finding.says == "typer 0.21.1 is installed, but <0.21,>=0.15 is needed"


def test_a_package_that_this_machine_does_not_need_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    needed = ["numpy>=1.26", "tomli>=2; python_version < '3.11'", "colorama; sys_platform == 'plan9'"]
    pretend(monkeypatch, Installed(needed, {"numpy": "2.0"}))
    (finding,) = doctor._packages()
    assert (finding.state, finding.says) == ("good", "numpy 2.0")


@pytest.mark.parametrize(
    ("marker", "limit"),
    [
        ("python_version < '3.11'", "below 3.11"),
        ("python_full_version < '3.10.0'", "below 3.10"),
        ("python_version >= '3.30'", "3.30 or newer"),
    ],
)
def test_an_extra_for_another_python_says_so_and_recommends_no_command_that_installs_nothing(
    marker: str, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = ["numpy", f"rapidocr-onnxruntime>=1.4; ({marker}) and extra == 'ocr'"]
    pretend(monkeypatch, Installed(wanted, {"numpy": "2.0"}))
    finding = {finding.subject: finding for finding in doctor._extras()}["ocr"]
    assert finding.state == "warning"
    assert finding.says == f"unavailable (text in images): rapidocr-onnxruntime needs Python {limit}"
    assert finding.way_out == f"To use it, install Sightline with Python {limit}."


def test_a_check_that_fails_in_a_way_nobody_foresaw_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash() -> Iterator[Finding]:
        raise ZeroDivisionError("oops")
        yield

    monkeypatch.setattr(doctor, "_faiss", crash)
    findings = found()
    assert (findings["FAISS"].state, findings["FAISS"].says) == ("broken", "ZeroDivisionError: oops")
    assert findings["Bundled model"].state == "good"


def test_a_cache_that_cannot_be_written_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SIGHTLINE_CACHE", str(tmp_path / "file" / "cache"))
    assert found()["Cache"].state == "warning"


def test_a_cache_folder_that_takes_no_files_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(dir: Path) -> None:
        raise PermissionError(13, "Permission denied", str(dir))

    monkeypatch.setattr(tempfile, "TemporaryFile", refused)
    finding = found()["Cache"]
    assert finding.state == "warning"
    assert "Permission denied" in finding.says


def test_a_collection_is_counted_and_its_broken_files_are_named(photos: Path) -> None:
    for at in (photos, photos / ".sightline"):
        findings = found(at)
        assert findings["Collection"].says == f"{photos / '.sightline'}: 2 images"
        assert findings["Its model"] == Finding("Its model", "good", "tiny")
        assert "1 could not be read, such as broken.jpg" in findings["Its files"].says
        assert f"sightline index --at '{photos / '.sightline'}' --retry" in findings["Its files"].way_out
        assert findings["Its lock"].state == "good"
        assert "GB free" in findings["Its disk"].says


def test_a_collection_of_an_earlier_version_which_has_no_copy_of_its_manifest_is_good(photos: Path) -> None:
    copy = photos / ".sightline" / "manifest-copy.json"
    copy.unlink()
    assert "Its manifest" not in found(photos)
    copy.write_bytes(b"{")
    assert found(photos)["Its manifest"].state == "warning"
    assert f"{copy}: cannot be read" in found(photos)["Its manifest"].says


def test_images_that_are_not_refined_yet_are_counted(photos: Path, quick_bundle: Path, tmp_path: Path) -> None:
    assert "Its images" not in found(photos)
    at = tmp_path / "quick"
    index(photos, at=at, model=quick_bundle, quick=True)
    finding = found(at)["Its images"]
    assert finding.state == "warning"
    assert finding.says.startswith("2 of 2 were indexed with --quick")
    assert finding.way_out == f"Refine them: sightline index --at {at} --refine"
    index([], at=at, model=quick_bundle, refine=True)
    assert "Its images" not in found(at)


def test_the_nearest_collection_is_looked_at_when_none_is_named(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (photos / "below").mkdir()
    monkeypatch.chdir(photos / "below")
    assert found()["Collection"].says == f"{photos / '.sightline'}: 2 images"


def test_a_folder_that_is_no_collection_is_broken(tmp_path: Path) -> None:
    finding = found(tmp_path)["Collection"]
    assert finding.state == "broken"
    assert "not a collection" in finding.says
    assert run("doctor", "--at", tmp_path).exit_code == 1


def test_items_without_vectors_are_found(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalStore, "ids", lambda store: np.array([1], dtype=np.int64))
    finding = found(photos)["Collection"]
    assert finding.state == "broken"
    assert "2 images, 1 of them without vectors" in finding.says


def test_a_collection_whose_model_is_gone_is_broken(photos: Path, installed: Path) -> None:
    shutil.rmtree(installed)
    assert found(photos)["Its model"].state == "broken"


def test_who_holds_the_lock_is_told(photos: Path) -> None:
    with write_lock(photos / ".sightline"):
        finding = found(photos)["Its lock"]
    assert finding.state == "warning"
    assert "is being written to by process" in finding.says
    assert found(photos)["Its lock"].state == "good"


def test_a_full_disk_is_noted(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage: Any = type("Usage", (), {"free": 2e8})
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    assert found(photos)["Its disk"].state == "warning"


def test_the_doctor_imports_no_torch(tmp_path: Path) -> None:
    script = "import sys; from sightline.doctor import examine; list(examine()); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True, cwd=tmp_path)
