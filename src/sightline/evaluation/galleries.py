"""The ranks of one gallery's queries, stage by stage, in both directions."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sightline.arrays import Int64Array
from sightline.bundle.model import Model
from sightline.evaluation.encodings import Encodings, Progress
from sightline.evaluation.metrics import Ranks, query_images
from sightline.evaluation.pair_scores import PairScores, late_scores, match_scores
from sightline.evaluation.ranking import candidates_from_embeddings, ranks_after_stages, ranks_from_embeddings
from sightline.evaluation.result import FoldRanks
from sightline.evaluation.test_set import Questions
from sightline.retrieval.candidates import Candidates
from sightline.retrieval.plan import Plan
from sightline.retrieval.stages import Score
from sightline.retrieval.stopwatch import Stopwatch


@dataclass(frozen=True, slots=True)
class Ranker:
    """All that was encoded, ready to rank one gallery after another.

    texts: all captions. images: the images that could be read. readable: [images], which those are, counting the
    questions' images first and then the distractors.
    """

    model: Model
    plan: Plan
    questions: Questions
    texts: Encodings
    images: Encodings
    readable: Int64Array
    batch_size: int
    clock: Stopwatch
    progress: Progress | None = None

    def ranks(self, gallery: Int64Array) -> FoldRanks:
        """Rank the captions and images of a gallery (indices of the questions' images, ascending).

        An image that could not be read cannot be found: its captions, and it itself, have infinite ranks. Images that
        are not asked about are not ranked: their captions are wrong answers to every image.
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

    def _cascade(self, texts: Encodings, images: Encodings, image_of: Int64Array) -> tuple[Ranks, Ranks]:
        """Rank everything by embedding; then let the later stages rescore the best of every query."""
        with self.clock("rank"):
            to_image, to_text = ranks_from_embeddings(texts.embedding, images.embedding, image_of)
        if not self.plan.longest:
            return to_image, to_text
        asking, asked = np.flatnonzero(image_of >= 0), query_images(image_of)
        pairs = self._pairs(texts, images)
        found = self._best(texts, images, asking, {name: one.of_texts(asking) for name, one in pairs.items()})
        to_image[asking] = ranks_after_stages(found, found.ids == image_of[asking, None], to_image[asking])
        found = self._best(images, texts, asked, {name: one.of_images(asked) for name, one in pairs.items()})
        return to_image, ranks_after_stages(found, image_of[found.ids] == asked[:, None], to_text)

    def _pairs(self, texts: Encodings, images: Encodings) -> dict[str, PairScores]:
        pairs = {}
        if self.plan.late:
            pairs["late"] = late_scores(texts, images, self.progress)
        if self.plan.rerank:
            pairs["match"] = match_scores(self.model, texts, images, self.batch_size, self.progress)
        return pairs

    def _best(
        self, queries: Encodings, gallery: Encodings, asked: Int64Array, scores: Mapping[str, Score]
    ) -> Candidates:
        """The best of the gallery for the queries asked, after all stages."""
        with self.clock("rank"):
            found = candidates_from_embeddings(queries.embedding[asked], gallery.embedding, self.plan.longest)
        for stage in self.plan.stages(scores):
            with self.clock(stage.name):
                found = stage.run(found)
        return found
