"""README's commands to train, evaluate and export, run as written on tiny data, give a bundle that searches well."""

import io
import json
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

import sightline
from datasets.test_wordnet import DATA, INDEX
from docs.commands import ROOT, run_shell
from models import published
from sightline.demo.shapes import Drawn
from sightline.errors import ModelError
from tar_files import Contents, write_tar
from training import shapes

PAGE = (ROOT / "README.md").read_text(encoding="utf-8").split("## Train, evaluate, export\n")[1]
(BLOCK, *_) = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
SHARDS = ("flickr8k-train-000", "coco72k-000", "coco72k-010", "web-train-000", "names-train", "flickr8k-val",
          "coco-val", "web-val", "names-val")  # fmt: skip
SMALL = " --set data.batch_size=8 --set schedule.steps=3 --set augment.crop=1.0"


def write_shard(path: Path, cards: Iterable[Drawn]) -> None:
    files: list[tuple[str, Contents]] = []
    for number, card in enumerate(cards):
        image = io.BytesIO()
        card.picture.save(image, "PNG")
        fields = {"captions": {"en": card.captions}, "label": card.name.split("-")[1]}
        files += [(f"{number:04}.png", image.getvalue()), (f"{number:04}.json", fields)]
    write_tar(path, files)


@pytest.fixture
def newcomer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with what the recipe names, all of it tiny."""
    monkeypatch.chdir(tmp_path)
    for name in ("DATA", "PRETRAINED", "WORDNET"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(f"SIGHTLINE_{name}", str(tmp_path / name))
    Path("recipes").symlink_to(ROOT / "recipes")
    published.deep_clip(tmp_path / "PRETRAINED" / "clip-vit-base-patch16-vision", layers=7)
    published.deep_bert(tmp_path / "PRETRAINED" / "gte-small", layers=1)
    (tmp_path / "WORDNET" / "index.noun").write_text(INDEX)
    (tmp_path / "WORDNET" / "data.noun").write_text(DATA)
    for seed, name in enumerate(SHARDS):
        write_shard(tmp_path / "DATA" / f"{name}.tar", list(shapes.cards(seed))[::2])
    write_shard(Path("flickr8k-test.tar"), list(shapes.cards(99))[::2])


@pytest.mark.usefixtures("newcomer")
def test_a_plain_search_is_as_good_as_one_without_a_rerank() -> None:
    train, evaluate, export = BLOCK.splitlines()
    run_shell(train.split("#")[0] + SMALL)
    run_shell(evaluate)
    run_shell(export)
    assert json.loads(Path("result.json").read_text())["stages"] == ["embed"]
    photos = shapes.write(Path("photos"), shapes.cards(99))
    run_shell("sightline index photos --model my-bundle")
    with sightline.open("photos") as collection:
        for caption in (json.loads(line)["captions"][0] for line in photos.read_text().splitlines()[:6]):
            plain, without = (collection.search(caption, k=5, **asked) for asked in ({}, {"rerank": 0}))
            assert [(hit.path, hit.score) for hit in plain] == [(hit.path, hit.score) for hit in without]
    for asked in ({"rerank": 20}, {"late": 20}):
        with pytest.raises(ModelError, match="the model supports only `embed`"):
            sightline.search("a red square", at="photos", **asked)  # type: ignore[arg-type]
