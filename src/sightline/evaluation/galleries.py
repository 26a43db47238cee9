"""The ranks of one gallery's queries, stage by stage, in both directions."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sightline.bundle.model import Model
from sightline.evaluation.cascade import Shortlist
from sightline.evaluation.clock import Clock
from sightline.evaluation.encodings import Encodings, Progress
from sightline.evaluation.metrics import Ranks, query_images
from sightline.evaluation.plan import Plan
from sightline.evaluation.ranking import ranks_from_embeddings, top_k_from_embeddings
from sightline.evaluation.result import FoldRanks
from sightline.evaluation.stages import Direction, late_scorer, match_scorer, score_both
from sightline.evaluation.test_set import Questions
from sightline.retrieval.scoring import fuse

Longs = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Ranker:
    """All that was encoded, ready to rank one gallery after another.

    texts: all captions. images: the pictures that could be read. readable: [images], which those are, counting the
    questions' images first and then the distractors.
    """

    model: Model
    plan: Plan
    questions: Questions
    texts: Encodings
    images: Encodings
    readable: Longs
    batch_size: int
    clock: Clock
    progress: Progress | None = None

    def ranks(self, gallery: Longs) -> FoldRanks:
        """Rank the captions and images of a gallery (indices of the questions' images, ascending).

        An image that could not be read is not there to be found: its captions, and it itself, have infinite ranks. Of
        images that are not asked about, nothing is ranked: their captions are wrong answers to every image.
        """
        captions = np.flatnonzero(np.isin(self.questions.image_of, gallery))
        caption_of = self.questions.image_of[captions]
        count = len(self.questions.images)
        held = np.flatnonzero((self.readable >= count) | np.isin(self.readable, gallery))
        place = np.full(count + len(self.questions.distractors), -1, dtype=np.int64)
        place[self.readable[held]] = np.arange(len(held))
        asks, asked = caption_of < self.questions.asked, gallery[gallery < self.questions.asked]
        right = np.where(asks, place[caption_of], -1)
        to_image, found = self._cascade(self.texts.taken(captions), self.images.taken(held), right)
        to_text = np.full(len(asked), np.inf)
        to_text[place[asked] >= 0] = found
        return FoldRanks(to_image[asks], caption_of[asks], to_text, asked)

    def _cascade(self, texts: Encodings, images: Encodings, image_of: Longs) -> tuple[Ranks, Ranks]:
        """Rank everything by embedding; then let the later stages rescore the best of every query."""
        with self.clock("rank"):
            to_image, to_text = ranks_from_embeddings(texts.embedding, images.embedding, image_of)
            if not self.plan.longest:
                return to_image, to_text
            by_text = _direction(texts, images, np.flatnonzero(image_of >= 0), self.plan.longest)
            by_image = _direction(images, texts, query_images(image_of), self.plan.longest)
        if self.plan.late:
            with self.clock("late"):
                by_text, by_image = self._late(texts, images, by_text, by_image, self.plan.late)
        if self.plan.rerank:
            with self.clock("match"):
                by_text, by_image = self._match(texts, images, by_text, by_image, self.plan.rerank)
        right_images = by_text.shortlist.items == image_of[by_text.queries, None]
        to_image[by_text.queries] = by_text.shortlist.ranks(right_images, to_image[by_text.queries])
        right_texts = image_of[by_image.shortlist.items] == by_image.queries[:, None]
        return to_image, by_image.shortlist.ranks(right_texts, to_text)

    def _late(
        self, texts: Encodings, images: Encodings, by_text: Direction, by_image: Direction, k: int
    ) -> tuple[Direction, Direction]:
        for_text, for_image = score_both(by_text, by_image, k, late_scorer(texts, images, self.progress))
        return by_text.reranked(for_text), by_image.reranked(for_image)

    def _match(
        self, texts: Encodings, images: Encodings, by_text: Direction, by_image: Direction, k: int
    ) -> tuple[Direction, Direction]:
        scorer = match_scorer(self.model, texts, images, self.batch_size, self.progress)
        for_text, for_image = score_both(by_text, by_image, k, scorer)
        return self._fused(by_text, for_text), self._fused(by_image, for_image)

    def _fused(self, direction: Direction, logits: npt.NDArray[np.float32]) -> Direction:
        """Join the logits with the cosines of the first stage, whether or not a late stage stood between them."""
        embed = direction.shortlist.embed[:, : logits.shape[1]]
        return direction.reranked(fuse(self.plan.fusion, embed, logits, self.plan.weight))


def _direction(queries: Encodings, gallery: Encodings, asked: Longs, k: int) -> Direction:
    return Direction(asked, Shortlist.of(*top_k_from_embeddings(queries.embedding[asked], gallery.embedding, k)))
