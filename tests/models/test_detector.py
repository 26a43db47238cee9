"""A detector turns pixels into regions: tiny DETR-type models with random weights, saved and opened as any other."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import (
    DetrConfig,
    DetrForObjectDetection,
    PreTrainedModel,
    ResNetConfig,
    RTDetrConfig,
    RTDetrForObjectDetection,
    RTDetrResNetConfig,
    YolosConfig,
    YolosForObjectDetection,
)
from typer.testing import CliRunner

from sightline.cli import app
from sightline.datasets import Problem, Record, read_all
from sightline.errors import DataError, ModelError
from sightline.media import ImageFile, RegionConfig, to_input
from sightline.models.detector import Detector, _classes

LABELS, QUERIES, WIDTH = 5, 7, 16
QUERY_WEIGHTS = "DetrForObjectDetection: model.query_position_embeddings.weight"


def detr() -> PreTrainedModel:
    backbone = ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 8, 8, 8], depths=[1, 1, 1, 1], layer_type="basic", out_features=["stage4"]
    )
    small = {f"{part}_{what}": 2 for part in ("encoder", "decoder") for what in ("attention_heads", "layers")}
    widths = {"d_model": WIDTH, "encoder_ffn_dim": WIDTH, "decoder_ffn_dim": WIDTH}
    config = DetrConfig(
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        backbone_config=backbone,
        num_queries=QUERIES,
        num_labels=LABELS,
        **small,
        **widths,
    )
    return DetrForObjectDetection(config)


def yolos() -> PreTrainedModel:
    config = YolosConfig(
        hidden_size=WIDTH,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=WIDTH,
        image_size=[64, 96],
        patch_size=16,
        num_detection_tokens=QUERIES,
        num_labels=LABELS,
    )
    return YolosForObjectDetection(config)


def rt_detr() -> PreTrainedModel:
    backbone = RTDetrResNetConfig(
        embedding_size=8,
        hidden_sizes=[8, 8, 8, 8],
        depths=[1, 1, 1, 1],
        layer_type="basic",
        out_features=["stage2", "stage3", "stage4"],
    )
    small = {f"{part}_{what}": 2 for part in ("encoder", "decoder") for what in ("attention_heads", "layers")}
    widths = {"d_model": WIDTH, "encoder_hidden_dim": WIDTH, "encoder_ffn_dim": WIDTH, "decoder_ffn_dim": WIDTH}
    config = RTDetrConfig(
        backbone_config=backbone,
        encoder_in_channels=[8, 8, 8],
        decoder_in_channels=[WIDTH] * 3,
        num_queries=QUERIES,
        **small,
        **widths,
    )
    return RTDetrForObjectDetection(config)


def saved(model: PreTrainedModel, folder: Path) -> Path:
    model.save_pretrained(folder)
    kind = type(model).__name__.removesuffix("ForObjectDetection")
    how = {"size": {"shortest_edge": 64, "longest_edge": 96}, "image_mean": [0.5] * 3, "image_std": [0.25] * 3}
    (folder / "preprocessor_config.json").write_text(
        json.dumps({"image_processor_type": f"{kind}ImageProcessor", **how})
    )
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    return saved(detr(), tmp_path_factory.mktemp("detector"))


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for name, size in (("wide", (150, 100)), ("high", (60, 110))):
        noise = np.random.default_rng(len(name)).integers(0, 255, (*size[::-1], 3), dtype=np.uint8)
        Image.fromarray(noise).save(folder / f"{name}.png")
        (folder / f"{name}.txt").write_text(f"a {name} picture")
    return folder


def test_regions_are_what_the_model_itself_finds(folder: Path, photos: Path) -> None:
    detector = Detector.open(str(folder), "cpu")
    image = Image.open(photos / "wide.png")
    found = detector.detect(image)
    with torch.inference_mode():
        out = detector.model(**detector.processor(images=image, return_tensors="pt"))
    boxes = detector.processor.post_process_object_detection(out, threshold=-1.0, target_sizes=[(1, 1)])[0]
    torch.testing.assert_close(found.boxes, boxes["boxes"].clamp(0, 1))
    torch.testing.assert_close(found.confidence, boxes["scores"])
    assert (found.classes.argmax(1) == boxes["labels"]).all()
    torch.testing.assert_close(found.features, out.last_hidden_state[0])
    torch.testing.assert_close(found.classes.sum(1), torch.ones(QUERIES))
    assert (found.boxes[:, 2:] >= found.boxes[:, :2]).all()


def test_a_model_without_a_decoder_gives_the_vectors_of_its_queries_alone(tmp_path: Path, photos: Path) -> None:
    detector = Detector.open(str(saved(yolos(), tmp_path)), "cpu")
    found = detector.detect(Image.open(photos / "high.png"))
    assert found.features.shape == (QUERIES, WIDTH)
    assert found.classes.shape == (QUERIES, LABELS)


def test_classes_may_be_judged_together_or_each_on_its_own() -> None:
    logits = torch.tensor([[2.0, 0.0, 0.0], [0.0, 0.0, 9.0]])
    together, sure = _classes(logits, 2)  # the third is "nothing"
    assert sure[0] > 0.7 > 0.1 > sure[1]
    torch.testing.assert_close(together[1], torch.tensor([0.5, 0.5]))
    _, each = _classes(logits, 3)
    torch.testing.assert_close(each, logits.sigmoid().amax(1))


def test_pictures_become_a_store_with_their_captions(folder: Path, photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "store"
    options = ["--out", str(out), "--detector", str(folder), "--fewest", "3", "--most", "4"]
    done = CliRunner().invoke(app, ["regions", str(photos), *options])
    assert done.exit_code == 0, done.output
    assert "2 images (2 with captions)" in done.output
    records = read_all(out)
    assert sorted(record.captions_in("en")[0] for record in records) == ["a high picture", "a wide picture"]
    for record in records:
        assert 3 <= len(to_input(record.image, RegionConfig(WIDTH, 7))) <= 4


def test_a_command_that_was_stopped_goes_on_without_looking_again(
    folder: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []
    detect = Detector.detect

    def stopping(self: Detector, image: Image.Image) -> Any:
        looked.append(1)
        if len(looked) == 2:
            raise KeyboardInterrupt
        return detect(self, image)

    monkeypatch.setattr(Detector, "detect", stopping)
    command = ["regions", str(photos), "--out", str(tmp_path / "store"), "--detector", str(folder), "--fewest", "3"]
    assert CliRunner().invoke(app, command).exit_code != 0
    assert not (tmp_path / "store").exists()
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert len(looked) == 3, "one at first, one that was stopped, and that one again"
    assert len(read_all(tmp_path / "store")) == 2
    assert "written 1/1" in done.stderr


def test_a_picture_that_cannot_be_opened_is_named(folder: Path, photos: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.png").write_bytes(b"no picture")
    records = [Record("broken", ImageFile(tmp_path / "broken.png"), {}), *read_all(photos)]
    detector = Detector.open(str(folder), "cpu")
    problems: list[Problem] = []
    assert len(list(detector.find(records, problems.append))) == 2
    assert [problem.place for problem in problems] == [str(tmp_path / "broken.png")]
    with pytest.raises(DataError, match=r"broken\.png"):
        list(detector.find(records))


def test_a_folder_that_is_not_there_is_not_taken_for_a_name(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such folder"):
        Detector.open(str(tmp_path / "nowhere"))


def test_what_is_no_detector_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot load a detector"):
        Detector.open(str(tmp_path))


def keep(folder: Path, wanted: Callable[[str], bool]) -> None:
    """Of the weights of a saved model, keep those of such names."""
    weights = load_file(folder / "model.safetensors")
    kept = {name: value for name, value in weights.items() if wanted(name)}
    assert 0 < len(kept) < len(weights)
    save_file(kept, folder / "model.safetensors", {"format": "pt"})


def test_a_detector_that_lacks_weights_is_refused_with_their_names(tmp_path: Path) -> None:
    folder = saved(detr(), tmp_path)
    keep(folder, lambda name: not name.startswith("bbox_predictor.layers.1."))
    with pytest.raises(ModelError) as refused:
        Detector.open(str(folder))
    lacking = "bbox_predictor.layers.1.bias, bbox_predictor.layers.1.weight"
    assert str(refused.value) == f"{folder}: the checkpoint lacks weights for DetrForObjectDetection: {lacking}"


def test_of_many_weights_that_a_detector_lacks_a_few_are_named(tmp_path: Path) -> None:
    keep(saved(detr(), tmp_path), lambda name: not name.startswith(("bbox_predictor.", "class_labels_classifier.")))
    with pytest.raises(ModelError, match=r"bbox_predictor\.layers\.0\.bias, .* and 3 more$"):
        Detector.open(str(tmp_path))


def test_weights_of_another_architecture_are_refused(tmp_path: Path) -> None:
    saved(detr(), tmp_path / "detr")
    saved(yolos(), tmp_path / "yolos")
    (tmp_path / "yolos" / "model.safetensors").replace(tmp_path / "detr" / "model.safetensors")
    with pytest.raises(ModelError, match=r"lacks weights for DetrForObjectDetection: .* and \d+ more"):
        Detector.open(str(tmp_path / "detr"))


def test_weights_of_other_sizes_or_cut_short_are_refused(tmp_path: Path) -> None:
    folder = saved(detr(), tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_queries": QUERIES + 1}))
    with pytest.raises(ModelError) as refused:
        Detector.open(str(folder))
    assert str(refused.value).endswith(f"{QUERY_WEIGHTS} [{QUERIES + 1}, {WIDTH}] (it has [{QUERIES}, {WIDTH}])")
    (folder / "config.json").write_text(json.dumps(config))
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-500])
    with pytest.raises(ModelError, match="cannot load a detector"):
        Detector.open(str(folder))


def test_counts_that_only_training_reads_may_be_missing(tmp_path: Path) -> None:
    keep(saved(rt_detr(), tmp_path), lambda name: not name.endswith("num_batches_tracked"))
    Detector.open(str(tmp_path), "cpu")


def test_weights_in_half_precision_are_computed_with_in_full(tmp_path: Path) -> None:
    detector = Detector.open(str(saved(detr().half(), tmp_path)), "cpu")
    assert detector.detect(Image.new("RGB", (40, 30))).features.shape == (QUERIES, WIDTH)
