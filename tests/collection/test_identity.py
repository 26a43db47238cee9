"""Two models are told apart by whatever decides their vectors, and by nothing else."""

import dataclasses
from pathlib import Path

import tiny
from sightline.bundle import Bundle
from sightline.bundle.spec import identity
from sightline.collection import Collection, index
from sightline.models import checkpoint
from sightline.models.torch_model import TorchModel
from sightline.registry.loader import load


def test_a_bundle_is_known_by_its_files_and_by_how_items_reach_it(bundle: Bundle) -> None:
    spec = bundle.spec
    assert bundle.sha256 == identity(spec)
    same = dataclasses.replace(spec, name="other", results=({"rSum": 1},), provenance={"seed": 2})
    assert identity(same) == bundle.sha256
    preprocess = dataclasses.replace(spec.image.preprocess, mean=(0.4, 0.5, 0.5))
    others = [
        dataclasses.replace(spec, files={**spec.files, "image.onnx": "0" * 64}),
        dataclasses.replace(spec, image=dataclasses.replace(spec.image, preprocess=preprocess)),
        dataclasses.replace(spec, text=dataclasses.replace(spec.text, max_length=3)),
    ]
    assert len({identity(other) for other in [*others, spec]}) == 4


def test_a_checkpoint_is_known_by_its_weights_and_indexes_like_a_bundle(tmp_path: Path, photos: Path) -> None:
    checkpoint.save(tiny.retriever(tiny.DUAL), tiny.tokenizer(), tmp_path / "one")
    one, again = load(tmp_path / "one"), load(tmp_path / "one")
    other = TorchModel(tiny.retriever(tiny.DUAL, seed=1), tiny.tokenizer(), "one")
    assert one.sha256 == again.sha256 != other.sha256
    assert index(photos, model=tmp_path / "one").new == 6
    with Collection.open(photos / ".sightline") as collection:
        collection.check_model(one)
