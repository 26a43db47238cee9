import dataclasses
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from scale.milvus import MilvusServer, shared_server
from sightline.bundle import Bundle
from sightline.bundle.model import Calibration
from sightline.bundle.spec import write_spec

hypothesis.settings.register_profile("sightline", deadline=None)  # a busy machine is no failure
hypothesis.settings.load_profile("sightline")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background, where tests of Ctrl-C would fail
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What tests remember between two runs does not end up where the user's things are remembered."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SIGHTLINE_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("SIGHTLINE_STATE", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real captioned photos, for tests that want them."""
    folder = os.environ.get("SIGHTLINE_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("SIGHTLINE_DATA does not name a folder of shards")
    return Path(folder)


@pytest.fixture(scope="session")
def tiny_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An exported float32 bundle of a tiny two-tower model with a shared matcher."""
    import tiny
    from sightline.onnx_export.exporter import export

    folder = tmp_path_factory.mktemp("bundles") / "tiny"
    export(tiny.retriever(tiny.DUAL), tiny.tokenizer(), folder, name="tiny")
    return folder


@pytest.fixture(scope="session")
def calibrated(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny bundle with a calibration that finds about half of everything relevant."""
    folder = Path(shutil.copytree(tiny_bundle, tmp_path_factory.mktemp("bundles") / "calibrated"))
    spec = Bundle.open(folder).spec
    write_spec(folder, dataclasses.replace(spec, relevance={"embed": Calibration(3, -1), "match": Calibration(1, 0)}))
    return folder


@pytest.fixture
def bundle(tiny_bundle: Path) -> Iterator[Bundle]:
    return Bundle.open(tiny_bundle)


@pytest.fixture(scope="session")
def milvus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MilvusServer]:
    """A real Milvus server, with whatever the tests of this session put into it."""
    pytest.importorskip("pymilvus", reason="pymilvus is not installed: pip install 'sightline-search[scale]'")
    if missing := MilvusServer.missing():
        pytest.skip(missing)
    base = tmp_path_factory.getbasetemp()
    with shared_server((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "milvus") as server:
        yield server
