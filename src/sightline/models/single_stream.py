"""One transformer that reads words, image fragments, or both: the model of paper 1 (like OSCAR and UNITER)."""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from sightline.bundle.model import Ability
from sightline.errors import ModelError
from sightline.media import Preprocess, RegionConfig
from sightline.models import towers
from sightline.models.fragments import mask_with_codes, mask_without_codes, new_codes, pooled_regions, with_codes
from sightline.models.heads import ImageStates, MatchHead, UnitProjection, masked_mean
from sightline.models.image_tower import ImageTower, Pool
from sightline.models.retriever import EncodedTensors, Regions, Retriever, TextInput, Tokens, TowerFeatures
from sightline.models.text_tower import TextTower
from sightline.models.towers import TowerConfig


@dataclass(frozen=True, slots=True)
class SingleStreamConfig:
    """The configuration of a single-stream model.

    transformer: the BERT-type encoder that reads everything.
    image: the vision encoder whose patch vectors are the image fragments, for images resized by `preprocess`; or,
    instead, regions.
    preprocess: how images are resized and normalised; it must fit the vision encoder.
    regions: detected regions instead of a vision encoder.
    text_input: the length and the languages of texts.
    fragment_dim: the number of dimensions of fragments.
    embedding_dim: 0 uses the mean of the transformer's outputs without a projection (paper 1, section 3.2).
    pool, pool_to: image fragments are pooled before the transformer reads them, patches to a "grid" with `pool_to`
    rows, patches or regions by "kmeans" to `pool_to` clusters (paper 3, section 5); 0 does not pool.
    codes: the number of learned vectors that the transformer reads after the words or image fragments, different
    vectors for each, and outputs as additional fragments (paper 3, section 4.1). The mean of the outputs and `match`
    ignore them.
    fragments: use only this many fragments of an item, the first ones, without codes (paper 3, appendix); 0 uses all.
    Such a model cannot match, because matching needs the others.
    """

    transformer: TowerConfig
    preprocess: Preprocess | None = None
    image: TowerConfig | None = None
    regions: RegionConfig | None = None
    text_input: TextInput = field(default_factory=TextInput)
    embedding_dim: int = 0
    fragment_dim: int = 128
    pool: Pool = "grid"
    pool_to: int = 7
    codes: int = 0
    fragments: int = 0

    def __post_init__(self) -> None:
        if self.embedding_dim < 0 or self.fragment_dim < 1:
            raise ModelError(
                f"model.embedding_dim and model.fragment_dim cannot be {self.embedding_dim} and {self.fragment_dim}",
                "Use numbers of at least 0 and 1.",
            )
        if min(self.codes, self.fragments) < 0:
            raise ModelError(
                f"codes and fragments cannot be {self.codes} and {self.fragments}", "Use numbers of at least 0."
            )
        if (self.image is None) == (self.regions is None):
            raise ModelError("a single-stream model needs either an image tower or regions, not both")
        if self.image is not None and self.preprocess is None:
            raise ModelError("an image tower needs to know the size of its images", "Set model.preprocess.")


class SingleStream(Retriever):
    """One set of transformer weights embeds each side alone and matches both together (paper 1, figure 1d)."""

    def __init__(self, config: SingleStreamConfig) -> None:
        super().__init__()
        self.config = config
        self.text_input = config.text_input
        encoder, _ = towers.build(config.transformer, "text")
        self.transformer = TextTower(encoder, config.text_input.max_length)
        self.transformer.check_reads_images()
        hidden = self.transformer.hidden
        spread = self.transformer.word_spread()
        self.image: ImageTower | None = None
        if config.image is not None and config.preprocess is not None:
            self.preprocess = config.preprocess
            vision, _ = towers.build(config.image, "vision")
            self.image = ImageTower(vision, config.preprocess.size, config.pool_to or None, pool=config.pool)
            self.image.check_places(config.fragments)
            self.image_states = ImageStates(self.image.hidden, hidden, spread)
        elif config.regions is not None:
            self.preprocess = config.regions
            self.image_states = ImageStates(config.regions.width, hidden, spread)
        self.text_codes = new_codes(config.codes, hidden, spread)
        self.image_codes = new_codes(config.codes, hidden, spread)
        self.project = UnitProjection(hidden, config.embedding_dim) if config.embedding_dim else None
        self.fragment = UnitProjection(hidden, config.fragment_dim)
        self.match_score = MatchHead(hidden)

    @property
    def abilities(self) -> frozenset[Ability]:
        """The abilities that were trained; `match` only if no fragments are left out."""
        return self._offered("embed", "fragments", *(() if self.config.fragments else ("match",)))

    @property
    def embedding_dim(self) -> int:
        """The width of embeddings: that of the projection or, if there is none, of the transformer."""
        return self.config.embedding_dim or self.transformer.hidden

    @property
    def grid(self) -> tuple[int, int] | None:
        """Rows and columns of the grid formed by an image's fragments; None if they are regions or form no grid."""
        if self.image is None or self.config.fragments not in (0, self.image.places):
            return None
        return self.image.grid

    @property
    def reads_pixels(self) -> bool:
        """Whether the model has an image tower."""
        return self.image is not None

    def image_features(self, pixels: Tensor) -> TowerFeatures:
        """Run the image tower alone."""
        if self.image is None:
            raise ModelError("this model reads regions, not pixels")
        return self.image(pixels)  # type: ignore[no-any-return]

    def encode_images(self, images: Tensor | TowerFeatures | Regions) -> EncodedTensors:
        """Encode pixels [batch, 3, size, size], features of the image tower, or regions."""
        if isinstance(images, Regions):
            if self.image is not None:
                raise ModelError("this model reads pixels, not regions")
            given, mask = pooled_regions(images, self.config.pool_to if self.config.pool == "kmeans" else 0)
        else:
            given = (images if isinstance(images, TowerFeatures) else self.image_features(images)).patches
            mask = torch.ones(given.shape[:2], dtype=torch.bool, device=given.device)
        states = self.image_states(given)
        if self.image_codes is not None:
            states = with_codes(states, self.image_codes)
        mask = mask_with_codes(mask, self.config.codes)
        return self._encoded(self.transformer.read(None, None, states, mask), mask, states)

    def encode_texts(self, tokens: Tokens) -> EncodedTensors:
        """Encode tokenised texts."""
        states = self.transformer.words(tokens.ids)
        read = self.transformer.read(states, tokens.mask, None, None, self.text_codes)
        if self.text_codes is not None:
            states = with_codes(states, self.text_codes)
        return self._encoded(read, mask_with_codes(tokens.mask, self.config.codes), states)

    def _encoded(self, read: Tensor, mask: Tensor, states: Tensor) -> EncodedTensors:
        mean = masked_mean(read, mask_without_codes(mask, self.config.codes))
        embedding = self.project(mean) if self.project is not None else nn.functional.normalize(mean, dim=-1)
        fragments, first = self.fragment(read), self.config.fragments
        if not first:
            return EncodedTensors(embedding, fragments, mask, states)
        end = read.shape[1] - self.config.codes
        return EncodedTensors(embedding, fragments[:, :end][:, :first], mask[:, :end][:, :first], None)

    def match(self, text_states: Tensor, text_mask: Tensor, image_states: Tensor, image_mask: Tensor) -> Tensor:
        """Return the logits [batch] that text i and image i belong together."""
        if self.config.fragments:
            raise ModelError("this model keeps too few fragments for matching", "Build it with fragments = 0.")
        text_mask, image_mask = (mask_without_codes(mask, self.config.codes) for mask in (text_mask, image_mask))
        return self.match_score(self.transformer.read(text_states, text_mask, image_states, image_mask))  # type: ignore[no-any-return]

    def parts(self) -> dict[str, nn.Module]:
        """Return the encoders, by their folder in a checkpoint."""
        found: dict[str, nn.Module] = {"transformer": self.transformer.encoder}
        if self.image is not None:
            found["image"] = self.image.encoder
        return found
