"""Which engine runs a bundle: ONNX Runtime for a search, torch for work that lasts where a GPU is at hand.

No GPU is needed: here one is feigned, and torch runs on the processors behind it.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from PIL import Image
from typer.testing import CliRunner

import sightline
from sightline import device
from sightline.bundle import Bundle, engines
from sightline.bundle.engines import Engine, OnnxRuntime, load_engine
from sightline.cli import app
from sightline.collection import Collection
from sightline.collection.indexing import batches, encode
from sightline.doctor import examine
from sightline.errors import SightlineError, UnknownOperatorError
from sightline.evaluation import pair_scores
from sightline.evaluation.encodings import Needs, encode_images, encode_texts, usual_batch
from sightline.evaluation.pair_scores import late_scores, match_scores
from sightline.kernels import pairs
from sightline.kernels.graphs import TorchGraph
from sightline.kernels.pairs import DeviceLatePairs, DevicePairs
from sightline.media import ImageFile
from sightline.server.limits import Limits
from sightline.server.shared_model import SharedModel

TEXTS = ["a dog", "the red ball on the beach", "two"]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A machine with a GPU, which is not one; gives the graphs that were loaded for it."""
    loaded: list[str] = []

    def under_torch(path: Path, device: str) -> Engine:
        assert device == "gpu"
        loaded.append(path.stem)
        return TorchGraph.open(path, "cpu")

    monkeypatch.setattr(device, "has_gpu", lambda: True)
    monkeypatch.setattr(engines, "_under_torch", under_torch)
    return loaded


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for number in range(5):
        pixels = np.random.default_rng(number).integers(0, 256, (3, 4, 3), dtype=np.uint8)
        (tmp_path / "photos").mkdir(exist_ok=True)
        Image.fromarray(pixels).resize((40, 30)).save(tmp_path / "photos" / f"{number}.png")
    return tmp_path / "photos"


def unknown(path: Path) -> Path:
    """A graph that ONNX Runtime knows and torch was not taught."""
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [None])
    graph = helper.make_graph([helper.make_node("Erf", ["x"], ["y"])], "g", [value], [onnx.ValueInfoProto(name="y")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    return path


def test_a_bundle_is_opened_for_the_processors_even_where_there_is_a_gpu(tiny_bundle: Path, gpu: list[str]) -> None:
    bundle = Bundle.open(tiny_bundle)
    assert isinstance(bundle.engine("text"), OnnxRuntime)
    assert bundle.device == "cpu"
    assert not gpu


def test_on_a_gpu_it_gives_the_same_from_a_gpu(tiny_bundle: Path, gpu: list[str]) -> None:
    plain, on_gpu = sightline.load(tiny_bundle), sightline.load(tiny_bundle, prefer_gpu=True)
    pixels = np.random.default_rng(0).standard_normal((3, 3, 32, 32)).astype(np.float32)
    for one, other in (
        (plain.encode_texts(TEXTS), on_gpu.encode_texts(TEXTS)),
        (plain.encode_images(pixels), on_gpu.encode_images(pixels)),
    ):
        np.testing.assert_allclose(one.embedding, other.embedding, atol=1e-4)
        np.testing.assert_array_equal(one.mask, other.mask)
        np.testing.assert_allclose(one.states, other.states, atol=1e-4)  # type: ignore[arg-type]
    assert sorted(gpu) == ["image", "text"]
    assert on_gpu.sha256 == plain.sha256


def test_without_a_gpu_lasting_work_stays_on_the_processors(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "has_gpu", lambda: False)
    assert isinstance(bundle.prefer_gpu().engine("text"), OnnxRuntime)


def test_a_graph_that_torch_does_not_know_runs_on_the_processors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = unknown(tmp_path / "graph.onnx")
    monkeypatch.delenv(device.VARIABLE, raising=False)
    with pytest.warns(UserWarning, match="Erf"):
        engine = load_engine(path, "gpu", 1)
    assert isinstance(engine, OnnxRuntime)
    assert engine.run({"x": np.zeros(2, np.float32)})["y"].tolist() == [0, 0]
    monkeypatch.setenv(device.VARIABLE, "gpu")
    with pytest.raises(UnknownOperatorError, match="Erf"):
        load_engine(path, "gpu", 1)


def test_without_onnx_runtime_torch_does_on_the_processors(tiny_bundle: Path) -> None:
    """A whole bundle, in a process that cannot import ONNX Runtime or FAISS."""
    script = """
import sys, json
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("onnxruntime", "faiss"):
            raise ModuleNotFoundError(name)
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name in ("onnxruntime", "faiss") else found(name, *rest)
sys.meta_path.insert(0, Block())
import sightline
print(json.dumps(sightline.load(sys.argv[1]).encode_texts(["a dog"]).embedding.tolist()))
"""
    done = subprocess.run([sys.executable, "-c", script, str(tiny_bundle)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    expected = Bundle.open(tiny_bundle).encode_texts(["a dog"]).embedding
    np.testing.assert_allclose(json.loads(done.stdout), expected, atol=1e-4)


def test_many_pictures_are_indexed_on_a_gpu_in_larger_batches_and_few_are_not(
    tiny_bundle: Path, photos: Path, tmp_path: Path, gpu: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sightline.index(photos, at=tmp_path / "few", model=tiny_bundle)
    assert not gpu
    monkeypatch.setitem(encode._WORTH_A_GPU, "images", 5)
    monkeypatch.setitem(batches.AT_ONCE["gpu"], "images", 3)
    sizes: list[int] = []
    encode_images = Bundle.encode_images
    monkeypatch.setattr(
        Bundle, "encode_images", lambda own, pixels: (sizes.append(len(pixels)), encode_images(own, pixels))[1]
    )
    sightline.index(photos, at=tmp_path / "many", model=tiny_bundle)
    assert gpu == ["image"]
    assert sorted(sizes[-2:]) == [2, 3]
    with Collection.open(tmp_path / "few") as one, Collection.open(tmp_path / "many") as other:
        ids = one.store.ids()
        assert (one.store.fetch(ids, "states").values - other.store.fetch(ids, "states").values).max() < 1e-2


def test_a_server_encodes_and_matches_on_a_gpu(bundle: Bundle, gpu: list[str]) -> None:
    shared = SharedModel(bundle, Limits(encoders=0))
    shared.warm_up()
    found = shared.encode_texts(TEXTS)
    shared.close()
    assert sorted(gpu) == ["match", "text"]
    assert shared.workers == 2
    assert shared.most > 1
    np.testing.assert_allclose(found.embedding, bundle.encode_texts(TEXTS).embedding, atol=1e-4)


def test_an_evaluation_matches_pairs_whose_states_stay_on_the_gpu(
    bundle: Bundle, photos: Path, gpu: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    needs, sources = Needs(states=True), [ImageFile(path) for path in sorted(photos.iterdir())]
    images, texts = encode_images(bundle, sources, needs, 4)[0], encode_texts(bundle, TEXTS, needs, 4)[0]
    which = np.array([0, 1, 2, 2, 1]), np.array([4, 0, 3, 1, 1])
    expected = match_scores(bundle, texts, images, 2)(*which)
    on_gpu = bundle.prefer_gpu()
    assert (usual_batch(bundle), usual_batch(on_gpu)) == (32, 256)
    np.testing.assert_allclose(match_scores(on_gpu, texts, images, 2)(*which), expected, atol=1e-4)
    monkeypatch.setattr(Bundle, "match", None)  # not asked: the pairs were matched where the states are
    match_scores(on_gpu, texts, images, 2)(*which)
    monkeypatch.undo()
    monkeypatch.setattr(DevicePairs, "fit", lambda *given: False)
    np.testing.assert_allclose(match_scores(on_gpu, texts, images, 2)(*which), expected, atol=1e-4)


def test_late_interaction_on_a_gpu_agrees_with_the_cpu(
    bundle: Bundle, photos: Path, gpu: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    needs, sources = Needs(fragments=True), [ImageFile(path) for path in sorted(photos.iterdir())]
    images, texts = encode_images(bundle, sources, needs, 4)[0], encode_texts(bundle, TEXTS, needs, 4)[0]
    which = tuple(part.ravel() for part in np.meshgrid(np.arange(len(texts)), np.arange(len(images))))
    expected = late_scores(bundle, texts, images)(*which)
    on_gpu = bundle.prefer_gpu()
    monkeypatch.setattr(pairs, "_PAIRS", 4)  # several chunks
    with monkeypatch.context() as here:
        here.setattr(pair_scores, "patches_with_texts", None)  # not used: the pairs are scored where the fragments are
        np.testing.assert_allclose(late_scores(on_gpu, texts, images)(*which), expected, atol=1e-5)
    monkeypatch.setattr(DeviceLatePairs, "on_gpu", lambda *given: None)
    np.testing.assert_allclose(late_scores(on_gpu, texts, images)(*which), expected, atol=1e-5)


def test_the_command_evaluates_on_a_gpu(
    tiny_bundle: Path, photos: Path, gpu: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [{"image": path.name, "captions": [f"a {path.stem}"]} for path in sorted(photos.iterdir())]
    (photos / "captions.jsonl").write_text("\n".join(map(json.dumps, lines)))
    asked = ["eval", str(tiny_bundle), str(photos / "captions.jsonl"), "--rerank", "2"]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    assert sorted(gpu) == ["image", "match", "text"]


@pytest.mark.parametrize(
    ("wish", "driver", "sees", "expected"),
    [
        ("auto", True, True, True),
        ("auto", True, False, False),
        ("auto", False, True, False),
        ("cpu", True, True, False),
        ("gpu", False, True, True),
    ],
)
def test_a_gpu_is_used_where_there_is_one_and_nobody_says_otherwise(
    wish: str, driver: bool, sees: bool, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(device.VARIABLE, wish)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(device, "_DRIVER", tmp_path if driver else tmp_path / "none")
    monkeypatch.setattr(device, "_torch_sees_one", lambda: sees)
    assert device.has_gpu.__wrapped__() is expected
    if wish == "auto":
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
        assert not device.has_gpu.__wrapped__()


def test_a_required_gpu_that_is_missing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "_torch_sees_one", lambda: False)
    for wish, says in (("gpu", "sees no GPU"), ("tpu", "unknown")):
        monkeypatch.setenv(device.VARIABLE, wish)
        with pytest.raises(SightlineError, match=says):
            device.has_gpu.__wrapped__()


def test_the_doctor_says_where_lasting_work_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "has_gpu", lambda: False)
    findings: dict[str, Any] = {finding.subject: finding for finding in examine()}
    assert findings["Long jobs"].says == "CPU (no usable GPU)"


def test_onnx_runtime_reports_nothing_to_its_makers(tiny_bundle: Path, tmp_path: Path) -> None:
    """Since 1.29, it sends statistics and writes an id of the machine to the user's folder, unless told not to."""
    unset = ("ORT_DISABLE_TELEMETRY", "ORT_RUNNING_UNIT_TESTS", "CI", "GITHUB_ACTIONS", "XDG_CACHE_HOME")
    environment = {name: value for name, value in os.environ.items() if name not in unset} | {"HOME": str(tmp_path)}
    script = "import sightline, sys; sightline.load(sys.argv[1]).encode_texts(['a dog'])"
    command = [sys.executable, "-c", script, str(tiny_bundle)]
    subprocess.run(command, env=environment, check=True, capture_output=True)

    assert not list(tmp_path.rglob("*onnxruntime*"))


def test_a_user_may_let_onnx_runtime_report() -> None:
    environment = {**os.environ, "ORT_DISABLE_TELEMETRY": "0"}
    script = "import os, sightline; print(os.environ['ORT_DISABLE_TELEMETRY'])"
    done = subprocess.run([sys.executable, "-c", script], env=environment, check=True, capture_output=True, text=True)

    assert done.stdout.strip() == "0"
