"""List the bundles on this machine, with their capabilities and results, and other known models."""

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sightline.bundle.languages import FOLDER, LanguagesSpec, languages_of, read_languages
from sightline.bundle.layout import HUB_PREFIX, SPEC_FILE
from sightline.bundle.spec import BundleSpec, identity, read_spec
from sightline.errors import BundleError, ModelError
from sightline.registry.loader import FAST, locate
from sightline.registry.published import PublishedModel

if TYPE_CHECKING:
    from rich.table import Table

_FEW = 3  # languages that fit into a column
_HERE = ("*", "bundles/*", "runs/*/bundle")  # where bundles are kept in a working folder


@dataclass(frozen=True, slots=True)
class InstalledModel:
    """A bundle on this machine, or its fast variant. model: default, hf:NAME or its folder, as used in commands."""

    model: str
    folder: Path
    spec: BundleSpec
    add_on: LanguagesSpec | None = None

    @classmethod
    def read(cls, model: str, folder: Path) -> "InstalledModel":
        """Read the specs of a bundle and of its language add-on."""
        spec = read_spec(folder)
        return cls(model, folder, spec, read_languages(folder, identity(spec)))

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages that it reads, with those of its add-on."""
        return languages_of(self.spec.text.languages, self.add_on)

    @property
    def megabytes(self) -> float:
        """The size of the model's files on disk, including its language add-on."""
        files = [self.folder / name for name in self.spec.files]
        files += [self.folder / FOLDER / name for name in (self.add_on.files if self.add_on else ())]
        return sum(file.stat().st_size for file in files if file.is_file()) / 1e6

    def to_json(self) -> dict[str, Any]:
        """Return the bundle's entry in the output of `sightline models --json`."""
        return {
            "model": self.model,
            "name": self.spec.name,
            "folder": str(self.folder),
            "abilities": list(self.spec.abilities),
            "precision": self.spec.precision,
            "languages": list(self.languages),
            "megabytes": round(self.megabytes, 1),
            "results": [dict(result) for result in self.spec.results],
        }


def installed_models(on_problem: Callable[[BundleError], None] | None = None) -> list[InstalledModel]:
    """Return every bundle in a known place: the default one, those from the hub, and those in the working folder.

    Files are not checked against their hashes, which would take too long for a list. If a spec cannot be read, its
    bundle is left out, and the error is passed to `on_problem`.
    """
    found: dict[Path, InstalledModel] = {}
    for model, folder in _places():
        if folder.resolve() in found:
            continue
        try:
            found[folder.resolve()] = InstalledModel.read(model, folder)
        except BundleError as error:
            if on_problem:
                on_problem(error)
    return [one for bundle in found.values() for one in _variants(bundle)]


def _variants(found: InstalledModel) -> Iterator[InstalledModel]:
    """Yield the variants of a bundle: without its fast image graph and, if it has one, with it."""
    yield replace(found, spec=found.spec.without_fast())
    if found.spec.fast is not None:
        name = FAST if found.model == "default" else f"{found.model}:{FAST}"
        yield replace(found, model=name, spec=found.spec.fast_variant())


def _places() -> Iterator[tuple[str, Path]]:
    """Yield the name and the folder of each bundle."""
    with suppress(ModelError):  # `sightline doctor` reports a missing default model
        yield "default", locate("default")
    for folder in sorted(_hub().glob("models--*")):
        reference = folder / "refs" / "main"
        if reference.is_file():
            snapshot = folder / "snapshots" / reference.read_text(encoding="utf-8").strip()
            if (snapshot / SPEC_FILE).is_file():
                yield HUB_PREFIX + folder.name.removeprefix("models--").replace("--", "/"), snapshot
    for pattern in _HERE:
        for spec in sorted(Path().glob(f"{pattern}/{SPEC_FILE}")):
            yield str(spec.parent), spec.parent


def _hub() -> Path:
    """Return the download cache of huggingface_hub, located by the same rules as that library uses."""
    if "HF_HUB_CACHE" in os.environ:
        return Path(os.environ["HF_HUB_CACHE"])
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("HF_HOME") or cache / "huggingface") / "hub"


def table(bundles: Sequence[InstalledModel]) -> "Table":
    """Return a table with one bundle per row and the last of its results, which has the most stages."""
    from rich.table import Table

    shown = Table()
    _add_columns(shown, "model", "capabilities", "precision", "languages")
    shown.add_column("MB", justify="right")
    shown.add_column("R@1, text to image / image to text")
    for bundle in bundles:
        spec, languages = bundle.spec, bundle.languages
        read = ", ".join(languages) if len(languages) <= _FEW else str(len(languages))
        words = (", ".join(spec.abilities), spec.precision, read, f"{bundle.megabytes:.0f}")
        shown.add_row(bundle.model, *words, _best(spec.results))
    return shown


def language_lines(bundles: Sequence[InstalledModel]) -> Iterator[str]:
    """Yield the languages of the models of which the table has only the number, a line for each list."""
    models = defaultdict[tuple[str, ...], list[str]](list)
    for bundle in bundles:
        if len(bundle.languages) > _FEW:
            models[bundle.languages].append(bundle.model)
    for languages, names in models.items():
        yield f"Languages of {', '.join(names)}: {', '.join(languages)}"


def _add_columns(shown: "Table", *headings: str) -> None:
    """Add columns of words, the first of which has names to copy."""
    for heading in headings:
        shown.add_column(heading, no_wrap=heading == headings[0], min_width=len(heading.split()[-1]), overflow="fold")


def published_table(models: Sequence[PublishedModel]) -> "Table":
    """Return a table with one published model per row, without results: only bundles made from them are measured.

    here: whether the model has been downloaded.
    """
    from rich.box import SIMPLE
    from rich.table import Table

    shown = Table(box=SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
    _add_columns(shown, "published model", "capabilities", "languages")
    shown.add_column("MB", justify="right")
    shown.add_column("here")
    for one in models:
        here = "yes" if (_hub() / f"models--{one.name.replace('/', '--')}").is_dir() else "no"
        shown.add_row(one.model, ", ".join(one.abilities), ", ".join(one.languages), f"{one.megabytes:.0f}", here)
    return shown


def _best(results: Sequence[Mapping[str, Any]]) -> str:
    """Return the recall at 1 in both directions, on the first data set with captions, with all stages."""
    captioned = [result for result in results if "text_to_image" in result]
    if not captioned:
        return "not measured"
    last = [result for result in captioned if result["data"] == captioned[0]["data"]][-1]
    recalls = " / ".join(f"{last[way]['R@1']:.1f}" for way in ("text_to_image", "image_to_text"))
    return f"{recalls} ({last['data']}, {' + '.join(last['stages'])})"
