"""docs/pretrained.md does what it says: its commands are run, in order, on tiny models of the same architectures."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from docs.commands import ROOT, lines, run_shell
from models import published
from sightline.bundle import Bundle
from sightline.demo.shapes import shapes, write
from sightline.media import ImageFile, Preprocess, to_pixels
from sightline.registry import loader

PAGE = (ROOT / "docs" / "pretrained.md").read_text(encoding="utf-8")
MODELS = {
    "openai/clip-vit-base-patch32": published.clip,
    "google/siglip-base-patch16-224": published.siglip,
    "Salesforce/blip-itm-base-coco": published.blip,
    "dandelin/vilt-b32-finetuned-coco": published.vilt,
}
BUNDLES = dict(zip(("clip", "siglip", "blip"), MODELS, strict=False))


@pytest.fixture(scope="module")
def told(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Do all that the page says in a fresh folder; what each line showed, by its text."""
    with pytest.MonkeyPatch.context() as patch:
        torch.manual_seed(0)
        for name, make in MODELS.items():
            make(published.in_hub(tmp_path_factory.getbasetemp() / "hub", name, patch))
        patch.setattr(loader, "_bundled", lambda: tiny_bundle)
        patch.chdir(tmp_path_factory.mktemp("reader"))
        captions = write(Path("photos"), shapes(seed=0)).read_text().splitlines()[::6]
        for name in ("val", "test"):
            Path("photos", f"{name}.jsonl").write_text("\n".join(captions))
        yield {line: run_shell(line) for line in lines(PAGE)}


def test_the_page_searches_with_every_bundle_that_it_makes(told: dict[str, str]) -> None:
    assert [line.split()[1] for line in told] == [
        "models", "export", "index", "search", "export", "index", "search", "export", "eval", "eval",
    ]  # fmt: skip
    for line, shown in told.items():
        if line.startswith("sightline search"):
            assert sum(line.lstrip()[:1].isdigit() for line in shown.splitlines()) == 10
            assert ("older method" in shown) == ("siglip" in line)
            assert ("%" in shown) == ("siglip" in line), "SigLIP alone knows how likely its results are"
        if line.startswith("sightline eval"):
            assert "match@20" in shown
    assert "weights" in json.loads(Path("blip/sightline.json").read_text())["relevance"]


@pytest.mark.parametrize("name", BUNDLES)
def test_a_bundle_gives_what_its_published_model_gives(told: dict[str, str], name: str) -> None:
    bundle, model = Bundle.open(name), loader.load(f"hf:{BUNDLES[name]}")
    assert isinstance(model.preprocess, Preprocess)
    assert bundle.abilities == model.abilities
    assert bundle.spec.provenance == {"initial_weights": f"hf:{BUNDLES[name]}"}
    files = sorted(Path("photos").glob("*.png"))[:3]
    pixels = np.stack([to_pixels(ImageFile(file), model.preprocess) for file in files])
    texts = ["a red square", "dog", "A dog on a big, red ball"]
    ours, theirs = (each.encode_images(pixels) for each in (bundle, model))
    read, expected = (each.encode_texts(texts) for each in (bundle, model))
    np.testing.assert_allclose(ours.embedding, theirs.embedding, atol=1e-4)
    np.testing.assert_allclose(read.embedding, expected.embedding, atol=1e-4)
    if "match" in model.abilities:
        logits = bundle.match(read.states, read.mask, ours.states, ours.mask)
        np.testing.assert_allclose(
            logits, model.match(expected.states, expected.mask, theirs.states, theirs.mask), atol=1e-4
        )


def test_the_page_names_every_family() -> None:
    for name in ("CLIP", "SigLIP", "SigLIP 2", "BLIP", "ViLT", "VisionTextDualEncoderModel", "Oscar", "UNITER"):
        assert name in PAGE
