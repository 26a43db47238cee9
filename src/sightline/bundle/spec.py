"""The spec of a bundle, the only interface between training and search."""

import hashlib
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from sightline import settings
from sightline.bundle.layout import FAST_IMAGE_FILE, IMAGE_FILE, SPEC_FILE
from sightline.bundle.model import Ability, Calibration, Defaults
from sightline.bundle.onnx_file import check_self_contained
from sightline.bundle.relevance_formula import PairRelevance
from sightline.errors import BundleError
from sightline.files import write_atomic
from sightline.media import ImageInput, Preprocess, RegionConfig

FORMAT = 2


@dataclass(frozen=True, slots=True)
class ImageSpec:
    """The input of the image graph, and the grid that its fragments form (rows, columns).

    preprocess: how images are resized and normalised.
    regions: the regions that the graph reads instead of pixels. Exactly one of these two is set.
    """

    preprocess: Preprocess | None = None
    grid: tuple[int, int] | None = None
    regions: RegionConfig | None = None

    def __post_init__(self) -> None:
        if (self.preprocess is None) == (self.regions is None):
            found = "neither is" if self.regions is None else "both are"
            raise BundleError(f"image: either `preprocess` or `regions` must be set, but {found}")

    @property
    def input(self) -> ImageInput:
        """The input that the graph expects."""
        wanted: ImageInput | None = self.preprocess or self.regions
        return wanted  # type: ignore[return-value]  # exactly one is set


@dataclass(frozen=True, slots=True)
class TextSpec:
    """The input of the text graph. `tokenizer` is the name of a file in the bundle."""

    max_length: int
    tokenizer: str = "tokenizer.json"
    pad_id: int = 0
    languages: tuple[str, ...] = ("en",)


@dataclass(frozen=True, slots=True)
class FastSpec:
    """A second image graph, `image-fast.onnx`: smaller, faster, and in the same space as the bundle's other graphs.

    image: its input and grid. relevance: fitted for its vectors; None if it was not fitted.
    provenance, results: as in `BundleSpec`, but for this graph.
    """

    image: ImageSpec
    relevance: PairRelevance | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    results: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class BundleSpec:
    """The contents of `sightline.json`.

    files: sha256 of every other file in the bundle, by name.
    defaults: the stages and the fusion for searches that do not set them; benchmarks/cascade.py chooses the stages.
    relevance: the fitted probability that an image shows what a text asks for; in older bundles, a mapping of scores to
        probabilities, by stage ("embed", "match").
    words: the words of the training captions, most frequent first, separated by spaces.
    provenance: recipe, data, seed, initial weights, licences.
    results: evaluation results, as `sightline eval` writes them.
    fast: a second, faster image graph; None if the bundle has none.
    """

    format: int
    name: str
    abilities: tuple[Ability, ...]
    embedding_dim: int
    image: ImageSpec
    text: TextSpec
    files: Mapping[str, str]
    precision: Literal["float32", "int8"] = "float32"
    fragment_dim: int = 0
    defaults: Defaults = field(default_factory=Defaults)
    relevance: PairRelevance | Mapping[str, Calibration] = field(default_factory=dict)
    words: str = ""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    results: tuple[Mapping[str, Any], ...] = ()
    fast: FastSpec | None = None

    @property
    def image_file(self) -> str:
        """The name of the image graph's file."""
        return IMAGE_FILE if IMAGE_FILE in self.files else FAST_IMAGE_FILE

    def without_fast(self) -> "BundleSpec":
        """Return the spec without the fast image graph, if there is one."""
        if self.fast is None:
            return self
        files = {name: hash for name, hash in self.files.items() if name != FAST_IMAGE_FILE}
        return replace(self, files=files, fast=None)

    def fast_variant(self) -> "BundleSpec":
        """Return the bundle with its fast image graph in place of the full one; raises an error if it has none."""
        if self.fast is None:
            raise BundleError(f"{self.name} has no fast image graph", "Leave out `:fast` or `--quick`.")
        return replace(
            self,
            name=f"{self.name}-fast",
            image=self.fast.image,
            files={name: hash for name, hash in self.files.items() if name != IMAGE_FILE},
            relevance={} if self.fast.relevance is None else self.fast.relevance,
            provenance=self.fast.provenance,
            results=self.fast.results,
            fast=None,
        )


def read_spec(folder: Path) -> BundleSpec:
    """Read and check `sightline.json` in a bundle's folder; `check_files` checks the other files."""
    way_out = "Export the model again with this version."
    path = folder / SPEC_FILE
    if path.exists() and not path.is_file():
        raise BundleError(f"{path}: not a regular file", way_out)
    try:
        spec = settings.read(BundleSpec, path, "bundle", FORMAT, BundleError, way_out, _upgraded)
    except FileNotFoundError as error:
        raise BundleError(f"{folder} is not a bundle: it has no {SPEC_FILE}") from error
    _check_names(folder, spec)
    return spec


def _upgraded(data: dict[str, Any]) -> dict[str, Any]:
    """Upgrade from format 1, in which `defaults` was `fusion` and `usual`, and `relevance` was `calibration`."""
    fusion, usual = data.get("fusion", {}), data.get("usual", {})
    if data.get("format") != 1 or not isinstance(fusion, dict) or not isinstance(usual, dict):
        return data
    kept = {name: value for name, value in data.items() if name not in ("fusion", "usual", "calibration")}
    joined = {"weight": 0.0, **{"fusion" if name == "rule" else name: value for name, value in fusion.items()}}
    return {**kept, "format": FORMAT, "defaults": {**usual, **joined}, "relevance": data.get("calibration", {})}


def write_spec(folder: Path, spec: BundleSpec) -> None:
    """Write `sightline.json`, after all other files, so that a half-written folder is never mistaken for a bundle."""
    text = json.dumps(settings.plain(spec), indent=2, ensure_ascii=False) + "\n"
    write_atomic(folder / SPEC_FILE, text)


def _check_names(folder: Path, spec: BundleSpec) -> None:
    """Reject a spec that lists files other than the graphs and the tokenizer that the bundle uses."""
    tokenizer = spec.text.tokenizer
    if tokenizer != Path(tokenizer).name or "\\" in tokenizer or "\0" in tokenizer:
        raise BundleError(
            f"{folder}: the tokenizer {tokenizer!r} is not a plain file name",
            "Put the file in the bundle's folder, and give its name without a path.",
        )
    graphs = {IMAGE_FILE, "text.onnx", *(["match.onnx"] if "match" in spec.abilities else [])}
    expected = graphs | {tokenizer} | ({FAST_IMAGE_FILE} if spec.fast else set())
    if set(spec.files) == expected:
        return
    missing, unknown = sorted(expected - set(spec.files)), sorted(set(spec.files) - expected)
    kinds = (("does not list the required", missing), ("lists the unused", unknown))
    wrong = " and ".join(f"{what} {', '.join(names)}" for what, names in kinds if names)
    raise BundleError(f"{folder / SPEC_FILE}: {wrong}", "Export the model again.")


def check_files(folder: Path, spec: BundleSpec) -> None:
    """Reject a bundle in which a file is missing or differs from the exported one."""
    for name, expected in spec.files.items():
        check_file(folder, name, expected)


def check_file(folder: Path, name: str, expected: str) -> None:
    """Reject a file of a bundle if it is missing, or if its sha256 differs from that in the spec."""
    try:
        found = sha256(folder / name)
    except OSError as error:
        raise BundleError(
            f"{folder}: the bundle's file {name} cannot be read: {error.strerror or error}",
            "The bundle is incomplete: copy or export it again.",
        ) from error
    if found != expected:
        raise BundleError(
            f"{folder / name}: sha256 is {found[:12]}…, but the bundle lists {expected[:12]}…",
            "The file is damaged or was modified: copy or export the bundle again.",
        )
    if name.endswith(".onnx"):
        check_self_contained(folder / name)


def identity(spec: BundleSpec) -> str:
    """Return a hash of everything that determines a bundle's vectors, but not of its name, results and fast graph."""
    decides = {"files": spec.without_fast().files, "image": spec.image, "text": spec.text}
    return hashlib.sha256(json.dumps(settings.plain(decides), sort_keys=True).encode()).hexdigest()


def sha256(path: Path) -> str:
    """Return the hash of a file's contents, in hexadecimal; raises `OSError` for a pipe or a device."""
    with open(path, "rb", opener=_without_waiting) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(f"{path} is not a regular file")
        return hashlib.file_digest(file, "sha256").hexdigest()


def _without_waiting(path: str, flags: int) -> int:
    """Open a file without blocking if it is a pipe."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
