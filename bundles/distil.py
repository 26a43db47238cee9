"""Shared code for training students of a bundle: its graphs in torch, images in memory, and distillation losses."""

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sightline.arrays import Int64Array
from sightline.bundle.tokenizer import Tokenizer
from sightline.datasets import Record
from sightline.errors import DataError
from sightline.kernels.program import ExecutionPlan, Program
from sightline.media import Preprocess
from sightline.models import towers
from sightline.training.corpus import device_pixels, normalised
from sightline.training.decoding import Decoder, ahead

_CHUNK = 512
_SAVES = 10  # times that a training saves its weights


class TeacherGraph:
    """A graph of a bundle in torch; outputs have gradients with respect to the inputs."""

    def __init__(self, path: Path, device: torch.device) -> None:
        self._program = Program.read(path, device, torch.bfloat16 if device.type == "cuda" else torch.float32)
        self._plans: dict[tuple[tuple[int, ...], ...], ExecutionPlan] = {}

    def __call__(self, **inputs: Tensor) -> dict[str, Tensor]:
        """Run the graph; floating-point outputs are float32."""
        shapes = tuple(tuple(one.shape) for one in inputs.values())
        if shapes not in self._plans:
            with torch.no_grad():
                self._plans[shapes], _ = self._program.plan(inputs)
        return self._plans[shapes].run(inputs)


def decoded(records: Sequence[Record], preprocess: Preprocess, device: torch.device, kept: Path | None) -> Tensor:
    """Return the pixels of all images, uint8 [images, 3, size, size], on a device.

    kept: a file (`.npy`) that they are read from, or written to if it does not exist.
    """
    size = preprocess.size
    pixels = torch.empty(len(records), 3, size, size, dtype=torch.uint8, device=device)
    if kept is not None and kept.exists():
        found = np.load(kept, mmap_mode="r")
        if found.shape != (len(records), size, size, 3):
            raise DataError(f"{kept}: contains the images of another run", "Delete it.")
        for start in range(0, len(records), 8 * _CHUNK):
            rows = torch.from_numpy(np.array(found[start : start + 8 * _CHUNK])).to(device)
            pixels[start : start + 8 * _CHUNK] = rows.permute(0, 3, 1, 2)
        return pixels
    decoder, starts = Decoder(preprocess), range(0, len(records), _CHUNK)
    chunks = (decoder.start(records[start : start + _CHUNK]) for start in starts)
    for start, chunk in zip(starts, ahead(chunks), strict=True):
        pixels[start : start + _CHUNK] = device_pixels(chunk, device)
    if kept is not None:
        np.save(kept, pixels.permute(0, 2, 3, 1).cpu().numpy())
    return pixels


@torch.no_grad()
def taught_images(
    teacher: TeacherGraph, pixels: Tensor, preprocess: Preprocess, parts: Sequence[str], batch: int = _CHUNK
) -> dict[str, Tensor]:
    """Return the teacher's outputs for all images, in half precision on their device."""
    found: dict[str, Tensor] = {}
    for start in range(0, len(pixels), batch):
        seen = teacher(pixels=normalised(pixels[start : start + batch], preprocess))
        for part in parts:
            if part not in found:
                found[part] = torch.empty(
                    len(pixels), *seen[part].shape[1:], dtype=torch.bfloat16, device=pixels.device
                )
            found[part][start : start + batch] = seen[part].to(torch.bfloat16)
    return found


@dataclass(slots=True)
class TaughtTexts:
    """The teacher's outputs for texts: embedding [texts, dim], and the concatenated states of all words of all texts.

    first, length: the index of each text's first word, and its number of words.
    """

    embedding: Tensor
    states: Tensor
    fragments: Tensor
    first: Tensor
    length: Tensor

    def padded(self, rows: Tensor, part: str = "states") -> tuple[Tensor, Tensor]:
        """Return the states or fragments [rows, n, dim] of texts, and their mask [rows, n]."""
        values: Tensor = getattr(self, part)
        length = self.length[rows]
        places = torch.arange(int(length.max()), device=rows.device)
        mask = places < length[:, None]
        where = (self.first[rows][:, None] + places).clamp(max=len(values) - 1)
        return values[where].float() * mask[..., None], mask


@torch.no_grad()
def taught_texts(
    teacher: TeacherGraph,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    device: torch.device,
    *,
    words: bool = True,
    batch: int = 1024,
) -> TaughtTexts:
    """Return the teacher's outputs for texts. words: whether to keep states and fragments too."""
    tokens = tokenizer(texts)
    lengths = tokens.mask.sum(1)
    embedding: Tensor | None = None
    first = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    kept: dict[str, Tensor] = {}
    for length in sorted(set(lengths.tolist())):
        alike = np.flatnonzero(lengths == length)
        for start in range(0, len(alike), batch):
            rows = alike[start : start + batch]
            ids = torch.from_numpy(tokens.ids[rows, :length]).to(device)
            out = teacher(ids=ids, mask=torch.ones_like(ids, dtype=torch.bool))
            if embedding is None:
                embedding = torch.empty(len(texts), out["embedding"].shape[1], dtype=torch.bfloat16, device=device)
                for part in ("states", "fragments"):
                    count = int(lengths.sum()) if words else 0
                    kept[part] = torch.empty(count, out[part].shape[-1], dtype=torch.bfloat16, device=device)
            chosen = torch.from_numpy(rows).to(device)
            embedding[chosen] = out["embedding"].to(torch.bfloat16)
            if words:
                where = torch.from_numpy(first[rows]).to(device)[:, None] + torch.arange(length, device=device)
                for part, values in kept.items():
                    values[where] = out[part].to(torch.bfloat16)
    if embedding is None:
        raise ValueError("there are no texts to encode")
    return TaughtTexts(
        embedding,
        kept["states"],
        kept["fragments"],
        torch.from_numpy(first).to(device),
        torch.from_numpy(lengths).to(device),
    )


def away(student: Tensor, teacher: Tensor) -> Tensor:
    """Return the mean of 1 - cosine over the last axis."""
    return (1 - F.cosine_similarity(student, teacher.float(), dim=-1)).mean()


def same_order(student: Tensor, teacher: Tensor, anchors: Tensor, temperature: float, alone: bool = False) -> Tensor:
    """Return how much the student's similarities to anchors differ from the teacher's: KL divergence of their softmax.

    student, teacher: [items, dim]; anchors: [anchors, dim], all of unit length. alone: the anchors are the teacher's
    items themselves; the similarity of an item to itself is left out.
    """
    anchors = anchors.float()
    mine, theirs = student @ anchors.T / temperature, teacher.float() @ anchors.T / temperature
    if alone:
        itself = torch.eye(len(student), dtype=torch.bool, device=student.device)
        mine, theirs = mine.masked_fill(itself, -1e4), theirs.masked_fill(itself, -1e4)
    return F.kl_div(mine.log_softmax(-1), theirs.log_softmax(-1), log_target=True, reduction="batchmean")


class Average:
    """An exponential moving average of a model's weights."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._decay, self._steps = decay, 0
        self.weights = {name: value.detach().clone().float() for name, value in model.state_dict().items()}

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Add the current weights to the average."""
        self._steps += 1
        decay = min(self._decay, self._steps / (10 + self._steps))
        mine, new = [], []
        for name, value in model.state_dict().items():
            if value.is_floating_point():
                mine.append(self.weights[name])
                new.append(value.float())
        torch._foreach_lerp_(mine, new, 1 - decay)


@dataclass(slots=True)
class Progress:
    """The progress of a run, by steps or by minutes, whichever is further; and the resulting learning rate."""

    steps: int
    minutes: float
    warmup: float = 0.04
    begun: float = field(default_factory=time.monotonic)
    step: int = 0

    def __iter__(self) -> Iterator[float]:
        """Yield the factor of the learning rate for each step: a short warm-up, then half a cosine."""
        self.begun = time.monotonic()
        while (done := self.done) < 1:
            yield min(done / self.warmup, 1.0) * 0.5 * (1 + math.cos(math.pi * done)) if done else 0.01
            self.step += 1

    @property
    def done(self) -> float:
        """The completed fraction of the run, from 0 to 1."""
        return max(self.step / self.steps, (time.monotonic() - self.begun) / 60 / self.minutes)


def set_rate(optimizer: torch.optim.Optimizer, factor: float) -> None:
    """Multiply the groups' own rates by a factor."""
    for group in optimizer.param_groups:
        group["lr"] = group["initial_lr"] * factor


def new_optimizer(
    encoder: nn.Module, heads: nn.Module, rate: float, head_rate: float, weight_decay: float, layer_decay: float = 1.0
) -> torch.optim.AdamW:
    """Return AdamW for an encoder and new heads, without weight decay for vectors.

    layer_decay: the ratio of a layer's rate to that of the layer above it. A pretrained encoder that learns fast in all
    layers forgets what it knew before the heads have learned anything.
    """
    height = towers.heights(encoder) if layer_decay < 1 else {}
    tables: dict[tuple[float, float], list[nn.Parameter]] = {}
    for module, top in ((encoder, rate), (heads, head_rate)):
        for one in module.parameters():
            own = top * layer_decay ** (height.get(id(one), 0) if module is encoder else 0)
            tables.setdefault((own, weight_decay if one.ndim > 1 else 0.0), []).append(one)
    groups = [
        {"params": some, "lr": own, "initial_lr": own, "weight_decay": decay} for (own, decay), some in tables.items()
    ]
    return torch.optim.AdamW(groups, betas=(0.9, 0.98), fused=torch.cuda.is_available())


def fit(
    student: nn.Module,
    optimizer: torch.optim.Optimizer,
    weights: Mapping[str, float],
    step: Callable[[], tuple[dict[str, Tensor], dict[str, object]]],
    args: argparse.Namespace,
    decay: float,
) -> dict[str, float]:
    """Train a student on the weighted sum of its losses; returns the number of steps, and the seconds they took.

    step: encodes a batch; returns its losses by name, and other values to log. args: the options `steps`, `minutes`,
    `log`, `without` (losses to leave out) and `out`, the folder for the log and the averaged weights, which are also
    saved on the way. decay: see `Average`.
    """
    weights = {name: weight for name, weight in weights.items() if name not in args.without}
    average, progress, out = Average(student, decay), Progress(args.steps, args.minutes), Path(args.out)
    begun, saved = time.monotonic(), 0
    for factor in progress:
        set_rate(optimizer, factor)
        losses, notes = step()
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(reduce(torch.add, (weights[name] * losses[name] for name in weights if name in losses)))
        torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        optimizer.step()
        average.update(student)
        if progress.step % args.log == 0:
            line = {name: round(float(value.detach()), 4) for name, value in losses.items()}
            seconds = round(time.monotonic() - begun, 1)
            write_line(out / "log.jsonl", {"step": progress.step, **notes, "seconds": seconds, **line})
        if int(_SAVES * progress.done) > saved:
            saved = int(_SAVES * progress.done)
            save_weights(average.weights, out / "student.pt")
    student.load_state_dict(average.weights)
    save_weights(average.weights, out / "student.pt")
    return {"steps_done": progress.step, "seconds": time.monotonic() - begun}


def save_weights(weights: Mapping[str, Tensor], path: Path) -> None:
    """Save weights in half precision; an interruption leaves the earlier file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    halves = {name: part.half() if part.is_floating_point() else part for name, part in weights.items()}
    torch.save(halves, path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)


@torch.no_grad()
def recalls(texts: Tensor, images: Tensor, owners: Int64Array) -> dict[str, float]:
    """Compute R@1, R@5 and R@10 in both directions, and their sum, for unit vectors; owners: each text's image."""
    scores = texts.float() @ images.float().T
    own = torch.from_numpy(owners).to(scores.device)
    right = scores.gather(1, own[:, None])
    ranks = (scores > right).sum(1)
    best = torch.full((len(images),), -math.inf, device=scores.device).scatter_reduce(0, own, right[:, 0], "amax")
    back = (scores > best).sum(0)
    found = {f"t2i R@{k}": 100 * (ranks < k).float().mean().item() for k in (1, 5, 10)}
    found |= {f"i2t R@{k}": 100 * (back < k).float().mean().item() for k in (1, 5, 10)}
    return found | {"rSum": sum(found.values())}


def write_line(path: Path, line: Mapping[str, object]) -> None:
    """Append a line of JSON, and print it."""
    text = json.dumps(line)
    print(text, flush=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(text + "\n")
