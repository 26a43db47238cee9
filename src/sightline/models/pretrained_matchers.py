"""Published models that read a text and an image together: BLIP, which also embeds them, and ViLT, which does not."""

import torch
from torch import Tensor
from torch.nn import functional as F

from sightline.models.pretrained_model import Pretrained, encoded, hiding, whole
from sightline.models.retriever import EncodedTensors, Tokens, TowerFeatures


class Blip(Pretrained):
    """BLIP's contrastive and matching heads (`BlipForImageTextRetrieval`).

    The matcher is the text encoder itself, with cross-attention to the image in every layer. States are the text's
    input embeddings, and the outputs of the image encoder, class token first.
    """

    has = frozenset(("embed", "match"))

    def image_features(self, pixels: Tensor) -> TowerFeatures:
        """Run the image encoder."""
        seen = self.model.vision_model(pixel_values=pixels).last_hidden_state
        return TowerFeatures(seen[:, 0], seen)

    def encode_seen(self, seen: TowerFeatures) -> EncodedTensors:
        """Embed the class token; keep all vectors for the matcher."""
        embedding = F.normalize(self.model.vision_proj(seen.pooled), dim=-1)
        return encoded(whole(seen.patches), embedding, seen.patches)

    def encode_texts(self, tokens: Tokens) -> EncodedTensors:
        """Encode tokenised texts alone."""
        words = self.model.text_encoder.embeddings(input_ids=tokens.ids)
        read = self.model.text_encoder(encoder_embeds=words, attention_mask=tokens.mask.long()).last_hidden_state
        return encoded(tokens.mask, F.normalize(self.model.text_proj(read[:, 0]), dim=-1), words)

    def match(self, text_states: Tensor, text_mask: Tensor, image_states: Tensor, image_mask: Tensor) -> Tensor:
        """Return the logits [batch]: the head's "yes" minus its "no", whose sigmoid equals the softmax of both."""
        read = self.model.text_encoder(
            encoder_embeds=text_states,
            attention_mask=text_mask.long(),
            encoder_hidden_states=image_states,
            encoder_attention_mask=image_mask.long(),
        ).last_hidden_state
        no, yes = self.model.itm_head(read[:, 0]).unbind(-1)
        return yes - no  # type: ignore[no-any-return]


class Vilt(Pretrained):
    """ViLT as a matcher (`ViltForImageAndTextRetrieval`): one transformer over words and raw patches.

    States are its inputs: the embeddings of the words, and those of the patches after a class token.
    The model's own processor keeps an image's aspect ratio; here every image is resized to the square used in
    pre-training.
    """

    has = frozenset(("match",))

    def image_features(self, pixels: Tensor) -> TowerFeatures:
        """Embed the patches; `match` encodes them together with a text."""
        parts = self.model.vilt.embeddings
        patches = parts.patch_embeddings(pixels).flatten(2).transpose(1, 2)
        row = torch.cat([parts.cls_token.expand(pixels.shape[0], -1, -1), patches], 1) + parts.position_embeddings
        states = row + parts.token_type_embeddings.weight[1]
        return TowerFeatures(states[:, 0], states)

    def encode_seen(self, seen: TowerFeatures) -> EncodedTensors:
        """Keep the patches for the matcher."""
        return encoded(whole(seen.patches), None, seen.patches)

    def encode_texts(self, tokens: Tokens) -> EncodedTensors:
        """Embed the words."""
        parts = self.model.vilt.embeddings
        words = parts.text_embeddings(input_ids=tokens.ids) + parts.token_type_embeddings.weight[0]
        return encoded(tokens.mask, None, words)

    def match(self, text_states: Tensor, text_mask: Tensor, image_states: Tensor, image_mask: Tensor) -> Tensor:
        """Return the logits [batch] that text i and image i belong together."""
        both = torch.cat([text_states, image_states], 1)
        read = self.model.vilt.encoder(both, attention_mask=hiding(torch.cat([text_mask, image_mask], 1), both))
        pooled = self.model.vilt.pooler(self.model.vilt.layernorm(read.last_hidden_state))
        return self.model.rank_output(pooled).squeeze(-1)  # type: ignore[no-any-return]
