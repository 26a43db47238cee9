"""Two towers with a shared space: CLIP, SigLIP, SigLIP 2, and pairs such as ViT or DINOv2 with BERT."""

from collections.abc import Mapping
from math import isqrt

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel

from sightline.bundle.model import Ability, Calibration
from sightline.media import Preprocess
from sightline.models.pretrained_model import Pretrained, encoded
from sightline.models.retriever import EncodedTensors, TextInput, Tokens, TowerFeatures


class TwoTowers(Pretrained):
    """CLIP, and pairs of a vision and a BERT-type encoder that were trained together (VisionTextDualEncoder).

    CLIP's learned temperature is not used: it belongs to a softmax over a batch, which compares items with each other
    and does not give the probability that any of them is right.

    pad_id: the padding token.
    """

    has = frozenset(("embed",))
    image = None
    """None, as there is no tower whose features could be computed once and reused: projections are trained as well."""

    def __init__(
        self, model: PreTrainedModel, preprocess: Preprocess, text_input: TextInput, dim: int, pad_id: int
    ) -> None:
        super().__init__(model, preprocess, text_input, dim)
        self.pad_id = pad_id
        self.pixels = preprocess

    @property
    def initially_trained(self) -> frozenset[Ability]:
        """The abilities of the published weights."""
        return self.has

    @property
    def initial_temperature(self) -> float | None:
        """The temperature that the published weights were trained with; None if unknown."""
        scale = getattr(self.model, "logit_scale", None)
        return None if scale is None else float(scale.detach().neg().exp())

    def parts(self) -> dict[str, nn.Module]:
        """Return both encoders."""
        return {"image": self.model.vision_model, "text": self.model.text_model}

    def image_features(self, pixels: Tensor) -> TowerFeatures:
        """Run the image tower, keeping only the projected vector of each image."""
        pooled = self.model.get_image_features(pixel_values=pixels).pooler_output
        return TowerFeatures(pooled, pooled.new_zeros(pooled.shape[0], 0, 0))

    def encode_seen(self, seen: TowerFeatures) -> EncodedTensors:
        """Normalise the output of the tower to unit length."""
        nothing = seen.pooled.new_zeros(seen.pooled.shape[0], 0, dtype=torch.bool)
        return encoded(nothing, F.normalize(seen.pooled, dim=-1))

    def encode_texts(self, tokens: Tokens) -> EncodedTensors:
        """Encode tokenised texts. CLIP finds the end of a text by its token ids, so padding ids are replaced."""
        return encoded(tokens.mask, F.normalize(self.read(tokens), dim=-1))

    def read(self, tokens: Tokens) -> Tensor:
        """Return the text tower's projected vectors [batch, dim]."""
        ids = torch.where(tokens.mask, tokens.ids, self.pad_id)
        return self.model.get_text_features(input_ids=ids, attention_mask=tokens.mask.long()).pooler_output  # type: ignore[no-any-return]


class SiglipTowers(TwoTowers):
    """SigLIP, and SigLIP 2 at a fixed resolution: in training, texts were padded to `max_length` without a mask.

    So every text is padded to the full length here too, without a mask.
    """

    @property
    def calibration(self) -> Mapping[str, Calibration]:
        """The learned scale and bias, which give a probability because the loss is a sigmoid of the scaled cosine.

        Empty after further training, which may use another loss.
        """
        if self.trained is not None:
            return {}
        scale, bias = self.model.logit_scale, self.model.logit_bias
        return {"embed": Calibration(float(scale.detach().exp()), float(bias.detach()))}

    def read(self, tokens: Tokens) -> Tensor:
        """Return the text tower's vectors [batch, dim], for texts including their padding."""
        ids = torch.where(tokens.mask, tokens.ids, self.pad_id)
        padding = ids.new_full((ids.shape[0], self.text_input.max_length), self.pad_id)
        padded = torch.cat([ids, padding], 1)[:, : self.text_input.max_length]
        return self.model.get_text_features(input_ids=padded).pooler_output  # type: ignore[no-any-return]


class NaFlexTowers(SiglipTowers):
    """SigLIP 2 at any resolution (NaFlex), which reads an image as a sequence of patches that depends on its shape.

    Here every image is a square with as many patches as the model's own processor produces for a square image.
    """

    def __init__(
        self, model: PreTrainedModel, preprocess: Preprocess, text_input: TextInput, dim: int, pad_id: int
    ) -> None:
        super().__init__(model, preprocess, text_input, dim, pad_id)
        embeddings = model.vision_model.embeddings
        self.patch = int(embeddings.patch_size)
        self.rows = preprocess.size // self.patch
        known = embeddings.position_embedding.weight.detach()
        side = isqrt(len(known))
        positions = embeddings.resize_positional_embeddings(
            known.reshape(side, side, -1), torch.tensor([[self.rows, self.rows]]), self.rows**2
        )
        self.register_buffer("positions", positions, persistent=False)

    def image_features(self, pixels: Tensor) -> TowerFeatures:
        """Cut images into patches, row by row, colour channels last, and run the image tower over them."""
        vision, side = self.model.vision_model, (self.rows, self.patch)
        squares = pixels.reshape(pixels.shape[0], 3, *side, *side).permute(0, 2, 4, 3, 5, 1)
        patches = vision.embeddings.patch_embedding(squares.reshape(pixels.shape[0], self.rows**2, -1))
        seen = vision.encoder(inputs_embeds=patches + self.positions).last_hidden_state
        pooled = vision.head(vision.post_layernorm(seen))
        return TowerFeatures(pooled, pooled.new_zeros(pooled.shape[0], 0, 0))
