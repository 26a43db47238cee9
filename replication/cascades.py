"""Measure many cascades on one test set: everything is encoded once, and every pair scored once, on the device.

`sightline eval` measures one cascade at a time and runs on any machine, but a table in a paper has dozens of rows that
differ only in k, in the fusion, or in the gallery. Ranks and intervals are still computed by `sightline.evaluation`.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from replication.ranks import encode_test_set, ranked
from sightline.arrays import Float32Array, Int64Array
from sightline.evaluation.encodings import Encodings, Needs
from sightline.evaluation.metrics import image_to_text_ranks, query_images, text_to_image_ranks
from sightline.evaluation.pair_scores import PairScores
from sightline.evaluation.ranking import candidates_from_embeddings, ranks_after_stages, ranks_from_embeddings
from sightline.evaluation.result import Evaluation
from sightline.evaluation.test_set import Questions
from sightline.fusion_names import FusionRule
from sightline.models.torch_model import TorchModel
from sightline.retrieval.candidates import Candidates
from sightline.retrieval.stages import Stage

MOST = 50  # candidates to rerank


class Cascades:
    """A test set, encoded by one model for `embed` and by the same or another model for `match`.

    texts, images: embeddings; images include distractors.
    """

    def __init__(
        self, embedder: TorchModel, matcher: TorchModel | None, records: Any, others: Any, data: str, lang: str = "en"
    ) -> None:
        self.name = embedder.name if matcher in (None, embedder) else f"{embedder.name} + {matcher.name}"
        self.matcher, self.data, self.lang = matcher, data, lang
        self.questions = Questions.of(records, lang, others, skip_missing_language=lang != "en")
        both = encode_test_set(embedder, self.questions, Needs(states=matcher is embedder))
        self.texts, self.images = (side.embedding for side in both)
        if matcher is not None:
            own = both if matcher is embedder else encode_test_set(matcher, self.questions, Needs(states=True))
            self._states = [_states(matcher, side) for side in own]
        self._best: dict[bool, tuple[Candidates, Candidates]] = {}
        self._logits = PairScores(self._match)

    def embed(self, enlarged: bool = False) -> Evaluation:
        """Rank by embedding alone; enlarged: also search among the distractors."""
        ranks = ranks_from_embeddings(self.texts, self._gallery(enlarged), self.questions.image_of)
        return self._evaluation(ranks, enlarged)

    def rerank(self, k: int, fusion: FusionRule = "ce", weight: float = 0.5, enlarged: bool = False) -> Evaluation:
        """Rerank the best k by embedding, at most MOST; every pair is matched only once."""
        image_of = self.questions.image_of
        texts, asked = np.arange(len(image_of)), query_images(image_of)
        to_image, to_text = ranks_from_embeddings(self.texts, self._gallery(enlarged), image_of)
        by_text, by_image = self._candidates(enlarged)
        found = Stage("match", k, self._logits.of_texts(texts), (fusion, weight)).run(by_text)
        to_image = ranks_after_stages(found, found.ids == image_of[:, None], to_image)
        found = Stage("match", k, self._logits.of_images(asked), (fusion, weight)).run(by_image)
        to_text = ranks_after_stages(found, image_of[found.ids] == asked[:, None], to_text)
        stages, weighted = ("embed", f"match@{k}"), None if fusion == "ce" else weight
        return self._evaluation((to_image, to_text), enlarged, stages=stages, fusion=fusion, weight=weighted)

    @torch.inference_mode()
    def match_everything(self) -> Evaluation:
        """Rank by matching every pair, without a first stage, as paper 1's CE does."""
        if self.matcher is None:
            raise ValueError("no matcher was given")
        (words, mask), (seen, seen_mask) = self._states
        images, device = slice(len(self.questions.images)), words.device.type
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            logits = self.matcher.retriever.match_all(words.float(), mask, seen[images].float(), seen_mask[images])
        scores, image_of = logits.cpu().numpy(), self.questions.image_of
        ranks = text_to_image_ranks(scores, image_of), image_to_text_ranks(scores, image_of)
        return self._evaluation(ranks, stages=("match@all",))

    def _gallery(self, enlarged: bool) -> Float32Array:
        return self.images if enlarged else self.images[: len(self.questions.images)]

    def _candidates(self, enlarged: bool) -> tuple[Candidates, Candidates]:
        if enlarged not in self._best:
            images, texts = self._gallery(enlarged), self.texts
            asked = images[query_images(self.questions.image_of)]
            by_text = candidates_from_embeddings(texts, images, MOST)
            self._best[enlarged] = by_text, candidates_from_embeddings(asked, texts, MOST)
        return self._best[enlarged]

    @torch.inference_mode()
    def _match(self, text: Int64Array, image: Int64Array, batch: int = 4096) -> Float32Array:
        """Return the logits of pairs, given by index; short texts come first, to keep padding low."""
        if self.matcher is None:
            raise ValueError("no matcher was given")
        (words, mask), (seen, seen_mask) = self._states
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


def _states(matcher: TorchModel, side: Encodings) -> tuple[Tensor, Tensor]:
    """Padded states in float16 and their mask, on the matcher's device."""
    if side.states is None:
        raise ValueError(f"{matcher.name} has no matcher")
    device = next(matcher.retriever.parameters()).device
    padded, mask = side.states.padded(np.arange(len(side)))
    return torch.from_numpy(padded.astype(np.float16)).to(device), torch.from_numpy(mask).to(device)
