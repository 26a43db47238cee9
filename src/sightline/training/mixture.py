"""The batches of a run: the source of each step, and the pairs that are not negatives."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from torch import Tensor

from sightline.datasets import Batch, BudgetSampler, Mixture, MixtureSource, Record, Sampler
from sightline.errors import RecipeError
from sightline.models.checkpoint import AnyRetriever
from sightline.training.captions import DrawnBatch
from sightline.training.corpus import Corpus
from sightline.training.data_tables import SourceRecipe
from sightline.training.neighbours import Neighbours
from sightline.training.recipe import Recipe
from sightline.training.region_images import RegionImages
from sightline.training.same_rows import SameRule
from sightline.training.schedule import seed_at
from sightline.training.word_noise import WordNoise

SEEDS_APART = 7_919  # offset between the seeds of two sources; the first source uses the recipe's seed


class StepBatch(NamedTuple):
    """The batch of a step, and the name of the source that it comes from."""

    step: int
    source: str
    batch: DrawnBatch


class TrainingBatches:
    """The batches of every step, determined by seed and step; neighbours also depend on the model.

    records: the records of each source, in the order of the corpus.
    """

    def __init__(
        self,
        recipe: Recipe,
        corpus: Corpus,
        records: Sequence[Sequence[Record]],
        model: AnyRetriever,
        regions: RegionImages | None,
        noise: WordNoise | None = None,
    ) -> None:
        self._corpus, self._sources = corpus, recipe.data.mixture
        self._rules = [SameRule.of(source) for source in self._sources]
        counts, first, sources = corpus.captions_per_image, 0, []
        for number, (source, own) in enumerate(zip(self._sources, records, strict=True)):
            check_labels(source, own)
            some = counts[first : first + len(own)]
            sampler: Sampler | BudgetSampler
            if recipe.data.batch_tokens:
                sampler = _by_budget(recipe, corpus, model, regions)
            else:
                seed = recipe.seed + number * SEEDS_APART
                sampler = Sampler(some, source.batch_size, seed, source.draw or recipe.data.draw)
            share = source.share or (source.passes or 1.0) * sampler.batches_per_epoch
            sources.append(MixtureSource(sampler, share, first))
            first += len(own)
        self._mixture = Mixture(sources, recipe.seed)
        self._recipe, self._noise = recipe, noise
        passes = [source.passes or 1.0 for source in self._sources]
        sizes = [source.sampler.batches_per_epoch for source in sources]
        self.batches_per_epoch = max(1, round(sum(n * size for n, size in zip(passes, sizes, strict=True))))

    def between(self, start: int, end: int, neighbours: Neighbours | None = None) -> Iterator[StepBatch]:
        """Yield the batches of steps `start` to `end` - 1; `neighbours` supplies those of the epochs it covers."""
        if neighbours is None:
            yield from (self._drawn(*one) for one in self._mixture.batches(start, end))
            return
        per_epoch = self.batches_per_epoch
        while start < end:
            epoch, first = divmod(start, per_epoch)
            stop = min(end, (epoch + 1) * per_epoch)
            if neighbours.has(epoch):
                alike = islice(neighbours.batches(epoch, first), stop - start)
                yield from (self._drawn(step, 0, pairs) for step, pairs in enumerate(alike, start))
            else:
                yield from (self._drawn(*one) for one in self._mixture.batches(start, stop))
            start = stop

    def position(self, step: int) -> dict[str, Tensor]:
        """Tensors to save with the state of a run: none, because the step determines the batch."""
        return {}

    def _drawn(self, step: int, source: int, pairs: Batch) -> StepBatch:
        batch = self._corpus.draw(pairs, self._rules[source])
        if self._noise is not None:
            batch = self._noise(batch, seed_at(step, self._recipe))
        return StepBatch(step, self._sources[source].name, batch)


def _by_budget(recipe: Recipe, corpus: Corpus, model: AnyRetriever, regions: RegionImages | None) -> BudgetSampler:
    counts = corpus.captions_per_image
    fragments = [0 if model.image is None else model.image.places] * len(counts)
    if regions is not None:
        fragments = regions.counts.tolist()
    return BudgetSampler(counts, corpus.caption_lengths, fragments, recipe.data.batch_tokens, recipe.seed)


def check_labels(source: SourceRecipe, records: Sequence[Record]) -> None:
    """Reject a rule about labels for data without labels, where it would silently do nothing."""
    rule = SameRule.of(source)
    if (rule.label or rule.label_positive) and not any(record.label for record in records):
        raise RecipeError(
            f'data: the records of "{source.name}" have no label',
            'Leave "label" out of same and positives, or check that the JSON of each record has a "label".',
        )
