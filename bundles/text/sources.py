"""The sources of parallel text, and how to download them; see bundles/README.md for the licences."""

import gzip
import io
import json
import subprocess
import tarfile
import unicodedata
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

THREE_LETTERS = {
    "deu": "de", "fra": "fr", "spa": "es", "ita": "it", "por": "pt", "nld": "nl", "pol": "pl", "ces": "cs", "rus": "ru",
    "swe": "sv", "tur": "tr", "jpn": "ja", "cmn": "zh", "arb": "ar", "ara": "ar", "dan": "da", "nob": "no", "nor": "no",
    "fin": "fi", "hun": "hu", "ell": "el", "ukr": "uk", "ron": "ro", "kor": "ko", "hin": "hi", "heb": "he", "ind": "id",
    "vie": "vi", "cat": "ca",
}  # fmt: skip
LANGUAGES = tuple(dict.fromkeys(THREE_LETTERS.values()))
DEBIAN = ("wordnet-base", "edict", "unicode-cldr-core", "tuxpaint-stamps-default")
FREEDICT = "ara ces dan deu ell fin fra hin hun ind ita jpn nld nor pol por rus spa swe tur".split()  # noqa: SIM905
TATOEBA = ("swe", "tur", "cmn", "pol", "ara", "jpn")
GITHUB = {
    "multi30k": "multi30k/dataset",
    "multi30k-ext": "ufdatastudio/multi30k-extension",
    "dutch": "cltl/DutchDescriptions",
    "mscoco-it": "crux82/mscoco-it",
    "coco-cn": "li-xirong/coco-cn",
    "omw": "omwn/omw-data",
    "xtd10": "adobe-research/Cross-lingual-Test-Dataset-XTD10",
}


class Line(NamedTuple):
    """A text and its English counterpart; `loose` if both only describe the same photo."""

    en: str
    lang: str
    text: str
    source: str
    image: str = ""
    loose: bool = False

    def to_json(self) -> str:
        """Return the line as `bundles.languages` reads it."""
        fields = self._asdict()
        if not fields.pop("loose"):
            return json.dumps(fields, ensure_ascii=False)
        return json.dumps({**fields, "loose": True}, ensure_ascii=False)


def tidy(text: str) -> str:
    """Return the text on one line, in Unicode normal form."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def rows(path: Path) -> list[str]:
    """Return the lines of a text file, which may be compressed; no lines if it does not exist."""
    if not path.exists():
        return []
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return content.decode("utf-8", "replace").removesuffix("\n").split("\n")


def records(data: Path, *patterns: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the key and the metadata of each image in the shards."""
    for path in sorted(one for pattern in patterns for one in data.glob(pattern)):
        with tarfile.open(path) as shard:
            for member in shard:
                if member.name.endswith(".json") and (file := shard.extractfile(member)):
                    yield member.name.removesuffix(".json").rsplit("/", 1)[-1], json.load(file)


def stamps(debian: Path) -> Iterator[tuple[Path, str, list[tuple[str, str]]]]:
    """Yield every stamp of Tux Paint: its text file, and its sentence in English and in other languages, by locale."""
    for path in sorted((debian / "usr/share/tuxpaint/stamps").rglob("*.txt")):
        english, *others = rows(path)
        cells = [row.partition(".utf8=") for row in others]
        yield path, english, [(locale, text) for locale, equals, text in cells if equals]


def freedict(debian: Path) -> Iterator[tuple[str, str, Path]]:
    """Yield FreeDict's dictionaries, each as its source language, its target language and its index."""
    for path in sorted((debian / "usr/share/dictd").glob("freedict-*.index")):
        source, target = path.stem.split("-")[1:]
        yield source, target, path


def fetch(folder: Path) -> None:
    """Download what is missing in `folder`: debian/ (unpacked packages), github/NAME/, tatoeba/LANGUAGE.txt."""
    packages = [*DEBIAN, *(f"dict-freedict-{pair}" for code in FREEDICT for pair in (f"eng-{code}", f"{code}-eng"))]
    if not (folder / "debian").exists():
        (folder / "packages").mkdir(parents=True, exist_ok=True)
        for package in packages:  # not every language has both directions
            subprocess.run(["apt-get", "download", package], cwd=folder / "packages", check=package in DEBIAN)
        for path in sorted((folder / "packages").glob("*.deb")):
            subprocess.run(["dpkg-deb", "-x", path, folder / "debian"], check=True)
    for name, repository in GITHUB.items():
        if not (folder / "github" / name).exists():
            with tarfile.open(fileobj=io.BytesIO(_get(f"https://github.com/{repository}/archive/HEAD.tar.gz"))) as tar:
                tar.extractall(folder / "github" / f"{name}.part", filter="data")
            (top,) = (folder / "github" / f"{name}.part").iterdir()
            top.rename(folder / "github" / name)
            top.parent.rmdir()
    for code in TATOEBA:
        path = folder / "tatoeba" / f"{code}.txt"
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            with zipfile.ZipFile(io.BytesIO(_get(f"https://www.manythings.org/anki/{code}-eng.zip"))) as archive:
                path.write_bytes(archive.read(path.name))


def _get(url: str) -> bytes:
    request = urllib.request.Request(url, headers={"User-Agent": "Mozilla/5.0 (sightline)"})
    with urllib.request.urlopen(request) as answer:
        return answer.read()  # type: ignore[no-any-return]
