"""Two towers, one for pictures and one for texts, with a matcher across them."""

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sightline.bundle.encoded import Ability
from sightline.errors import ModelError
from sightline.media import Preprocess
from sightline.models import towers
from sightline.models.fragments import mask_with_codes, mask_without_codes, new_codes, with_codes
from sightline.models.heads import ImageStates, MatchScore, UnitProjection, last_real, masked_mean
from sightline.models.image_reader import ImageReader
from sightline.models.image_tower import ImageTower, Pool
from sightline.models.relations import RelationConfig, RelationPooling, dropped
from sightline.models.retriever import Encoded, Regions, Retriever, Seen, TextInput, Tokens
from sightline.models.text_tower import TextTower
from sightline.models.towers import TowerConfig


@dataclass(frozen=True, slots=True)
class DualStreamConfig:
    """What a two-tower model is made of.

    matcher: "none"; "shared" (the text tower itself reads [words ; image]: the JOINT model of paper 1, section 3.4);
    or "own" (a second text encoder, `matcher_tower`, by default a copy of the text tower).
    matcher_reads: the matcher's text input, "words" (word vectors, so that it reads from scratch) or "states" (what the
    text tower made of them, so that it continues).
    matcher_layer: the layer of the image tower, counted from 1, whose patches the matcher reads; 0 is the last. A tower
    that was fine-tuned on few pictures knows them by heart, and what a matcher learns from its last layer does not hold
    for others; a layer below those that were trained (`optimizer.frozen_layers`) treats all pictures alike.
    pool, pool_to: image fragments are pooled to a "grid" of so many rows, or by "kmeans" to so many clusters (paper 3,
    section 5); 0 keeps the tower's own.
    pool_layer: the image tower pools to its grid after this many layers, and those above read fewer patches. 0
    pools at the end.
    codes: learned vectors that enter each tower beside the patches or words, and come out as more fragments (paper 3,
    section 4.1). Embeddings are pooled as without them: from the class token, or over the words alone.
    codes_layer: they enter the image tower after this many layers; below those that are trained they would cost much
    time and change little.
    fragments: an item's fragments are only its first so many patches or words (paper 3, appendix); 0 is all. Codes then
    work inside the towers only. Such a model has no matcher, which would need the others.
    image_reader: a BERT-type encoder that reads what the image tower saw, [CLS] first: its [CLS] becomes the embedding
    and its other outputs the fragments (paper 4, whose images are the regions of a frozen detector). The matcher reads
    what the image tower saw, as ever.
    relations: an embedding is made of its fragments, after they have looked at each other (paper 2, section 3.2), and
    not of a class token or a mean; fragments are then as wide as embeddings.
    """

    image: TowerConfig
    text: TowerConfig
    preprocess: Preprocess
    text_input: TextInput = field(default_factory=TextInput)
    embedding_dim: int = 512
    fragment_dim: int = 128
    pool: Pool = "grid"
    pool_to: int = 7
    pool_layer: int = 0
    codes: int = 0
    codes_layer: int = 0
    fragments: int = 0
    text_pooling: Literal["mean", "first", "last"] = "mean"
    matcher: Literal["none", "shared", "own"] = "shared"
    matcher_reads: Literal["words", "states"] = "words"
    matcher_tower: TowerConfig | None = None
    matcher_layer: int = 0
    image_reader: TowerConfig | None = None
    relations: RelationConfig | None = None

    def __post_init__(self) -> None:
        if self.matcher == "shared" and self.matcher_reads == "states":
            raise ModelError(
                'a shared matcher reads words: matcher_reads = "states" would run the text tower on itself'
            )
        if self.matcher != "own" and self.matcher_tower is not None:
            raise ModelError(f'matcher_tower is given, but matcher is "{self.matcher}"', 'Set matcher = "own".')
        if self.matcher_layer < 0 or (self.matcher_layer and self.matcher == "none"):
            raise ModelError(f'matcher_layer is {self.matcher_layer} with matcher "{self.matcher}"')
        if min(self.codes, self.fragments) < 0:
            raise ModelError(f"codes is {self.codes} and fragments is {self.fragments}", "Give numbers from 0 up.")
        if self.codes_layer and not self.codes:
            raise ModelError(f"codes_layer is {self.codes_layer}, but there are no codes", "Set codes.")
        if self.codes and self.image_reader is not None:
            raise ModelError("an image_reader reads patches, and no codes", "Set codes = 0, or leave out image_reader.")
        if self.relations is not None and (self.codes or self.fragment_dim != self.embedding_dim):
            raise ModelError(
                f"relations make embeddings of {self.embedding_dim} numbers out of fragments of {self.fragment_dim}, "
                f"with {self.codes} codes",
                "Set fragment_dim = embedding_dim and codes = 0.",
            )
        if self.fragments and self.matcher != "none":
            raise ModelError(
                f'only the first {self.fragments} fragments are kept, and a matcher ("{self.matcher}") reads them all',
                'Set matcher = "none", or fragments = 0.',
            )


class DualStream(Retriever):
    """An image tower and a text tower that meet in one embedding space, and a matcher over both."""

    def __init__(self, config: DualStreamConfig) -> None:
        super().__init__()
        self.config = config
        self.preprocess = config.preprocess
        self.text_input = config.text_input
        vision, image_weight = towers.build(config.image, "vision")
        text, text_weight = towers.build(config.text, "text")
        self.image = ImageTower(
            vision,
            config.preprocess.size,
            config.pool_to or None,
            config.matcher_layer,
            pool=config.pool,
            pool_layer=config.pool_layer,
            codes=config.codes,
            codes_layer=config.codes_layer,
        )
        self.image.check_places(config.fragments)
        self.text = TextTower(text, config.text_input.max_length)
        if config.codes:
            self.text.check_reads_images()
        self.text_codes = new_codes(config.codes, self.text.hidden, self.text.word_spread())
        self.image_reader: ImageReader | None = None
        seen_width = self.image.hidden
        if config.image_reader is not None:
            encoder, image_weight = towers.build(config.image_reader, "text")[0], None
            self.image_reader = ImageReader(encoder, self.image.hidden, self.image.places)
            seen_width = self.image_reader.tower.hidden
        dim, relations = config.embedding_dim, config.relations
        self.image_embedding: UnitProjection | RelationPooling
        self.text_embedding: UnitProjection | RelationPooling
        if relations is None:
            self.image_embedding = UnitProjection(seen_width, dim, image_weight)
            self.text_embedding = UnitProjection(self.text.hidden, dim, text_weight)
        self.image_fragments = UnitProjection(seen_width, config.fragment_dim)
        self.text_fragments = UnitProjection(self.text.hidden, config.fragment_dim)
        if relations is not None:
            self.image_embedding = RelationPooling(dim, relations.image, relations)
            self.text_embedding = RelationPooling(dim, relations.text, relations)
        self.own_matcher: TextTower | None = None
        if config.matcher == "own":
            encoder, _ = towers.build(config.matcher_tower or config.text, "text")
            self.own_matcher = TextTower(encoder, config.text_input.max_length)
            if self.own_matcher.hidden != self.text.hidden:
                raise ModelError(
                    f"the matcher is {self.own_matcher.hidden} wide and the text tower {self.text.hidden}: "
                    f"it could not read the text's states"
                )
        self.image_states: ImageStates | None = None
        self.match_score: MatchScore | None = None
        if config.matcher != "none":
            self.matcher.check_reads_images()
            self.image_states = ImageStates(self.image.hidden, self.text.hidden, self.text.word_spread())
            self.match_score = MatchScore(self.text.hidden)

    @property
    def abilities(self) -> frozenset[Ability]:
        """All three, unless there is no matcher."""
        return frozenset(("embed", "fragments") if self.config.matcher == "none" else ("embed", "fragments", "match"))

    @property
    def embedding_dim(self) -> int:
        """As configured."""
        return self.config.embedding_dim

    @property
    def grid(self) -> tuple[int, int] | None:
        """Rows and columns of an image's first fragments; None where they are no grid."""
        return self.image.grid if self.config.fragments in (0, self.image.places) else None

    @property
    def matcher(self) -> TextTower:
        """The transformer that reads pairs: the text tower itself, or the matcher's own."""
        return self.own_matcher or self.text

    def look(self, pixels: Tensor) -> Seen:
        """Run the image tower alone."""
        return self.image(pixels)  # type: ignore[no-any-return]

    def encode_images(self, images: Tensor | Seen | Regions) -> Encoded:
        """Encode pixels [batch, 3, size, size], or what the tower saw in them."""
        if isinstance(images, Regions):
            raise ModelError("this model reads pixels, not regions")
        seen = images if isinstance(images, Seen) else self.look(images)
        mask = torch.ones(seen.patches.shape[:2], dtype=torch.bool, device=seen.patches.device)
        if self.training and self.config.relations is not None:
            mask = dropped(mask, self.config.relations.drop)
        read = seen.patches if seen.below is None else seen.below
        states = self.image_states(read) if self.image_states is not None else None
        pooled, patches = seen.pooled, seen.patches
        if self.image_reader is not None:
            whole = self.image_reader(patches)
            pooled, patches = whole[:, 0], whole[:, 1:]
        both = _projected(self.image_embedding, self.image_fragments, pooled, patches, mask)
        return self._cut(Encoded(*both, mask, states), self.image.places)

    def encode_texts(self, tokens: Tokens) -> Encoded:
        """Encode tokenised texts."""
        read = self.text(tokens, self.text_codes)
        count = tokens.ids.shape[1]
        words = read[:, :count]
        if self.config.text_pooling == "mean":
            pooled = masked_mean(words, tokens.mask)
        elif self.config.text_pooling == "last":
            pooled = last_real(words, tokens.mask)
        else:
            pooled = words[:, 0]
        mask = mask_with_codes(tokens.mask, self.config.codes)
        states = self._text_states(tokens, read)
        both = _projected(self.text_embedding, self.text_fragments, pooled, read, mask)
        return self._cut(Encoded(*both, mask, states), count)

    def _text_states(self, tokens: Tokens, read: Tensor) -> Tensor | None:
        """What the matcher reads of texts: what the tower made of the words, or the words themselves."""
        if self.config.matcher == "none":
            return None
        if self.config.matcher_reads == "states":
            return read
        words = self.text.words(tokens.ids)
        return words if self.text_codes is None else with_codes(words, self.text_codes)

    def _cut(self, encoded: Encoded, count: int) -> Encoded:
        """Keep the first fragments alone, if so configured; `count` are there before the codes."""
        if not self.config.fragments:
            return encoded
        fragments, mask = (part[:, :count][:, : self.config.fragments] for part in (encoded.fragments, encoded.mask))
        return encoded._replace(fragments=fragments, mask=mask)

    def match(self, text_states: Tensor, text_mask: Tensor, image_states: Tensor, image_mask: Tensor) -> Tensor:
        """Logits [batch] that text i and image i belong together."""
        if self.match_score is None:
            raise ModelError("this model has no matcher", 'Build it with matcher = "shared" or "own".')
        text_mask, image_mask = (mask_without_codes(mask, self.config.codes) for mask in (text_mask, image_mask))
        return self.match_score(self.matcher.read(text_states, text_mask, image_states, image_mask))  # type: ignore[no-any-return]

    def parts(self) -> dict[str, nn.Module]:
        """The encoders inside, by their folder in a checkpoint."""
        found: dict[str, nn.Module] = {"image": self.image.encoder, "text": self.text.encoder}
        if self.image_reader is not None:
            found["image_reader"] = self.image_reader.tower.encoder
        if self.own_matcher is not None:
            found["matcher"] = self.own_matcher.encoder
        return found


def _projected(
    embed: UnitProjection | RelationPooling, project: UnitProjection, pooled: Tensor, values: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor]:
    """Embedding [batch, dim] and fragments [batch, n, dim]: of the pooled vector, or of the related fragments."""
    if isinstance(embed, UnitProjection):
        return embed(pooled), project(values)
    local = project.linear(values)
    return embed(local, mask), F.normalize(local, dim=-1)
