"""Learning a tokenizer from the captions, for a text encoder without pretrained weights."""

from collections import Counter
from collections.abc import Iterable

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from sightline.bundle.tokenizer import Tokenizer
from sightline.errors import RecipeError

PAD, UNKNOWN, START, END = SPECIAL = "[PAD]", "[UNK]", "[CLS]", "[SEP]"
INSIDE = "##"  # prefix of a piece that does not begin a word
_FIRST = "\x01"  # marks the beginning of a word while learning; captions never contain control characters
_LONGEST_WORD = 1000  # in scripts without spaces, a whole sentence counts as one word


def learn_tokenizer(captions: Iterable[str], vocabulary: int, max_length: int) -> Tokenizer:
    """Learn a lower-case WordPiece vocabulary of at most `vocabulary` pieces, in any script.

    Accents are kept: in Hindi or Thai, what looks like an accent is a vowel. The same captions give the same
    vocabulary, in the same order, in every process.

    >>> tokenizer = learn_tokenizer(["a red dog", "a blue dog"], vocabulary=50, max_length=8)
    >>> tokenizer.tokens("a red dog")
    ['[CLS]', 'a', 'red', 'dog', '[SEP]']
    """
    if vocabulary <= len(SPECIAL):
        raise RecipeError(f"a vocabulary of {vocabulary} is too small for any words", "Raise vocab_size.")
    normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.BertNormalizer(strip_accents=False)])
    splitter = pre_tokenizers.BertPreTokenizer()
    words = Counter(
        word for caption in captions for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(caption))
    )
    ids = {piece: number for number, piece in enumerate([*SPECIAL, *_pieces(words, vocabulary - len(SPECIAL))])}
    backend = tokenizers.Tokenizer(models.WordPiece(ids, unk_token=UNKNOWN, max_input_chars_per_word=_LONGEST_WORD))
    backend.normalizer = normalizer
    backend.pre_tokenizer = splitter
    backend.decoder = decoders.WordPiece(prefix=INSIDE)
    backend.add_special_tokens(list(SPECIAL))
    ends = [(START, ids[START]), (END, ids[END])]
    backend.post_processor = processors.TemplateProcessing(single=f"{START} $A {END}", special_tokens=ends)
    return Tokenizer(backend, max_length, ids[PAD])


def _pieces(words: Counter[str], most: int) -> list[str]:
    """Every letter, at the start of a word and inside it, the most frequent first; then pieces learned from words.

    With all letters included, no word in the captions is unknown; if there are more than `most` letters, rare ones are
    dropped. The WordPiece trainer of tokenizers is not used: it numbers pieces in an order that differs between
    processes.
    """
    letters: Counter[str] = Counter()
    for word, count in words.items():
        letters[word[0]] += count
        for letter in word[1:]:
            letters[INSIDE + letter] += count
    learner = tokenizers.Tokenizer(models.BPE())
    trainer = trainers.BpeTrainer(vocab_size=most, show_progress=False)
    learner.train_from_iterator((_FIRST + word for word in words.elements()), trainer)
    learned = learner.get_vocab()
    learned.pop(_FIRST, None)
    joined = (
        piece.removeprefix(_FIRST) if piece.startswith(_FIRST) else INSIDE + piece
        for piece in sorted(learned, key=learned.__getitem__)
    )
    return list(dict.fromkeys([*sorted(letters, key=lambda form: (-letters[form], form)), *joined]))[:most]
