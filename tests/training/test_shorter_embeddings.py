"""Embeddings that were trained to be cut short, and models with the first of their numbers."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import sightline
import tiny
from losses.batches import batch
from sightline.errors import ModelError
from sightline.losses import Contrastive, Matryoshka
from sightline.losses.base import Pairs
from sightline.models import TowerConfig, checkpoint
from sightline.models.retriever import Tokens
from sightline.models.shorter import ShorterEmbeddings
from sightline.training.recipe import parse_recipe
from sightline.training.trainer import train
from training import shapes


def test_it_is_the_mean_of_contrastive_losses_over_all_lengths() -> None:
    pairs = batch([0, 1, 2, 2], [0, 1, 2])

    def cut(dim: int) -> Pairs:
        sides = [s._replace(embedding=F.normalize(s.embedding[:, :dim], dim=-1)) for s in (pairs.texts, pairs.images)]
        return Pairs(*sides, pairs.text_ids, pairs.image_ids)

    one, many = Contrastive(0.1), Matryoshka((2, 3), 0.1)
    expected = sum(one(cut(dim), None, torch.Generator()) for dim in (2, 3, 5)) / 3
    torch.testing.assert_close(many(pairs, None, torch.Generator()), expected)


def test_a_run_trains_them_and_lengths_that_do_not_fit_are_refused(few: Path, tmp_path: Path) -> None:
    def run(dims: list[int], out: Path) -> int:
        losses = {"embed": {"loss": "matryoshka", "dims": dims}}
        data = shapes.recipe(few, hidden=16, losses=losses, data={"batch_size": 12}, schedule={"steps": 2})
        return train(parse_recipe(data, "it"), out).steps

    assert run([8, 16], tmp_path / "run") == 2
    with pytest.raises(ModelError, match=r"matryoshka\.dims goes up to 32, but embeddings have 32 dimensions"):
        run([8, 32], tmp_path / "other")


def test_a_shorter_model_has_the_first_numbers_at_unit_length() -> None:
    model = tiny.retriever(tiny.DUAL)
    shorter = ShorterEmbeddings(model, 6)
    tokens = Tokens(torch.tensor([[2, 6, 3]]), torch.ones(1, 3, dtype=torch.bool))
    with torch.no_grad():
        whole, cut = model.encode_texts(tokens), shorter.encode_texts(tokens)
    torch.testing.assert_close(cut.embedding, F.normalize(whole.embedding[:, :6], dim=-1))
    torch.testing.assert_close(cut.fragments, whole.fragments)
    assert (shorter.embedding_dim, shorter.abilities, shorter.grid) == (6, model.abilities, model.grid)
    with pytest.raises(ModelError, match="cannot shorten embeddings to 16 dimensions: the model's have 16"):
        ShorterEmbeddings(model, 16)


def test_a_bundle_has_the_shorter_embeddings(tmp_path: Path) -> None:
    image, text = (TowerConfig(config={**config, "num_hidden_layers": 1}) for config in (tiny.VISION, tiny.TEXT))
    shallow = dataclasses.replace(tiny.DUAL, image=image, text=text, matcher="none", pool_to=0)
    model, tokenizer = tiny.retriever(shallow), tiny.tokenizer()
    checkpoint.save(model, tokenizer, tmp_path / "checkpoint")
    spec = sightline.export(tmp_path / "checkpoint", tmp_path / "bundle", dim=6)
    assert spec.embedding_dim == 6
    found = sightline.load(tmp_path / "bundle").encode_texts(["a red dog"]).embedding
    whole = sightline.load(tmp_path / "checkpoint").encode_texts(["a red dog"]).embedding[:, :6]
    np.testing.assert_allclose(found, whole / np.linalg.norm(whole), atol=1e-5)
