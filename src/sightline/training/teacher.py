"""The teacher of a training run: a trained model whose scores the student learns to imitate (paper 3, section 4.2)."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from sightline.arrays import Int64Array
from sightline.bundle.model import Ability
from sightline.datasets import Record
from sightline.errors import ModelError, RecipeError
from sightline.losses.base import Pairs
from sightline.media import Preprocess
from sightline.models import checkpoint
from sightline.models.retriever import EncodedTensors, Retriever, Tokens
from sightline.training.captions import DrawnBatch
from sightline.training.corpus import Corpus, PrepareReport, normalised
from sightline.training.distributed import World
from sightline.training.recipe import Recipe
from sightline.training.tables import TeacherBy, TeacherRecipe

_ABILITY: dict[TeacherBy, Ability] = {"embedding": "embed", "fragments": "fragments", "match": "match"}
_READS_REGIONS = "It reads regions: choose a teacher that reads pixels."


def find_teacher(
    recipe: Recipe,
    records: Sequence[Record],
    corpus: Corpus,
    device: torch.device,
    world: World,
    on_prepare: PrepareReport | None = None,
) -> "Teacher | None":
    """Open the teacher of a recipe, if it has one; `corpus` is the student's."""
    asked = recipe.teacher
    if asked is None:
        return None
    if not isinstance(corpus.input, Preprocess):
        raise RecipeError("teacher: the teacher reads pixels, but the model reads regions", "Remove the teacher.")
    model, tokenizer = checkpoint.load(asked.model)
    able = [by for by, ability in _ABILITY.items() if ability in model.abilities] if model.reads_pixels else []
    if asked.by not in able:
        raise RecipeError(
            f'teacher: {asked.model} cannot compare images with texts by "{asked.by}"',
            f"Set teacher.by to one of {', '.join(able)}, or choose another teacher." if able else _READS_REGIONS,
        )
    own = Corpus(records, recipe.data.lang, model.preprocess, tokenizer, device)
    same_size = replace(own.preprocess, mean=corpus.preprocess.mean, std=corpus.preprocess.std) == corpus.preprocess
    if recipe.augment is not None and not same_size:
        raise RecipeError(
            "teacher: the teacher resizes images differently from the student, so they cannot use the same crops",
            "Leave out augment, or choose a teacher with the same size and resize.",
        )
    image_corpus, once = corpus if same_size else own, recipe.augment is None
    return Teacher(model.to(device), own, image_corpus, asked, world, once, on_prepare)


class Teacher:
    """Scores batches, without gradients or dropout.

    It reads captions with its own tokenizer and normalises images in its own way. Captions are encoded once, before
    the first batch, and so are images unless they are augmented, in which case it reads the same crops as the student.
    Encodings that would take more than 16 GiB are recomputed each time.

    corpus: its captions. image_corpus: its decoded images; the student's corpus if both resize images in the same way.
    """

    def __init__(
        self,
        model: Retriever,
        corpus: Corpus,
        image_corpus: Corpus,
        asked: TeacherRecipe,
        world: World,
        once: bool,
        on_prepare: PrepareReport | None = None,
    ) -> None:
        self.model = model.eval().requires_grad_(False)
        self._corpus, self._image_corpus, self._world = corpus, image_corpus, world
        self._by, self._chunk = asked.by, asked.chunk
        self._texts = EncodingCache.of(
            sum(corpus.captions_per_image), self._read, _as("reading as teacher", on_prepare)
        )
        self._images = None
        if once:
            self._images = EncodingCache.of(len(corpus), self._look, _as("looking as teacher", on_prepare))

    @torch.no_grad()
    def scores(self, batch: DrawnBatch, pixels: Tensor | None = None) -> Tensor:
        """Score every text of a batch with every image: [T, I], float32, the same in every process.

        pixels: augmented images of this process's share, on the scale 0 to 255; None without augmentation.
        """
        texts = self._gathered(batch.captions, self._texts, self._read)
        look = self._look if pixels is None else lambda _: self._seen(pixels)
        images = self._gathered(batch.images, self._images, look)
        device = texts.mask.device
        text_ids, image_ids = torch.from_numpy(batch.text_images), torch.from_numpy(batch.images)
        pairs = Pairs(texts, images, text_ids.to(device), image_ids.to(device))
        return self._matched(pairs) if self._by == "match" else pairs.scores(self._by)

    def _gathered(
        self, numbers: Int64Array, kept: "EncodingCache | None", encode: Callable[[Int64Array], EncodedTensors]
    ) -> EncodedTensors:
        """Take encodings from the cache; without one, encode this process's share and gather those of the others."""
        if kept is not None:
            return kept.of_items(numbers)
        own = encode(numbers[self._world.share(len(numbers))])
        return EncodedTensors(*(None if part is None else self._world.gather(part, len(numbers)) for part in own))  # type: ignore[arg-type]

    def _read(self, captions: Int64Array) -> EncodedTensors:
        """Encode the captions with these indices, all padded to the same length."""
        tokens = self._corpus.tokens(captions)
        device = next(self.model.parameters()).device
        return self._needed(self.model.encode_texts(Tokens(tokens.ids.to(device), tokens.mask.to(device))))

    def _look(self, images: Int64Array) -> EncodedTensors:
        """Encode the images with these indices."""
        return self._seen(self._image_corpus.pixels(images))

    def _seen(self, pixels: Tensor) -> EncodedTensors:
        return self._needed(self.model.encode_images(normalised(pixels, self._corpus.preprocess)))

    def _needed(self, encoded: EncodedTensors) -> EncodedTensors:
        """Drop the fields that this teacher does not use."""
        fragments = encoded.fragments if self._by == "fragments" else encoded.fragments[..., :0]
        states = encoded.states if self._by == "match" else None
        return encoded._replace(fragments=fragments, states=states, pooled=None)

    def _matched(self, pairs: Pairs) -> Tensor:
        """Match every text with every image; each process matches its share of the texts."""
        texts, images, own = pairs.texts, pairs.images, self._world.share(len(pairs.text_ids))
        if texts.states is None or images.states is None:
            raise ModelError("a teacher that matches needs states, but this model has none", "Choose another teacher.")
        logits = self.model.match_all(texts.states[own], texts.mask[own], images.states, images.mask, self._chunk)
        return self._world.gather(logits, len(pairs.text_ids))


class EncodingCache:
    """Encodings of all items by a frozen model, computed once."""

    LIMIT = 16 << 30

    def __init__(self, encoded: EncodedTensors) -> None:
        self._encoded = encoded

    @classmethod
    @torch.no_grad()
    def of(
        cls,
        count: int,
        encode: Callable[[Int64Array], EncodedTensors],
        on_progress: Callable[[int, int], None],
        batch: int = 256,
    ) -> "EncodingCache | None":
        """Encode `count` items, on a GPU in half precision; None if that would take more than 16 GiB."""
        parts: list[EncodedTensors] = []
        for start in range(0, count, batch):
            numbers = np.arange(start, min(start + batch, count))
            parts.append(_half(encode(numbers)))
            if start == 0 and _bytes(parts[0]) * (count / len(numbers)) > cls.LIMIT:
                return None
            on_progress(int(numbers[-1]) + 1, count)
        return cls(EncodedTensors(*(None if some[0] is None else torch.cat(some) for some in zip(*parts, strict=True))))  # type: ignore[arg-type]

    def of_items(self, numbers: Int64Array) -> EncodedTensors:
        """Return the encodings of the items with these indices, in float32."""
        rows = torch.from_numpy(numbers).to(self._encoded.mask.device)
        taken = (None if part is None else part[rows] for part in self._encoded)
        return EncodedTensors(*(part if part is None or part.dtype == torch.bool else part.float() for part in taken))  # type: ignore[arg-type]


def _as(part: str, on_prepare: PrepareReport | None) -> Callable[[int, int], None]:
    """Return the progress callback of a `part` of the work; it does nothing without `on_prepare`."""
    return partial(on_prepare, part) if on_prepare is not None else lambda done, total: None


def _half(encoded: EncodedTensors) -> EncodedTensors:
    """Store numbers in bfloat16 on a GPU, and in float32 on a CPU, where bfloat16 is slow."""
    kind = torch.bfloat16 if encoded.mask.device.type == "cuda" else torch.float32
    return EncodedTensors(*(part if part is None or part.dtype == torch.bool else part.to(kind) for part in encoded))  # type: ignore[arg-type]


def _bytes(encoded: EncodedTensors) -> int:
    return sum(part.numel() * part.itemsize for part in encoded if part is not None)
