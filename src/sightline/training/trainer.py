"""Train a model by a recipe: draw, encode, step, look at the validation data, save; and go on where a run stopped."""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sightline.datasets import BudgetSampler, Sampler
from sightline.errors import SightlineError
from sightline.evaluation import Evaluation, Languages
from sightline.losses import Inputs, Objective
from sightline.training import distributed
from sightline.training.batches import Feed
from sightline.training.corpus import Before, Corpus, Draw, Longs, SeenImages
from sightline.training.feature_init import study
from sightline.training.gradients import backward
from sightline.training.neighbours import Neighbours
from sightline.training.optimizer import make_optimizer
from sightline.training.recipe import Recipe
from sightline.training.region_images import RegionImages
from sightline.training.run_folder import RunFolder
from sightline.training.schedule import rate_at, seed_at, takes_part, weights_at
from sightline.training.setup import make_model, make_objectives, training_records
from sightline.training.state import Standing, find_state, load_state, save_state
from sightline.training.teacher import find_teacher
from sightline.training.validation import Validation

Weighted = tuple[Objective, float]
Report = Callable[[dict[str, Any]], None]
"""Told of every logged step: step, steps, loss by objective and its parts, rate, seconds, the latest validation."""


@dataclass(frozen=True, slots=True)
class Trained:
    """What a run left: the folder of its best checkpoint, how it did on the validation data, and the steps taken.

    evaluation: of the best checkpoint, unless an earlier, interrupted part of the run found it; validation: the same
    as JSON with the step it was seen at, in any case. Both are None without validation data.
    """

    folder: Path
    evaluation: Evaluation | Languages | None
    steps: int
    validation: dict[str, Any] | None = None


def train(
    recipe: Recipe,
    out: str | Path,
    *,
    resume: bool = False,
    report: Report | None = None,
    before: Before | None = None,
    save_every: int = 500,
    stop_after: int | None = None,
    stop: Callable[[], bool] | None = None,
) -> Trained:
    """Run a recipe; the best checkpoint is left in `out/best`, the last state in `out/last`.

    resume: go on from `out/last`, or begin if there is nothing yet. On a CPU the weights end up the same, bit by bit,
    as those of a run that was never interrupted; a GPU adds up in an order of its own each time.
    before: told how far it is while frozen encoders and a teacher look at all there is, which can take long.
    stop_after: leave off after this many steps in all, saved, as if interrupted.
    stop: asked after every step; where it says so in any process, the run is saved and a KeyboardInterrupt raised.

    A training picture that cannot be opened ends the run with a `MediaError` that names it, when it is first drawn: a
    set with pictures missing is another set, and whoever trains should know. Evaluation, in contrast, counts them.
    """
    world = distributed.join()
    run = _Run(recipe, Path(out), world, distributed.device(), resume, before if world.leads else None)
    return run.to_the_end(report if world.leads else None, save_every, stop_after, stop or (lambda: False))


class _Run:
    """One run: everything it holds, and its loop."""

    def __init__(
        self,
        recipe: Recipe,
        out: Path,
        world: distributed.World,
        device: torch.device,
        resume: bool,
        before: Before | None = None,
    ) -> None:
        self.recipe, self.world, self.device = recipe, world, device
        self.folder = RunFolder(out)
        self.folder.check(recipe, resume)
        saved = find_state(self.folder.last) if resume else None
        torch.manual_seed(recipe.seed)
        data, records = recipe.data, training_records(recipe)
        self.model, self.tokenizer = make_model(recipe, saved, records)
        self.model.to(device)
        self.objectives = make_objectives(recipe, self.model).to(device)
        self.optimizer = make_optimizer(recipe.optimizer, self.model, self.objectives.values())
        self.standing = load_state(saved, self.optimizer, self.objectives) if saved else Standing()
        self.corpus = Corpus(records, data.lang, self.model.preprocess, self.tokenizer, device)
        self.regions = RegionImages.of(recipe, self.corpus, device)
        self.validation = Validation(recipe, self.model, self.tokenizer, device)
        self.sampler = self._sampler()
        asked = recipe.schedule
        self.steps = asked.steps or max(1, round(asked.epochs * self.sampler.batches_per_epoch))
        self.evaluation: Evaluation | Languages | None = None
        self.seen: SeenImages | None = None
        if recipe.augment is None and self._sees_always_alike():
            self.model.eval()
            self.seen = SeenImages.of(self.corpus, self.model, device, before)
        self.feed = Feed(self.model, self.corpus, self.regions, self.seen, recipe.augment, world, device)
        self.neighbours = Neighbours.of(recipe, self.corpus, self.sampler.batches_per_epoch, self.steps, saved)
        with self._half_precision():
            if not saved:
                study(self.objectives, self.model, self.corpus, self.regions or self.seen, world)
            self.teacher = find_teacher(recipe, records, self.corpus, device, world, before)
        if world.leads:
            self.folder.open(recipe, self.standing.step)

    def to_the_end(
        self, report: Report | None, save_every: int, stop_after: int | None, stop: Callable[[], bool]
    ) -> Trained:
        every = self.recipe.validation.every or self.steps
        end = self.steps if stop_after is None else min(self.steps, stop_after)
        started = time.monotonic()
        for step, pairs in self._batches(self.standing.step, end):
            losses, rate = self._step(step, self.corpus.draw(pairs))
            done = step + 1
            self.standing = replace(self.standing, step=done)
            entry: dict[str, Any] = {"step": done, "steps": self.steps, "loss": losses, "rate": rate}
            if parts := self._parts(step):
                entry["parts"] = parts
            if done % every == 0 or done == self.steps:
                entry |= self._validate()
            entry["seconds"] = round(time.monotonic() - started, 3)
            if self.world.leads:
                self.folder.log(entry)
            stopped = self.world.any(stop(), self.device)
            if done % save_every == 0 or done == end or stopped:
                self._save()
            if report is not None:
                report(entry)
            if stopped and done < end:
                raise KeyboardInterrupt
        best = self.folder.best
        found = best if best.exists() else self.folder.last
        return Trained(found, self.evaluation, self.standing.step, self.folder.validation())

    def _sampler(self) -> Sampler | BudgetSampler:
        data, counts, seed = self.recipe.data, self.corpus.captions_per_image, self.recipe.seed
        if not data.batch_tokens:
            return Sampler(counts, data.batch_size, seed, data.draw)
        fragments = [0 if self.model.image is None else self.model.image.places] * len(counts)
        if self.regions is not None:
            fragments = self.regions.counts.tolist()
        return BudgetSampler(counts, self.corpus.caption_lengths, fragments, data.batch_tokens, seed)

    def _batches(self, first: int, end: int) -> Iterator[tuple[int, Longs]]:
        """Give the steps from `first` on with their batches.

        They follow from seed and step alone, but for neighbours, which follow from the model at the epoch's beginning.
        """
        per_epoch = self.sampler.batches_per_epoch
        step = first
        while step < end:
            epoch, start = divmod(step, per_epoch)
            batches = self.sampler.batches(epoch, start=start)
            if self.neighbours is not None and self.neighbours.has(epoch):
                batches = self.neighbours.batches(epoch, start, self.model, self.regions or self.seen, self.world)
            for pairs in batches:
                yield step, pairs
                step += 1
                if step == end:
                    return

    def _step(self, step: int, batch: Draw) -> tuple[dict[str, float], float]:
        share = rate_at(step, self.steps, self.recipe.schedule)
        for group in self.optimizer.param_groups:
            group["lr"] = group["initial_lr"] * share
        self._training_mode()
        seed = seed_at(step, self.recipe)
        objectives, pixels = self._active(step), self.feed.pixels(batch, seed)
        with self._half_precision():
            losses = backward(
                self.model,
                objectives,
                self.feed.texts(batch),
                self.feed.images(batch, pixels),
                seed=seed,
                chunk=self.recipe.optimizer.chunk,
                world=self.world,
                taught=self._taught(objectives, batch, pixels),
                inputs=self._inputs(objectives, batch, pixels),
            )
        for name, loss in losses.items():
            _check_finite(f"the loss of {name}", loss, step)
        if self.recipe.optimizer.clip:
            trained = [p for group in self.optimizer.param_groups for p in group["params"]]
            norm = nn.utils.clip_grad_norm_(trained, self.recipe.optimizer.clip)
            _check_finite("the gradient", float(norm), step)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return losses, share * self.recipe.optimizer.lr

    def _sees_always_alike(self) -> bool:
        """Whether nothing in the image tower is trained, its codes included."""
        tower = self.model.image
        return tower is not None and not any(p.requires_grad for p in tower.parameters())

    def _training_mode(self) -> None:
        """Dropout on, except in towers that are frozen."""
        self.model.train()
        for part in self.model.parts().values():
            if not any(p.requires_grad for p in part.parameters()):
                part.eval()

    def _active(self, step: int) -> dict[str, Weighted]:
        """Choose the objectives of a step, with their weights."""
        weights = weights_at(step, self.recipe).items()
        named = [(name, weight) for name, weight in weights if takes_part(name, step, self.steps, self.recipe)]
        return {name: (self.objectives[name], weight) for name, weight in named}  # type: ignore[misc]

    def _parts(self, step: int) -> dict[str, dict[str, float]]:
        """Say what the losses of a step were made of, for objectives that tell."""
        told = {name: objective.parts for name, (objective, _) in self._active(step).items() if objective.parts}
        added = {name: self.world.add(torch.stack([*parts.values()])).tolist() for name, parts in told.items()}
        return {name: dict(zip(told[name], values, strict=True)) for name, values in added.items()}

    def _taught(self, objectives: Mapping[str, Weighted], batch: Draw, pixels: Tensor) -> Tensor | None:
        """Ask the teacher for its scores, if an objective of this step wants them."""
        if self.teacher is None or not any(objective.asks_teacher for objective, _ in objectives.values()):
            return None
        return self.teacher.scores(batch, pixels if self.recipe.augment is not None else None)

    def _inputs(self, objectives: Mapping[str, Weighted], batch: Draw, pixels: Tensor) -> Inputs | None:
        """Give what the batch is encoded from, if an objective of this step wants it."""
        wanted = any(objective.asks_inputs for objective, _ in objectives.values())
        return self.feed.inputs(batch, pixels) if wanted else None

    def _validate(self) -> dict[str, Any]:
        """Evaluate on the validation data, and keep the checkpoint if it is the best so far."""
        entry = {}
        if self.world.leads:
            with self._half_precision():
                found = self.validation.evaluate()
            score = 0.0
            if found is not None:
                score = self.validation.score(found)
                entry["val"] = {"t2i": found.text_to_image, "i2t": found.image_to_text, "rSum": found.r_sum}
            if self.standing.best is None or score >= self.standing.best:
                self.standing = Standing(self.standing.step, score, self.standing.step)
                self.evaluation = found
                self.folder.keep_best(self.model, self.tokenizer, self.standing.step, found)
        self.standing = self.world.tell(self.standing)
        return entry

    def _half_precision(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda")

    def _save(self) -> None:
        more = self.neighbours.tensors() if self.neighbours is not None else {}
        parts = self.model, self.tokenizer, self.optimizer, self.objectives, self.standing
        save_state(self.folder.last, *parts, more, self.world)


def _check_finite(what: str, value: float, step: int) -> None:
    """End a run before a step that would turn every weight into nothing, and before that could be saved."""
    if not math.isfinite(value):
        raise SightlineError(f"{what} is {value} at step {step + 1}", "Lower the learning rate, or clip the gradient.")
