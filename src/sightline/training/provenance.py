"""The provenance of a run's model: code, machine, data and other models' weights, written to the run's folder."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from sightline import __version__
from sightline.bundle.spec import sha256
from sightline.commit import commit_of
from sightline.datasets import Record, captions_in_any
from sightline.datasets.paths import files_of
from sightline.plugins import READER_PREFIX
from sightline.training.recipe import Recipe


def describe(
    recipe: Recipe, sources: Sequence[Sequence[Record]], validation: Mapping[str, Sequence[Record]], steps: int
) -> dict[str, Any]:
    """Describe the inputs of a run as JSON values; files are named without their folders."""
    return {
        "recipe": recipe.name,
        "seed": recipe.seed,
        "steps": steps,
        "sources": {
            source.name: {"files": _names(source.train), **_counts(recipe, records)}
            for source, records in zip(recipe.data.mixture, sources, strict=True)
        },
        "validation": {
            one.name: {"files": _names(one.data), "images": len(validation.get(one.name, ()))}
            for one in recipe.data.validation_sets
        },
        **weights(recipe),
    }


def weights(recipe: Recipe) -> dict[str, Any]:
    """Describe the weights that a run starts from, by part, and those of its teacher, if any."""
    found: dict[str, Any] = {"initial_weights": {part: _named(source) for part, source in _weights(recipe).items()}}
    return found if recipe.teacher is None else {**found, "teacher": _named(recipe.teacher.model)}


def _counts(recipe: Recipe, records: Sequence[Record]) -> dict[str, Any]:
    """Return the numbers of images and captions in a source, and a hash of their names; unknown if it is streamed."""
    if recipe.data.streaming:
        return {"streamed": True}
    captions, content = 0, hashlib.sha256()
    for record in records:
        own = captions_in_any(record, recipe.data.lang)
        captions += len(own)
        content.update(repr((record.key, *own)).encode())
    return {"images": len(records), "captions": captions, "sha256": content.hexdigest()}


def changes_of_data(before: Mapping[str, Any], after: Mapping[str, Any], step: int) -> list[str]:
    """Return a warning for each source whose names or captions differ between two descriptions of a run."""
    found = []
    for name, new in after["sources"].items():
        old = before.get("sources", {}).get(name, {})
        if "sha256" in old and old["sha256"] != new.get("sha256"):
            counts = ", ".join(f"{old[what]:,} {what}, now {new[what]:,}" for what in ("images", "captions"))
            found.append(
                f"the training data {name!r} were changed after the run was started ({counts}); "
                f"the run goes on from step {step} with the new data"
            )
    return found


def machine() -> dict[str, Any]:
    """Describe the code and the machine of this part of a run; it may be resumed on another machine."""
    gpu = {"gpu": torch.cuda.get_device_name()} if torch.cuda.is_available() else {}
    return {"sightline": __version__, "commit": commit_of(Path(__file__)), "torch": torch.__version__, **gpu}


def _names(paths: Sequence[str]) -> list[str]:
    own = [path for path in paths if path.startswith(READER_PREFIX)]
    return own + [file.name for path in paths if path not in own for file in files_of(path)]


def _weights(recipe: Recipe) -> dict[str, str]:
    """Return the initial checkpoints of a model by part: one for the whole model, or one for each encoder."""
    if recipe.start:
        return {"model": recipe.start}
    towers = {name: value for name, value in recipe.model.items() if isinstance(value, Mapping)}
    return {name: str(value["source"]) for name, value in towers.items() if value.get("source")}


def _named(source: str) -> dict[str, str]:
    """Return the name of a model, and the hash of its weights if it is a local folder."""
    folder = Path(source)
    files = {file.relative_to(folder).as_posix(): sha256(file) for file in sorted(folder.rglob("*.safetensors"))}
    if not files:
        return {"name": folder.name}
    one, *others = files.values()
    return {"name": folder.name, "sha256": one if not others else hashlib.sha256(repr(files).encode()).hexdigest()}
