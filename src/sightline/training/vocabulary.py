"""A tokenizer learned from the captions themselves: for a text encoder that starts from nothing."""

from collections.abc import Iterable

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from sightline.bundle.tokenizing import Tokenizer

PAD, UNKNOWN, START, END = "[PAD]", "[UNK]", "[CLS]", "[SEP]"


def learn_tokenizer(captions: Iterable[str], vocabulary: int, max_length: int) -> Tokenizer:
    """Learn a WordPiece vocabulary of at most `vocabulary` pieces, in any script, case and accents folded.

    >>> tokenizer = learn_tokenizer(["a red dog", "a blue dog"], vocabulary=50, max_length=8)
    >>> tokenizer.tokens("a red dog")
    ['[CLS]', 'a', 'red', 'dog', '[SEP]']
    """
    backend = tokenizers.Tokenizer(models.WordPiece(unk_token=UNKNOWN))  # type: ignore[call-arg]
    backend.normalizer = normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocabulary, special_tokens=[PAD, UNKNOWN, START, END], show_progress=False
    )
    backend.train_from_iterator(captions, trainer)
    ends = [(token, backend.token_to_id(token)) for token in (START, END)]
    backend.post_processor = processors.TemplateProcessing(single=f"{START} $A {END}", special_tokens=ends)
    return Tokenizer(backend, max_length, backend.token_to_id(PAD))
