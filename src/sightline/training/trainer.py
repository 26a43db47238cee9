"""Training a model from a recipe: draw, encode, step, validate, save; and resume an interrupted run."""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import sdpa_kernel

from sightline.errors import MediaError, RecipeError
from sightline.losses import Inputs, Loss
from sightline.models import checkpoint
from sightline.training import distributed
from sightline.training.batch_inputs import BatchInputs
from sightline.training.captions import DrawnBatch
from sightline.training.corpus import Corpus, FeatureCache, PrepareReport
from sightline.training.curves import open_sinks
from sightline.training.decoding import ahead
from sightline.training.feature_init import init_from_features
from sightline.training.gradients import backward
from sightline.training.lora import Adapters
from sightline.training.mixture import StepBatch, TrainingBatches
from sightline.training.modes import ATTENTION, image_tower_is_frozen, training_mode
from sightline.training.neighbours import Neighbours
from sightline.training.optimizer import clip_gradients, make_optimizer
from sightline.training.provenance import describe, machine
from sightline.training.recipe import Recipe
from sightline.training.region_images import RegionImages
from sightline.training.run_folder import RunFolder
from sightline.training.save_timer import SaveTimer
from sightline.training.schedule import rate_at, seed_at, takes_part, weights_at
from sightline.training.setup import make_losses, make_model, training_records
from sightline.training.state import TrainingProgress, find_state, load_state, save_state
from sightline.training.step_log import StepLog, StepReport, StepValues
from sightline.training.streaming import StreamedBatches, open_streams
from sightline.training.teacher import find_teacher
from sightline.training.validation import Validated, Validation, log_entry
from sightline.training.weight_average import WeightAverage
from sightline.training.word_noise import WordNoise

Weighted = tuple[Loss, float]
_SAMPLE = 10_000  # records of a stream that are used for checks, a new tokenizer and the initialisation of losses
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Trained:
    """The result of a run: the folder of its best checkpoint, its validation result, and the number of steps.

    evaluation: the result of the best checkpoint; None if an earlier, interrupted part of the run found it.
    validation: the same result as JSON, with its step, in either case. Both are None without validation data.
    """

    folder: Path
    evaluation: Validated | None
    steps: int
    validation: dict[str, Any] | None = None


@sdpa_kernel(ATTENTION)
def train(
    recipe: Recipe,
    out: str | Path,
    *,
    resume: bool = False,
    report: StepReport | None = None,
    on_prepare: PrepareReport | None = None,
    save_every: int | str | None = None,
    stop_after: int | None = None,
    stop: Callable[[], bool] | None = None,
    notify: Callable[[str], None] | None = None,
) -> Trained:
    """Run a recipe; the best checkpoint is saved to `out/best`, the last state to `out/last`.

    resume: continue from `out/last`, or start if it does not exist. On a CPU the resulting weights are identical, bit
        for bit, to those of an uninterrupted run; on a GPU, sums are not deterministic.
    on_prepare: called with the progress of the work before the first step, such as encoding all data with frozen
        encoders or a teacher, and of validations; both can take a long time.
    save_every: as `checkpoint.every` in a recipe, which it overrides.
    stop_after: stop after this many steps in total and save, as if interrupted.
    stop: called after every step; if it returns true in any process, the run is saved and KeyboardInterrupt raised.
    notify: called with each warning about the run; by default it is logged.

    A training image that cannot be opened ends the run, when it is first drawn, with a `MediaError` that names it; a
    single process saves the steps before it. Evaluation, in contrast, counts unreadable images as missed.
    """
    world = distributed.join()
    timer = SaveTimer(recipe.checkpoint.every if save_every is None else save_every)
    folder = RunFolder(Path(out))
    with folder.locked() if world.leads else nullcontext():
        run = _Run(recipe, folder, world, distributed.device(), resume, on_prepare if world.leads else None)
        for note in [*run.notes, *run.validation.notes(run.corpus.records)] if world.leads else ():
            (notify or _log.warning)(note)
        return run.to_the_end(report if world.leads else None, timer, stop_after, stop or (lambda: False))


class _Run:
    """One run: its components and its loop."""

    def __init__(
        self,
        recipe: Recipe,
        folder: RunFolder,
        world: distributed.World,
        device: torch.device,
        resume: bool,
        on_prepare: PrepareReport | None = None,
    ) -> None:
        self.recipe, self.folder, self.world, self.device = recipe, folder, world, device
        self.folder.check(recipe, resume)
        saved = find_state(self.folder.last) if resume else None
        torch.manual_seed(recipe.seed)
        data = recipe.data
        streams = open_streams(recipe) if data.streaming else None
        sources = training_records(recipe) if streams is None else [stream.sample(_SAMPLE) for stream in streams]
        records = [record for some in sources for record in some]
        self.model, self.tokenizer = make_model(recipe, saved, records)
        self.model.to(device)
        self.losses = make_losses(recipe, self.model).to(device)
        self.adapters = None if recipe.lora is None else Adapters(recipe.lora, self.model)
        if self.adapters is not None and saved is not None:
            self.adapters.restore(saved)
        self.optimizer = make_optimizer(recipe.optimizer, self.model, self.losses.values())
        self.progress = load_state(saved, self.optimizer, self.losses) if saved else TrainingProgress()
        noise = data.word_noise
        self.corpus = Corpus(records, data.lang, self.model.preprocess, self.tokenizer, device, with_words=noise > 0)
        self.regions = RegionImages.of(recipe, self.corpus, device)
        self.validation = Validation(recipe, self.model, self.tokenizer, device, on_prepare)
        changed = WordNoise(noise, self.corpus, self.tokenizer) if noise else None
        self.batches: TrainingBatches | StreamedBatches
        if streams is None:
            self.batches = TrainingBatches(recipe, self.corpus, sources, self.model, self.regions, changed)
        else:
            if self.regions is not None:
                raise RecipeError("data.streaming: regions cannot be streamed", "Remove data.streaming.")
            decoder = self.corpus.decoder
            self.batches = StreamedBatches(recipe, streams, sources, self.tokenizer, decoder, world, saved, on_prepare)
        asked = recipe.schedule
        self.steps = asked.steps or max(1, round(asked.epochs * self.batches.batches_per_epoch))
        if self.steps < self.progress.step:
            raise RecipeError(
                f"schedule: {self.steps} steps, but {folder.path} has already taken {self.progress.step}",
                "Use more steps.",
            )
        self.evaluation: Validated | None = None
        self.seen: FeatureCache | None = None
        views = 0 if recipe.augment is None else recipe.augment.views
        if views and (recipe.teacher is not None or not image_tower_is_frozen(self.model)):
            raise RecipeError(
                f"augment.views is {views}, which needs a frozen image tower and no teacher",
                "Remove augment.views, or set optimizer.rates.image = 0 and remove the teacher.",
            )
        self.model.eval()  # until the first step, which sets the mode of every layer
        if streams is None and (recipe.augment is None or views) and image_tower_is_frozen(self.model):
            self.seen = FeatureCache.of(self.corpus, self.model, device, on_prepare, recipe.augment, recipe.seed)
        if streams is None and device.type == "cuda" and self.seen is None and self.regions is None:
            self.corpus.decode_all(on_prepare)
        self.inputs = BatchInputs(self.model, self.corpus, self.regions, self.seen, recipe.augment, world, device)
        self.neighbours = self._neighbours(saved)
        self.average = self._average(saved)
        with self._half_precision():
            if not saved:
                init_from_features(self.losses, self.model, self.corpus, self.regions or self.seen, world)
            self.teacher = find_teacher(recipe, records, self.corpus, device, world, on_prepare)
        if world.leads:
            self.folder.open(recipe, self.progress.step)
            made_of = describe(recipe, sources, self.validation.sets, self.steps)
            self.notes = self.folder.describe(made_of, machine(), self.progress.step)

    def to_the_end(
        self, report: StepReport | None, timer: SaveTimer, stop_after: int | None, stop: Callable[[], bool]
    ) -> Trained:
        every = self.recipe.validation.every or self.steps
        patience = self.recipe.validation.patience * self.recipe.validation.every
        end = self.steps if stop_after is None else min(self.steps, stop_after)
        leads = self.world.leads
        sinks = open_sinks(self.recipe.log, self.folder.path, self.recipe.name, self.progress.step) if leads else []
        log = StepLog(self.folder if leads else None, report, sinks)
        end = self.progress.step if self.progress.is_stuck(patience) else end
        try:
            for step, source, batch in self._batches(self.progress.step, end):
                values, rate = self._step(step, source, batch)
                if self.average is not None:
                    self.average.update(step)
                done = step + 1
                self.progress = replace(self.progress, step=done)
                entry: dict[str, Any] = {"step": done, "steps": self.steps, "rate": rate}
                if len(self.recipe.data.sources) > 1:
                    entry["source"] = source
                stopped, is_due = self.world.any([stop(), timer.is_due(done)], self.device)
                validates = done % every == 0 or done == self.steps
                saves = is_due or done == end or stopped
                log.add(entry, values)
                if validates or saves or self.device.type == "cpu":
                    log.read()
                if validates:
                    entry |= self._validate()
                log.write()
                stuck = self.progress.is_stuck(patience)
                if saves or stuck:
                    self._save()
                    timer.reset()
                log.report()
                if stuck:
                    break
                if stopped and done < end:
                    raise KeyboardInterrupt
        except MediaError:
            if self.progress.step and self.world.size == 1:
                log.read()
                log.write()
                self._save()
            raise
        if self.progress.step == self.steps or self.progress.is_stuck(patience):
            self._record_heads()
        found = self.folder.best if self.folder.best.exists() else self.folder.last
        return Trained(found, self.evaluation, self.progress.step, self.folder.validation())

    def _batches(self, start: int, end: int) -> Iterator[StepBatch]:
        """Return the batches of steps `start` to `end` - 1. Images that are not kept in memory are decoded ahead."""
        if isinstance(self.batches, StreamedBatches):
            return ahead(self.batches.between(start, end))
        batches = self.batches.between(start, end, self.neighbours)
        if self.neighbours or self.regions or self.seen or self.corpus.keeps_images:
            return batches
        return ahead(self.inputs.decoding(one) for one in batches)

    def _neighbours(self, saved: Path | None) -> Neighbours | None:
        asked = self.recipe.data.neighbours
        if asked is None:
            return None
        seen, per_epoch = self.regions or self.seen, self.batches.batches_per_epoch
        made = Neighbours(asked, self.recipe, self.corpus, self.model, seen, self.world, per_epoch, self.steps)
        if saved is not None:
            made.restore(saved)
        return made

    def _average(self, saved: Path | None) -> WeightAverage | None:
        asked = self.recipe.average
        if asked is None:
            return None
        made = WeightAverage(asked, self.model, self.steps)
        if saved is not None:
            made.restore(saved)
        return made

    def _step(self, step: int, source: str, batch: DrawnBatch) -> tuple[StepValues, float]:
        share = rate_at(step, self.steps, self.recipe.schedule)
        for group in self.optimizer.param_groups:
            group["lr"] = group["initial_lr"] * share
        if not self.model.training:  # after a validation; setting it takes as long as launching a small layer
            training_mode(self.model)
        seed = seed_at(step, self.recipe)
        losses, pixels = self._active(step, source), self.inputs.pixels(batch, seed)
        also_positive, excluded = self.inputs.masks(batch)
        with self._half_precision():
            found = backward(
                self.model,
                losses,
                self.inputs.texts(batch),
                self.inputs.images(batch, pixels),
                seed=seed,
                chunk=self.recipe.optimizer.chunk,
                world=self.world,
                teacher_scores=self._teacher_scores(losses, batch, pixels),
                inputs=self._inputs(losses, batch, pixels),
                also_positive=also_positive,
                excluded=excluded,
            )
        norm = clip_gradients(self.optimizer, self.recipe.optimizer.clip)
        learned = ((name, loss.learned_temperature) for name, (loss, _) in losses.items())
        temperatures = {name: value for name, value in learned if value is not None}
        values = StepValues(step, found, self._parts(losses), norm, temperatures)
        if self.device.type == "cpu":
            values.read()  # deferring gains nothing, and no step may use a gradient that is not finite
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return values, share * self.recipe.optimizer.lr

    def _active(self, step: int, source: str) -> dict[str, Weighted]:
        """Return the losses of a step whose batch comes from `source`, with their weights."""
        weights = weights_at(step, self.recipe).items()
        named = [(name, weight) for name, weight in weights if takes_part(name, step, self.steps, self.recipe, source)]
        return {name: (self.losses[name], weight) for name, weight in named}  # type: ignore[misc]

    def _parts(self, losses: Mapping[str, Weighted]) -> dict[str, dict[str, Tensor]]:
        """Return the components of a step's losses, for losses that report them."""
        found = {name: loss.parts for name, (loss, _) in losses.items() if loss.parts}
        added = {name: self.world.add(torch.stack([*parts.values()])).unbind() for name, parts in found.items()}
        return {name: dict(zip(found[name], values, strict=True)) for name, values in added.items()}

    def _teacher_scores(self, losses: Mapping[str, Weighted], batch: DrawnBatch, pixels: Tensor) -> Tensor | None:
        """Return the scores of the teacher, if a loss of this step needs them."""
        if self.teacher is None or not any(loss.needs_teacher for loss, _ in losses.values()):
            return None
        return self.teacher.scores(batch, pixels if self.recipe.augment is not None else None)

    def _inputs(self, losses: Mapping[str, Weighted], batch: DrawnBatch, pixels: Tensor) -> Inputs | None:
        """Return the encoder inputs of the batch, if a loss of this step needs them."""
        wanted = any(loss.needs_inputs for loss, _ in losses.values())
        return self.inputs.inputs(batch, pixels) if wanted else None

    def _validate(self) -> dict[str, Any]:
        """Evaluate on the validation data, and keep the checkpoint if it is the best so far."""
        entry: dict[str, Any] = {}
        if self.world.leads:
            with self.average.applied() if self.average is not None else nullcontext():
                entry = self._validate_weights()
        self.progress = self.world.tell(self.progress)
        return entry

    def _validate_weights(self) -> dict[str, Any]:
        """Evaluate the current weights of the model, and keep them if they are the best."""
        with self._half_precision():
            found = self.validation.evaluate()
        score = 0.0 if found is None else self.validation.score(found)
        if self.progress.best is None or score >= self.progress.best:
            self.progress = TrainingProgress(self.progress.step, score, self.progress.step)
            self.evaluation = found
            with self._without_adapters(merged=True):
                self.folder.keep_best(self.model, self.tokenizer, self.progress.step, found)
        return {} if found is None else {"val": log_entry(found)}

    def _record_heads(self) -> None:
        """Evaluate each trained ability of the best checkpoint by itself, and record the results."""
        found = self.folder.validation() if self.world.leads else None
        if found is not None and "heads" not in found:
            model = checkpoint.load(self.folder.best)[0].to(self.device)
            with self._half_precision():
                heads = self.validation.evaluate_heads(model, self.evaluation)
            self.folder.add_to_validation({"heads": heads})
        self.world.wait()

    def _half_precision(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda")

    def _save(self) -> None:
        more = self.batches.position(self.progress.step)
        for part in (self.neighbours, self.average, self.adapters):
            more |= {} if part is None else part.tensors()
        parts = self.model, self.tokenizer, self.optimizer, self.losses, self.progress
        with self._without_adapters(merged=False):
            save_state(self.folder.last, *parts, more, self.world)

    def _without_adapters(self, *, merged: bool) -> AbstractContextManager[None]:
        return nullcontext() if self.adapters is None else self.adapters.taken_off(merged=merged)
