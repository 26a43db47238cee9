"""Words of captions are masked, replaced and dropped as in the code of HREM, anew in every step."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tiny
from losses import literal_hrem as literal
from sightline.datasets import read_all
from sightline.models.retriever import Tokens
from sightline.training.corpus import Corpus
from sightline.training.data_tables import DataRecipe
from sightline.training.recipe import RecipeError
from sightline.training.word_noise import WordNoise, noisy
from training import shapes

WORD = st.lists(st.integers(10, 30), min_size=1, max_size=3)


@settings(max_examples=60, deadline=None)
@given(texts=st.lists(st.lists(st.tuples(WORD, st.floats(0, 0.999)), max_size=5), min_size=1, max_size=3))
def test_words_change_as_in_the_authors_code(texts: list[list[tuple[list[int], float]]]) -> None:
    length = 2 + max(sum(len(pieces) for pieces, _ in text) for text in texts)
    ids, mask = torch.zeros(len(texts), length, dtype=torch.long), torch.zeros(len(texts), length, dtype=torch.bool)
    words, draws = torch.full((len(texts), length), -1), torch.ones(len(texts), length)
    for row, text in enumerate(texts):
        flat = [(piece, number) for number, (pieces, _) in enumerate(text) for piece in pieces]
        ids[row, : len(flat) + 2] = torch.tensor([2, *(piece for piece, _ in flat), 3])
        mask[row, : len(flat) + 2] = True
        words[row, 1 : len(flat) + 1] = torch.tensor([number for _, number in flat], dtype=torch.long)
        draws[row, : len(text)] = torch.tensor([draw for _, draw in text])
    found = noisy(Tokens(ids, mask), words, draws, torch.full_like(ids, 7), 0.2, mask_id=9)
    for row, text in enumerate(texts):
        pieces = [[str(piece) for piece in own] for own, _ in text]
        said = literal.augment_text(pieces, [float(torch.tensor(draw)) for _, draw in text], lambda: "7")
        expected = [{"[CLS]": 2, "[SEP]": 3, "[MASK]": 9}.get(piece) or int(piece) for piece in said]
        assert found.ids[row][found.mask[row]].tolist() == expected
    assert found.mask.any(0).all(), "no wider than the longest"


def test_a_step_has_its_own_noise_and_a_whole_word_one_fate(tmp_path: Path) -> None:
    folder = shapes.write(tmp_path / "pictures", list(shapes.cards(seed=0))[:6])
    tokenizer = tiny.tokenizer()
    corpus = Corpus(read_all([str(folder)]), "en", tiny.PREPROCESS, tokenizer, with_words=True)
    batch = corpus.draw(np.array([[image, 0] for image in range(6)]))
    noise = WordNoise(0.5, corpus, tokenizer)
    one, same, other = (noise(batch, seed).tokens for seed in (1, 1, 2))
    assert torch.equal(one.ids, same.ids)
    assert one.ids.shape != other.ids.shape or not torch.equal(one.ids, other.ids)
    assert (one.ids[:, 0] == batch.tokens.ids[:, 0]).all(), "[CLS] stays"
    assert torch.equal(WordNoise(1e-9, corpus, tokenizer)(batch, 1).tokens.ids, batch.tokens.ids)


@pytest.mark.parametrize("share", [-0.1, 1.0])
def test_a_share_that_makes_no_sense_is_refused(share: Any) -> None:
    with pytest.raises(RecipeError, match="word_noise"):
        DataRecipe(train=("x",), word_noise=share)
