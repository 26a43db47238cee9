"""Train the fast image graph of a bundle: a small vision transformer learns to imitate the bundle's own.

    python -m bundles.fast bundles/default --start DIR/dinov2-small --size 140 --out runs/fast --minutes 9

The text graph and the matcher do not change: student and teacher share one space. The student sees augmented views of
the training images, and learns from the teacher's outputs for the same views:

- `embedding`: the direction of the teacher's embedding,
- `texts`: the teacher's similarities to captions, as a distribution over thousands of them,
- `images`: the teacher's similarities among the images of a batch (as for shrinking in paper 3),
- `contrast`: an image's captions against those of the rest of the batch, encoded by the teacher's text graph,
- `fragments`, `states`: the teacher's vectors for the parts of an image.

One view of every image is in memory; at each step the teacher encodes some new ones, which replace the oldest.
Needs SIGHTLINE_DATA and a GPU. `bundles.fast_export` turns the result into a graph.
"""

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import AutoConfig, AutoModel

from bundles.distil import (
    TaughtTexts,
    TeacherGraph,
    away,
    decoded,
    fit,
    new_optimizer,
    recalls,
    same_order,
    taught_texts,
    write_line,
)
from bundles.fast_weights import read_weights
from sightline.bundle.spec import BundleSpec, read_spec
from sightline.bundle.tokenizer import Tokenizer
from sightline.datasets import Record, read_all
from sightline.errors import DataError
from sightline.media import require_pixels
from sightline.models.student import ImageStudent, StudentOutput, StudentShape
from sightline.training.augment import coloured, crop_boxes, cropped
from sightline.training.corpus import normalised

SOURCES = {
    "flickr8k": "flickr8k-train-*.tar",
    "coco": "coco72k-*.tar",
    "web": "web-train-*.tar",
    "names": "names-train.tar",
    "plain": "cocoplain-*.tar",
    "photos": "photos-*.tar",
}
WEIGHTS = {"embedding": 4.0, "texts": 1.0, "images": 0.5, "contrast": 0.2, "fragments": 1.0, "states": 2.0}
UNLABELLED = ("names", "plain", "photos")  # their captions are names, which many images share, or missing
PARTS = ("embedding", "fragments", "states")
_ASPECT, _COLOUR = 4 / 3, 0.1
_TEMPERATURE = 0.03


@dataclass(slots=True)
class Source:
    """The images of one source, as rows, with the rows of each image's captions."""

    name: str
    images: Tensor
    captions: list[list[int]]


@dataclass(slots=True)
class Views:
    """One augmented view of every image: its pixels, uint8 and in the student's size, and the teacher's outputs.

    share: the share of the image itself in its view, 1 without mixing.
    """

    pixels: Tensor
    share: Tensor
    seen: dict[str, Tensor]

    @classmethod
    def of(cls, count: int, size: int, device: torch.device) -> "Views":
        """Return room for the views of `count` images."""
        pixels = torch.zeros(count, 3, size, size, dtype=torch.uint8, device=device)
        return cls(pixels, torch.ones(count, device=device), {})


class TeachingData:
    """All images and captions, the teacher, and the current views."""

    def __init__(
        self,
        folder: Path,
        spec: BundleSpec,
        records: Mapping[str, Sequence[Record]],
        pixels: Tensor,
        crop: float,
        size: int = 0,
        mix: float = 0.0,
        balance: float = 1.0,
    ) -> None:
        self.device, self.pixels, self.crop, self.mix, self.balance = pixels.device, pixels, crop, mix, balance
        self.preprocess = require_pixels(spec.image.input)
        self.size = size or self.preprocess.size
        self.teacher = TeacherGraph(folder / "image.onnx", self.device)
        texts: list[str] = []
        chances: list[float] = []
        self.sources: list[Source] = []
        first = 0
        for name, some in records.items():
            captions: list[list[int]] = []
            for one in some:
                own = one.captions.get("en", ())
                captions.append(list(range(len(texts), len(texts) + len(own))))
                texts.extend(own)
            own_texts = len(texts) - len(chances)
            chances += own_texts * [max(own_texts, 1) ** (balance - 1)]
            self.sources.append(Source(name, torch.arange(first, first + len(some)), captions))
            first += len(some)
        tokenizer = Tokenizer.open(folder / spec.text.tokenizer, spec.text.max_length, spec.text.pad_id)
        graph = TeacherGraph(folder / "text.onnx", self.device)
        self.texts: TaughtTexts = taught_texts(graph, tokenizer, texts, self.device, words=False)
        self._chances = torch.tensor(chances, device=self.device)
        count = len(pixels)
        self.views = Views.of(count, self.size, self.device)
        self._order, self._next = torch.randperm(count, device=self.device), 0

    @torch.no_grad()
    def look(self, rows: Tensor) -> None:
        """Replace the views of these images with new ones."""
        draws, mixed = torch.rand(len(rows), 5, device=self.device), torch.rand(len(rows), 2, device=self.device)
        share = torch.where(mixed[:, 0] < self.mix, 1 - mixed[:, 1] / 2, 1.0)
        other = torch.randint(len(self.pixels), (len(rows),), device=self.device)
        view = self.mixture(rows, other, share, crop_boxes(draws[:, 1:], self.crop, _ASPECT), draws[:, 0] < 0.5)
        self.views.pixels[rows] = self.resized(view).round().clamp(0, 255).to(torch.uint8)
        self.views.share[rows] = share
        out = self.teacher(pixels=normalised(view, self.preprocess))
        for part in PARTS:
            if part not in self.views.seen:
                shape = (len(self.pixels), *out[part].shape[1:])
                self.views.seen[part] = torch.empty(shape, dtype=torch.bfloat16, device=self.device)
            self.views.seen[part][rows] = out[part].to(torch.bfloat16)

    def mixture(self, rows: Tensor, other: Tensor, share: Tensor, boxes: Tensor, mirrored: Tensor) -> Tensor:
        """Return crops of images, mixed with others from which the same is cropped; values are from 0 to 255."""
        own = cropped(self.pixels[rows].float(), boxes, mirrored)
        if not self.mix:
            return own
        added = cropped(self.pixels[other].float(), boxes, mirrored)
        return torch.lerp(added, own, share[:, None, None, None])

    def look_at_all(self, batch: int = 512) -> None:
        """Create the first view of every image."""
        for rows in torch.split(torch.arange(len(self.pixels), device=self.device), batch):
            self.look(rows)

    def look_on(self, count: int) -> None:
        """Replace the `count` oldest views with new ones."""
        if self._next + count > len(self._order):
            self._order, self._next = torch.randperm(len(self._order), device=self.device), 0
        self.look(self._order[self._next : self._next + count])
        self._next += count

    def batch(self, count: int, random: np.random.Generator) -> tuple[Source, Tensor, Tensor]:
        """Draw images of one source, and a caption of each: rows [count], and rows of captions [count], -1 for none."""
        chances = np.array([len(one.images) for one in self.sources], dtype=float) ** self.balance
        source = self.sources[random.choice(len(chances), p=chances / chances.sum())]
        chosen = random.choice(len(source.images), min(count, len(source.images)), replace=False)
        captions = [own[random.integers(len(own))] if (own := source.captions[one]) else -1 for one in chosen]
        rows = source.images[torch.from_numpy(chosen)]
        return source, rows.to(self.device), torch.tensor(captions, device=self.device)

    def anchors(self, count: int) -> Tensor:
        """Draw rows of captions: sources are drawn as for images, so that names are not lost among sentences."""
        return torch.multinomial(self._chances, count, replacement=True)

    @torch.no_grad()
    def shown(self, rows: Tensor) -> Tensor:
        """Return the current views of these images for the student: normalised, with slightly changed colours."""
        factors = 1 + _COLOUR * (2 * torch.rand(len(rows), 3, device=self.device) - 1)
        return normalised(coloured(self.views.pixels[rows].float(), factors, 255.0), self.preprocess)

    def resized(self, pixels: Tensor) -> Tensor:
        """Return images in the size that the student reads."""
        if pixels.shape[-1] == self.size:
            return pixels
        return F.interpolate(pixels, size=(self.size, self.size), mode="bicubic", antialias=True)


def losses(
    teaching: TeachingData, out: StudentOutput, source: Source, rows: Tensor, captions: Tensor, anchors: int
) -> dict[str, Tensor]:
    """Return the losses of a batch by name."""
    seen = {part: values[rows].float() for part, values in teaching.views.seen.items()}
    texts, described = teaching.texts.embedding, (captions >= 0) & (teaching.views.share[rows] == 1)
    others = texts[teaching.anchors(anchors)]
    own = texts[captions[described]]
    found = {
        "embedding": away(out.embedding, seen["embedding"]),
        "texts": same_order(out.embedding, seen["embedding"], torch.cat([own, others]), _TEMPERATURE),
        "images": same_order(out.embedding, seen["embedding"], seen["embedding"], _TEMPERATURE, alone=True),
        "fragments": away(out.fragments, seen["fragments"]),
        "states": away(out.states, seen["states"]) + F.mse_loss(out.states, seen["states"]) / seen["states"].var(),
    }
    if source.name not in UNLABELLED and len(own):
        scores = out.embedding[described] @ own.float().T / 0.05
        right = torch.arange(len(scores), device=rows.device)
        found["contrast"] = (F.cross_entropy(scores, right) + F.cross_entropy(scores.T, right)) / 2
    return found


@dataclass(slots=True)
class Validation:
    """Held-out images with their texts, to evaluate a student on."""

    name: str
    pixels: Tensor
    texts: Tensor
    owners: np.ndarray
    labels: np.ndarray | None

    @torch.no_grad()
    def measured(self, student: torch.nn.Module, teaching: TeachingData) -> dict[str, float]:
        """Return the recalls of the embeddings; for names, how often the right name ranks first."""
        device = self.pixels.device
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            parts = [
                student(normalised(teaching.resized(some.float()), teaching.preprocess)).embedding.float()
                for some in torch.split(self.pixels, 256)
            ]
        images = torch.cat(parts)
        if self.labels is None:
            return recalls(self.texts, images, self.owners)
        best = (images @ self.texts.float().T).argmax(1).cpu().numpy()
        return {"top1": 100 * float((best == self.labels).mean())}


def validations(teaching: TeachingData, folder: Path, spec: BundleSpec, data: Path) -> list[Validation]:
    """Return the validation sets: Flickr8k val with its captions, and names-val with its names."""
    tokenizer = Tokenizer.open(folder / spec.text.tokenizer, spec.text.max_length, spec.text.pad_id)
    graph = TeacherGraph(folder / "text.onnx", teaching.device)
    found = []
    for name in ("flickr8k-val", "names-val"):
        records = read_all([str(data / f"{name}.tar")])
        pixels = decoded(records, teaching.preprocess, teaching.device, None)
        if name == "names-val":
            names = sorted({one.label or "" for one in records})
            texts, labels = (
                [f"a photo of a {one}" for one in names],
                np.array([names.index(one.label or "") for one in records]),
            )
            owners = np.zeros(len(names), dtype=np.int64)
        else:
            texts, labels = [text for one in records for text in one.captions["en"]], None
            owners = np.repeat(np.arange(len(records)), [len(one.captions["en"]) for one in records])
        taught = taught_texts(graph, tokenizer, texts, teaching.device, words=False)
        found.append(Validation(name, pixels, taught.embedding, owners, labels))
    return found


def new_student(start: str, shape: StudentShape, activation: str, random: bool, size: int, rows: int) -> ImageStudent:
    """Return a student with the weights in a folder, or with random weights; rows: those of the bundle's grid."""
    config = AutoConfig.from_pretrained(start, hidden_act=activation)
    if random:
        encoder = AutoModel.from_config(config, dtype=torch.float32)
    else:
        encoder, report = AutoModel.from_pretrained(start, config=config, dtype=torch.float32, output_loading_info=True)
        missing = [name for name in report["missing_keys"] if not name.startswith("pooler.")]
        if missing:
            raise DataError(f"{start}: {len(missing)} weights are missing, such as {missing[0]}")
    encoder.pooler = None
    return ImageStudent(encoder, shape, size, rows)


def train(args: argparse.Namespace, teaching: TeachingData, found: list[Validation], shape: StudentShape) -> None:
    """Train a student; writes its log, its results and its averaged weights."""
    torch.manual_seed(args.seed)
    random, device = np.random.default_rng(args.seed), teaching.device
    rows = round(teaching.views.seen["fragments"].shape[1] ** 0.5)
    blank = args.random or bool(args.weights)
    student = new_student(args.start, shape, args.activation, blank, teaching.size, rows)
    if args.weights:
        student.load(read_weights(Path(args.weights)))
    student = student.to(device)
    if args.compile:
        student.compile()

    def step() -> tuple[dict[str, Tensor], dict[str, object]]:
        if args.new_views:
            teaching.look_on(args.new_views)
        source, rows, captions = teaching.batch(args.batch, random)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            made = student(teaching.shown(rows))
        return losses(teaching, made, source, rows, captions, args.anchors), {"source": source.name}

    optimizer = new_optimizer(student.encoder, student.heads, args.rate, args.head_rate, 0.05, args.layer_decay)
    done = fit(student, optimizer, WEIGHTS, step, args, decay=0.9995)
    result = {validation.name: validation.measured(student.eval(), teaching) for validation in found}
    unused = ("bundle", "out", "data", "pixels", "runs", "log")
    settings = {key: value for key, value in vars(args).items() if key not in unused}
    write_line(Path(args.out) / "result.json", {**done, **settings, "results": result})


def options() -> argparse.ArgumentParser:
    """Return the command-line options of a run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--start", required=True, help="folder with the initial weights of the student's encoder")
    parser.add_argument("--out", required=True)
    parser.add_argument("--data", type=Path, default=None, help="default: SIGHTLINE_DATA")
    parser.add_argument("--pixels", type=Path, help="file that keeps the decoded images for the next run")
    parser.add_argument("--sources", default="flickr8k,coco,web,names,plain", help=f"among {', '.join(SOURCES)}")
    parser.add_argument("--minutes", type=float, default=1e9)
    parser.add_argument("--steps", type=int, default=8000)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--anchors", type=int, default=3072, help="captions that views are compared with")
    parser.add_argument("--new-views", type=int, default=96, help="views that the teacher adds at each step")
    parser.add_argument("--crop", type=float, default=0.6, help="smallest share of an image that a view keeps")
    parser.add_argument("--mix", type=float, default=0.0, help="share of the views that are a mixture of two images")
    parser.add_argument("--balance", type=float, default=1.0, help="0 to draw all sources equally often, 1 by size")
    parser.add_argument("--size", type=int, default=0, help="size of the student's images; default: the teacher's")
    parser.add_argument("--rate", type=float, default=5e-4)
    parser.add_argument("--head-rate", type=float, default=2e-3)
    parser.add_argument("--layer-decay", type=float, default=0.65)
    parser.add_argument("--activation", default="gelu")
    parser.add_argument("--random", action="store_true", help="start with random weights")
    parser.add_argument("--weights", help="continue from an earlier run's student.pt, or a fast image graph")
    parser.add_argument("--compile", action="store_true", help="compile the student's layers")
    parser.add_argument("--without", default=[], type=lambda text: text.split(","), help="losses to leave out")
    parser.add_argument("--log", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=Path, help="further runs: one line of options each")
    return parser


def prepared(args: argparse.Namespace) -> tuple[TeachingData, list[Validation], StudentShape]:
    """Read and decode all images, and compute the teacher's outputs for them."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.manual_seed(args.seed)
    data = args.data or Path(os.environ["SIGHTLINE_DATA"])
    spec = read_spec(args.bundle)
    records = {name: read_all(sorted(map(str, data.glob(SOURCES[name])))) for name in args.sources.split(",")}
    everything = [one for some in records.values() for one in some]
    pixels = decoded(everything, require_pixels(spec.image.input), device, args.pixels)
    teaching = TeachingData(args.bundle, spec, records, pixels, args.crop, args.size, args.mix, args.balance)
    print(
        json.dumps(
            {"images": {name: len(some) for name, some in records.items()}, "captions": len(teaching.texts.embedding)}
        ),
        flush=True,
    )
    teaching.look_at_all()
    shape = StudentShape(*(teaching.views.seen[part].shape[-1] for part in PARTS))
    found = validations(teaching, args.bundle, spec, data)
    return teaching, found, shape


def main(argv: Sequence[str] | None = None) -> None:
    """Train one student with the given options, or several in a row, each with the options on its line of --runs."""
    parser = options()
    args = parser.parse_args(argv)
    teaching, found, shape = prepared(args)
    train(args, teaching, found, shape)
    for line in args.runs.read_text().splitlines() if args.runs else ():
        train(parser.parse_args([str(args.bundle), "--start", args.start, *line.split()]), teaching, found, shape)


if __name__ == "__main__":
    main()
