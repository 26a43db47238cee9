"""Many cascades of one test set at the price of one: everything is encoded once, every pair scored once, on the device.

`sightline eval` measures one cascade at a time and fits any machine; a table of a paper has dozens of rows that differ
in k, in the fusion, or in the gallery alone. The ranks and intervals come from `sightline.evaluation` all the same.
"""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sightline.datasets import Record
from sightline.evaluation.cascade import Shortlist
from sightline.evaluation.encodings import Encodings, Needs, encode_images, encode_texts
from sightline.evaluation.metrics import image_to_text_ranks, query_images, text_to_image_ranks
from sightline.evaluation.ranking import ranks_from_embeddings, top_k_from_embeddings
from sightline.evaluation.result import Evaluation, FoldRanks
from sightline.evaluation.stages import Direction, score_both
from sightline.evaluation.test_set import Questions
from sightline.models.torch_model import TorchModel
from sightline.retrieval.scoring import Fusion, fuse

Longs = npt.NDArray[np.int64]
Singles = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Half:
    """One side of a test set: embeddings, and padded states with their mask on the matcher's device."""

    embedding: Singles
    states: Tensor | None
    mask: Tensor | None


class Cascades:
    """A test set, encoded by one model for `embed` and by the same or another for `match`."""

    def __init__(
        self,
        embedder: TorchModel,
        matcher: TorchModel | None,
        records: list[Record],
        distractors: list[Record],
        data: str,
    ) -> None:
        self.name = embedder.name if matcher in (None, embedder) else f"{embedder.name} + {matcher.name}"
        self.matcher, self.data = matcher, data
        self.questions = Questions.of(records, "en", distractors)
        q = self.questions
        self.images = _half(embedder, matcher, [*q.images, *q.distractors], is_image=True)
        self.texts = _half(embedder, matcher, list(q.captions), is_image=False)
        self._logits: dict[tuple[int, int], tuple[Direction, Direction, Singles, Singles]] = {}

    def with_halves(self, texts: Half, images: Half) -> "Cascades":
        """The same test set with other encodings."""
        changed = copy(self)
        changed.texts, changed.images, changed._logits = texts, images, {}
        return changed

    def embed(self, distractors: int = 0) -> Evaluation:
        """By embedding alone."""
        images, count = self._gallery(distractors)
        to_image, to_text = ranks_from_embeddings(self.texts.embedding, images, self.questions.image_of)
        return self._evaluation(("embed",), to_image, to_text, distractors=count)

    def rerank(
        self, k: int, fusion: Fusion = "ce", weight: float = 0.5, distractors: int = 0, most: int = 50
    ) -> Evaluation:
        """The k best by embedding, reranked by match; logits are computed once for the `most` best."""
        image_of = self.questions.image_of
        images, count = self._gallery(distractors)
        by_text, by_image, for_text, for_image = self._scored(most, distractors)
        to_image, to_text = ranks_from_embeddings(self.texts.embedding, images, image_of)
        fused = []
        for direction, logits in ((by_text, for_text), (by_image, for_image)):
            scores = fuse(fusion, direction.shortlist.embed[:, :k], logits[:, :k], weight)
            fused.append(direction.reranked(scores).shortlist)
        right = fused[0].items == image_of[:, None]
        to_image = fused[0].ranks(right, to_image)
        to_text = fused[1].ranks(image_of[fused[1].items] == by_image.queries[:, None], to_text)
        return replace(
            self._evaluation(("embed", f"match@{k}"), to_image, to_text, distractors=count),
            fusion=fusion,
            weight=None if fusion == "ce" else weight,
        )

    def match_everything(self) -> Evaluation:
        """Every pair by match, without a first stage: what paper 1 calls CE."""
        texts, images = len(self.texts.embedding), len(self.questions.images)
        pairs = np.arange(texts * images)
        scores = self._match(pairs // images, pairs % images).reshape(texts, images)
        image_of = self.questions.image_of
        return self._evaluation(
            ("match@all",), text_to_image_ranks(scores, image_of), image_to_text_ranks(scores, image_of), distractors=0
        )

    def _gallery(self, distractors: int) -> tuple[Singles, int]:
        count = min(distractors, len(self.questions.distractors))
        return self.images.embedding[: len(self.questions.images) + count], count

    def _scored(self, most: int, distractors: int) -> tuple[Direction, Direction, Singles, Singles]:
        if (most, distractors) not in self._logits:
            images, _ = self._gallery(distractors)
            texts = self.texts.embedding
            asked = query_images(self.questions.image_of)
            by_text = Direction(np.arange(len(texts)), Shortlist.of(*top_k_from_embeddings(texts, images, most)))
            by_image = Direction(asked, Shortlist.of(*top_k_from_embeddings(images[asked], texts, most)))
            self._logits[most, distractors] = by_text, by_image, *score_both(by_text, by_image, most, self._match)
        return self._logits[most, distractors]

    @torch.inference_mode()
    def _match(self, text: Longs, image: Longs, batch: int = 4096) -> Singles:
        """Logits of pairs by number, short texts first so that little is padding."""
        words, seen = self.texts, self.images
        if (
            self.matcher is None
            or words.mask is None
            or words.states is None
            or seen.states is None
            or seen.mask is None
        ):
            raise ValueError("no matcher was given")
        lengths = words.mask.sum(1).cpu().numpy()
        order = np.argsort(lengths[text], kind="stable")
        out = np.empty(len(order), dtype=np.float32)
        device = words.states.device
        for start in range(0, len(order), batch):
            some = order[start : start + batch]
            rows, columns = (torch.from_numpy(x[some]).to(device) for x in (text, image))
            longest = int(lengths[text[some]].max())
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                logits = self.matcher.retriever.match(
                    words.states[rows, :longest].float(),
                    words.mask[rows, :longest],
                    seen.states[columns].float(),
                    seen.mask[columns],
                )
            out[some] = logits.float().cpu().numpy()
        return out

    def _evaluation(self, stages: tuple[str, ...], to_image: Any, to_text: Any, distractors: int) -> Evaluation:
        image_of = self.questions.image_of
        return Evaluation(
            model=self.name, data=self.data, lang="en", protocol="karpathy", stages=stages, fusion=None, weight=None,
            distractors=distractors, folds=(FoldRanks(to_image, image_of, to_text, query_images(image_of)),),
            fingerprint=self.questions.fingerprint, problems={}, seconds={}, seed=0,
        )  # fmt: skip


def _half(embedder: TorchModel, matcher: TorchModel | None, items: list[Any], is_image: bool) -> Half:
    def encoded(model: TorchModel, states: bool) -> Encodings:
        encode: Callable[..., tuple[Encodings, Any]] = encode_images if is_image else encode_texts
        return encode(model, items, Needs(states=states), 256)[0]

    first = encoded(embedder, states=matcher is embedder)
    if matcher is None:
        return Half(first.embedding, None, None)
    states = (first if matcher is embedder else encoded(matcher, states=True)).states
    if states is None:
        raise ValueError(f"{matcher.name} cannot match")
    device = next(matcher.retriever.parameters()).device
    padded, mask = states.padded(np.arange(len(first)))
    half = torch.from_numpy(padded.astype(np.float16)).to(device)
    return Half(first.embedding, half, torch.from_numpy(mask).to(device))
