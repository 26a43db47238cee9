"""Training students of a tiny bundle, from tars of a few made-up images to graphs that the bundle searches with."""

import gzip
import io
import json
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import BertConfig, BertModel, ViTConfig, ViTModel

import tiny
from bundles import fast, languages
from bundles.distil import Progress, TeacherGraph, decoded, fit, recalls, same_order, taught_texts
from bundles.fast_export import load_mean
from bundles.fast_weights import weights_of_graph
from sightline.bundle import Bundle
from sightline.bundle.spec import read_spec
from sightline.datasets import read_all
from sightline.errors import DataError
from sightline.media import require_pixels
from sightline.models.student import ImageStudent, StudentShape, resized_positions
from sightline.onnx_export.students import write_image_graph
from sightline.training.corpus import normalised
from tar_files import Contents, write_tar

COLOURS = ("red", "green", "blue")


def write_squares(path: Path, count: int, label: bool = False) -> None:
    """Images of noise in some colour, each with a caption."""
    random = np.random.default_rng(0)
    files: list[tuple[str, Contents]] = []
    for number in range(count):
        colour = number % 3
        pixels = random.integers(0, 90, (32, 32, 3), dtype=np.uint8)
        pixels[..., colour] += 150
        picture = io.BytesIO()
        Image.fromarray(pixels).save(picture, "WEBP")
        text = f"a {COLOURS[colour]} square"
        facts = {"captions": {"en": [text], "de": [f"ein {text}"]}} | ({"label": COLOURS[colour]} if label else {})
        files += [(f"{number:06}.webp", picture.getvalue()), (f"{number:06}.json", facts)]
    write_tar(path, files)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shards")
    write_squares(folder / "flickr8k-train-000.tar", 12)
    write_squares(folder / "flickr8k-val.tar", 6)
    write_squares(folder / "names-val.tar", 6, label=True)
    return folder


def test_a_fast_image_graph_is_trained_and_written(tiny_bundle: Path, shards: Path, tmp_path: Path) -> None:
    size = Bundle.open(tiny_bundle).preprocess.size  # type: ignore[union-attr]
    grid = Bundle.open(tiny_bundle).grid
    assert grid is not None
    sides = {"patch_size": size // grid[0], "image_size": size}
    config = ViTConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, **sides)
    ViTModel(config, add_pooling_layer=False).save_pretrained(tmp_path / "start")
    lines = tmp_path / "runs.txt"
    lines.write_text(f"--out {tmp_path / 'second'} --steps 2 --batch 4 --anchors 4 --new-views 0 --without texts\n")
    options = (
        f"--sources flickr8k --steps 2 --batch 4 --anchors 4 --new-views 2 --mix 1 --log 1 --out {tmp_path / 'run'}"
    )
    options += f" --size {size + sides['patch_size']}"
    pixels = tmp_path / "pixels.npy"
    given = ["--start", str(tmp_path / "start"), "--data", str(shards), "--pixels", str(pixels), "--runs", str(lines)]
    fast.main([str(tiny_bundle), *given, *options.split()])
    assert np.load(pixels).shape == (12, size, size, 3)
    for run in ("run", "second"):
        result = json.loads((tmp_path / run / "result.json").read_text())
        assert set(result["results"]) == {"flickr8k-val", "names-val"}
        assert result["steps_done"] == 2
    assert "texts" in result["without"]
    weights = torch.load(tmp_path / "run" / "student.pt", weights_only=True)
    assert all(torch.isfinite(value).all() for value in weights.values() if value.is_floating_point())
    assert weights["encoder.embeddings.position_embeddings"].shape[1] == 1 + (grid[0] + 1) ** 2


def test_the_mean_of_students_of_different_sizes_is_loaded() -> None:
    config = ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, patch_size=4, image_size=8
    )
    shape, made = StudentShape(8, 8, 8), []
    for size in (8, 12, 16):
        torch.manual_seed(size)
        made.append(ImageStudent(ViTModel(config, add_pooling_layer=False), shape, size, rows=2))
    small, large, target = made
    load_mean(target, [small.state_dict(), large.state_dict()])
    mean = (small.heads.embedding.weight + large.heads.embedding.weight) / 2
    torch.testing.assert_close(target.heads.embedding.weight, mean)
    both = [resized_positions(one.encoder.embeddings.position_embeddings, 4) for one in (small, large)]
    torch.testing.assert_close(target.encoder.embeddings.position_embeddings, (both[0] + both[1]) / 2)


def test_a_fast_image_graph_can_be_trained_further(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, patch_size=8, image_size=32
    )
    shape = StudentShape(8, 4, 12)
    trained, loaded = (ImageStudent(ViTModel(config, add_pooling_layer=False), shape, rows=2).eval() for _ in range(2))
    random = np.random.default_rng(0)
    for value in trained.state_dict().values():
        value += 0.2 * torch.from_numpy(random.standard_normal(value.shape).astype(np.float32))
    pixels = random.standard_normal((8, 3, 32, 32)).astype(np.float32)
    found = weights_of_graph(write_image_graph(trained, pixels, tmp_path))
    loaded.load(found)
    assert found.keys() == trained.state_dict().keys()
    with torch.inference_mode():
        expected, out = trained(torch.from_numpy(pixels)), loaded(torch.from_numpy(pixels))
    for part, values in expected._asdict().items():
        near = torch.nn.functional.cosine_similarity(getattr(out, part), values, dim=-1)
        assert near.min() > 0.99, part


def test_weights_of_another_graph_are_refused(tiny_bundle: Path) -> None:
    with pytest.raises(DataError, match="not a fast image graph"):
        weights_of_graph(tiny_bundle / "text.onnx")


def test_a_view_can_be_a_mixture_of_two_images_that_the_teacher_sees_too(tiny_bundle: Path, shards: Path) -> None:
    records = {"flickr8k": read_all([str(shards / "flickr8k-train-000.tar")])}
    spec, device = read_spec(tiny_bundle), torch.device("cpu")
    preprocess = require_pixels(spec.image.input)
    pixels = decoded(records["flickr8k"], preprocess, device, None)
    teaching = fast.TeachingData(tiny_bundle, spec, records, pixels, crop=1.0, mix=0.5)
    torch.manual_seed(0)
    teaching.look_at_all()
    views = teaching.views
    assert 0 < (views.share < 1).sum() < 12
    assert (views.share >= 0.5).all()
    found = teaching.teacher(pixels=normalised(views.pixels, preprocess))["embedding"]
    torch.testing.assert_close(views.seen["embedding"].float(), found, atol=0.02, rtol=0)
    rows, other, share = torch.arange(3), torch.tensor([5, 6, 7]), torch.tensor([1.0, 0.5, 0.75])
    whole, mirrored = torch.tensor([[0.0, 0, 1, 1]]).expand(3, 4), torch.tensor([False, True, True])
    made = teaching.mixture(rows, other, share, whole, mirrored)
    torch.testing.assert_close(made[0], pixels[0].float(), atol=0.01, rtol=0)
    both = (pixels[1].flip(-1).float() + pixels[6].flip(-1).float()) / 2
    torch.testing.assert_close(made[1], both, atol=0.01, rtol=0)
    uneven = 0.75 * pixels[2].flip(-1).float() + 0.25 * pixels[7].flip(-1).float()
    torch.testing.assert_close(made[2], uneven, atol=0.01, rtol=0)


@pytest.mark.parametrize("size", [16, 32])
def test_a_student_sees_the_views_in_its_own_size(size: int, tiny_bundle: Path, shards: Path) -> None:
    records = {"flickr8k": read_all([str(shards / "flickr8k-train-000.tar")])}
    spec = read_spec(tiny_bundle)
    preprocess = require_pixels(spec.image.input)
    pixels = decoded(records["flickr8k"], preprocess, torch.device("cpu"), None)
    teaching = fast.TeachingData(tiny_bundle, spec, records, pixels, crop=0.5, size=size)
    teaching.look_at_all()
    assert teaching.views.pixels.shape == (12, 3, size, size)
    before = teaching.views.pixels.clone()
    teaching.look_on(5)
    changed = (teaching.views.pixels != before).flatten(1).any(1)
    assert changed.sum() == 5
    assert teaching.shown(torch.arange(4)).shape == (4, 3, size, size)


def test_sources_can_be_drawn_equally_often(tiny_bundle: Path, shards: Path) -> None:
    records = read_all([str(shards / "flickr8k-train-000.tar")])
    plain = [replace(one, captions={}) for one in records[8:]]
    named, spec = {"web": records[:2], "coco": records[2:8], "plain": plain}, read_spec(tiny_bundle)
    pixels = decoded(records, require_pixels(spec.image.input), torch.device("cpu"), None)
    images, captions = {}, {}
    for balance in (0.0, 1.0):
        teaching = fast.TeachingData(tiny_bundle, spec, named, pixels, crop=1.0, balance=balance)
        random = np.random.default_rng(0)
        images[balance] = sum(teaching.batch(1, random)[0].name == "web" for _ in range(300)) / 300
        captions[balance] = (teaching.anchors(300) < 2).float().mean().item()
    assert images == pytest.approx({0.0: 1 / 3, 1.0: 2 / 12}, abs=0.08)
    assert captions == pytest.approx({0.0: 1 / 2, 1.0: 2 / 8}, abs=0.08)


def test_a_text_graph_for_another_language_is_trained(tiny_bundle: Path, shards: Path, tmp_path: Path) -> None:
    config = BertConfig(
        vocab_size=tiny.tokenizer().vocabulary_size, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32,
    )  # fmt: skip
    BertModel(config, add_pooling_layer=False).save_pretrained(tmp_path / "start")
    tiny.tokenizer().save(tmp_path / "start" / "tokenizer.json")
    (tmp_path / "text").mkdir()
    pairs = [("a red square", "ein rotes Quadrat"), ("a green square", "ein gruenes Quadrat")] * 8
    for name, source in (("captions", "flickr8k"), ("held-out", "never read")):
        with gzip.open(tmp_path / "text" / f"{name}.jsonl.gz", "wt") as file:
            for number, (english, german) in enumerate(pairs):
                line = {"en": english, "lang": "de", "text": german, "source": source, "image": f"coco/{number % 12}"}
                file.write(json.dumps(line | ({"loose": True} if number % 5 == 4 else {})) + "\n")
    options = f"--steps 2 --batch 12 --anchors 8 --pairs 4 --log 1 --pad 0 --out {tmp_path / 'run'}"
    start = ["--start", str(tmp_path / "start"), "--text", str(tmp_path / "text"), "--data", str(shards)]
    languages.main([str(tiny_bundle), *start, *options.split()])
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert set(result["results"]["flickr8k-val mean recall"]) == {"de", "en", "teacher en"}
    assert result["lines"] == {"captions de": 16, "english en": 12}


def test_a_factor_gives_a_language_or_a_kind_more_of_a_batch() -> None:
    lines: list[dict[str, object]] = [{"source": "omw", "lang": lang} for lang in ("de", "ja")]
    lines.append({"source": "phrases", "lang": "ja"})
    plain = [share for share, _ in languages.grouped(lines, {})]
    assert plain == pytest.approx([0.2, 0.2, 0.12])
    more = [share for share, _ in languages.grouped(lines, {"ja": 3.0, "sentences": 2.0})]
    assert more == pytest.approx([0.1, 0.3, 0.24])


@pytest.mark.parametrize("wrong", ["zh=0", "zh", "zh=two", "=2", "wrods=2"])
def test_a_factor_that_means_nothing_is_refused(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        languages.main(["bundle", "--start", "s", "--text", "t", "--out", "o", "--more", wrong])
    assert "--more" in capsys.readouterr().err


def test_the_teacher_in_torch_agrees_with_the_bundle(tiny_bundle: Path) -> None:
    bundle = Bundle.open(tiny_bundle)
    texts = ["a dog", "two children playing on a beach", "a cat"]
    graph = TeacherGraph(tiny_bundle / "text.onnx", torch.device("cpu"))
    taught = taught_texts(graph, bundle.tokenizer, texts, torch.device("cpu"))
    expected = bundle.encode_texts(texts)
    np.testing.assert_allclose(taught.embedding.float().numpy(), expected.embedding, atol=0.01)
    states, mask = taught.padded(torch.tensor([2, 1]))
    assert expected.states is not None
    assert mask.sum(1).tolist() == expected.mask.sum(1)[[2, 1]].tolist()
    count = int(mask[0].sum())
    np.testing.assert_allclose(states[0, :count].numpy(), expected.states[2, :count], atol=0.05)


def test_the_same_order_has_no_loss_and_another_has_one() -> None:
    torch.manual_seed(0)
    teacher, anchors, other = (torch.nn.functional.normalize(torch.randn(6, 8), dim=-1) for _ in range(3))
    assert same_order(teacher, teacher, anchors, 0.05).item() == pytest.approx(0, abs=1e-6)
    assert same_order(other, teacher, anchors, 0.05).item() > 0.1
    assert same_order(teacher, teacher, teacher, 0.05, alone=True).item() == pytest.approx(0, abs=1e-6)


def test_recalls_of_known_ranks() -> None:
    images = torch.eye(3)
    texts = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 1, 0.5]])
    found = recalls(texts, images, np.array([0, 1, 2]))
    assert found["t2i R@1"] == pytest.approx(200 / 3)
    assert found["t2i R@5"] == 100
    assert found["i2t R@1"] == pytest.approx(100)


def test_an_interrupted_training_leaves_its_last_weights(tmp_path: Path) -> None:
    student = torch.nn.Linear(2, 1)
    begun = student.weight.detach().clone()
    args = Namespace(steps=20, minutes=1e9, without=[], log=100, out=str(tmp_path))
    steps = iter(range(9))

    def step() -> tuple[dict[str, torch.Tensor], dict[str, object]]:
        if next(steps, None) is None:
            raise KeyboardInterrupt
        return {"away": student(torch.ones(1, 2)).square().mean()}, {}

    with pytest.raises(KeyboardInterrupt):
        fit(
            student,
            torch.optim.SGD([{"params": student.parameters(), "initial_lr": 0.1}]),
            {"away": 1.0},
            step,
            args,
            0.5,
        )
    saved = torch.load(tmp_path / "student.pt", weights_only=True)
    near = (saved["weight"] - student.weight).abs().max()
    assert near < (begun - student.weight).abs().max() / 2
    assert list(tmp_path.glob("*.new")) == []


def test_the_rate_rises_and_falls() -> None:
    rates = list(Progress(steps=100, minutes=60))
    assert len(rates) == 100
    assert rates[0] < rates[4] > rates[50] > rates[99] > 0
