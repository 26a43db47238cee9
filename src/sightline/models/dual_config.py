"""The configuration of a two-tower model, in a recipe and in a checkpoint."""

from dataclasses import dataclass, field
from typing import Literal

from sightline.errors import ModelError
from sightline.media import Preprocess, RegionConfig
from sightline.models.image_tower import Pool
from sightline.models.relations import RelationConfig
from sightline.models.retriever import TextInput
from sightline.models.towers import TowerConfig


@dataclass(frozen=True, slots=True)
class DualStreamConfig:
    """The configuration of a two-tower model.

    text: the text encoder.
    text_input: the length and the languages of texts.
    image: the vision encoder, for images resized by `preprocess`; or, instead, regions.
    preprocess: how images are resized and normalised; it must fit the vision encoder.
    regions: detected regions instead of a vision encoder. Their embeddings are computed from their mean, unless there
    is an image_reader (paper 4) or there are relations (paper 2).
    embedding_dim: the number of dimensions of embeddings.
    fragment_dim: the number of dimensions of fragments.
    text_pooling: how embeddings of texts are computed from the encoder's outputs: their "mean", the "first" ([CLS]) or
    the "last".
    matcher: "none"; "shared" (the text tower itself reads [words ; image]: the JOINT model of paper 1, section 3.4);
    "own" (a second text encoder, `matcher_tower`, by default a copy of the text tower); or "aligned" (like "own", but
    it reads comparisons of words with the parts of the image that they attend to: see `AlignedMatcher`).
    matcher_tower: the encoder of an "own" or "aligned" matcher.
    matcher_layers: without a `matcher_tower`, how many of the text tower's last layers the matcher copies; 0 copies
        all.
    matcher_reads: the matcher's text input, "words" (word vectors) or "states" (the output of the text tower).
    matcher_reads_image: the matcher's image input, "patches" (the output of the image tower, or the regions) or
    "states" (the output of the image_reader, which the matcher then trains together with the embeddings).
    matcher_layer: the layer of the image tower, counted from 1, whose patches the matcher reads; 0 is the last. A tower
    fine-tuned on few images overfits to them, and so does a matcher that reads its last layer; a layer below the
    trained ones (`optimizer.frozen_layers`) does not.
    matcher_text_layer: the text tower's layer, counted from 1, whose states an aligned matcher reads; 0 is the last.
    matcher_text_layers, matcher_image_layers: an aligned matcher's own layers over each side, before it compares
    them. Those over texts start as copies of the text tower's, from `matcher_text_layer` on; those over images start
    from random weights. With these layers, the matcher's errors differ from those of the embeddings, so that the two
    combined make fewer errors.
    pool, pool_to: image fragments are pooled to a "grid" with `pool_to` rows, or by "kmeans" to `pool_to` clusters
    (paper 3, section 5); 0 does not pool. Regions form no grid, and can only be pooled by "kmeans".
    pool_layer: the image tower pools to its grid after this many layers, so that later layers read fewer patches. 0
    pools at the end.
    image_pooling: how an image_reader's embedding is computed from its outputs: the "first" ([CLS]), or the "mean" of
    the others.
    codes: the number of learned vectors that each tower reads together with the patches or words, and outputs as
    additional fragments (paper 3, section 4.1); with an image_reader, the codes enter it instead of the image tower,
    and there is no matcher. Embeddings are pooled as without them: from the class token, or over the words alone.
    codes_layer: codes enter the image tower after this many layers; below the trained layers they would cost much
    time and change little.
    fragments: use only this many patches or words, the first ones, as fragments (paper 3, appendix); 0 uses all. The
    first fragment of an image_reader is its [CLS], like that of a text, so with 1, fragments are compared as embeddings
    are (unless those are means). Codes then act only inside the towers. Such a model has no matcher, because a matcher
    would need the other fragments.
    image_reader: a BERT-type encoder that reads regions, or the output of the image tower, after a [CLS] token: its
    [CLS] becomes the embedding (see image_pooling) and its other outputs the fragments (paper 4, whose images are the
    regions of a frozen detector).
    unit_length: whether embeddings have unit length. Paper 4 compares by the dot product of vectors of any length; such
    a model can be evaluated, but not exported.
    relations: compute embeddings from fragments after self-attention among them (paper 2, section 3.2), not from a
    class token or a mean; fragments then have the width of embeddings.
    """

    text: TowerConfig
    image: TowerConfig | None = None
    preprocess: Preprocess | None = None
    regions: RegionConfig | None = None
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
    image_pooling: Literal["first", "mean"] = "first"
    matcher: Literal["none", "shared", "own", "aligned"] = "shared"
    matcher_reads: Literal["words", "states"] = "words"
    matcher_reads_image: Literal["patches", "states"] = "patches"
    matcher_tower: TowerConfig | None = None
    matcher_layers: int = 0
    matcher_layer: int = 0
    matcher_text_layer: int = 0
    matcher_text_layers: int = 0
    matcher_image_layers: int = 0
    image_reader: TowerConfig | None = None
    relations: RelationConfig | None = None
    unit_length: bool = True

    def __post_init__(self) -> None:
        for key in ("embedding_dim", "fragment_dim"):
            if getattr(self, key) < 1:
                raise ModelError(f"model.{key} cannot be {getattr(self, key)}", "Use a number of at least 1.")
        if (self.image is None) == (self.regions is None):
            raise ModelError("a two-tower model needs either an image tower or regions, not both")
        if self.image is not None and self.preprocess is None:
            raise ModelError("an image tower needs to know the size of its images", "Set model.preprocess.")
        if self.regions is not None:
            self._check_regions()
        if self.matcher == "shared" and self.matcher_reads == "states":
            raise ModelError(
                "a shared matcher is the text tower itself and cannot read its own states",
                'Set matcher_reads = "words".',
            )
        if self.matcher not in ("own", "aligned") and (self.matcher_tower is not None or self.matcher_layers):
            raise ModelError(
                f'matcher_tower or matcher_layers is given, but matcher is "{self.matcher}"', 'Set matcher = "own".'
            )
        if self.matcher == "aligned" and (self.matcher_reads != "states" or self.codes):
            raise ModelError(
                "an aligned matcher needs the states of a text tower without codes",
                'Set matcher_reads = "states" and codes = 0.',
            )
        if self.image_pooling == "mean" and self.image_reader is None:
            raise ModelError(
                'image_pooling is "mean", but there is no image_reader whose outputs could be averaged',
                "Set image_reader, or leave out image_pooling.",
            )
        if self.matcher_reads_image == "states":
            self._check_states_of_reader()
        if self.matcher_layer < 0 or (self.matcher_layer and self.matcher == "none"):
            raise ModelError(
                f'matcher_layer cannot be {self.matcher_layer} with matcher = "{self.matcher}"',
                "Use a number of at least 0, and a matcher to read that layer.",
            )
        own = (self.matcher_text_layer, self.matcher_text_layers, self.matcher_image_layers)
        if min(own) < 0 or (any(own) and self.matcher != "aligned"):
            raise ModelError(
                f"matcher_text_layer, matcher_text_layers and matcher_image_layers cannot be {own} "
                f'with matcher = "{self.matcher}"',
                'Use numbers of at least 0, and matcher = "aligned".',
            )
        if min(self.codes, self.fragments) < 0:
            raise ModelError(
                f"codes and fragments cannot be {self.codes} and {self.fragments}", "Use numbers of at least 0."
            )
        if self.codes_layer and not self.codes:
            raise ModelError(
                f"codes_layer is {self.codes_layer}, but there are no codes", "Set codes, or leave out codes_layer."
            )
        if self.codes and self.image_reader is not None:
            self._check_reader_of_codes()
        if self.relations is not None and (self.codes or self.fragment_dim != self.embedding_dim):
            raise ModelError(
                f"relations cannot make embeddings of {self.embedding_dim} dimensions "
                f"from fragments of {self.fragment_dim} with {self.codes} codes",
                "Set fragment_dim = embedding_dim and codes = 0.",
            )
        if self.relations is not None and self.image_pooling == "mean":
            raise ModelError(
                'image_pooling is "mean", but relations compute the embedding from the fragments',
                "Leave out image_pooling, or relations.",
            )
        if self.fragments and self.matcher != "none":
            raise ModelError(
                f'only the first {self.fragments} fragments are kept, but a matcher ("{self.matcher}") reads them all',
                'Set matcher = "none", or fragments = 0.',
            )

    def _check_states_of_reader(self) -> None:
        """Reject a matcher that would read the output of an image_reader that does not exist, or of two encoders."""
        if self.image_reader is None or self.matcher == "none":
            raise ModelError(
                'matcher_reads_image is "states", but there is no matcher or no image_reader',
                'Set image_reader and a matcher, or matcher_reads_image = "patches".',
            )
        if self.matcher_layer:
            raise ModelError(
                f"matcher_layer is {self.matcher_layer}, but the matcher reads the output of the image_reader",
                'Leave out matcher_layer, or set matcher_reads_image = "patches".',
            )

    def _check_reader_of_codes(self) -> None:
        """Reject settings that do not apply to codes read by an image_reader."""
        if self.codes_layer:
            raise ModelError(
                f"codes_layer is {self.codes_layer}, but codes enter the image_reader, not the image tower",
                "Leave out codes_layer.",
            )
        if self.matcher != "none":
            raise ModelError(
                f'a matcher ("{self.matcher}") reads the output of the image tower, not the codes of an image_reader',
                'Set matcher = "none", or codes = 0.',
            )

    def _check_regions(self) -> None:
        """Reject settings that do not apply to regions."""
        for key in ("codes", "pool_layer", "matcher_layer"):
            if value := getattr(self, key):
                raise ModelError(
                    f"{key} is {value}, but a model that reads regions has no image tower",
                    f"Leave out {key}, or leave out regions.",
                )
        if self.image_reader is not None and self.pool == "kmeans":
            raise ModelError(
                "an image_reader reads every region, so regions cannot be pooled",
                'Leave out pool = "kmeans", or image_reader.',
            )
