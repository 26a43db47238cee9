"""Build the default bundle from scratch: train with its recipes, export, calibrate, measure.

    python -m bundles.make recipes/default.model.toml --out bundles/default --minutes 9

`make model` runs this. Needs SIGHTLINE_DATA, SIGHTLINE_PRETRAINED and, for the training, a GPU. Finished stages are
skipped and an interrupted one continues, so repeat the command until it reports that the bundle is done; --minutes
stops it cleanly before then. The bundle's provenance comes from the run folders.
"""

import argparse
import dataclasses
import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import sightline
from benchmarks.provenance import write_result
from bundles.measure import TestRecipe, measured
from sightline import settings
from sightline.bundle.languages import FOLDER, read_languages
from sightline.bundle.layout import SPEC_FILE
from sightline.bundle.relevance_formula import PairRelevance
from sightline.bundle.spec import BundleSpec, identity, read_spec, write_spec
from sightline.datasets import Record, read_all
from sightline.errors import BundleError, RecipeError
from sightline.models import checkpoint
from sightline.onnx_export.exporter import export
from sightline.onnx_export.static_ranges import sample_images
from sightline.training.recipe import Recipe, expanded, read_recipe, read_toml
from sightline.training.run_folder import RunFolder
from sightline.training.trainer import train

RESULTS = Path("benchmarks/results/default")


@dataclass(frozen=True, slots=True)
class ModelRecipe:
    """How to build a bundle: recipes in order, held-out data to calibrate it, tests, and licence terms.

    licences: those of the model and of initial weights, by folder name. terms: those of every data source, by name.
    four_bits: a pattern; with int8, modules whose path it matches get four bits per weight.
    """

    name: str
    recipes: tuple[str, ...]
    calibrate: tuple[str, ...]
    licences: Mapping[str, str]
    terms: Mapping[str, str]
    tests: tuple[TestRecipe, ...] = ()
    precision: Literal["float32", "int8"] = "int8"
    four_bits: str = ""
    runs: str = "runs"


class OutOfTimeError(Exception):
    """The time ran out before all stages were finished."""


@dataclass(slots=True)
class ModelBuild:
    """The build of one bundle, stage by stage.

    file: the model recipe; its recipes are next to it. expired: returns whether to stop. report: called with the
        progress.
    """

    file: Path
    out: Path
    results: Path
    expired: Callable[[], bool] = lambda: False
    report: Callable[[str], None] = print
    asked: ModelRecipe = field(init=False)

    def __post_init__(self) -> None:
        data = expanded(read_toml(self.file), str(self.file))
        self.asked = settings.parse(ModelRecipe, data, str(self.file), RecipeError)

    def make(self) -> None:
        """Run every unfinished stage; raises `OutOfTimeError` if the time runs out."""
        recipes = {path: read_recipe(path) for path in (self.file.parent / name for name in self.asked.recipes)}
        runs = {path: RunFolder(Path(self.asked.runs) / recipe.name) for path, recipe in recipes.items()}
        for path, recipe in recipes.items():
            self._train(path, recipe, runs[path])
        described = {path.stem: _described(path, run) for path, run in runs.items()}
        made_of = {"recipes": described, **self._terms(described)}
        built = Path(self.asked.runs) / f"{self.asked.name}-bundle"
        held_out = read_all(self.asked.calibrate)
        made_of["calibrated_on"] = {"files": [Path(one).name for one in self.asked.calibrate], "images": len(held_out)}
        self._export(runs[path].best, built, made_of, held_out, list(recipes.values()))
        measured = [result for test in self.asked.tests for result in self._measure(built, test)]
        self._publish(built, measured)

    def _train(self, path: Path, recipe: Recipe, run: RunFolder) -> None:
        run.check(recipe, resume=True)
        if run.is_finished():
            self.report(f"{path.name}: trained")
            return
        self._check_time()
        self.report(f"{path.name}: training in {run.path}")
        try:
            train(recipe, run.path, resume=True, stop=self.expired)
        except KeyboardInterrupt:
            if not self.expired():
                raise
            raise OutOfTimeError(f"{path.name} was stopped, and its state saved") from None

    def _terms(self, described: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Return the terms of everything that the runs used; missing terms are an error."""
        sources = {name for run in described.values() for name in run["sources"]}
        weights = {one["name"] for run in described.values() for one in run["initial_weights"].values()} - {"best"}
        for kind, used, known in (("terms", sources, self.asked.terms), ("licences", weights, self.asked.licences)):
            if lacking := sorted(used - set(known)):
                raise RecipeError(f"{self.file}: the table {kind} does not mention {', '.join(lacking)}", "Add it.")
        return {
            "licences": {name: self.asked.licences[name] for name in ("model", *sorted(weights))},
            "terms_of_data": {name: self.asked.terms[name] for name in sorted(sources)},
        }

    def _export(
        self, best: Path, built: Path, made_of: dict[str, Any], held_out: list[Record], recipes: Sequence[Recipe]
    ) -> None:
        made_of["checkpoint"] = _fingerprint(best)
        if (built / SPEC_FILE).is_file() and read_spec(built).provenance == made_of:
            self.report("exported")
            return
        self._check_time()
        self.report(f"exporting {best}")
        retriever, tokenizer = checkpoint.load(best)
        images = sample_images(held_out, retriever.preprocess) if self.asked.precision == "int8" else None
        export(
            retriever,
            tokenizer,
            built,
            name=self.asked.name,
            precision=self.asked.precision,
            four_bits=self.asked.four_bits,
            images=images,
            provenance=made_of,
            held_out=held_out,
            trained_on=_captions(recipes),
        )

    def _measure(self, built: Path, test: TestRecipe) -> list[dict[str, Any]]:
        """Measure the bundle on one test, or return the saved result for this exact bundle."""
        path = built.with_name(f"{built.name}-{test.name}.json")
        identity = _fingerprint(built)
        if path.is_file() and (found := json.loads(path.read_text(encoding="utf-8")))["bundle"] == identity:
            self.report(f"{test.name}: measured")
            return list(found["rows"])
        self._check_time()
        self.report(f"{test.name}: measuring")
        whole = measured(sightline.load(built), test)
        write_result(path, {"bundle": identity, **whole})
        write_result(self.results / f"{test.name}.json", whole)
        return list(whole["rows"])

    def _publish(self, built: Path, measured: list[dict[str, Any]]) -> None:
        """Publish the bundle with its results; other files next to it, such as licences, are kept.

        A language add-on of an earlier bundle in the same place is removed, because it would be rejected.
        """
        self.out.mkdir(parents=True, exist_ok=True)
        spec: BundleSpec = dataclasses.replace(read_spec(built), results=tuple(measured))
        if isinstance(spec.relevance, PairRelevance):
            names = tuple(Path(one).stem for one in self.asked.calibrate)
            spec = dataclasses.replace(spec, relevance=dataclasses.replace(spec.relevance, data=names))
        for name in spec.files:
            shutil.copyfile(built / name, self.out / name)
        write_spec(self.out, spec)
        try:
            read_languages(self.out, identity(spec))
        except BundleError:
            shutil.rmtree(self.out / FOLDER)
            self.report(f"{self.out / FOLDER}: removed, because it belongs to the earlier bundle")
        self.report(f"{self.out}: done")

    def _check_time(self) -> None:
        if self.expired():
            raise OutOfTimeError("stopped before the next stage")


def _captions(recipes: Sequence[Recipe]) -> Iterator[str]:
    """Yield all captions that the recipes train on."""
    data = [recipe.data for recipe in recipes]
    langs = {lang for one in data for lang in ((one.lang,) if isinstance(one.lang, str) else one.lang)}
    shards = [shard for one in data for shard in (*one.train, *(s for source in one.sources for s in source.train))]
    for record in read_all(list(dict.fromkeys(shards))):
        if record.split in (None, "train"):
            yield from (caption for lang in langs for caption in record.captions.get(lang, ()))


def _described(path: Path, run: RunFolder) -> dict[str, Any]:
    """Return the provenance of a run, with the hash of its recipe and its validation result."""
    found = run.validation() or {}
    sets = {name: one.get("rSum", one.get("names")) for name, one in found.get("sets", {}).items()}
    recipe = {"file": f"{path.parent.name}/{path.name}", "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    validation = {"best_step": found.get("step"), "rSum": found.get("rSum"), **({"sets": sets} if sets else {})}
    return {**recipe, **(run.provenance() or {}), "validated": validation}


def _fingerprint(folder: Path) -> str:
    """Hash the files of a checkpoint or bundle, by name and content."""
    whole = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        whole.update(file.relative_to(folder).as_posix().encode() + b"\0" + file.read_bytes())
    return whole.hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--out", type=Path, default=Path("bundles/default"))
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop cleanly after this time")
    arguments = parser.parse_args()
    end = time.monotonic() + 60 * arguments.minutes
    build = ModelBuild(arguments.recipe, arguments.out, arguments.results, lambda: time.monotonic() > end)
    try:
        build.make()
    except OutOfTimeError as error:
        raise SystemExit(f"Out of time: {error}. Run the same command again to continue.") from None


if __name__ == "__main__":
    main()
