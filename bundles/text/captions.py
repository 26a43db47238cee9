"""Captions in several languages, each with the English caption that it translates, or with one for the same photo."""

import gzip
import json
import random
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from bundles.text.sources import Line, records, rows, tidy

_MACHINE = {"es": "es", "uk": "uk", "ar": "ar_arab", "zh": "zh_hans"}
_APERTIUM = {"it": "spa-ita", "pt": "es-pt"}


class Photos:
    """Photos in shards with their English captions, and photos that may not be used, because benchmarks use them."""

    def __init__(self, data: Path) -> None:
        measured = ("flickr8k-val.tar", "flickr8k-test.tar", "coco-val.tar", "coco-distractors.tar")
        self.held = {image_name(key) for key, _ in records(data, *measured)}
        self.flickr8k = {key: facts["captions"] for key, facts in records(data, "flickr8k-train-*.tar")}
        coco = ((image_name(key), facts["captions"].get("en")) for key, facts in records(data, "coco72k-*.tar"))
        self.coco = {image: english for image, english in coco if english and image not in self.held}
        self._held_numbers = {image.split("_")[0] for image in self.held}
        self._of_number = {key.split("_")[0]: image_name(key) for key in self.flickr8k}

    def flickr30k(self, file: str) -> str | None:
        """Return the name of a photo of Flickr30k: empty if it is not in the shards, None if it may not be used."""
        number = re.split(r"[_.#]", Path(file).name)[0]
        return None if f"flickr8k/{number}" in self._held_numbers else self._of_number.get(number, "")


def image_name(key: str) -> str:
    """Return the name of a photo in parallel text."""
    return f"coco/{int(key)}" if key.isdigit() else f"flickr8k/{key}"


def multi30k(github: Path, photos: Photos) -> Iterator[Line]:
    """Yield Multi30k's train and val: translations by people (de, fr, cs) and by machine (es, uk, ar, zh, it, pt)."""
    for split in ("train", "val"):
        base = github / "multi30k/data/task1"
        files, english = rows(base / f"image_splits/{split}.txt"), rows(base / f"raw/{split}.en.gz")
        texts = {("multi30k", lang): rows(base / f"raw/{split}.{lang}.gz") for lang in ("de", "fr", "cs")}
        for lang, code in _MACHINE.items():
            texts["multi30k-ext", lang] = rows(github / f"multi30k-ext/multi30k-dataset-en-{code}/{split}.{code}")
        for lang, pair in _APERTIUM.items():
            texts["apertium-multi30k", lang] = _translated(texts["multi30k-ext", "es"], pair)
        for (source, lang), some in texts.items():
            for file, en, text in zip(files, english, some, strict=bool(some)):
                if (image := photos.flickr30k(file)) is not None:
                    yield Line(tidy(en), lang, tidy(text), source, image)


def _translated(texts: Sequence[str], pair: str) -> list[str]:
    """Translate with Apertium; a text with a word that Apertium does not know becomes empty."""
    if not texts:
        return []
    given = "\n".join(texts) + "\n"
    done = subprocess.run(["apertium", pair], input=given, text=True, capture_output=True, check=True)
    return ["" if re.search(r"[*#@\\]", text) else text for text in done.stdout.removesuffix("\n").split("\n")]


def own_captions(github: Path, photos: Photos) -> Iterator[Line]:
    """Yield the captions that are not translations: Dutch ones for Flickr30k, Italian and Chinese ones for COCO."""
    choose = random.Random(0).choice
    for split in ("val", "test"):
        top = github / "dutch/Data"
        files = rows(top / f"splits/{split}_images.txt")
        each = [rows(top / f"English/{split.title()}/{split}.{number}") for number in range(1, 6)]
        for number in range(5):
            texts = rows(top / f"Dutch/{split.title()}/{split}.{number}")
            if len(files) == len(texts):  # some files are not aligned
                for file, text, *captions in zip(files, texts, *each, strict=True):
                    if (image := photos.flickr30k(file)) is not None and len(text.split()) > 1:
                        yield Line(tidy(choose(captions)), "nl", tidy(text), "dutch-descriptions", image, True)
    for path in sorted((github / "mscoco-it/mscoco-it").glob("*.json.gz")):
        for item in json.loads(gzip.decompress(path.read_bytes()))["annotations"]:
            texts = [item["caption"]] if isinstance(item["caption"], str) else item["caption"]
            if english := photos.coco.get(image := f"coco/{item['image_id']}"):
                yield from (Line(tidy(choose(english)), "it", tidy(text), "mscoco-it", image, True) for text in texts)
    for row in rows(github / "coco-cn/data/coco-cn_ext.icap2020.txt"):
        name, _, text = row.partition("\t")
        if english := photos.coco.get(image := f"coco/{int(name.split('#')[0].split('_')[-1])}"):
            yield Line(tidy(choose(english)), "zh", tidy(text), "coco-cn", image, True)


def flickr8k(photos: Photos, translations: Sequence[Line]) -> Iterator[Line]:
    """Yield the captions of Flickr8k's training photos; some come from Multi30k, with their English original."""
    exact = {(line.lang, line.text): line.en for line in translations}
    choose = random.Random(0).choice
    for key, captions in photos.flickr8k.items():
        for lang, texts in captions.items():
            for text in map(tidy, texts) if lang != "en" else ():
                en = exact.get((lang, text))
                yield Line(en or tidy(choose(captions["en"])), lang, text, "flickr8k", image_name(key), en is None)
