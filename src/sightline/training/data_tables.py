"""The data table of a recipe: one source or a mixture of several, and one or several validation sets."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from sightline.datasets.sampler import DrawRule
from sightline.errors import RecipeError
from sightline.training.tables import at_least, check_share

SameBy = Literal["image", "caption", "label"]


@dataclass(frozen=True, slots=True)
class NeighbourRecipe:
    """Batches of similar images (paper 2, section 3.4), which replace random batches in later epochs.

    begin: the fraction of the run after which every new epoch is drawn this way.
    clusters: the number of image clusters, recomputed each epoch by k-means on the model's own embeddings.
    per_cluster: the number of images that a batch takes from each of its batch_size / per_cluster clusters.
    """

    begin: float = 0.0
    clusters: int = 64
    per_cluster: int = 16

    def __post_init__(self) -> None:
        check_share("data.neighbours.begin", self.begin)
        at_least(1, "data.neighbours.clusters", self.clusters)
        at_least(1, "data.neighbours.per_cluster", self.per_cluster)


@dataclass(frozen=True, slots=True)
class SourceRecipe:
    """One source of a mixture. Every batch comes from one source.

    name: the source's name in messages and in the log.
    train: data sets, as in `[data]`.
    share: the source's share of the steps, relative to the other sources.
    passes: instead of `share`, how many times an epoch goes through the source; by default once.
    draw, batch_size, same, positives: as in `[data]`, which this overrides.
    limit: use only this many images; 0 uses all.
    skip_labels: leave out records with one of these labels.
    prompts: for records with a label, templates for additional captions, such as "a photo of a {}".
    wordnet: for records with a label, a WordNet folder; the label's synonyms, hypernyms and glosses become captions
    too.
    """

    name: str
    train: tuple[str, ...]
    share: float = 0.0
    passes: float = 0.0
    draw: DrawRule | None = None
    batch_size: int = 0
    same: tuple[SameBy, ...] | None = None
    positives: Literal["image", "label"] | None = None
    limit: int = 0
    skip_labels: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()
    wordnet: str = ""

    def __post_init__(self) -> None:
        where = f"data.sources.{self.name}"
        for prompt in self.prompts:
            if prompt.count("{}") != 1:
                raise RecipeError(f'{where}.prompts: "{prompt}" must contain {{}} once, for the label')
        if not self.train:
            raise RecipeError(f"{where}.train is empty")
        for key in ("share", "passes", "batch_size", "limit"):
            at_least(0, f"{where}.{key}", getattr(self, key))
        if self.share and self.passes:
            raise RecipeError(f"{where} has both share and passes", "Remove one of them.")


@dataclass(frozen=True, slots=True)
class ValidationSetRecipe:
    """One of several validation sets.

    name: the set's name in messages and in the log.
    data: data sets, as in `[data]`.
    weight: the set's weight in the mean by which checkpoints are compared.
    kind: "captions" measures recalls, and "names" measures how often an image's label ranks first among the labels of
    the set. In a mean of rSum (the sum of six recalls), a "names" set counts as six times its top-1 accuracy.
    limit: use only this many images, evenly spaced, so that validating a slow model takes less time; 0 uses all.
    """

    name: str
    data: tuple[str, ...]
    weight: float = 1.0
    kind: Literal["captions", "names"] = "captions"
    limit: int = 0

    def __post_init__(self) -> None:
        if not self.data:
            raise RecipeError(f"data.val.{self.name}.data is empty")
        at_least(0, f"data.val.{self.name}.weight", self.weight)
        at_least(0, f"data.val.{self.name}.limit", self.limit)


@dataclass(frozen=True, slots=True)
class DataRecipe:
    """What to train on.

    train: data sets, as `sightline eval` takes them. ${NAME} is replaced by an environment variable. If a data set has
    named splits, only its train split is used, so that test images are not used by accident.
    sources: instead of `train`, several sources to draw batches from in turn; see `[[data.sources]]`.
    val: data sets, or several named sets; see `[[data.val]]`.
    draw: "pairs" (every caption once per epoch), "unique" (the same, but no image twice in a batch), "one" (every image
    once per epoch, with one of its captions) or "all" (every image once, with all of its captions).
    lang: the language of the captions, or several languages to mix.
    batch_size: captions in a batch; for "all", images.
    batch_tokens: instead of batch_size, the maximum number of tokens and image fragments in a batch, including padding;
        only for draw "pairs".
    limit: train on only this many images, the first after shuffling with `seed`; 0 uses all.
    same: a list of "image", "caption" and "label": two rows of a batch that have any of these in common are not
    negatives of each other. An image and its own captions are always positives.
    positives: "image" (only an image's own captions are positives) or "label" (captions of all images with the same
    label are positives too).
    neighbours: in later epochs, batches consist of similar images, each with one caption; only for draw "unique" or
        "one".
    streaming: read the data (shards or JSON Lines) file by file in every epoch, for data larger than memory.
    shuffle_buffer: with streaming, how many captions (images, for draw "one" and "all") are shuffled at a time; the
    order of the files is shuffled as well.
    word_noise: the probability of changing each word of a caption, newly drawn for every batch. Half of the changed
    words are masked, a tenth are replaced by random ones, and the rest are dropped.
    """

    train: tuple[str, ...] = ()
    sources: tuple[SourceRecipe, ...] = ()
    val: tuple[str | ValidationSetRecipe, ...] = ()
    lang: str | tuple[str, ...] = "en"
    draw: DrawRule = "unique"
    batch_size: int = 128
    batch_tokens: int = 0
    limit: int = 0
    same: tuple[SameBy, ...] = ("image", "caption")
    positives: Literal["image", "label"] = "image"
    neighbours: NeighbourRecipe | None = None
    streaming: bool = False
    shuffle_buffer: int = 10_000
    word_noise: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.word_noise < 1:
            raise RecipeError(
                f"data.word_noise cannot be {self.word_noise}", "Use a probability of at least 0 and below 1."
            )
        if not self.train and not self.sources:
            raise RecipeError("data.train is empty")
        if self.train and self.sources:
            raise RecipeError("data cannot have both train and sources", "Remove one of them.")
        at_least(1, "data.batch_size", self.batch_size)
        at_least(0, "data.limit", self.limit)
        at_least(0, "data.batch_tokens", self.batch_tokens)
        if self.batch_tokens and self.draw != "pairs":
            raise RecipeError(f'data.batch_tokens cannot be combined with draw = "{self.draw}"', 'Set draw = "pairs".')
        if not self.languages or len(set(self.languages)) < len(self.languages):
            raise RecipeError(
                f"data.lang cannot be {list(self.languages)}", "Specify one language or several, and each only once."
            )
        self._check_sources()
        self._check_validation_sets()
        if self.neighbours is not None:
            self._check_neighbours(self.neighbours)
        at_least(1, "data.shuffle_buffer", self.shuffle_buffer)
        if self.streaming:
            self._check_streaming()

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages of the captions, one or several."""
        return (self.lang,) if isinstance(self.lang, str) else self.lang

    @property
    def mixture(self) -> tuple[SourceRecipe, ...]:
        """The sources with all settings filled in; `train` alone is a mixture of one."""
        if not self.sources:
            return (
                SourceRecipe(
                    "train",
                    self.train,
                    draw=self.draw,
                    batch_size=self.batch_size,
                    same=self.same,
                    positives=self.positives,
                    limit=self.limit,
                ),
            )
        return tuple(
            replace(
                source,
                passes=source.passes or (0.0 if source.share else 1.0),
                draw=source.draw or self.draw,
                batch_size=source.batch_size or self.batch_size,
                same=self.same if source.same is None else source.same,
                positives=source.positives or self.positives,
            )
            for source in self.sources
        )

    @property
    def validation_sets(self) -> tuple[ValidationSetRecipe, ...]:
        """The validation sets; unnamed data sets form one set called "val"."""
        named = tuple(one for one in self.val if isinstance(one, ValidationSetRecipe))
        paths = tuple(one for one in self.val if isinstance(one, str))
        return named or ((ValidationSetRecipe("val", paths),) if paths else ())

    def _check_sources(self) -> None:
        _check_names("data.sources", [source.name for source in self.sources])
        shares = [source.share > 0 for source in self.sources]
        if any(shares) and not all(shares):
            without = next(source.name for source in self.sources if not source.share)
            raise RecipeError(f"data.sources.{without} has no share", "Set a share for every source, or for none.")
        for key, used in (("batch_tokens", self.batch_tokens), ("limit", self.limit), ("neighbours", self.neighbours)):
            if self.sources and used:
                other = "Set limit in each source." if key == "limit" else "Train on one source, with data.train."
                raise RecipeError(f"data.{key} cannot be combined with data.sources", other)

    def _check_validation_sets(self) -> None:
        named = [one for one in self.val if isinstance(one, ValidationSetRecipe)]
        if named and len(named) < len(self.val):
            raise RecipeError("data.val: some sets have names and some do not", "Name all sets, or none.")
        _check_names("data.val", [one.name for one in named])
        if named and not any(one.weight for one in named):
            raise RecipeError("data.val: all weights are 0")

    def _check_streaming(self) -> None:
        """Reject settings that need a list of all images."""
        limited = any(source.limit for source in self.mixture)
        keys = {
            "batch_tokens": self.batch_tokens,
            "limit": limited,
            "neighbours": self.neighbours,
            "word_noise": self.word_noise,
        }
        for key, used in keys.items():
            if used:
                raise RecipeError(
                    f"data.streaming cannot be combined with {key}, which needs a list of all images",
                    "Remove one of them.",
                )

    def _check_neighbours(self, asked: NeighbourRecipe) -> None:
        if self.draw not in ("unique", "one"):
            raise RecipeError(
                f'data.neighbours cannot be combined with draw = "{self.draw}"', 'Set draw = "unique" or "one".'
            )
        if self.batch_size % asked.per_cluster:
            raise RecipeError(
                f"data.neighbours: data.batch_size is {self.batch_size}, not a multiple of {asked.per_cluster}",
                "Set data.batch_size to a multiple of data.neighbours.per_cluster.",
            )


def _check_names(where: str, names: Sequence[str]) -> None:
    """Reject duplicate names, which would be indistinguishable in the log."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise RecipeError(f'{where}: the name "{twice[0]}" is used twice', "Give each a unique name.")
