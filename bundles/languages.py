"""Train a bundle's text graph for more languages: a multilingual encoder learns to imitate the English text graph.

    python -m bundles.languages bundles/default --start DIR/e5-small-multilingual --text DIR --out runs/languages

--text is a folder of parallel text, `*.jsonl.gz`, one pair per line: {"en", "lang", "text", "source", "image"}; `image`
names the photo of a caption ("flickr8k/KEY", "coco/ID"), and "loose": true marks captions of one photo that are not
translations of each other. The student learns from the bundle's outputs for the English text:

- `embedding`: the direction of the embedding,
- `images`, `texts`: the similarities to images and to other texts, as distributions,
- `contrast`: finding the photo of a caption among the photos of the batch,
- `match`, `late`: the scores that the bundle's matcher, and late interaction, give to pairs with images.

Needs SIGHTLINE_DATA and a GPU. `bundles.languages_export` turns the result into an add-on.
"""

import argparse
import gzip
import json
import os
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import AutoModel

from bundles.distil import (
    TaughtTexts,
    TeacherGraph,
    away,
    decoded,
    fit,
    new_optimizer,
    recalls,
    same_order,
    taught_images,
    taught_texts,
    write_line,
)
from sightline.bundle.spec import BundleSpec, read_spec
from sightline.bundle.tokenizer import Tokenizer
from sightline.bundle.words import Words
from sightline.datasets import Record, read_all
from sightline.media import require_pixels
from sightline.models.student import StudentOutput, StudentShape, TextStudent

KINDS = {  # sources of text by kind, and the share of each kind in a batch
    "captions": (
        0.4,
        (
            "flickr8k",
            "multi30k",
            "multi30k-ext",
            "multi30k-own",
            "mscoco-it",
            "coco-cn",
            "stair",
            "yjcaptions",
            "coco-es",
            "dutch-descriptions",
            "apertium-captions",
            "apertium-multi30k",
            "captions",
        ),
    ),
    "sentences": (0.12, ("tatoeba", "tuxpaint", "phrases")),
    "words": (0.4, ("freedict", "ding", "edict", "omw", "cldr")),
    "english": (0.08, ("english",)),
}
IMAGES = ("flickr8k-train-*.tar", "coco72k-00[0-1].tar", "web-train-*.tar", "names-train.tar")
PARTS = ("embedding", "fragments", "states")
WEIGHTS = {"embedding": 4.0, "images": 1.0, "texts": 0.3, "contrast": 0.2, "match": 1.0, "late": 4.0}
_TEMPERATURE = 0.03
_MORE = "draw a language or a kind of text more often: zh=2,words=1.5"
_EVEN = 0.5  # a language's share is proportional to its number of lines to this power


@dataclass(slots=True)
class Lines:
    """Pairs of texts as arrays: rows of the English text, of the photo (-1 for none), and tokens of the other text."""

    english: Tensor
    image: Tensor
    loose: Tensor
    ids: Tensor
    length: Tensor
    groups: list[tuple[float, np.ndarray]]


def read_lines(folder: Path, words: Words) -> list[dict[str, object]]:
    """Return the lines of all files; from dictionaries, only those whose English words the bundle knows."""
    found = []
    for path in sorted(folder.glob("*.jsonl.gz")):
        if path.name.startswith("held"):
            continue
        with gzip.open(path, "rt", encoding="utf-8") as file:
            for text in file:
                line = json.loads(text)
                if kind_of(line["source"]) != "words" or words.familiarity(line["en"]) > 0:
                    found.append(line)
    return found


def kind_of(source: str) -> str:
    """Return the kind of a source: "captions", "sentences", "words" or "english"."""
    return next((kind for kind, (_, names) in KINDS.items() if source in names), "captions")


def grouped(lines: Sequence[dict[str, object]], more: Mapping[str, float]) -> list[tuple[float, np.ndarray]]:
    """Return the rows of each kind and language, with their share in a batch.

    more: factors for the shares, by kind or by language; the other languages of a kind get less.
    """
    rows: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for number, line in enumerate(lines):
        rows[kind_of(str(line["source"]))][str(line["lang"])].append(number)
    found = []
    for kind, languages in rows.items():
        sizes = {lang: more.get(lang, 1.0) * len(some) ** _EVEN for lang, some in languages.items()}
        share = KINDS[kind][0] * more.get(kind, 1.0)
        for lang, some in languages.items():
            found.append((share * sizes[lang] / sum(sizes.values()), np.array(some)))
    return found


class TeachingData:
    """The text pairs, the teacher's outputs for their English side, and images to compare texts with."""

    def __init__(self, args: argparse.Namespace, spec: BundleSpec, device: torch.device) -> None:
        self.device = device
        bundle: Path = args.bundle
        records = [one for pattern in IMAGES for one in read_all(sorted(map(str, args.data.glob(pattern))))]
        preprocess = require_pixels(spec.image.input)
        pixels = decoded(records, preprocess, device, None)
        graph = TeacherGraph(bundle / "image.onnx", device)
        self.images = taught_images(graph, pixels, preprocess, PARTS)
        del pixels, graph
        place = {_image_name(record): row for row, record in enumerate(records)}
        lines = read_lines(args.text, Words(spec.words.split()))
        for record in records:
            lines += [
                {"en": text, "lang": "en", "text": text, "source": "english", "image": _image_name(record)}
                for text in record.captions.get("en", ())
            ]
        english = {text: row for row, text in enumerate(dict.fromkeys(str(line["en"]) for line in lines))}
        tokenizer = Tokenizer.open(bundle / spec.text.tokenizer, spec.text.max_length, spec.text.pad_id)
        self.text_teacher = TeacherGraph(bundle / "text.onnx", device)
        self.english_tokenizer = tokenizer
        self.texts: TaughtTexts = taught_texts(self.text_teacher, tokenizer, list(english), device)
        self.matcher = TeacherGraph(bundle / "match.onnx", device)
        self.tokenizer = Tokenizer.open(Path(args.start) / "tokenizer.json", args.length, args.pad)
        ids, length = self.tokens([str(line["text"]) for line in lines])
        self.lines = Lines(
            torch.tensor([english[str(line["en"])] for line in lines], device=device),
            torch.tensor([place.get(str(line.get("image", "")), -1) for line in lines], device=device),
            torch.tensor([bool(line.get("loose")) for line in lines], device=device),
            ids,
            length,
            grouped(lines, args.more),
        )
        self.photo_text = self._photo_texts()
        self.counts = Counter((kind_of(str(line["source"])), str(line["lang"])) for line in lines)

    def _photo_texts(self) -> Tensor:
        """Return, for each image, the mean of the teacher's embeddings of the captions paired with it."""
        total = torch.zeros(self.images["embedding"].shape, device=self.device)
        paired = self.lines.image >= 0
        total.index_add_(0, self.lines.image[paired], self.texts.embedding[self.lines.english[paired]].float())
        return F.normalize(total, dim=-1)

    def target(self, rows: Tensor) -> Tensor:
        """Return the embeddings to learn: of the English text or, for loose lines, the mean of the photo's captions."""
        photo = self.lines.image[rows]
        by_photo = (self.lines.loose[rows] & (photo >= 0))[:, None]
        return torch.where(by_photo, self.photo_text[photo], self.texts.embedding[self.lines.english[rows]].float())

    def tokens(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Return the student's token ids [texts, n] for texts, and their numbers of tokens [texts]."""
        parts = [self.tokenizer(texts[start : start + 4096]) for start in range(0, len(texts), 4096)]
        longest = max(part.ids.shape[1] for part in parts)
        ids = np.full((len(texts), longest), self.tokenizer.pad_id, dtype=np.int32)
        for start, part in zip(range(0, len(texts), 4096), parts, strict=True):
            ids[start : start + len(part.ids), : part.ids.shape[1]] = part.ids
        length = np.concatenate([part.mask.sum(1) for part in parts])
        return torch.from_numpy(ids).to(self.device), torch.from_numpy(length).to(self.device)

    def batch(self, count: int, random: np.random.Generator) -> Tensor:
        """Draw the rows of a batch of lines, from all kinds and languages."""
        shares = np.array([share for share, _ in self.lines.groups])
        drawn = random.multinomial(count, shares / shares.sum())
        chosen = [
            some[random.integers(len(some), size=n)] for n, (_, some) in zip(drawn, self.lines.groups, strict=True)
        ]
        return torch.from_numpy(np.concatenate(chosen)).to(self.device)

    def read(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the token ids and mask of these lines, padded to the longest."""
        length = self.lines.length[rows]
        longest = int(length.max())
        places = torch.arange(longest, device=rows.device)
        return self.lines.ids[rows, :longest].long(), places < length[:, None]


def _image_name(record: Record) -> str:
    """Return the name of a photo in parallel text."""
    key = record.key.rsplit("/", 1)[-1]
    return f"coco/{int(key)}" if key.isdigit() else f"flickr8k/{key}"


def losses(
    teaching: TeachingData, out: StudentOutput, mask: Tensor, rows: Tensor, anchors: int, pairs: int
) -> dict[str, Tensor]:
    """Return the losses of a batch by name."""
    lines, pool = teaching.lines, teaching.images["embedding"]
    photo, target = lines.image[rows], teaching.target(rows)
    shown = torch.randint(len(pool), (anchors,), device=rows.device)
    found = {
        "embedding": away(out.embedding, target),
        "images": same_order(out.embedding, target, pool[shown], _TEMPERATURE),
        "texts": same_order(out.embedding, target, target, _TEMPERATURE, alone=True),
    }
    with_photo = photo >= 0
    if int(with_photo.sum()) > 1:
        theirs = pool[photo[with_photo]].float()
        scores = out.embedding[with_photo] @ theirs.T / 0.05
        same = photo[with_photo][:, None] == photo[with_photo]
        scores = scores.masked_fill(same & ~torch.eye(len(scores), dtype=torch.bool, device=rows.device), -1e4)
        found["contrast"] = F.cross_entropy(scores, torch.arange(len(scores), device=rows.device))
    return found | pair_losses(teaching, out, mask, rows, shown, pairs)


def pair_losses(
    teaching: TeachingData, out: StudentOutput, mask: Tensor, rows: Tensor, shown: Tensor, pairs: int
) -> dict[str, Tensor]:
    """Return losses on matcher and late-interaction scores, for some texts, each with two near and one random image."""
    some = torch.randperm(len(rows), device=rows.device)[:pairs]
    some = some[~teaching.lines.loose[rows[some]]]
    english, photo = teaching.lines.english[rows[some]], teaching.lines.image[rows[some]]
    with torch.no_grad():
        near = (teaching.texts.embedding[english] @ teaching.images["embedding"][shown].T).float()
        best = shown[near.topk(8).indices]
        chosen = best.gather(1, torch.randint(8, (len(best), 2), device=rows.device))
        chosen[:, 0] = torch.where(photo >= 0, photo, chosen[:, 0])
        image = torch.cat([chosen.flatten(), shown[torch.randint(len(shown), (len(some),), device=rows.device)]])
    text = torch.cat(
        [torch.arange(len(some), device=rows.device).repeat_interleave(2), torch.arange(len(some), device=rows.device)]
    )
    states, parts = teaching.images["states"][image].float(), teaching.images["fragments"][image].float()
    whole = torch.ones(states.shape[:2], dtype=torch.bool, device=rows.device)
    with torch.no_grad():
        their_states, their_mask = teaching.texts.padded(english)
        theirs = teaching.matcher(
            text_states=their_states[text], text_mask=their_mask[text], image_states=states, image_mask=whole
        )["logits"]
        their_words, _ = teaching.texts.padded(english, "fragments")
        their_late = late(their_words[text], their_mask[text], parts)
    mine = teaching.matcher(
        text_states=out.states[some][text], text_mask=mask[some][text], image_states=states, image_mask=whole
    )["logits"]
    my_late = late(out.fragments[some][text], mask[some][text], parts)
    return {"match": F.huber_loss(mine, theirs, delta=2.0) / 4, "late": F.mse_loss(my_late, their_late)}


def late(words: Tensor, mask: Tensor, parts: Tensor) -> Tensor:
    """Return, for each pair, the mean over words of the cosine with the nearest part of the image."""
    best = (words @ parts.transpose(1, 2)).amax(-1) * mask
    return best.sum(1) / mask.sum(1)


@torch.no_grad()
def encoded(student: TextStudent, teaching: TeachingData, texts: Sequence[str], batch: int = 1024) -> Tensor:
    """Return the student's embeddings of texts."""
    ids, length = teaching.tokens(texts)
    places, found = torch.arange(ids.shape[1], device=ids.device), []
    for start in range(0, len(texts), batch):
        mask = places < length[start : start + batch, None]
        with torch.autocast(ids.device.type, torch.bfloat16, enabled=ids.device.type == "cuda"):
            found.append(student(ids[start : start + batch].long(), mask).embedding.float())
    return torch.cat(found)


@dataclass(slots=True)
class Validation:
    """The images of Flickr8k val, as encoded by the teacher, and their captions by language."""

    images: Tensor
    captions: dict[str, tuple[list[str], np.ndarray]]

    def measured(self, student: TextStudent, teaching: TeachingData) -> dict[str, float]:
        """Return the mean recall in each language; "en" is measured with the teacher's own text graph."""
        found = {}
        for lang, (texts, owners) in self.captions.items():
            present, renamed = np.unique(owners, return_inverse=True)
            images = self.images[torch.from_numpy(present).to(self.images.device)]
            found[lang] = recalls(encoded(student, teaching, texts), images, renamed)["rSum"] / 6
        texts, owners = self.captions["en"]
        theirs = taught_texts(teaching.text_teacher, teaching.english_tokenizer, texts, teaching.device, words=False)
        return found | {"teacher en": recalls(theirs.embedding, self.images, owners)["rSum"] / 6}


def read_validation(args: argparse.Namespace, spec: BundleSpec, device: torch.device) -> Validation:
    """Read Flickr8k val."""
    records = read_all([str(args.data / "flickr8k-val.tar")])
    preprocess = require_pixels(spec.image.input)
    pixels = decoded(records, preprocess, device, None)
    images = taught_images(TeacherGraph(args.bundle / "image.onnx", device), pixels, preprocess, ["embedding"])[
        "embedding"
    ]
    captions: dict[str, tuple[list[str], np.ndarray]] = {}
    for lang in sorted({lang for record in records for lang in record.captions}):
        texts = [(text, row) for row, record in enumerate(records) for text in record.captions.get(lang, ())]
        captions[lang] = ([text for text, _ in texts], np.array([row for _, row in texts]))
    return Validation(images, captions)


def train(args: argparse.Namespace, teaching: TeachingData, test: Validation) -> None:
    """Train a student; writes its log, its results and its averaged weights."""
    torch.manual_seed(args.seed)
    random, device = np.random.default_rng(args.seed), teaching.device
    shape = StudentShape(*(teaching.images[part].shape[-1] for part in PARTS))
    encoder = AutoModel.from_pretrained(args.start, dtype=torch.float32)
    encoder.pooler = None
    student = TextStudent(encoder, shape)
    if args.weights:
        student.load_state_dict(torch.load(args.weights, map_location="cpu", weights_only=True))
    student = student.to(device).train()

    def step() -> tuple[dict[str, Tensor], dict[str, object]]:
        rows = teaching.batch(args.batch, random)
        ids, mask = teaching.read(rows)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            made = student(ids, mask)
        return losses(teaching, made, mask, rows, args.anchors, args.pairs), {}

    optimizer = new_optimizer(student.encoder, student.heads, args.rate, 4 * args.rate, 0.01)
    done = fit(student, optimizer, WEIGHTS, step, args, decay=0.999)
    keys = ("weights", "without", "more", "batch", "steps", "rate", "anchors", "pairs", "seed")
    settings = {key: getattr(args, key) for key in keys}
    found = test.measured(student.eval(), teaching)
    counts = {f"{kind} {lang}": count for (kind, lang), count in sorted(teaching.counts.items())}
    result = {**done, **settings, "results": {"flickr8k-val mean recall": found}, "lines": counts}
    write_line(Path(args.out) / "result.json", result)


def _factors(text: str) -> dict[str, float]:
    """Parse factors by name, such as "zh=2,words=1.5"."""
    found = {name: float(factor) for name, _, factor in (part.partition("=") for part in text.split(","))}
    if wrong := [name for name, factor in found.items() if factor <= 0 or (name not in KINDS and len(name) != 2)]:
        raise ValueError(f"unknown language or kind, or a factor that is not above 0: {wrong}")
    return found


def main(argv: Sequence[str] | None = None) -> None:
    """Train one student."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--start", required=True, help="folder with the multilingual encoder and its tokenizer.json")
    parser.add_argument("--text", type=Path, required=True, help="folder with parallel text")
    parser.add_argument("--out", required=True)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("SIGHTLINE_DATA", ".")))
    parser.add_argument("--minutes", type=float, default=1e9)
    parser.add_argument("--steps", type=int, default=12000)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--anchors", type=int, default=4096, help="images that texts are compared with")
    parser.add_argument("--pairs", type=int, default=256, help="texts of a batch that are matched with images")
    parser.add_argument("--rate", type=float, default=2e-4)
    parser.add_argument("--length", type=int, default=40, help="the most tokens of a text")
    parser.add_argument("--pad", type=int, default=1)
    parser.add_argument("--weights", help="continue from the weights of an earlier run")
    parser.add_argument("--more", default={}, type=_factors, metavar="NAME=FACTOR,…", help=_MORE)
    parser.add_argument("--without", default=[], type=lambda text: text.split(","), help="losses to leave out")
    parser.add_argument("--log", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cuda.matmul.allow_tf32 = True
    spec = read_spec(args.bundle)
    teaching = TeachingData(args, spec, device)
    print(
        json.dumps(
            {
                "images": len(teaching.images["embedding"]),
                "english": len(teaching.texts.embedding),
                "lines": len(teaching.lines.english),
            }
        ),
        flush=True,
    )
    train(args, teaching, read_validation(args, spec, device))


if __name__ == "__main__":
    main()
