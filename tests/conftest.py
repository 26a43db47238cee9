import dataclasses
import functools
import gc
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from scale.milvus import MilvusServer
from scale.postgres import PASSWORD, PostgresTestServer
from scale.servers import shared
from sharing import common_folder, made_once
from sightline.bundle import Bundle
from sightline.bundle.model import Calibration, Defaults
from sightline.bundle.spec import write_spec
from sightline.errors import ModelError
from sightline.registry.loader import locate

gc.disable()  # until all tests are collected: imports leave nothing to collect

EXAMPLES = int(os.environ.get("SIGHTLINE_EXAMPLES", "30"))  # others each time, so that many runs try many
hypothesis.settings.register_profile("sightline", deadline=None, max_examples=EXAMPLES)  # a busy machine is no failure
hypothesis.settings.load_profile("sightline")

# Before torch is imported: with more threads, forked processes hang.
os.environ.setdefault("OMP_NUM_THREADS", "1")

MEMORY = Path("/dev/shm")
"""A folder in memory, where flushing a file to disk takes no time: hundreds of tests do little else."""
if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 4 << 30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background, where tests of Ctrl-C would fail
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What tests remember between two runs does not end up where the user's things are remembered."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SIGHTLINE_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("SIGHTLINE_STATE", str(tmp_path_factory.mktemp("state")))
        patch.setenv("SIGHTLINE_READ_TEXT", "0")  # it takes a second for each picture
        yield


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real captioned photos, for tests that want them."""
    folder = os.environ.get("SIGHTLINE_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("SIGHTLINE_DATA does not name a folder of shards")
    return Path(folder)


@pytest.fixture(scope="session")
def default_bundle() -> Path:
    """The folder of the bundled model."""
    try:
        return locate("default")
    except ModelError:
        pytest.skip("this checkout has no bundled model")


LONGEST = ("bundle/test_parity.py", "docs/test_fine_tune.py", "browser/test_browsing.py")
"""The first files of the processes. Only one of them needs the tiny bundle: others would wait until it is exported."""
SLOW = (
    "docs",
    "bundle",
    "bundles",
    "training",
    "onnx_export",
    "browser",
    "scale",
    "stores",
    "collection",
    "replication",
    "benchmarks",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the slowest files and folders, so that no process has a long file left when the others are done."""
    tests = Path(__file__).parent

    def turn(item: pytest.Item) -> int:
        path = item.path.relative_to(tests)
        if path.as_posix() in LONGEST:
            return LONGEST.index(path.as_posix())
        return len(LONGEST) + (path.parts[0] not in SLOW)

    items.sort(key=turn)


FORKED = ("distributed", "elastic", "mixtures", "resume", "saving", "train_command")
"""Files of training/ that start processes, by way of one server that has imported torch for all of them."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Have one test process run all files of FORKED: a server for each would take seven seconds more."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return "forked" if file in {f"tests/training/test_{name}.py" for name in FORKED} else file

    return Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_finish() -> None:
    """Have the garbage collector spare what imports made, and look rarely: a fifth of the time of an export."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _quick_exports() -> Iterator[None]:
    """Have torch build its tables of functions once, not for every exported graph, and keep no stack of each node.

    That takes a third of an export's time.
    """
    from torch._export import utils
    from torch.fx import config
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ONNXRegistry, "from_torchlib", staticmethod(functools.cache(ONNXRegistry.from_torchlib)))
        patch.setattr(utils, "_materialize_cpp_cia_ops", functools.cache(utils._materialize_cpp_cia_ops))
        patch.setattr(config, "do_not_emit_stack_traces", True, raising=False)
        yield


@pytest.fixture(scope="session")
def tiny_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An exported float32 bundle of a tiny two-tower model with a shared matcher, which reranks by default.

    All test processes share it.
    """
    import tiny
    from sightline.onnx_export.exporter import export

    def make(folder: Path) -> None:
        spec = export(tiny.retriever(tiny.DUAL), tiny.tokenizer(), folder, name="tiny")
        write_spec(folder, dataclasses.replace(spec, defaults=Defaults(rerank=20)))

    return made_once(tmp_path_factory, "tiny", make)


@pytest.fixture(scope="session")
def quick_bundle(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny bundle with a fast image graph, which reads smaller images; each graph has its own relevance."""
    import tiny
    from sightline.bundle.relevance_formula import PairRelevance
    from sightline.onnx_export.fast_image import add_fast_image

    def make(folder: Path) -> None:
        shutil.copytree(tiny_bundle, folder)
        spec = Bundle.open(folder).spec
        write_spec(folder, dataclasses.replace(spec, relevance=PairRelevance({"cosine": 2.0, "bias": 0.5}, line=0.1)))
        graph = tiny.image_graph(tiny.FAST, tmp_path_factory.mktemp("graph"))
        add_fast_image(folder, graph, tiny.FAST.preprocess, PairRelevance({"cosine": 1.0, "bias": -0.5}, line=0.1))

    return made_once(tmp_path_factory, "quick", make)


@pytest.fixture
def traced(tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exports of the tiny model copy the graphs of `tiny_bundle`, because tracing takes a while."""
    import tiny

    tiny.copy_graphs(tiny_bundle, monkeypatch)


@pytest.fixture(scope="session")
def shapes_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of the smallest model of `shapes.recipe`, which embeds and matches, and its bundle.

    The graphs can take the places of those of other models of this size: see `tiny.copy_graphs`.
    """
    import sightline
    from sightline.training.recipe import parse_recipe
    from sightline.training.trainer import train
    from training import shapes

    def make(folder: Path) -> None:
        data = shapes.write(folder / "pictures", shapes.cards(seed=0))
        short: dict[str, Any] = {"schedule": {"steps": 40}, "data": {"batch_size": 12}}
        recipe = shapes.recipe(data, data, hidden=16, layers=1, losses=shapes.JOINT, **short)
        sightline.export(train(parse_recipe(recipe, "shapes"), folder / "run").folder, folder / "bundle")

    return made_once(tmp_path_factory, "shapes", make)


@pytest.fixture(scope="session")
def calibrated(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny bundle with a calibration that finds about half of everything relevant."""
    folder = Path(shutil.copytree(tiny_bundle, tmp_path_factory.mktemp("bundles") / "calibrated"))
    spec = Bundle.open(folder).spec
    write_spec(folder, dataclasses.replace(spec, relevance={"embed": Calibration(3, -1), "match": Calibration(1, 0)}))
    return folder


@pytest.fixture(scope="session")
def german_text(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text graph for German, which is that of `tiny_bundle` with other word vectors, and its tokenizer: an add-on."""
    import numpy as np
    import onnx

    import tiny

    folder = tmp_path_factory.mktemp("german")
    graph = onnx.load(tiny_bundle / "text.onnx")
    for weights in graph.graph.initializer:
        if weights.dims[:1] == [len(tiny.WORDS)]:
            values = onnx.numpy_helper.to_array(weights)
            weights.CopyFrom(onnx.numpy_helper.from_array(np.ascontiguousarray(values[::-1]), weights.name))
    onnx.save(graph, folder / "text.onnx")
    tiny.german_tokenizer().save(folder / "tokenizer.json")
    return folder


@pytest.fixture(scope="session")
def german_bundle(tiny_bundle: Path, german_text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny bundle with an add-on for German."""
    import tiny
    from sightline.bundle.add_languages import add_languages

    folder = Path(shutil.copytree(tiny_bundle, tmp_path_factory.mktemp("bundles") / "german"))
    files = german_text / "text.onnx", german_text / "tokenizer.json"
    add_languages(folder, *files, ["de"], max_length=tiny.MAX_LENGTH)
    return folder


@pytest.fixture
def bundle(tiny_bundle: Path) -> Iterator[Bundle]:
    return Bundle.open(tiny_bundle)


@pytest.fixture
def milvus(_milvus: MilvusServer) -> Iterator[MilvusServer]:
    """A real Milvus server; what a test puts into it is deleted afterwards."""
    yield _milvus
    _milvus.drop_stores()


@pytest.fixture(scope="session")
def _milvus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MilvusServer]:
    pytest.importorskip("pymilvus", reason="pymilvus is not installed: pip install 'sightline-search[scale]'")
    if missing := MilvusServer.missing():
        pytest.skip(missing)
    with shared(MilvusServer(common_folder(tmp_path_factory) / "milvus")) as server:
        yield server


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresTestServer]:
    """A real PostgreSQL server with pgvector, with whatever the tests of this session put into it."""
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'sightline-search[postgres]'")
    if missing := PostgresTestServer.missing():
        pytest.skip(missing)
    with (
        pytest.MonkeyPatch.context() as patch,
        shared(PostgresTestServer(common_folder(tmp_path_factory) / "postgres")) as server,
    ):
        patch.setenv("PGPASSWORD", PASSWORD)
        yield server
