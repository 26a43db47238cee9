"""A text tower: a transformer over words, and optionally over words and image fragments together."""

import inspect

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel

from sightline.errors import ModelError
from sightline.models.fragments import mask_with_codes, with_codes
from sightline.models.retriever import Tokens

# Encoders whose position table starts after the padding index.
_SHIFTED_POSITIONS = frozenset({"roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "mpnet", "data2vec-text"})


def first_position(config: PretrainedConfig) -> int:
    """Return the position of a text's first token: positions before it belong to padding."""
    return int(config.pad_token_id) + 1 if config.model_type in _SHIFTED_POSITIONS else 0


class TextTower(nn.Module):
    """Wraps any text encoder of transformers, or `BiGru`.

    Encoders that accept word vectors instead of ids (BERT, RoBERTa, XLM-R, MiniLM, …) can also read image fragments,
    as vectors of the same width: such a tower can be a matcher, or the one transformer of a single-stream model.
    """

    def __init__(self, encoder: PreTrainedModel, max_length: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.max_length = max_length
        config = encoder.config
        self.first_position = first_position(config)
        # All image fragments and codes share one position, the first that no word can have: they are a set, and their
        # vectors encode their position in the image. So the length of a text never changes their position.
        self.image_position = self.first_position + max_length
        positions = getattr(config, "max_position_embeddings", None)  # a recurrent encoder has none
        if positions is not None and self.image_position >= positions:
            raise ModelError(
                f"texts of {max_length} tokens need more than the {positions} positions of this text encoder",
                f"Set max_length to at most {positions - self.first_position - 1}.",
            )
        self.type_count = int(getattr(config, "type_vocab_size", 0) or 0)

    @property
    def hidden(self) -> int:
        """Width of the encoder's output."""
        return int(self.encoder.config.hidden_size)

    @property
    def heads(self) -> int:
        """The number of attention heads of its layers; 1 for a recurrent encoder."""
        return int(getattr(self.encoder.config, "num_attention_heads", 1))

    def word_spread(self) -> float:
        """Root mean square of the word vectors: the scale of the transformer's inputs."""
        return float(self.encoder.get_input_embeddings().weight.detach().square().mean().sqrt())

    def forward(self, tokens: Tokens, codes: Tensor | None = None) -> Tensor:
        """Return the contextual vectors [batch, n, hidden] of the words, followed by those of codes [count, hidden]."""
        if codes is not None:
            return self.read(self.words(tokens.ids), tokens.mask, None, None, codes)
        out = self.encoder(input_ids=tokens.ids, attention_mask=tokens.mask.long())
        return out.last_hidden_state  # type: ignore[no-any-return]

    def with_layer(self, tokens: Tokens, layer: int, codes: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the result of `forward`, and the vectors after this layer, counted from 1; 0 is the last."""
        if not layer:
            last = self(tokens, codes)
            return last, last
        out = self.encoder(input_ids=tokens.ids, attention_mask=tokens.mask.long(), output_hidden_states=True)
        return out.last_hidden_state, out.hidden_states[layer]

    def check_reads_images(self) -> None:
        """Reject an encoder that reads only ids, and so cannot read image fragments."""
        if not {"inputs_embeds", "position_ids"} <= inspect.signature(self.encoder.forward).parameters.keys():
            raise ModelError(
                f"{type(self.encoder).__name__} cannot read image fragments or codes: it does not take word vectors",
                'Use a BERT-type encoder, or matcher = "none" and codes = 0.',
            )

    def words(self, ids: Tensor) -> Tensor:
        """Return the word vectors [batch, n, hidden], the input of the transformer."""
        return self.encoder.get_input_embeddings()(ids)  # type: ignore[no-any-return]

    def read(
        self,
        text: Tensor | None,
        text_mask: Tensor | None,
        image: Tensor | None,
        image_mask: Tensor | None,
        codes: Tensor | None = None,
    ) -> Tensor:
        """Run the transformer over word vectors, image fragments, or [words ; fragments].

        text, image: [batch, n, hidden]; masks: [batch, n], bool; codes: [count, hidden], read after the words. Returns
        [batch, all n, hidden].
        """
        vectors, masks, positions, types = [], [], [], []
        if text is not None and text_mask is not None:
            count = 0 if codes is None else len(codes)
            span = torch.arange(self.first_position, self.first_position + text.shape[1], device=text.device)
            span = span.clamp(max=self.image_position)  # inputs that a matcher ignores may follow the last word
            span = torch.cat([span, span.new_full((count,), self.image_position)])
            vectors.append(text if codes is None else with_codes(text, codes))
            masks.append(mask_with_codes(text_mask, count))
            positions.append(span.expand(text.shape[0], -1))
            types.append(torch.zeros_like(masks[-1], dtype=torch.long))
        if image is not None and image_mask is not None:
            vectors.append(image)
            masks.append(image_mask)
            positions.append(torch.full_like(image_mask, self.image_position, dtype=torch.long))
            types.append(torch.ones_like(image_mask, dtype=torch.long))
        extra = {"token_type_ids": torch.cat(types, 1)} if self.type_count > 1 else {}
        out = self.encoder(
            inputs_embeds=torch.cat(vectors, 1),
            attention_mask=torch.cat(masks, 1).long(),
            position_ids=torch.cat(positions, 1),
            **extra,
        )
        return out.last_hidden_state  # type: ignore[no-any-return]
