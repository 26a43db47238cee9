"""Measure many cascades on one test set: everything is encoded once, and every pair scored once, on the device.

`sightline eval` measures one cascade at a time and runs on any machine, but a table in a paper has dozens of rows that
differ only in k, in the fusion, or in the gallery. Ranks and intervals are still computed by `sightline.evaluation`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from replication.ranks import ranked
from sightline.evaluation.encodings import Encodings, Needs, encode_images, encode_texts
from sightline.evaluation.metrics import image_to_text_ranks, query_images, text_to_image_ranks
from sightline.evaluation.pair_scores import PairScores
from sightline.evaluation.ranking import candidates_from_embeddings, ranks_after_stages, ranks_from_embeddings
from sightline.evaluation.result import Evaluation
from sightline.evaluation.test_set import Questions
from sightline.fusion_names import FusionRule
from sightline.models.torch_model import TorchModel
from sightline.retrieval.candidates import Candidates
from sightline.retrieval.stages import Stage

Ids = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Half:
    """One side of a test set: embeddings, and padded states with their mask on the matcher's device."""

    embedding: Scores
    states: Tensor | None
    mask: Tensor | None


class Cascades:
    """A test set, encoded by one model for `embed` and by the same or another model for `match`."""

    def __init__(
        self, embedder: TorchModel, matcher: TorchModel | None, records: Any, others: Any, data: str, lang: str = "en"
    ) -> None:
        self.name = embedder.name if matcher in (None, embedder) else f"{embedder.name} + {matcher.name}"
        self.matcher, self.data, self.lang = matcher, data, lang
        self.questions = Questions.of(records, lang, others)
        q = self.questions
        self.images = _half(embedder, matcher, [*q.images, *q.distractors], is_image=True)
        self.texts = _half(embedder, matcher, list(q.captions), is_image=False)
        self._best: dict[tuple[int, int], tuple[Candidates, Candidates]] = {}
        self._logits = PairScores(self._match)

    def embed(self, distractors: int = 0) -> Evaluation:
        """Rank by embedding alone."""
        images, count = self._gallery(distractors)
        to_image, to_text = ranks_from_embeddings(self.texts.embedding, images, self.questions.image_of)
        return self._evaluation(("embed",), to_image, to_text, distractors=count)

    def rerank(
        self, k: int, fusion: FusionRule = "ce", weight: float = 0.5, distractors: int = 0, most: int = 50
    ) -> Evaluation:
        """Rerank the top k of the `most` best items by embedding; every pair is matched only once."""
        image_of = self.questions.image_of
        texts, asked = np.arange(len(image_of)), query_images(image_of)
        images, count = self._gallery(distractors)
        to_image, to_text = ranks_from_embeddings(self.texts.embedding, images, image_of)
        by_text, by_image = self._candidates(most, distractors)
        found = Stage("match", k, self._logits.of_texts(texts), (fusion, weight)).run(by_text)
        to_image = ranks_after_stages(found, found.ids == image_of[:, None], to_image)
        found = Stage("match", k, self._logits.of_images(asked), (fusion, weight)).run(by_image)
        to_text = ranks_after_stages(found, image_of[found.ids] == asked[:, None], to_text)
        return replace(
            self._evaluation(("embed", f"match@{k}"), to_image, to_text, distractors=count),
            fusion=fusion,
            weight=None if fusion == "ce" else weight,
        )

    def match_everything(self) -> Evaluation:
        """Rank by matching every pair, without a first stage: paper 1's CE."""
        texts, images = len(self.texts.embedding), len(self.questions.images)
        pairs = np.arange(texts * images)
        scores = self._match(pairs // images, pairs % images).reshape(texts, images)
        image_of = self.questions.image_of
        return self._evaluation(
            ("match@all",), text_to_image_ranks(scores, image_of), image_to_text_ranks(scores, image_of), distractors=0
        )

    def _gallery(self, distractors: int) -> tuple[Scores, int]:
        count = min(distractors, len(self.questions.distractors))
        return self.images.embedding[: len(self.questions.images) + count], count

    def _candidates(self, most: int, distractors: int) -> tuple[Candidates, Candidates]:
        if (most, distractors) not in self._best:
            images, _ = self._gallery(distractors)
            texts, asked = self.texts.embedding, query_images(self.questions.image_of)
            by_text = candidates_from_embeddings(texts, images, most)
            self._best[most, distractors] = by_text, candidates_from_embeddings(images[asked], texts, most)
        return self._best[most, distractors]

    @torch.inference_mode()
    def _match(self, text: Ids, image: Ids, batch: int = 4096) -> Scores:
        """The logits of pairs, given by index; short texts come first, to keep padding low."""
        words, seen = self.texts, self.images
        if self.matcher is None or words.states is None or seen.states is None:
            raise ValueError("no matcher was given")
        assert words.mask is not None
        assert seen.mask is not None
        lengths = words.mask.sum(1).cpu().numpy()
        order = np.argsort(lengths[text], kind="stable")
        out = np.empty(len(order), dtype=np.float32)
        device = words.states.device
        for start in range(0, len(order), batch):
            some = order[start : start + batch]
            rows, columns = (torch.from_numpy(x[some]).to(device) for x in (text, image))
            longest = int(lengths[text[some]].max())
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                texts = words.states[rows, :longest].float(), words.mask[rows, :longest]
                logits = self.matcher.retriever.match(*texts, seen.states[columns].float(), seen.mask[columns])
            out[some] = logits.float().cpu().numpy()
        return out

    def _evaluation(self, stages: tuple[str, ...], to_image: Any, to_text: Any, distractors: int) -> Evaluation:
        found = ranked(self.questions, (to_image, to_text), self.name, self.data)
        return replace(found, stages=stages, distractors=distractors, lang=self.lang)


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
