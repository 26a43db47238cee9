"""The fast tokenizer inside a tokenizer of transformers, which runs without that library."""

import tokenizers
from transformers import PreTrainedTokenizerBase

from sightline.errors import ModelError


def backend_of(found: PreTrainedTokenizerBase, source: str) -> tokenizers.Tokenizer:
    """Take the fast tokenizer out of one that transformers opened from `source`.

    If the files of a tokenizer are missing, transformers returns one without a vocabulary; that is an error here.
    """
    backend: tokenizers.Tokenizer | None = getattr(found, "backend_tokenizer", None)
    if backend is None:
        raise ModelError(f"{source}: its tokenizer has no fast version (tokenizer.json), which Sightline needs")
    if not backend.get_vocab().keys() - set(found.all_special_tokens):
        raise ModelError(f"{source}: has no tokenizer", "Put the model's tokenizer.json beside its weights.")
    return backend
