"""Convert texts to token ids; training, search and evaluation all use this implementation."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import tokenizers

from sightline.errors import BundleError, ModelError
from sightline.languages.scripts import is_unspaced

_SPACE_MARKS = "▁Ġ"  # tokenizers write them in place of a space


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """ids [batch, n] and mask [batch, n] (true for real tokens); truncated [batch], true for texts that were cut."""

    ids: npt.NDArray[np.int64]
    mask: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Word:
    """A word in a text: its position, and the rows of the text's encoding that belong to its tokens."""

    start: int
    end: int
    rows: tuple[int, ...]


class Tokenizer:
    """A `tokenizer.json` with a length limit. Pads a batch to its longest text."""

    def __init__(self, backend: tokenizers.Tokenizer, max_length: int, pad_id: int = 0) -> None:
        added = backend.num_special_tokens_to_add(False)
        if max_length <= added:  # with less than it adds, the library would not truncate at all
            raise BundleError(
                f"texts of {max_length} tokens leave no room for words: the tokenizer adds {added} of its own",
                f"Set max_length to at least {added + 1}.",
            )
        backend.enable_truncation(max_length)
        backend.no_padding()
        self._backend = backend
        self.max_length = max_length
        self.pad_id = pad_id

    @classmethod
    def open(cls, path: Path, max_length: int, pad_id: int = 0) -> "Tokenizer":
        """Open a tokenizer file."""
        try:
            backend = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises plain Exception
            raise BundleError(f"{path} is not a tokenizer file: {error}") from error
        return cls(backend, max_length, pad_id)

    def __call__(self, texts: Sequence[str]) -> TokenBatch:
        """Tokenise a non-empty batch of texts."""
        encodings = self._encoded(texts)
        longest = max(len(encoding.ids) for encoding in encodings)
        ids = np.full((len(encodings), longest), self.pad_id, dtype=np.int64)
        mask = np.zeros((len(encodings), longest), dtype=np.bool_)
        for row, encoding in enumerate(encodings):
            ids[row, : len(encoding.ids)] = encoding.ids
            mask[row, : len(encoding.ids)] = True
        truncated = np.array([bool(encoding.overflowing) for encoding in encodings])
        return TokenBatch(ids, mask, truncated)

    def word_numbers(self, texts: Sequence[str]) -> npt.NDArray[np.int64]:
        """Return which word of its text each token belongs to, by index [batch, n]; -1 for tokens outside words."""
        numbers = [[-1 if word is None else word for word in one.word_ids] for one in self._encoded(texts)]
        longest = max(map(len, numbers))
        return np.array([row + [-1] * (longest - len(row)) for row in numbers], dtype=np.int64)

    @property
    def vocabulary_size(self) -> int:
        """The number of tokens in the vocabulary."""
        return int(self._backend.get_vocab_size())

    def id_of(self, token: str) -> int | None:
        """Return the id of a token; None if there is no such token."""
        found: int | None = self._backend.token_to_id(token)
        return found

    def _encoded(self, texts: Sequence[str]) -> list[tokenizers.Encoding]:
        if isinstance(texts, str):
            raise ModelError(f"{texts!r} is one text, not a list of texts", f"Pass [{texts!r}].")
        listed = list(texts)
        for text in listed:
            if not isinstance(text, str):
                raise ModelError(f"{text!r} is not a text", "Pass a list of strings.")
        return list(self._backend.encode_batch(listed))

    def tokens(self, text: str) -> list[str]:
        """Return the tokens of one text as strings, aligned with the rows of its encoding."""
        return list(self._backend.encode(text).tokens)

    def words(self, text: str) -> list[Word]:
        """Return the words of one text up to the length limit, as split by the tokenizer; punctuation is not a word.

        Chinese and Japanese have no spaces between words: there, every token counts as a word.
        """
        encoding = self._backend.encode(text)
        rows: dict[tuple[int, int], list[int]] = {}
        for row, (word, token, (start, end)) in enumerate(
            zip(encoding.word_ids, encoding.tokens, encoding.offsets, strict=True)
        ):
            if word is not None and any(map(str.isalnum, token)):  # others are punctuation, or mark a space
                rows.setdefault((word, row if is_unspaced(text[start:end]) else -1), []).append(row)
        spans = [(*_span(text, [encoding.offsets[row] for row in own]), tuple(own)) for own in rows.values()]
        return [Word(*span) for span in spans if any(character.isalnum() for character in text[span[0] : span[1]])]

    def is_word(self, word: str) -> bool:
        """Return whether a word is a single token, as common words are."""
        return sum(len(part.rows) for part in self.words(word)) == 1

    def knows_any(self, text: str) -> bool:
        """Return whether any part of a text is in the vocabulary, so that the text is not just unknown tokens."""
        encoding = self._backend.encode(text)
        unknown = getattr(self._backend.model, "unk_token", None)
        return any(
            not is_special and token != unknown and token.strip(_SPACE_MARKS) and self.id_of(token) is not None
            for token, is_special in zip(encoding.tokens, encoding.special_tokens_mask, strict=True)
        )

    def save(self, path: Path) -> None:
        """Write `tokenizer.json` without the length limit, because that is part of the spec."""
        self._backend.no_truncation()
        try:
            self._backend.save(str(path))
        finally:
            self._backend.enable_truncation(self.max_length)


def _span(text: str, offsets: list[tuple[int, int]]) -> tuple[int, int]:
    """Return the start and end of a word's tokens, without the space that some tokenizers include."""
    start, end = min(offset[0] for offset in offsets), max(offset[1] for offset in offsets)
    inner = text[start:end]
    return end - len(inner.lstrip()), start + len(inner.rstrip())
