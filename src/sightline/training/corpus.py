"""The training data in memory: images as pixels, captions as tokens."""

from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache

import numpy as np
import torch
from torch import Tensor

from sightline.arrays import Int64Array
from sightline.bundle.tokenizer import Tokenizer
from sightline.datasets import Record
from sightline.media import ImageInput, Preprocess, require_pixels
from sightline.models.retriever import Retriever, TowerFeatures
from sightline.training.augment import Augment
from sightline.training.captions import CaptionTable
from sightline.training.decoding import Decoder, Decoding, ahead
from sightline.training.distributed import to_device

PrepareReport = Callable[[str, int, int], None]
"""Called during the work before the first step, with the name of the task, the amount done, and the total."""
_KEPT_BYTES = 6 << 30  # keep decoded images in memory if all of them fit in this; otherwise decode them every time
_CHUNK = 512  # images decoded at once before training starts


class Corpus(CaptionTable):
    """Captioned images with every caption tokenised once, and every image decoded once, memory permitting.

    lang: the language of the captions, or several languages to mix.
    with_words: whether to record which word each token belongs to, for `words`.

    Decoded images stay on `device`, because copying a batch there takes as long as a small tower takes to encode it.

    An image that cannot be opened raises `MediaError` when it is first needed: checking all of them beforehand would
    delay every run.
    """

    def __init__(
        self,
        records: Sequence[Record],
        lang: str | Sequence[str],
        preprocess: ImageInput,
        tokenizer: Tokenizer,
        device: torch.device | None = None,
        *,
        with_words: bool = False,
    ) -> None:
        super().__init__(records, lang, tokenizer, with_words)
        self.input = preprocess
        self._device = device or torch.device("cpu")
        self._kept: Tensor | None = None
        self._too_many = False
        self._is_kept = np.zeros(len(self.records), dtype=np.bool_)

    @property
    def preprocess(self) -> Preprocess:
        """How images are resized and normalised; raises an error if the model reads regions."""
        return require_pixels(self.input)

    @cached_property
    def decoder(self) -> Decoder:
        """The decoder for the model's input images."""
        return Decoder(self.preprocess)

    @property
    def keeps_images(self) -> bool:
        """Whether memory suffices to keep all decoded images."""
        return self._memory() is not None

    def decoding(self, images: Int64Array) -> Decoding:
        """Start decoding the images with these indices."""
        return self.decoder.start([self.records[image] for image in images])

    def pixels(self, images: Int64Array, *, keep: bool = True) -> Tensor:
        """Return the pixels of the images with these indices, uint8 [n, 3, size, size], on the training device.

        keep: whether to keep newly decoded images for the next time, memory permitting.
        """
        kept = self._memory() if keep else self._kept
        new = images[~self._is_kept[images]]
        if kept is None or (not keep and len(new)):
            return self._decoded(images)
        if len(new):
            kept[self._rows(new)] = self._decoded(new)
            self._is_kept[new] = True
        return kept[self._rows(images)]

    def decode_all(self, on_prepare: PrepareReport | None = None) -> None:
        """Decode every image now if memory suffices to keep them all; otherwise do nothing."""
        kept = self._memory()
        if kept is None:
            return
        chunks = [np.arange(start, min(start + _CHUNK, len(self))) for start in range(0, len(self), _CHUNK)]
        for chunk, decoding in zip(chunks, ahead(self.decoding(chunk) for chunk in chunks), strict=True):
            kept[chunk[0] : chunk[-1] + 1] = device_pixels(decoding, self._device)
            self._is_kept[chunk] = True
            if on_prepare is not None:
                on_prepare("decoding images", int(chunk[-1]) + 1, len(self))

    def forget_images(self) -> None:
        """Free the memory of decoded images; an image that is needed again is decoded again."""
        self._kept = None
        self._is_kept[:] = False

    def _memory(self) -> Tensor | None:
        """Return the tensor for decoded images; None if they do not fit in memory."""
        if self._kept is None and not self._too_many:
            side = self.preprocess.size
            self._too_many = len(self.records) * side * side * 3 > room(self._device, _KEPT_BYTES)
            if not self._too_many:
                self._kept = torch.empty(len(self.records), 3, side, side, dtype=torch.uint8, device=self._device)
        return self._kept

    def _rows(self, images: Int64Array) -> Tensor:
        return to_device(torch.from_numpy(images), self._device)

    def _decoded(self, images: Int64Array) -> Tensor:
        return device_pixels(self.decoding(images), self._device)


def device_pixels(decoding: Decoding, device: torch.device) -> Tensor:
    """Wait for images to be decoded, and copy them to a device: uint8 [n, 3, size, size]."""
    return to_device(torch.from_numpy(decoding.result()), device).permute(0, 3, 1, 2).contiguous()


def normalised(pixels: Tensor, preprocess: Preprocess) -> Tensor:
    """Normalise pixels [n, 3, size, size], whose values are from 0 to 255, on their own device."""
    mean, std = _mean_and_std(preprocess, pixels.device)
    return (pixels.float() - mean) / std


@lru_cache(maxsize=8)
def _mean_and_std(preprocess: Preprocess, device: torch.device) -> tuple[Tensor, Tensor]:
    """The mean and standard deviation, cached on the device, because copying them per batch would make the CPU wait."""
    mean, std = (torch.tensor(value, device=device).view(3, 1, 1) * 255 for value in (preprocess.mean, preprocess.std))
    return mean, std


def room(device: torch.device, on_cpu: int) -> int:
    """Return the number of bytes to use on a device: half of a GPU's free memory, or `on_cpu` bytes of main memory."""
    return torch.cuda.mem_get_info(device)[0] // 2 if device.type == "cuda" else on_cpu


class FeatureCache:
    """The features of a frozen image tower for every image, computed once, so that training need not run the tower.

    views: the number of versions of each image. The first is the image itself, the others are augmented.
    """

    LIMIT = 16 << 30

    def __init__(self, seen: TowerFeatures, views: int = 1) -> None:
        self._seen, self.views = seen, views

    @classmethod
    @torch.no_grad()
    def of(
        cls,
        corpus: Corpus,
        model: Retriever,
        device: torch.device,
        on_prepare: PrepareReport | None = None,
        augment: Augment | None = None,
        seed: int = 0,
        batch: int = 128,
    ) -> "FeatureCache | None":
        """Encode every image of the corpus; None if that takes more than 16 GiB (on a GPU, half of its free memory)."""
        views = max(1, augment.views) if augment is not None else 1
        if views > 1:
            corpus.decode_all(on_prepare)
        limit, total = room(device, cls.LIMIT), views * len(corpus)
        kind = torch.bfloat16 if device.type == "cuda" else torch.float32
        generator = torch.Generator().manual_seed(seed)
        whole: TowerFeatures | None = None
        for view in range(views):
            for start in range(0, len(corpus), batch):
                numbers = np.arange(start, min(start + batch, len(corpus)))
                pixels = corpus.pixels(numbers, keep=False)
                if view and augment is not None:
                    pixels = augment(pixels, generator)
                with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                    seen = model.image_features(normalised(pixels, corpus.preprocess))
                if whole is None:
                    if sum(part[0].numel() for part in seen if part is not None) * kind.itemsize * total > limit:
                        return None
                    whole = _room_for(seen, total, kind)
                first = view * len(corpus) + start
                for kept, part in zip(whole, seen, strict=True):
                    if kept is not None and part is not None:
                        kept[first : first + len(numbers)] = part
                if on_prepare is not None:
                    on_prepare("encoding images", first + len(numbers), total)
        if views > 1:
            corpus.forget_images()
        return None if whole is None else cls(whole, views)

    def draw(self, count: int, seed: int) -> Tensor:
        """Draw a view for each of a batch's `count` images: [count], or empty if there is only one view."""
        if self.views == 1:
            return torch.empty(0)
        return torch.randint(self.views, (count,), generator=torch.Generator().manual_seed(seed))

    def of_images(self, images: Int64Array, views: Tensor | None = None) -> TowerFeatures:
        """The features of the images with these indices, in the given views [n]; by default without augmentation."""
        rows = torch.from_numpy(images)
        if views is not None and len(views):
            rows = rows + views * (len(self._seen.pooled) // self.views)
        rows = to_device(rows, self._seen.pooled.device)
        return TowerFeatures(*(None if part is None else part[rows].float() for part in self._seen))  # type: ignore[arg-type]


def _room_for(seen: TowerFeatures, rows: int, kind: torch.dtype) -> TowerFeatures:
    """Allocate memory for the features of `rows` images, with the same shapes per image as `seen`."""
    parts = (part if part is None else part.new_empty(rows, *part.shape[1:], dtype=kind) for part in seen)
    return TowerFeatures(*parts)  # type: ignore[arg-type]
