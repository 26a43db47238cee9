"""A two-tower model: an image tower, a text tower, and a matcher."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sightline.bundle.model import Ability
from sightline.errors import ModelError
from sightline.media import Preprocess
from sightline.models import towers
from sightline.models.aligned_matcher import AlignedMatcher, AlignedStates
from sightline.models.dual_config import DualStreamConfig
from sightline.models.fragments import mask_with_codes, mask_without_codes, new_codes, pooled_regions, with_codes
from sightline.models.heads import ImageStates, MatchHead, UnitProjection, last_real, masked_mean
from sightline.models.image_reader import ImageReader
from sightline.models.image_tower import ImageTower
from sightline.models.relations import RelationPooling, dropped
from sightline.models.retriever import EncodedTensors, Regions, Retriever, Tokens, TowerFeatures
from sightline.models.text_tower import TextTower
from sightline.models.towers import TowerConfig


class _Given(NamedTuple):
    """The input of the image side: patches of the image tower, or regions.

    pooled: [batch, width], one vector per image. fragments: [batch, n, width]. mask: [batch, n], true for real ones.
    for_matcher: [batch, n, width], the same fragments, as the matcher reads them.
    """

    pooled: Tensor
    fragments: Tensor
    mask: Tensor
    for_matcher: Tensor


class DualStream(Retriever):
    """An image tower (or regions) and a text tower with one embedding space, and a matcher over both."""

    def __init__(self, config: DualStreamConfig) -> None:
        super().__init__()
        self.config = config
        self.text_input = config.text_input
        self.image: ImageTower | None = None
        image_weight: Tensor | None = None
        if config.image is not None and config.preprocess is not None:
            self.preprocess = config.preprocess
            tower, image_weight = _image_tower(config, config.image, config.preprocess)
            self.image, given_width = tower, tower.hidden
        elif config.regions is not None:
            self.preprocess, given_width = config.regions, config.regions.width
        text, text_weight = towers.build(config.text, "text")
        self.text = TextTower(text, config.text_input.max_length)
        if config.codes:
            self.text.check_reads_images()
        self.text_codes = new_codes(config.codes, self.text.hidden, self.text.word_spread())
        self.image_reader: ImageReader | None = None
        seen_width = given_width
        if config.image_reader is not None:
            encoder, image_weight = towers.build(config.image_reader, "text")[0], None
            places = 0 if self.image is None else self.image.places
            self.image_reader = ImageReader(encoder, given_width, places, config.codes)
            seen_width = self.image_reader.tower.hidden
        dim, relations = config.embedding_dim, config.relations
        projections = [weight for weight in (image_weight, text_weight) if weight is not None and len(weight) == dim]
        same = config.image is not None and config.image.source == config.text.source
        self._from_one_model = same and relations is None and len(projections) == 2
        self.image_embedding: UnitProjection | RelationPooling
        self.text_embedding: UnitProjection | RelationPooling
        if relations is None:
            self.image_embedding = UnitProjection(seen_width, dim, image_weight, config.unit_length)
            self.text_embedding = UnitProjection(self.text.hidden, dim, text_weight, config.unit_length)
        self.image_fragments = UnitProjection(seen_width, config.fragment_dim)
        self.text_fragments = UnitProjection(self.text.hidden, config.fragment_dim)
        if relations is not None:
            self.image_embedding = RelationPooling(dim, relations.image, relations)
            self.text_embedding = RelationPooling(dim, relations.text, relations)
        self.own_matcher: TextTower | None = None
        if config.matcher in ("own", "aligned"):
            encoder, _ = towers.build(config.matcher_tower or config.text, "text")
            if config.matcher_tower is None and config.matcher_layers:
                encoder = towers.last_layers(encoder, config.matcher_layers)
            self.own_matcher = TextTower(encoder, config.text_input.max_length)
            if self.own_matcher.hidden != self.text.hidden:
                raise ModelError(
                    f"the matcher has width {self.own_matcher.hidden}, so it cannot read the states of a text tower "
                    f"of width {self.text.hidden}"
                )
        self.image_states: ImageStates | AlignedStates | None = None
        self.match_score: MatchHead | None = None
        self.aligned: AlignedMatcher | None = None
        self.matcher_text: TextTower | None = None
        self.matcher_image: TextTower | None = None
        if config.matcher_reads_image == "states":
            given_width = seen_width
        if config.matcher == "aligned":
            self.matcher.check_reads_images()
            places = 0 if self.image is None else self.image.places
            self.image_states = AlignedStates(given_width, self.text.hidden, places)
            self.aligned = AlignedMatcher(self.text.hidden, max(1, self.text.heads // 2))
            if config.matcher_text_layer > len(towers.layers(self.text.encoder)):
                raise ModelError(
                    f"matcher_text_layer is {config.matcher_text_layer}, "
                    f"but the text tower has {len(towers.layers(self.text.encoder))} layers"
                )
            self.matcher_text = self._own_layers(config.matcher_text_layer, config.matcher_text_layers)
            self.matcher_image = self._own_layers(0, config.matcher_image_layers)
            if self.matcher_image is not None:
                towers.reset(self.matcher_image.encoder)
            self.align()
        elif config.matcher != "none":
            self.matcher.check_reads_images()
            self.image_states = ImageStates(given_width, self.text.hidden, self.text.word_spread())
            self.match_score = MatchHead(self.text.hidden)

    @property
    def abilities(self) -> frozenset[Ability]:
        """The trained abilities, among `embed`, `fragments` and, with a matcher, `match`."""
        return self._offered("embed", "fragments", *(() if self.config.matcher == "none" else ("match",)))

    @property
    def initially_trained(self) -> frozenset[Ability]:
        """The ability `embed`, if both towers and their projections come from one model, such as CLIP."""
        return frozenset({"embed"} if self._from_one_model else ())

    @property
    def embedding_dim(self) -> int:
        """The configured width of embeddings."""
        return self.config.embedding_dim

    @property
    def unit_length(self) -> bool:
        """Whether embeddings have unit length, as configured."""
        return self.config.unit_length

    @property
    def grid(self) -> tuple[int, int] | None:
        """Rows and columns of an image's first fragments; None if they form no grid."""
        first = self.config.fragments
        if self.image is None or (first and (first != self.image.places or self.image_reader is not None)):
            return None
        return self.image.grid

    @property
    def reads_pixels(self) -> bool:
        """Whether the model has an image tower."""
        return self.image is not None

    def align(self) -> None:
        """Initialise an aligned matcher from the current embedding space."""
        text, image, states = self.text_embedding, self.image_embedding, self.image_states
        if not isinstance(states, AlignedStates):
            return
        if self.config.matcher_reads_image == "states":
            states.keep()
            return
        if self.image_reader is not None or self.config.matcher_layer:  # its inputs are not in the embedding space
            return
        if isinstance(image, UnitProjection) and isinstance(text, UnitProjection):
            states.align(image.linear.weight, text.linear.weight)

    def _own_layers(self, first: int, count: int) -> TextTower | None:
        """Copy layers of the text tower, which the matcher uses to read texts or images."""
        return TextTower(towers.copied_layers(self.text.encoder, first, count), self.text.max_length) if count else None

    @property
    def matcher(self) -> TextTower:
        """The transformer that reads pairs: the text tower itself, or the matcher's own."""
        return self.own_matcher or self.text

    def image_features(self, pixels: Tensor) -> TowerFeatures:
        """Run the image tower alone."""
        if self.image is None:
            raise ModelError("this model reads regions, not pixels")
        return self.image(pixels)  # type: ignore[no-any-return]

    def encode_images(self, images: Tensor | TowerFeatures | Regions) -> EncodedTensors:
        """Encode pixels [batch, 3, size, size], features of the image tower, or regions."""
        given = self._given(images)
        pooled, fragments, mask = given.pooled, given.fragments, given.mask
        if self.training and self.config.relations is not None:
            mask = dropped(mask, self.config.relations.drop)
        for_matcher = given.for_matcher
        if self.image_reader is not None:
            whole = self.image_reader(fragments, mask if self.image is None else None)
            pooled, fragments = whole[:, 0], whole[:, 1:]
            if self.config.image_pooling == "mean":
                pooled = masked_mean(fragments[:, : given.mask.shape[1]], mask)
            for_matcher = fragments if self.config.matcher_reads_image == "states" else for_matcher
            mask = mask_with_codes(mask, self.config.codes)
            if self.config.fragments:
                fragments, mask = whole, torch.cat([torch.ones_like(mask[:, :1]), mask], 1)
        states = self._image_states(for_matcher, given.mask)
        both = _projected(self.image_embedding, self.image_fragments, pooled, fragments, mask)
        found = EncodedTensors(*both, mask, states, self._pooled(pooled))
        return self._cut(found, fragments.shape[1] - self.config.codes)

    def _image_states(self, fragments: Tensor, mask: Tensor) -> Tensor | None:
        """Return the matcher's image input; None without a matcher."""
        if self.image_states is None:
            return None
        states: Tensor = self.image_states(fragments)
        return states if self.matcher_image is None else self.matcher_image.read(None, None, states, mask)

    def _pooled(self, pooled: Tensor) -> Tensor | None:
        """Return the vector that the embedding is a projection of; None with relations."""
        return pooled if self.config.relations is None else None

    def _given(self, images: Tensor | TowerFeatures | Regions) -> _Given:
        """Run the image tower unless its features are given; regions are used directly."""
        if isinstance(images, Regions):
            if self.image is not None:
                raise ModelError("this model reads pixels, not regions")
            fragments, mask = pooled_regions(images, self.config.pool_to if self.config.pool == "kmeans" else 0)
            return _Given(masked_mean(fragments, mask), fragments, mask, fragments)
        seen = images if isinstance(images, TowerFeatures) else self.image_features(images)
        mask = torch.ones(seen.patches.shape[:2], dtype=torch.bool, device=seen.patches.device)
        return _Given(seen.pooled, seen.patches, mask, seen.patches if seen.below is None else seen.below)

    def encode_texts(self, tokens: Tokens) -> EncodedTensors:
        """Encode tokenised texts."""
        read, below = self.text.with_layer(tokens, self.config.matcher_text_layer, self.text_codes)
        count = tokens.ids.shape[1]
        words = read[:, :count]
        if self.config.text_pooling == "mean":
            pooled = masked_mean(words, tokens.mask)
        elif self.config.text_pooling == "last":
            pooled = last_real(words, tokens.mask)
        else:
            pooled = words[:, 0]
        mask = mask_with_codes(tokens.mask, self.config.codes)
        states = self._text_states(tokens, below)
        both = _projected(self.text_embedding, self.text_fragments, pooled, read, mask)
        return self._cut(EncodedTensors(*both, mask, states, self._pooled(pooled)), count)

    def _text_states(self, tokens: Tokens, read: Tensor) -> Tensor | None:
        """Return the matcher's text input: states of the text tower, or word vectors."""
        if self.config.matcher == "none":
            return None
        if self.matcher_text is not None:
            return self.matcher_text.read(read, tokens.mask, None, None)
        if self.config.matcher_reads == "states":
            return read
        words = self.text.words(tokens.ids)
        return words if self.text_codes is None else with_codes(words, self.text_codes)

    def _cut(self, encoded: EncodedTensors, count: int) -> EncodedTensors:
        """Keep only the first fragments, if configured; `count` fragments come before the codes."""
        if not self.config.fragments:
            return encoded
        fragments, mask = (part[:, :count][:, : self.config.fragments] for part in (encoded.fragments, encoded.mask))
        return encoded._replace(fragments=fragments, mask=mask)

    def match(self, text_states: Tensor, text_mask: Tensor, image_states: Tensor, image_mask: Tensor) -> Tensor:
        """Return the logits [batch] that text i and image i belong together."""
        if self.aligned is not None:
            compared = self.aligned.compare(text_states, image_states, image_mask)
            logits = self.aligned.logits(self.matcher.read(compared, text_mask, None, None), text_mask)
            return logits + self.aligned.similarity(text_states, text_mask, image_states, image_mask)
        if self.match_score is None:
            raise ModelError("this model has no matcher", 'Build it with matcher = "shared" or "own".')
        text_mask, image_mask = (mask_without_codes(mask, self.config.codes) for mask in (text_mask, image_mask))
        return self.match_score(self.matcher.read(text_states, text_mask, image_states, image_mask))  # type: ignore[no-any-return]

    def _match_all(self, text_states: Tensor, text_mask: Tensor, image_states: Tensor, image_mask: Tensor) -> Tensor:
        """Return the logits [texts, images]; an aligned matcher projects every text and image only once."""
        if self.aligned is None:
            return super()._match_all(text_states, text_mask, image_states, image_mask)
        text, image = (text_states[:, None], text_mask[:, None]), (image_states[None], image_mask[None])
        compared = self.aligned.compare(text[0], *image)
        mask = text[1].expand(compared.shape[:-1]).flatten(0, 1)
        logits = self.aligned.logits(self.matcher.read(compared.flatten(0, 1), mask, None, None), mask)
        return logits.view(compared.shape[:2]) + self.aligned.similarity(*text, *image)

    def word_cosines(self, text_states: Tensor, image_states: Tensor, image_mask: Tensor) -> Tensor | None:
        """Return the mean cosines over heads [batch, words, n] of words with parts of an image; None unless aligned."""
        return None if self.aligned is None else self.aligned.cosines(text_states, image_states, image_mask).mean(1)

    def parts(self) -> dict[str, nn.Module]:
        """Return the encoders, by their folder in a checkpoint."""
        found: dict[str, nn.Module] = {} if self.image is None else {"image": self.image.encoder}
        found["text"] = self.text.encoder
        if self.image_reader is not None:
            found["image_reader"] = self.image_reader.tower.encoder
        if self.own_matcher is not None:
            found["matcher"] = self.own_matcher.encoder
        return found


def _image_tower(
    config: DualStreamConfig, image: TowerConfig, preprocess: Preprocess
) -> tuple[ImageTower, Tensor | None]:
    """Make the image tower; also returns the projection of its checkpoint, if any."""
    vision, weight = towers.build(image, "vision")
    tower = ImageTower(
        vision,
        preprocess.size,
        config.pool_to or None,
        config.matcher_layer,
        pool=config.pool,
        pool_layer=config.pool_layer,
        codes=0 if config.image_reader is not None else config.codes,
        codes_layer=config.codes_layer,
    )
    tower.check_places(config.fragments)
    return tower, weight


def _projected(
    embed: UnitProjection | RelationPooling, project: UnitProjection, pooled: Tensor, values: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor]:
    """Compute embeddings [batch, dim] and fragments [batch, n, dim], from pooled vectors or related fragments."""
    if isinstance(embed, UnitProjection):
        return embed(pooled), project(values)
    local = project.linear(values)
    return embed(local, mask), F.normalize(local, dim=-1)
