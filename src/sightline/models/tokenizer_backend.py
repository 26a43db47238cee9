"""The tokenizer inside one of the transformers library: the part that runs without it."""

import tokenizers
from transformers import PreTrainedTokenizerBase

from sightline.errors import ModelError


def backend_of(found: PreTrainedTokenizerBase, source: str) -> tokenizers.Tokenizer:
    """Take the fast tokenizer out of one that transformers opened from `source`.

    Where the files of a tokenizer are missing, transformers makes up one that knows no words, to which all texts are
    alike: that is refused.
    """
    backend: tokenizers.Tokenizer | None = getattr(found, "backend_tokenizer", None)
    if backend is None:
        raise ModelError(f"{source}: its tokenizer has no fast version (tokenizer.json), which Sightline needs")
    if not backend.get_vocab().keys() - set(found.all_special_tokens):
        raise ModelError(f"{source}: has no tokenizer", "Put the model's tokenizer.json beside its weights.")
    return backend
