"""The training data, ready to be drawn from: pictures as pixels, captions as tokens."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sightline.bundle.tokenizer import Tokenizer
from sightline.datasets import Record, captions_in_any
from sightline.errors import DataError, MediaError
from sightline.media import ImageInput, Preprocess, fit, open_image, require_pixels
from sightline.models.retriever import Retriever, Seen, Tokens
from sightline.parallel import usable_cpus

Longs = npt.NDArray[np.int64]
Before = Callable[[str, int, int], None]
"""Told what is done before the first step, how much of it is done, and how much there is."""
_KEPT_BYTES = 6 << 30  # decoded pictures are kept up to this size; more are decoded again each time


@dataclass(frozen=True, slots=True)
class Draw:
    """A batch as drawn: the distinct pictures in it [I], and for each caption its picture [T] and its tokens.

    captions: [T], the number of each caption among those of all pictures.
    """

    images: Longs
    text_images: Longs
    tokens: Tokens
    captions: Longs


class Corpus:
    """Captioned pictures with every caption tokenised once, and every picture decoded once, where memory allows.

    lang: the language of the captions, or several, whose captions are all the picture's own alike.

    Decoded pictures stay on `device`, as copying a batch there takes as long as a small tower takes to read it.

    A picture that cannot be opened is a `MediaError` when it is first asked for: looking at all of them beforehand
    would hold up every run for the sake of the few that have a broken one.
    """

    def __init__(
        self,
        records: Sequence[Record],
        lang: str | Sequence[str],
        preprocess: ImageInput,
        tokenizer: Tokenizer,
        device: torch.device | None = None,
    ) -> None:
        self.records = [record for record in records if record.captions]
        if not self.records:
            raise DataError("the training data has no captions", "Name data with captions in data.train.")
        self.input = preprocess
        captions = [captions_in_any(record, lang) for record in self.records]
        self.captions_per_image = [len(texts) for texts in captions]
        self._first = np.concatenate([[0], np.cumsum(self.captions_per_image)])
        batch = tokenizer([text for texts in captions for text in texts])
        self.caption_lengths = batch.mask.sum(1).tolist()
        self._ids, self._mask = torch.from_numpy(batch.ids), torch.from_numpy(batch.mask)
        self.truncated = int(batch.truncated.sum())
        self._pool = ThreadPoolExecutor(usable_cpus(), thread_name_prefix="sightline-train")
        self._device = device or torch.device("cpu")
        self._kept: Tensor | None = None
        self._is_kept = np.zeros(len(self.records), dtype=np.bool_)

    def __len__(self) -> int:
        return len(self.records)

    @property
    def preprocess(self) -> Preprocess:
        """How pictures are sized and normalised; refused where the model reads regions."""
        return require_pixels(self.input)

    def draw(self, pairs: Longs) -> Draw:
        """Make a batch of pairs [n, 2] of (picture, caption) numbers, padded to its own longest caption."""
        captions = self._first[pairs[:, 0]] + pairs[:, 1]
        tokens = self.tokens(captions)
        longest = int(tokens.mask.sum(1).max())
        short = Tokens(tokens.ids[:, :longest], tokens.mask[:, :longest])
        return Draw(np.unique(pairs[:, 0]), pairs[:, 0], short, captions)

    def tokens(self, captions: Longs) -> Tokens:
        """Give the tokens of captions by number, padded to the longest of all."""
        rows = torch.from_numpy(captions)
        return Tokens(self._ids[rows], self._mask[rows])

    def pixels(self, images: Longs) -> Tensor:
        """Pixels uint8 [n, 3, size, size] of pictures by number, on the device that trains."""
        side = self.preprocess.size
        if len(self.records) * side * side * 3 > _KEPT_BYTES:
            return self._decoded(images)
        if self._kept is None:
            self._kept = torch.empty(len(self.records), 3, side, side, dtype=torch.uint8, device=self._device)
        new = images[~self._is_kept[images]]
        if len(new):
            self._kept[torch.from_numpy(new).to(self._device)] = self._decoded(new)
            self._is_kept[new] = True
        return self._kept[torch.from_numpy(images).to(self._device)]

    def _decoded(self, images: Longs) -> Tensor:
        arrays = list(self._pool.map(lambda image: self._opened(self.records[image]), images.tolist()))
        return torch.from_numpy(np.stack(arrays)).to(self._device).permute(0, 3, 1, 2)

    def _opened(self, record: Record) -> npt.NDArray[np.uint8]:
        """Open a picture at the scale that `to_pixels` opens it at in evaluation and search."""
        try:
            return fit(open_image(record.image, at_least=2 * self.preprocess.size), self.preprocess)
        except MediaError as error:
            way_out = "Mend it, or remove it and its captions from the training data; then go on with --resume."
            raise MediaError(error.name, error.reason, way_out) from error


def normalised(pixels: Tensor, preprocess: Preprocess) -> Tensor:
    """Normalise pixels on the scale 0 to 255, [n, 3, size, size], on the device they are on."""
    mean = torch.tensor(preprocess.mean, device=pixels.device).view(3, 1, 1) * 255
    std = torch.tensor(preprocess.std, device=pixels.device).view(3, 1, 1) * 255
    return (pixels.float() - mean) / std


class SeenImages:
    """What a frozen image tower sees in every picture, computed once: training then runs without the tower."""

    LIMIT = 16 << 30

    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    @classmethod
    @torch.no_grad()
    def of(
        cls, corpus: Corpus, model: Retriever, device: torch.device, before: Before | None = None, batch: int = 128
    ) -> "SeenImages | None":
        """Look at every picture of the corpus, unless what is seen would take more than 16 GiB."""
        parts: list[Seen] = []
        kind = torch.bfloat16 if device.type == "cuda" else torch.float32
        for start in range(0, len(corpus), batch):
            numbers = np.arange(start, min(start + batch, len(corpus)))
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                seen = model.look(normalised(corpus.pixels(numbers), corpus.preprocess))
            if start == 0 and seen.patches[0].numel() * kind.itemsize * len(corpus) > cls.LIMIT:
                return None
            parts.append(Seen(*(None if part is None else part.to(kind) for part in seen)))  # type: ignore[arg-type]
            if before is not None:
                before("looking at pictures", int(numbers[-1]) + 1, len(corpus))
        return cls(Seen(*(None if some[0] is None else torch.cat(some) for some in zip(*parts, strict=True))))  # type: ignore[arg-type]

    def of_images(self, images: Longs) -> Seen:
        """Give what was seen in pictures by number."""
        rows = torch.from_numpy(images).to(self._seen.pooled.device)
        return Seen(*(None if part is None else part[rows].float() for part in self._seen))  # type: ignore[arg-type]
