"""What is recorded on a GPU and played again is what would be computed anew, with its gradients and its luck."""

import dataclasses
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from objectives.batches import batch, gradients, sources, value
from sightline.models import Encoded
from sightline.objectives import Pairs, Relation, graph, recorded, relation
from sightline.objectives.recorded import Recorded

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
DIM = 8


def made(**settings: Any) -> Relation:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        made = Relation(**{"heads": 2, "dropout": 0.5, "matches": 2, **settings})
        made.fit(SimpleNamespace(embedding_dim=DIM))  # type: ignore[arg-type]
    return made


def on_gpu(pairs: Pairs) -> Pairs:
    def moved(side: Encoded) -> Encoded:
        fields = [None if x is None else x.detach().cuda().requires_grad_(x.requires_grad) for x in side]
        return Encoded(*fields)  # type: ignore[arg-type]

    texts, images = moved(pairs.texts), moved(pairs.images)
    return dataclasses.replace(
        pairs, texts=texts, images=images, text_ids=pairs.text_ids.cuda(), image_ids=pairs.image_ids.cuda()
    )


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[tuple[torch.Size, ...]]:
    """Recordings on a machine without a GPU: the shapes that were recorded; they are computed anew each time."""
    shapes = []

    def record(function: Callable[..., Any], like: tuple[Tensor, ...], **_: Any) -> Callable[..., Any]:
        shapes.append(tuple(one.shape for one in like))
        torch.rand(3)  # recording tries it out
        return function

    monkeypatch.setattr(torch.cuda, "make_graphed_callables", record)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 1))
    return shapes


def plain(relation: Relation) -> Relation:
    """The same loss, never recorded."""
    relation._records = lambda _: False  # type: ignore[method-assign]
    return relation


def told(relation: Relation, pairs: Pairs, seed: int = 3) -> list[Tensor]:
    """Its value, its parts, and the gradients of the batch and of all weights."""
    loss = value(relation, pairs, seed)
    leaves = [*sources(pairs), *relation.parameters()]
    return [loss.detach(), *relation.parts.values(), *(one.clone() for one in gradients(loss, leaves))]


def test_each_combination_of_shapes_is_recorded_once_and_no_more_than_there_is_room_for(
    played: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded, "MOST", 2)
    owner = nn.ReLU()
    doubled = Recorded(owner, lambda x: (2 * x,))
    for rows in (3, 4, 3, 5, 4, 5):
        assert torch.equal(doubled(torch.ones(rows))[0], torch.full((rows,), 2.0))
    assert played == [((3,),), ((4,),)]
    doubled = Recorded(owner, lambda x: (2 * x,))
    for _ in range(2):
        doubled(torch.ones(3))
        doubled(torch.ones(3).requires_grad_())
    assert len(played) == 4
    owner.eval()
    again = Recorded(owner, lambda x: (2 * x,))
    again(torch.ones(3))
    owner.train()
    again(torch.ones(3))
    assert len(played) == 6


def test_recording_leaves_luck_alone_and_what_it_gives_is_ones_own(played: list[Any]) -> None:
    kept = torch.zeros(2)
    function = Recorded(nn.ReLU(), lambda x: (kept.copy_(x),))
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    first = function(torch.ones(2))[0]
    assert torch.equal(torch.random.get_rng_state(), before)
    function(torch.full((2,), 7.0))
    assert torch.equal(first, torch.ones(2))
    assert len(played) == 1


@pytest.mark.parametrize("mechanism", ["fusion", "standalone"])
def test_a_batch_in_the_form_that_is_recorded_has_the_same_loss_and_gradients(
    played: list[Any], mechanism: Any
) -> None:
    pairs = batch([0, 0, 1, 2, 3], [0, 1, 2, 3], 0, DIM)
    through = made(mechanism=mechanism)
    through._records = lambda _: True  # type: ignore[method-assign]
    for found, expected in zip(told(through, pairs), told(plain(made(mechanism=mechanism)), pairs), strict=True):
        torch.testing.assert_close(found, expected)
    (shapes,) = played
    texts, words, *_ = shapes[len(list(through.parameters())) :]
    assert texts == (5, DIM)
    assert words == (5, relation._WORDS, 4)


def test_only_a_whole_batch_on_a_gpu_is_recorded() -> None:
    pairs = batch([0, 1], [0, 1], 0, DIM)
    assert not made()._records(pairs)
    cuda: Any = SimpleNamespace(text_ids=Cuda(), image_ids=Cuda(), own_texts=slice(0, 2), own_images=slice(None))
    assert made()._records(cuda)
    assert not made(chunk=1)._records(cuda)
    assert not made(negatives="mean")._records(cuda)
    cuda.own_texts = slice(0, 1)
    assert not made()._records(cuda)


class Cuda:
    """Two ids on a GPU."""

    is_cuda = True

    def __len__(self) -> int:
        return 2


@gpu
@pytest.mark.parametrize("mechanism", ["fusion", "standalone"])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_played_again_it_is_what_would_be_computed(
    mechanism: Any, dropout: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(graph._MULTIPLIED, "cuda", torch.float32)  # bfloat16 rounds by the order of adding up
    pairs = [
        on_gpu(batch(texts, [0, 1, 2, 3], seed, DIM)) for seed, texts in enumerate(([0, 1, 2, 3], [0, 0, 1, 2, 3]))
    ]
    through, anew = (made(mechanism=mechanism, dropout=dropout).cuda() for _ in range(2))
    plain(anew)
    for step in range(6):
        some = pairs[step % 2]
        for found, expected in zip(told(through, some, step), told(anew, some, step), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
    assert len(through._recorded._recordings) == 2


@gpu
def test_played_again_it_follows_the_weights() -> None:
    pairs = on_gpu(batch([0, 1, 2, 3], [0, 1, 2, 3], 0, DIM))
    through, anew = made().cuda(), plain(made().cuda())
    for one in (through, anew):
        optimizer = torch.optim.AdamW(one.parameters(), lr=1e-2)
        for step in range(4):
            value(one, pairs, step).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
    for found, expected in zip(told(through, pairs), told(anew, pairs), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-3)
