"""A recurrent text encoder with its own word vectors, for models without a pretrained language model (paper 2).

It is registered with transformers, so a tower's config can name it (`model_type = "bigru"`) and checkpoints store it
like any other encoder.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from transformers import PretrainedConfig, PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutput


class BiGruConfig(PretrainedConfig):  # type: ignore[misc]
    """Sizes of the encoder: vocabulary, word vectors, and the output of each direction."""

    model_type = "bigru"

    def __init__(self, vocab_size: int = 10000, word_dim: int = 300, hidden_size: int = 1024, **others: Any) -> None:
        super().__init__(**others)
        self.vocab_size = vocab_size
        self.word_dim = word_dim
        self.hidden_size = hidden_size


class BiGru(PreTrainedModel):  # type: ignore[misc]
    """Bidirectional GRU; the vector of a word is the mean of both directions at that word.

    The backward pass starts at the last real word, so padding on the right has no effect.
    """

    config_class = BiGruConfig
    base_model_prefix = "bigru"

    def __init__(self, config: BiGruConfig) -> None:
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.word_dim)
        self.gru = nn.GRU(config.word_dim, config.hidden_size, batch_first=True, bidirectional=True)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """Keep torch's initialisation of the GRU; start with small word vectors, as VSE++ does."""
        if isinstance(module, nn.Embedding):
            init.uniform_(module.weight, -0.1, 0.1)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> BaseModelOutput:
        """Encode ids [batch, n], where the real tokens, given by the mask [batch, n], come first."""
        words = self.embed_tokens(input_ids)
        counts = attention_mask.long().sum(1)
        if torch.onnx.is_in_onnx_export():
            forwards, backwards = self._as_onnx(words, counts)
        else:
            packed = pack_padded_sequence(words, counts.cpu(), batch_first=True, enforce_sorted=False)
            read, _ = pad_packed_sequence(self.gru(packed)[0], batch_first=True, total_length=words.shape[1])
            forwards, backwards = read.chunk(2, 2)
        return BaseModelOutput(last_hidden_state=(forwards + backwards) / 2)

    def _as_onnx(self, words: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        """Export as ONNX's GRU operator; torch would unroll the steps for one fixed length.

        ONNX has the update gate before the reset gate, torch after it.
        """

        def both(name: str) -> Tensor:
            directions = (getattr(self.gru, f"{name}_l0{ending}") for ending in ("", "_reverse"))
            return torch.stack([torch.cat([part.chunk(3)[i] for i in (1, 0, 2)]) for part in directions])

        biases = torch.cat([both("bias_ih"), both("bias_hh")], 1)
        batch, n, _ = words.shape
        read = torch.onnx.ops.symbolic(
            "GRU",
            (words.transpose(0, 1), both("weight_ih"), both("weight_hh"), biases, counts.int()),
            {"hidden_size": self.gru.hidden_size, "direction": "bidirectional", "linear_before_reset": 1},
            dtype=words.dtype,
            shape=(n, 2, batch, self.gru.hidden_size),
        )
        forwards, backwards = read.transpose(0, 2).unbind(1)
        return forwards, backwards
