"""Recipes: the configuration of a training run, in one TOML file."""

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, TypeAlias

from sightline import settings
from sightline.close_names import did_you_mean
from sightline.errors import RecipeError
from sightline.models.checkpoint import KINDS, Config
from sightline.training.augment import Augment
from sightline.training.data_tables import DataRecipe
from sightline.training.tables import (
    AverageRecipe,
    BlendRecipe,
    CheckpointRecipe,
    LogRecipe,
    LoraRecipe,
    OptimizerRecipe,
    ScheduleRecipe,
    TeacherRecipe,
    ValidationRecipe,
    check_share,
)

_EITHER = {  # alternatives: setting one replaces the other
    ("data", "train"): "sources",
    ("data", "sources"): "train",
    ("schedule", "steps"): "epochs",
    ("schedule", "epochs"): "steps",
}


@dataclass(frozen=True, slots=True)
class Recipe:
    """A training run.

    name: the name of the run and of its folder, runs/NAME.
    data, schedule, optimizer, validation, checkpoint, log, augment, average, lora, blend: described in its own table
    below.
    seed: the seed of all random numbers.
    model: either `start` (the model to continue from: a checkpoint folder, the folder of a published model such as
    CLIP, or `hf:NAME`; with `add`, the settings of a matcher to add to a checkpoint that has none), or `kind`
    ("dual_stream", "single_stream") and the settings of that kind.
    losses: the losses, by names of your choice, each with `loss` (triplet, contrastive, matching, listwise, distill,
    relation, matryoshka, masked_words, masked_fragments, or your own as `my_module:MyLoss`), `weight`, `begin` and
    `end` (the loss is active only between these fractions of all steps), `sources` (it is active only in batches from
    these sources), and that loss's own settings.
    teacher: the teacher that distill losses learn from.
    imports: Python modules to import first, including ones in the current folder; `my_module:MyEncoder` makes
    checkpoints with an encoder of your own readable.
    """

    name: str
    model: Mapping[str, Any]
    data: DataRecipe
    losses: Mapping[str, Mapping[str, Any]]
    schedule: ScheduleRecipe
    optimizer: OptimizerRecipe = field(default_factory=OptimizerRecipe)
    validation: ValidationRecipe = field(default_factory=ValidationRecipe)
    checkpoint: CheckpointRecipe = field(default_factory=CheckpointRecipe)
    log: LogRecipe = field(default_factory=LogRecipe)
    imports: tuple[str, ...] = ()
    augment: Augment | None = None
    blend: BlendRecipe | None = None
    teacher: TeacherRecipe | None = None
    average: AverageRecipe | None = None
    lora: LoraRecipe | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.name.strip() or ".." in PurePath(self.name).parts or PurePath(self.name).is_absolute():
            raise RecipeError(f"name cannot be {self.name!r}", "It is the name of a folder in runs/, such as tiny.")
        if not self.losses:
            raise RecipeError("losses: a recipe needs at least one loss")
        if not 0 <= self.seed < 2**32:
            raise RecipeError(f"seed cannot be {self.seed}", "Use a number from 0 to 4294967295.")
        for name in self.schedule.pattern:
            if name not in self.losses:
                raise RecipeError(f'schedule.pattern: no loss is called "{name}"', did_you_mean(name, self.losses))
        for name, weight in self.weights.items():
            if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < float("inf"):
                raise RecipeError(f"losses.{name}.weight cannot be {weight!r}", "Use a number of at least 0.")
        if not any(self.weights.values()):
            raise RecipeError("losses: all weights are 0")
        self._check_spans()
        self._check_sources()
        if self.blend is not None and not self.start:
            raise RecipeError(
                "blend: a new model has no trained weights to blend", "Set model.start, or leave out blend."
            )
        if self.average is not None and self.average.with_start:
            if not self.start:
                raise RecipeError("average.with_start: a new model has no trained weights", "Set model.start.")
            if self.lora is not None:
                raise RecipeError("average.with_start cannot be combined with lora", "Lower lora.alpha instead.")
        if self.data.streaming and (self.teacher is not None or (self.augment is not None and self.augment.views)):
            key = "teacher" if self.teacher is not None else "augment.views"
            raise RecipeError(
                f"data.streaming cannot be combined with {key}, which encodes all images once", "Remove one of them."
            )
        if not self.start:
            self.model_config()
        elif surplus := ", ".join(key for key in self.model if key not in ("start", "add")):
            raise RecipeError(
                f"model.start takes the whole model from {self.start}, so {surplus} would be ignored",
                "Remove start, or remove the other settings.",
            )

    @property
    def weights(self) -> dict[str, float]:
        """The weight of every loss by its name."""
        return {name: terms.get("weight", 1.0) for name, terms in self.losses.items()}

    @property
    def spans(self) -> dict[str, tuple[float, float]]:
        """The begin and end of every loss, as fractions of all steps."""
        return {name: (terms.get("begin", 0.0), terms.get("end", 1.0)) for name, terms in self.losses.items()}

    def _check_spans(self) -> None:
        """Reject losses that are never active, and parts of the run without any loss."""
        for name, span in self.spans.items():
            for key, share in zip(("begin", "end"), span, strict=True):
                check_share(f"losses.{name}.{key}", share)
            if span[0] >= span[1]:
                raise RecipeError(f"losses.{name}: begin ({span[0]}) must be before end ({span[1]})")
            if span != (0, 1) and self.schedule.run != "together":
                raise RecipeError(f'losses.{name}: begin and end need schedule.run = "together"')
        covered = 0.0
        for begin, end in sorted(span for name, span in self.spans.items() if self.weights[name]):
            if begin > covered:
                raise RecipeError(f"losses: no loss is active between the fractions {covered} and {begin} of the run")
            covered = max(covered, end)
        if covered < 1:
            raise RecipeError(f"losses: no loss is active after the fraction {covered} of the run")

    @property
    def sources(self) -> dict[str, tuple[str, ...]]:
        """The sources whose batches each loss uses."""
        every = tuple(source.name for source in self.data.mixture)
        return {name: tuple(terms.get("sources", every)) for name, terms in self.losses.items()}

    def _check_sources(self) -> None:
        """Reject unknown sources, and sources whose batches no loss uses."""
        every = [source.name for source in self.data.mixture]
        for name, sources in self.sources.items():
            for source in sources:
                if source not in every:
                    raise RecipeError(
                        f'losses.{name}.sources: no source is called "{source}"', did_you_mean(source, every)
                    )
        used = {source for name, sources in self.sources.items() for source in sources if self.weights[name]}
        if unused := [source for source in every if source not in used]:
            raise RecipeError(f"losses: no loss uses batches from {', '.join(unused)}", "Remove the source.")

    @property
    def start(self) -> str:
        """The checkpoint to continue from; empty if there is none."""
        return str(self.model.get("start", ""))

    def model_config(self) -> Config:
        """Parse the configuration of a new model."""
        data = dict(self.model)
        kind = data.pop("kind", None)
        if kind not in KINDS:
            raise RecipeError(
                f"model.kind: {kind!r} is not a kind of model",
                f"Choose from: {', '.join(KINDS)}; or set model.start.",
            )
        return settings.parse(KINDS[kind][1], data, "model", RecipeError)


Changes: TypeAlias = Sequence[str] | Mapping[str, Any]
"""Changes to a recipe: `dotted.key=value`, the value written as in TOML (or a bare word); or values by dotted key."""


def read_recipe(recipe: "str | Path | Mapping[str, Any] | Recipe", changes: Changes = ()) -> Recipe:
    """Read a recipe from a TOML file, or take its contents, and apply changes.

    `data.train=…` replaces `data.sources`, and `schedule.steps=…` replaces `schedule.epochs`; and vice versa.
    """
    if isinstance(recipe, Recipe) and not changes:
        return recipe
    where = "recipe"
    if isinstance(recipe, str | Path):
        where, data = str(recipe), read_toml(Path(recipe))
    else:
        data = settings.plain(recipe)  # a copy
    given = changes.items() if isinstance(changes, Mapping) else [_parsed(change) for change in changes]
    for key, value in given:
        _change(data, key, value)
    return parse_recipe(data, where)


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise RecipeError(f"{path}: no such recipe") from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise RecipeError(f"{path}: cannot be read: {error}") from error


def parse_recipe(data: Mapping[str, Any], where: str) -> Recipe:
    """Validate a recipe's contents, with ${NAME} replaced by environment variables."""
    return settings.parse(Recipe, expanded(data, where), where, RecipeError)


def _parsed(change: str) -> tuple[str, Any]:
    """Return the key and the value of `key=value`."""
    key, equals, text = change.partition("=")
    if not equals or not key.strip():
        raise RecipeError(f"--set {change}: expected key=value", "For example --set optimizer.lr=1e-4")
    try:
        return key.strip(), tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), text.strip()


def _change(data: dict[str, Any], key: str, value: Any) -> None:
    *tables, last = key.split(".")
    for table in tables:
        data = data.setdefault(table, {})
        if not isinstance(data, dict):
            raise RecipeError(f"--set {key}={value}: {table} is not a table")
    data[last] = value
    data.pop(_EITHER.get((".".join(tables), last), ""), None)


def expanded(value: Any, where: str) -> Any:
    """Replace ${NAME} in every string by the environment variable of that name."""

    def variable(found: re.Match[str]) -> str:
        name = found.group(1)
        if name not in os.environ:
            raise RecipeError(
                f"{where}: ${{{name}}} is used, but the environment variable {name} is not set", f"export {name}=…"
            )
        return os.environ[name]

    if isinstance(value, str | os.PathLike):
        return re.sub(r"\$\{(\w+)\}", variable, os.fspath(value))
    if isinstance(value, Mapping):
        return {key: expanded(item, where) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [expanded(item, where) for item in value]
    return value
