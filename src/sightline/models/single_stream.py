"""One transformer that reads words, image fragments, or both: the model of paper 1 (OSCAR, UNITER and their kin)."""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from sightline.bundle.encoded import Ability
from sightline.errors import ModelError
from sightline.media import Preprocess
from sightline.models import towers
from sightline.models.heads import ImageStates, MatchScore, UnitProjection, masked_mean
from sightline.models.image_tower import ImageTower
from sightline.models.retriever import Encoded, Regions, Retriever, Seen, TextInput, Tokens
from sightline.models.text_tower import TextTower
from sightline.models.towers import TowerConfig


@dataclass(frozen=True, slots=True)
class RegionConfig:
    """Detected regions as image fragments: feature width and the numbers of a box (6 or 7)."""

    feature_dim: int = 2048
    box_dim: int = 6


@dataclass(frozen=True, slots=True)
class SingleStreamConfig:
    """What a single-stream model is made of.

    transformer: the BERT-type encoder that reads everything.
    image: the vision encoder whose patch vectors are the image fragments; or
    regions: detected regions instead of a vision encoder. One of the two.
    embedding_dim: 0 takes the mean of the transformer's outputs as it is (paper 1, section 3.2).
    """

    transformer: TowerConfig
    preprocess: Preprocess
    image: TowerConfig | None = None
    regions: RegionConfig | None = None
    text_input: TextInput = field(default_factory=TextInput)
    embedding_dim: int = 0
    fragment_dim: int = 128
    pool_to: int = 7

    def __post_init__(self) -> None:
        if (self.image is None) == (self.regions is None):
            raise ModelError("a single-stream model sees through either an image tower or regions, and not both")


class SingleStream(Retriever):
    """One set of transformer weights embeds each side alone and matches both together (paper 1, figure 1d)."""

    def __init__(self, config: SingleStreamConfig) -> None:
        super().__init__()
        self.config = config
        self.preprocess = config.preprocess
        self.text_input = config.text_input
        encoder, _ = towers.build(config.transformer, "text")
        self.transformer = TextTower(encoder, config.text_input.max_length)
        self.transformer.check_reads_images()
        hidden = self.transformer.hidden
        spread = self.transformer.word_spread()
        self.image: ImageTower | None = None
        if config.image is not None:
            vision, _ = towers.build(config.image, "vision")
            self.image = ImageTower(vision, config.preprocess.size, config.pool_to or None)
            self.image_states = ImageStates(self.image.hidden, hidden, spread)
        elif config.regions is not None:
            self.image_states = ImageStates(config.regions.feature_dim + config.regions.box_dim, hidden, spread)
        self.project = UnitProjection(hidden, config.embedding_dim) if config.embedding_dim else None
        self.fragment = UnitProjection(hidden, config.fragment_dim)
        self.match_score = MatchScore(hidden)

    @property
    def abilities(self) -> frozenset[Ability]:
        """All three."""
        return frozenset(("embed", "fragments", "match"))

    @property
    def grid(self) -> tuple[int, int] | None:
        """Rows and columns of an image's fragments; None for regions."""
        return self.image.grid if self.image is not None else None

    def look(self, pixels: Tensor) -> Seen:
        """Run the image tower alone."""
        if self.image is None:
            raise ModelError("this model reads regions, not pixels")
        return self.image(pixels)  # type: ignore[no-any-return]

    def encode_images(self, images: Tensor | Seen | Regions) -> Encoded:
        """Encode pixels [batch, 3, size, size], what the tower saw in them, or regions."""
        if isinstance(images, Regions):
            if self.image is not None:
                raise ModelError("this model reads pixels, not regions")
            states, mask = self.image_states(torch.cat([images.features, images.boxes], -1)), images.mask
        else:
            patches = (images if isinstance(images, Seen) else self.look(images)).patches
            states = self.image_states(patches)
            mask = torch.ones(patches.shape[:2], dtype=torch.bool, device=patches.device)
        return self._encoded(self.transformer.read(None, None, states, mask), mask, states)

    def encode_texts(self, tokens: Tokens) -> Encoded:
        """Encode tokenised texts."""
        states = self.transformer.words(tokens.ids)
        return self._encoded(self.transformer.read(states, tokens.mask, None, None), tokens.mask, states)

    def _encoded(self, read: Tensor, mask: Tensor, states: Tensor) -> Encoded:
        mean = masked_mean(read, mask)
        embedding = self.project(mean) if self.project is not None else nn.functional.normalize(mean, dim=-1)
        return Encoded(embedding, self.fragment(read), mask, states)

    def match(self, text_states: Tensor, text_mask: Tensor, image_states: Tensor, image_mask: Tensor) -> Tensor:
        """Logits [batch] that text i and image i belong together."""
        return self.match_score(self.transformer.read(text_states, text_mask, image_states, image_mask))  # type: ignore[no-any-return]

    def parts(self) -> dict[str, nn.Module]:
        """The encoders inside, by their folder in a checkpoint."""
        found: dict[str, nn.Module] = {"transformer": self.transformer.encoder}
        if self.image is not None:
            found["image"] = self.image.encoder
        return found
