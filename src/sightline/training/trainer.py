"""Train a model by a recipe: draw, encode, step, look at the validation data, save; and go on where a run stopped."""

import json
import random
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from sightline import settings
from sightline.bundle.tokenizing import Tokenizer
from sightline.datasets import Record, Sampler, read_all
from sightline.errors import RecipeError, SightlineError
from sightline.evaluation import Evaluation, evaluate
from sightline.models import DualStreamConfig, checkpoint
from sightline.models.blending import blend
from sightline.models.engine import TorchModel
from sightline.models.retriever import Encoded, Tokens
from sightline.objectives import OBJECTIVES, Objective
from sightline.training import distributed
from sightline.training.corpus import Corpus, Draw, SeenImages, normalised
from sightline.training.gradients import Side, backward
from sightline.training.optimizer import make_optimizer, rate_at
from sightline.training.recipe import Recipe
from sightline.training.state import Standing, find_state, load_state, save_state
from sightline.training.vocabulary import learn_tokenizer

Report = Callable[[dict[str, Any]], None]
"""Told of every logged step: step, steps, loss by objective, rate, seconds, and the latest validation result."""


@dataclass(frozen=True, slots=True)
class Trained:
    """What a run left: the folder of its best checkpoint, how it did on the validation data, and the steps taken."""

    folder: Path
    evaluation: Evaluation | None
    steps: int


def train(
    recipe: Recipe,
    out: str | Path,
    *,
    resume: bool = False,
    report: Report | None = None,
    save_every: int = 500,
    stop_after: int | None = None,
) -> Trained:
    """Run a recipe; the best checkpoint is left in `out/best`, the last state in `out/last`.

    resume: go on from `out/last`. The weights end up the same as those of a run that was never interrupted.
    stop_after: leave off after this many steps in all, saved, as if interrupted.
    """
    world = distributed.join()
    run = _Run(recipe, Path(out), world, distributed.device(), resume)
    return run.to_the_end(report if world.leads else None, save_every, stop_after)


class _Run:
    """One run: everything it holds, and its loop."""

    def __init__(self, recipe: Recipe, out: Path, world: distributed.World, device: torch.device, resume: bool) -> None:
        self.recipe, self.out, self.world, self.device = recipe, out, world, device
        self.last = out / "last"
        saved = find_state(self.last) if resume else None
        self._claim(resume)
        torch.manual_seed(recipe.seed)
        data, records = recipe.data, _limited(recipe)
        self.model, self.tokenizer = _model(recipe, saved, records)
        self.model.to(device)
        self.objectives = _objectives(recipe).to(device)
        self.optimizer = make_optimizer(recipe.optimizer, self.model, self.objectives.values())
        self.standing = load_state(saved, self.optimizer, self.objectives) if saved else Standing()
        self.corpus = Corpus(records, data.lang, self.model.preprocess, self.tokenizer)
        self.val = read_all(data.val) if data.val else []
        self.sampler = Sampler(self.corpus.captions_per_image, data.batch_size, recipe.seed, data.draw)
        self.steps = recipe.schedule.steps or round(recipe.schedule.epochs * self.sampler.batches_per_epoch)
        self.evaluation: Evaluation | None = None
        self.seen: SeenImages | None = None
        frozen = not any(p.requires_grad for p in self.model.parts()["image"].parameters())
        if frozen and recipe.augment is None:
            self.model.eval()
            self.seen = SeenImages.of(self.corpus, self.model, device)

    def _claim(self, resume: bool) -> None:
        """Make the run's folder; a finished or half-finished run is never overwritten by accident."""
        if not self.world.leads:
            return
        if not resume and (find_state(self.last) or (self.out / "best").exists()):
            raise SightlineError(f"{self.out}: holds a run already", "Add --resume to go on with it, or choose another --out.")
        self.out.mkdir(parents=True, exist_ok=True)
        description = json.dumps(settings.plain(self.recipe), indent=2, ensure_ascii=False)
        (self.out / "recipe.json").write_text(description + "\n", encoding="utf-8")

    def to_the_end(self, report: Report | None, save_every: int, stop_after: int | None) -> Trained:
        every = self.recipe.validation.every or self.steps
        end = min(self.steps, stop_after or self.steps)
        started, first = time.monotonic(), self.standing.step
        for step, pairs in self._batches(first, end):
            losses, rate = self._step(step, self.corpus.draw(pairs))
            self.standing = replace(self.standing, step=step + 1)
            entry: dict[str, Any] = {"step": step + 1, "steps": self.steps, "loss": losses, "rate": rate}
            if self.standing.step % every == 0 or self.standing.step == self.steps:
                entry |= self._validate()
            if self.standing.step % save_every == 0 or self.standing.step == end:
                self._save()
            entry["seconds"] = round(time.monotonic() - started, 3)
            self._log(entry, report)
        best = self.out / "best"
        return Trained(best if best.exists() else self.last, self.evaluation, self.standing.step)

    def _batches(self, first: int, end: int) -> Iterator[tuple[int, np.ndarray[Any, np.dtype[np.int64]]]]:
        """Steps from `first` on with their batches, which follow from seed and step alone."""
        per_epoch = self.sampler.batches_per_epoch
        step = first
        while step < end:
            for pairs in self.sampler.batches(step // per_epoch, start=step % per_epoch):
                yield step, pairs
                step += 1
                if step == end:
                    return

    def _step(self, step: int, batch: Draw) -> tuple[dict[str, float], float]:
        share = rate_at(step, self.steps, self.recipe.schedule)
        for group in self.optimizer.param_groups:
            group["lr"] = group["initial_lr"] * share
        self._training_mode()
        seed = self.recipe.seed * 10_000_019 + step
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            losses = backward(
                self.model,
                self._active(step),
                self._texts(batch),
                self._images(batch, seed),
                seed=seed,
                chunk=self.recipe.optimizer.chunk,
                world=self.world,
            )
        if not all(np.isfinite(value) for value in losses.values()):
            raise SightlineError(
                f"the loss is not finite at step {step + 1}: {losses}", "Lower the learning rate, or clip the gradient."
            )
        if self.recipe.optimizer.clip:
            trained = [p for group in self.optimizer.param_groups for p in group["params"]]
            nn.utils.clip_grad_norm_(trained, self.recipe.optimizer.clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return losses, share * self.recipe.optimizer.lr

    def _training_mode(self) -> None:
        """Dropout on, except in towers that are frozen."""
        self.model.train()
        for part in self.model.parts().values():
            if not any(p.requires_grad for p in part.parameters()):
                part.eval()

    def _active(self, step: int) -> dict[str, tuple[Objective, float]]:
        """The objectives of a step, with their weights."""
        schedule = self.recipe.schedule
        weights = {name: float(terms.get("weight", 1.0)) for name, terms in self.recipe.objectives.items()}
        if schedule.run == "pattern":
            chosen = [schedule.pattern[step % len(schedule.pattern)]]
        elif schedule.run == "random":
            drawn = random.Random(self.recipe.seed * 10_000_019 + step)
            chosen = drawn.choices(list(weights), list(weights.values()))
            weights = dict.fromkeys(weights, 1.0)
        else:
            chosen = list(weights)
        return {name: (self.objectives[name], weights[name]) for name in chosen}  # type: ignore[misc]

    def _texts(self, batch: Draw) -> Side:
        own = self.world.share(len(batch.text_images))
        tokens = Tokens(*(field[own].to(self.device) for field in batch.tokens))
        return Side(
            lambda rows: self.model.encode_texts(Tokens(tokens.ids[rows], tokens.mask[rows])),
            torch.from_numpy(batch.text_images).to(self.device),
        )

    def _images(self, batch: Draw, seed: int) -> Side:
        own = batch.images[self.world.share(len(batch.images))]
        ids = torch.from_numpy(batch.images).to(self.device)
        if self.seen is not None:
            seen = self.seen
            return Side(lambda rows: self.model.encode_images(seen.of_images(own[rows])), ids)
        pixels = self.corpus.pixels(own).to(self.device)
        if self.recipe.augment is not None:
            generator = torch.Generator().manual_seed(seed * self.world.size + self.world.rank)
            pixels = self.recipe.augment(pixels, generator)

        def encode(rows: slice) -> Encoded:
            return self.model.encode_images(normalised(pixels[rows], self.model.preprocess))

        return Side(encode, ids)

    def _validate(self) -> dict[str, Any]:
        """Evaluate on the validation data, and keep the checkpoint if it is the best so far."""
        if self.world.leads:
            score = 0.0
            if self.val:
                self.evaluation = self._evaluate(self.val)
                result = self.evaluation.to_json()
                score = result["rSum"] if self.recipe.validation.metric == "rSum" else result["text_to_image"]["R@1"]
            if score >= self.standing.best:
                self.standing = Standing(self.standing.step, score, self.standing.step)
                self._keep_best()
        self.standing = self.world.tell(self.standing)
        self.world.wait()
        if self.evaluation is None:
            return {}
        return {"val": {"t2i": self.evaluation.text_to_image, "i2t": self.evaluation.image_to_text, "rSum": self.evaluation.r_sum}}

    def _evaluate(self, records: list[Record]) -> Evaluation:
        asked = self.recipe.validation
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            return evaluate(
                TorchModel(self.model.eval(), self.tokenizer, self.recipe.name),
                records,
                data="val",
                lang=self.recipe.data.lang,
                rerank=asked.rerank or None,
                fusion=asked.fusion,
                weight=asked.weight,
                batch_size=256 if self.device.type == "cuda" else 32,
            )

    def _keep_best(self) -> None:
        new, best = self.out / "best.new", self.out / "best"
        shutil.rmtree(new, ignore_errors=True)
        checkpoint.save(self.model, self.tokenizer, new)
        shutil.rmtree(best, ignore_errors=True)
        new.rename(best)

    def _save(self) -> None:
        if self.world.leads:
            save_state(self.last, self.model, self.tokenizer, self.optimizer, self.objectives, self.standing)
        self.world.wait()

    def _log(self, entry: dict[str, Any], report: Report | None) -> None:
        if not self.world.leads:
            return
        with (self.out / "log.jsonl").open("a", encoding="utf-8") as log:
            log.write(json.dumps(entry) + "\n")
        if report is not None:
            report(entry)


def _model(
    recipe: Recipe, saved: Path | None, records: list[Record]
) -> tuple[checkpoint.AnyRetriever, Tokenizer]:
    """The model of a resumed run, of the checkpoint that the recipe starts from, or a new one.

    A new text encoder with random weights gets a tokenizer learned from the captions.
    """
    if saved is not None:
        return checkpoint.load(saved)
    if recipe.start:
        model, tokenizer = checkpoint.load(recipe.start)
        if recipe.blend is not None:
            blend(model, recipe.blend.part, recipe.blend.source, recipe.blend.share)
        return model, tokenizer
    config = recipe.model_config()
    text = config.text if isinstance(config, DualStreamConfig) else config.transformer
    length = config.text_input.max_length
    if text.source:
        return checkpoint.build(config), checkpoint.tokenizer_of(text, length)
    captions = (caption for record in records for caption in record.captions_in(recipe.data.lang))
    return checkpoint.build(config), learn_tokenizer(captions, int(text.config["vocab_size"]), length)


def _objectives(recipe: Recipe) -> nn.ModuleDict:
    made = nn.ModuleDict()
    for name, terms in recipe.objectives.items():
        loss = terms.get("loss")
        if loss not in OBJECTIVES:
            raise RecipeError(f"objectives.{name}.loss: {loss!r} is not a loss", f"Choose from: {', '.join(OBJECTIVES)}.")
        chosen = {key: value for key, value in terms.items() if key not in ("loss", "weight")}
        made[name] = settings.call(OBJECTIVES[loss], chosen, f"objectives.{name}", RecipeError)
    return made


def _limited(recipe: Recipe) -> list[Record]:
    """The training records, or as many of them as the recipe asks for."""
    records = [record for record in read_all(recipe.data.train) if record.captions]
    if not recipe.data.limit:
        return records
    if recipe.data.limit > len(records):
        raise RecipeError(f"data.limit is {recipe.data.limit}, but there are only {len(records)} captioned images")
    order = np.random.default_rng(recipe.seed).permutation(len(records))
    return [records[i] for i in order[: recipe.data.limit]]
