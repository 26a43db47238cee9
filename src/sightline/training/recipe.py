"""A recipe: all that a training run needs to know, in one TOML file."""

import difflib
import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from sightline import settings
from sightline.errors import RecipeError
from sightline.models.checkpoint import KINDS, Config
from sightline.training.augment import Augment


@dataclass(frozen=True, slots=True)
class NeighbourRecipe:
    """Batches of pictures that are alike (paper 2, section 3.4), in place of others, once the model can tell.

    begin: the share of the run after which whole epochs are drawn so.
    clusters: how many clusters the pictures are put into by k-means on the model's own embeddings, anew each epoch.
    per_cluster: how many pictures of one cluster are in a batch, which so has batch_size / per_cluster clusters.
    """

    begin: float = 0.0
    clusters: int = 64
    per_cluster: int = 16

    def __post_init__(self) -> None:
        _share("data.neighbours.begin", self.begin)
        _at_least(1, "data.neighbours.clusters", self.clusters)
        _at_least(1, "data.neighbours.per_cluster", self.per_cluster)


@dataclass(frozen=True, slots=True)
class DataRecipe:
    """What to train on.

    train, val: data sets, as `sightline eval` takes them. ${NAME} stands for an environment variable. Of a data set
    that names its splits only that one is used, so that nobody trains on a test set by naming the whole file.
    draw: "pairs" (every caption once an epoch), "unique" (the same, no image twice in a batch), "one" (every image once
    an epoch, with one of its captions) or "all" (every image once, with all of its captions).
    lang: the language of the captions, or several to train on at once: all captions of a picture are its own alike.
    batch_size: captions in a batch; for "all", images.
    batch_tokens: instead, how many tokens and image fragments a batch has at most, padding counted; for draw "pairs".
    limit: train on this many images only, the first after a shuffle by `seed`; 0 is all.
    neighbours: later epochs have like images in a batch, each with one caption, so for draw "unique" or "one".
    """

    train: tuple[str, ...]
    val: tuple[str, ...] = ()
    lang: str | tuple[str, ...] = "en"
    draw: Literal["pairs", "unique", "one", "all"] = "unique"
    batch_size: int = 128
    batch_tokens: int = 0
    limit: int = 0
    neighbours: NeighbourRecipe | None = None

    def __post_init__(self) -> None:
        if not self.train:
            raise RecipeError("data.train: names no data")
        _at_least(1, "data.batch_size", self.batch_size)
        _at_least(0, "data.limit", self.limit)
        _at_least(0, "data.batch_tokens", self.batch_tokens)
        if self.batch_tokens and self.draw != "pairs":
            raise RecipeError(f'data.batch_tokens: not with draw = "{self.draw}"', 'Set draw = "pairs".')
        if not self.languages or len(set(self.languages)) < len(self.languages):
            raise RecipeError(f"data.lang is {list(self.languages)}", "Give one language or several, each once.")
        if self.neighbours is not None:
            self._check_neighbours(self.neighbours)

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages of the captions, one or several."""
        return (self.lang,) if isinstance(self.lang, str) else self.lang

    def _check_neighbours(self, asked: NeighbourRecipe) -> None:
        if self.draw not in ("unique", "one"):
            raise RecipeError(f'data.neighbours: not with draw = "{self.draw}"', 'Set draw = "unique" or "one".')
        if self.batch_size % asked.per_cluster:
            raise RecipeError(
                f"data.neighbours: a batch of {self.batch_size} has no whole number of {asked.per_cluster} per cluster"
            )


@dataclass(frozen=True, slots=True)
class ScheduleRecipe:
    """How long to train, and which objectives a step has.

    run: "together" (the weighted sum of all), "pattern" (the names in `pattern`, one a step, over and over) or "random"
    (one a step, drawn in proportion to its weight).
    steps, epochs: one of them.
    warmup: the share of steps in which the learning rate rises from zero; then it falls to zero as `decay` says, or
    with decay = "drops" to a tenth at each of `drops`, shares of all steps.
    """

    epochs: float = 0
    steps: int = 0
    run: Literal["together", "pattern", "random"] = "together"
    pattern: tuple[str, ...] = ()
    warmup: float = 0.0
    decay: Literal["linear", "cosine", "constant", "drops"] = "linear"
    drops: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        _at_least(0, "schedule.epochs", self.epochs)
        _at_least(0, "schedule.steps", self.steps)
        if (self.epochs > 0) == (self.steps > 0):
            raise RecipeError("schedule: give either epochs or steps", "For example --set schedule.steps=1000")
        if not 0 <= self.warmup <= 1:
            raise RecipeError(f"schedule.warmup is {self.warmup}", "Give the share of all steps, from 0 to 1.")
        if (self.decay == "drops") != bool(self.drops):
            raise RecipeError('schedule: decay = "drops" and a list of drops go together')
        for share in self.drops:
            _share("schedule.drops", share)
        if (self.run == "pattern") != bool(self.pattern):
            raise RecipeError('schedule: run = "pattern" and a pattern of objectives go together')


@dataclass(frozen=True, slots=True)
class OptimizerRecipe:
    """AdamW.

    lr: the learning rate of everything not named in `rates`.
    rates: learning rates of parts: image, text, matcher, transformer (the encoders that there are), heads (the rest of
    the model), objectives (such as a learned temperature). A part at 0 is frozen.
    frozen_layers: for an encoder, how many of its first layers stay as they are, with the embeddings below them.
    dropout: for an encoder, the share of what its layers give that is left out at random; others keep their own.
    clip: the gradient's greatest norm; 0 leaves it alone.
    chunk: items encoded at once, with gradients cached, so that a large batch fits a small GPU; 0 encodes the whole
    batch at once. The gradients are the same.
    """

    lr: float = 5e-5
    rates: Mapping[str, float] = field(default_factory=dict)
    frozen_layers: Mapping[str, int] = field(default_factory=dict)
    dropout: Mapping[str, float] = field(default_factory=dict)
    weight_decay: float = 0.05
    betas: tuple[float, float] = (0.9, 0.999)
    clip: float = 1.0
    chunk: int = 0

    def __post_init__(self) -> None:
        for name in ("lr", "weight_decay", "clip", "chunk"):
            _at_least(0, f"optimizer.{name}", getattr(self, name))
        for part, rate in self.rates.items():
            _at_least(0, f"optimizer.rates.{part}", rate)
        for part, count in self.frozen_layers.items():
            _at_least(1, f"optimizer.frozen_layers.{part}", count)
        for part, share in self.dropout.items():
            if not 0 <= share < 1:
                raise RecipeError(f"optimizer.dropout.{part} is {share}", "Give a share from 0 to below 1.")


@dataclass(frozen=True, slots=True)
class ValidationRecipe:
    """When and how to look at the validation data; the checkpoint with the best `metric` is kept.

    every: steps between looks; 0 looks only at the end.
    metric: "rSum" (all six recalls) or "R@1" (of finding a caption's image).
    late, rerank: how many of the best are rescored by late interaction, and then by matching; 0 is none. At least as
    many as there are pictures and captions judges late interaction alone. Without either, it is the embeddings alone.
    """

    every: int = 0
    metric: Literal["rSum", "R@1"] = "rSum"
    late: int = 0
    rerank: int = 0
    fusion: Literal["ce", "add", "norm_add", "logit_add"] = "ce"
    weight: float = 0.5

    def __post_init__(self) -> None:
        _at_least(0, "validation.every", self.every)
        _at_least(0, "validation.late", self.late)
        _at_least(0, "validation.rerank", self.rerank)


TeacherBy = Literal["embedding", "fragments", "match"]


@dataclass(frozen=True, slots=True)
class TeacherRecipe:
    """Who teaches the objectives that ask for it (distill).

    model: a checkpoint's folder.
    by: what it compares texts and pictures by: "embedding", "fragments" (late interaction) or "match", which judges
    every text of a batch with every picture, and so wants small batches.
    chunk: how many pairs "match" judges at once.
    """

    model: str
    by: TeacherBy = "fragments"
    chunk: int = 4096

    def __post_init__(self) -> None:
        _at_least(1, "teacher.chunk", self.chunk)


@dataclass(frozen=True, slots=True)
class BlendRecipe:
    """Before training, draw the encoder `part` of the checkpoint back to `source`: `share` of it remains."""

    part: str
    source: str
    share: float


@dataclass(frozen=True, slots=True)
class Recipe:
    """A training run.

    model: `start` (a checkpoint's folder to go on from), or `kind` ("dual_stream", "single_stream") and the settings
    of that kind. objectives: by a name of your choice, each with its `loss` (triplet, contrastive, matching, listwise,
    distill, relation, masked_words, masked_fragments), its `weight`, its `begin` and `end` if it takes part only
    between these shares of all steps, and that loss's own settings. teacher: for distill.
    """

    name: str
    model: Mapping[str, Any]
    data: DataRecipe
    objectives: Mapping[str, Mapping[str, Any]]
    schedule: ScheduleRecipe
    optimizer: OptimizerRecipe = field(default_factory=OptimizerRecipe)
    validation: ValidationRecipe = field(default_factory=ValidationRecipe)
    augment: Augment | None = None
    blend: BlendRecipe | None = None
    teacher: TeacherRecipe | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.objectives:
            raise RecipeError("objectives: a recipe needs at least one")
        if not 0 <= self.seed < 2**32:
            raise RecipeError(f"seed is {self.seed}", "Give a number from 0 to 4294967295.")
        for name in self.schedule.pattern:
            if name not in self.objectives:
                raise RecipeError(f'schedule.pattern: no objective is called "{name}"', nearest(name, self.objectives))
        for name, weight in self.weights.items():
            if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < float("inf"):
                raise RecipeError(f"objectives.{name}.weight is {weight!r}", "Give a number from 0 up.")
        if not any(self.weights.values()):
            raise RecipeError("objectives: all weights are 0: there is nothing to train for")
        self._check_spans()
        if self.blend is not None and not self.start:
            raise RecipeError("blend: a new model has nothing to blend", "Give model.start, or leave out blend.")
        if not self.start:
            self.model_config()
        elif len(self.model) > 1:
            surplus = ", ".join(key for key in self.model if key != "start")
            raise RecipeError(
                f"model: start takes all of the model from {self.start}, so that {surplus} would go unheard",
                "Leave out either start or the others.",
            )

    @property
    def weights(self) -> dict[str, float]:
        """The weight of every objective by its name."""
        return {name: terms.get("weight", 1.0) for name, terms in self.objectives.items()}

    @property
    def spans(self) -> dict[str, tuple[float, float]]:
        """Between which shares of all steps every objective takes part."""
        return {name: (terms.get("begin", 0.0), terms.get("end", 1.0)) for name, terms in self.objectives.items()}

    def _check_spans(self) -> None:
        """Refuse objectives that never take part, or that leave a part of the run without any."""
        for name, span in self.spans.items():
            for key, share in zip(("begin", "end"), span, strict=True):
                _share(f"objectives.{name}.{key}", share)
            if span[0] >= span[1]:
                raise RecipeError(f"objectives.{name}: ends at {span[1]}, and would begin at {span[0]}")
            if span != (0, 1) and self.schedule.run != "together":
                raise RecipeError(f'objectives.{name}: begin and end are for schedule.run = "together"')
        covered = 0.0
        for begin, end in sorted(span for name, span in self.spans.items() if self.weights[name]):
            if begin > covered:
                raise RecipeError(f"objectives: none takes part from {covered} to {begin} of the run")
            covered = max(covered, end)
        if covered < 1:
            raise RecipeError(f"objectives: none takes part after {covered} of the run")

    @property
    def start(self) -> str:
        """The checkpoint to go on from, or nothing."""
        return str(self.model.get("start", ""))

    def model_config(self) -> Config:
        """Parse the configuration of a new model."""
        data = dict(self.model)
        kind = data.pop("kind", None)
        if kind not in KINDS:
            raise RecipeError(
                f"model.kind: {kind!r} is not a kind of model",
                f"Choose from: {', '.join(KINDS)}; or give model.start.",
            )
        return settings.parse(KINDS[kind][1], data, "model", RecipeError)


def read_recipe(path: str | Path, changes: Sequence[str] = ()) -> Recipe:
    """Read a recipe; each change is `dotted.key=value`, the value written as in TOML (or a bare word)."""
    path = Path(path)
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise RecipeError(f"{path}: no such recipe") from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise RecipeError(f"{path}: cannot be read: {error}") from error
    for change in changes:
        _change(data, change)
    return parse_recipe(data, str(path))


def parse_recipe(data: Mapping[str, Any], where: str) -> Recipe:
    """Check a recipe's contents, with ${NAME} replaced by environment variables."""
    return settings.parse(Recipe, _expanded(data, where), where, RecipeError)


def nearest(name: str, choices: Iterable[str]) -> str:
    """Say the way out for a misspelt name: the choice that was probably meant, or all there are.

    >>> nearest("contrastiv", ["triplet", "contrastive"])
    'Did you mean "contrastive"?'
    """
    choices = list(choices)
    near = difflib.get_close_matches(name, choices, n=1, cutoff=0.7)
    return f'Did you mean "{near[0]}"?' if near else f"Choose from: {', '.join(choices)}."


def _at_least(least: int, key: str, value: float) -> None:
    if not least <= value < float("inf"):
        raise RecipeError(f"{key} is {value}", f"Give a number from {least} up.")


def _share(key: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise RecipeError(f"{key} is {value!r}", "Give a share of all steps, from 0 to 1.")


def _change(data: dict[str, Any], change: str) -> None:
    key, equals, text = change.partition("=")
    if not equals or not key.strip():
        raise RecipeError(f"--set {change}: expected key=value", "For example --set optimizer.lr=1e-4")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    *tables, last = key.strip().split(".")
    for table in tables:
        data = data.setdefault(table, {})
        if not isinstance(data, dict):
            raise RecipeError(f"--set {change}: {table} is not a table")
    data[last] = value


def _expanded(value: Any, where: str) -> Any:
    """Replace ${NAME} in every text by the environment variable of that name."""

    def variable(found: re.Match[str]) -> str:
        name = found.group(1)
        if name not in os.environ:
            raise RecipeError(f"{where}: ${{{name}}} is used, but the environment has no {name}", f"export {name}=…")
        return os.environ[name]

    if isinstance(value, str):
        return re.sub(r"\$\{(\w+)\}", variable, value)
    if isinstance(value, Mapping):
        return {key: _expanded(item, where) for key, item in value.items()}
    if isinstance(value, list):
        return [_expanded(item, where) for item in value]
    return value
