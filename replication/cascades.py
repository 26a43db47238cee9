"""Measure many cascades on one test set: everything is encoded once, and every pair scored once, on the device.

`sightline eval` measures one cascade at a time and runs on any machine, but a table in a paper has dozens of rows that
differ only in k, in the fusion, or in the gallery. Ranks and intervals are still computed by `sightline.evaluation`.
"""

from collections.abc import Callable
from dataclasses import dataclass
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
    """One side of a test set: embeddings and, if there is a matcher, padded states and their mask on its device."""

    embedding: Scores
    states: tuple[Tensor, Tensor] | None


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
        self._best: dict[tuple[int, bool], tuple[Candidates, Candidates]] = {}
        self._logits = PairScores(self._match)

    def embed(self, enlarged: bool = False) -> Evaluation:
        """Rank by embedding alone; enlarged: among the distractors, too."""
        ranks = ranks_from_embeddings(self.texts.embedding, self._gallery(enlarged), self.questions.image_of)
        return self._evaluation(ranks, enlarged)

    def rerank(
        self, k: int, fusion: FusionRule = "ce", weight: float = 0.5, enlarged: bool = False, most: int = 50
    ) -> Evaluation:
        """Rerank the top k of the `most` best items by embedding; every pair is matched only once."""
        image_of = self.questions.image_of
        texts, asked = np.arange(len(image_of)), query_images(image_of)
        to_image, to_text = ranks_from_embeddings(self.texts.embedding, self._gallery(enlarged), image_of)
        by_text, by_image = self._candidates(most, enlarged)
        found = Stage("match", k, self._logits.of_texts(texts), (fusion, weight)).run(by_text)
        to_image = ranks_after_stages(found, found.ids == image_of[:, None], to_image)
        found = Stage("match", k, self._logits.of_images(asked), (fusion, weight)).run(by_image)
        to_text = ranks_after_stages(found, image_of[found.ids] == asked[:, None], to_text)
        stages, weighted = ("embed", f"match@{k}"), None if fusion == "ce" else weight
        return self._evaluation((to_image, to_text), enlarged, stages=stages, fusion=fusion, weight=weighted)

    def match_everything(self) -> Evaluation:
        """Rank by matching every pair, without a first stage: paper 1's CE."""
        texts, images = len(self.texts.embedding), len(self.questions.images)
        pairs = np.arange(texts * images)
        scores = self._match(pairs // images, pairs % images).reshape(texts, images)
        image_of = self.questions.image_of
        ranks = text_to_image_ranks(scores, image_of), image_to_text_ranks(scores, image_of)
        return self._evaluation(ranks, stages=("match@all",))

    def _gallery(self, enlarged: bool) -> Scores:
        return self.images.embedding if enlarged else self.images.embedding[: len(self.questions.images)]

    def _candidates(self, most: int, enlarged: bool) -> tuple[Candidates, Candidates]:
        if (most, enlarged) not in self._best:
            images, texts = self._gallery(enlarged), self.texts.embedding
            asked = images[query_images(self.questions.image_of)]
            by_text = candidates_from_embeddings(texts, images, most)
            self._best[most, enlarged] = by_text, candidates_from_embeddings(asked, texts, most)
        return self._best[most, enlarged]

    @torch.inference_mode()
    def _match(self, text: Ids, image: Ids, batch: int = 4096) -> Scores:
        """The logits of pairs, given by index; short texts come first, to keep padding low."""
        if self.matcher is None or self.texts.states is None or self.images.states is None:
            raise ValueError("no matcher was given")
        (words, mask), (seen, seen_mask) = self.texts.states, self.images.states
        lengths = mask.sum(1).cpu().numpy()
        order = np.argsort(lengths[text], kind="stable")
        out, device = np.empty(len(order), dtype=np.float32), words.device
        for start in range(0, len(order), batch):
            some = order[start : start + batch]
            rows, columns = (torch.from_numpy(x[some]).to(device) for x in (text, image))
            longest = int(lengths[text[some]].max())
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                texts = words[rows, :longest].float(), mask[rows, :longest]
                logits = self.matcher.retriever.match(*texts, seen[columns].float(), seen_mask[columns])
            out[some] = logits.float().cpu().numpy()
        return out

    def _evaluation(self, ranks: tuple[Any, Any], enlarged: bool = False, **more: Any) -> Evaluation:
        count = len(self.questions.distractors) if enlarged else 0
        return ranked(self.questions, ranks, self.name, self.data, lang=self.lang, distractors=count, **more)


def _half(embedder: TorchModel, matcher: TorchModel | None, items: list[Any], is_image: bool) -> Half:
    def encoded(model: TorchModel, states: bool) -> Encodings:
        encode: Callable[..., tuple[Encodings, Any]] = encode_images if is_image else encode_texts
        return encode(model, items, Needs(states=states), 256)[0]

    first = encoded(embedder, states=matcher is embedder)
    if matcher is None:
        return Half(first.embedding, None)
    states = (first if matcher is embedder else encoded(matcher, states=True)).states
    if states is None:
        raise ValueError(f"{matcher.name} cannot match")
    device = next(matcher.retriever.parameters()).device
    padded, mask = states.padded(np.arange(len(first)))
    half = torch.from_numpy(padded.astype(np.float16)).to(device)
    return Half(first.embedding, (half, torch.from_numpy(mask).to(device)))
