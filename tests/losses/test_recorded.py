"""What is recorded on a GPU and played again is what would be computed anew, with its gradients and its luck."""

import copy
import dataclasses
import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from losses.batches import batch, gradients, sources, value
from sightline.errors import SightlineError
from sightline.losses import Pairs, Relation, cuda_graph, graph, relation
from sightline.losses.cuda_graph import CapturedFunction
from sightline.models import EncodedTensors

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
DIM = 8


def made(**settings: Any) -> Relation:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        made = Relation(**{"heads": 2, "dropout": 0.5, "matches": 2, **settings})
        made.fit(SimpleNamespace(embedding_dim=DIM))  # type: ignore[arg-type]
    return made


def on_gpu(pairs: Pairs) -> Pairs:
    def moved(side: EncodedTensors) -> EncodedTensors:
        fields = [None if x is None else x.detach().cuda().requires_grad_(x.requires_grad) for x in side]
        return EncodedTensors(*fields)  # type: ignore[arg-type]

    texts, images = moved(pairs.texts), moved(pairs.images)
    return dataclasses.replace(
        pairs, texts=texts, images=images, text_ids=pairs.text_ids.cuda(), image_ids=pairs.image_ids.cuda()
    )


def stand_in(function: Callable[..., Any], like: tuple[Tensor, ...], **_: Any) -> Callable[..., Any]:
    """What torch records, on a processor: it computes anew, but in the same few places of memory each time."""
    torch.rand(3)  # recording tries it out
    with torch.enable_grad():
        first = function(*like)
    outputs = [one.detach().clone() for one in first]
    wanted = [i for i, one in enumerate(like) if one.requires_grad]
    kept: dict[int, Tensor] = {}
    state: dict[str, Any] = {}

    class Played(torch.autograd.Function):
        @staticmethod
        def forward(_: Any, *inputs: Tensor) -> tuple[Tensor, ...]:
            for own, given in zip(like, inputs, strict=True):
                if own.data_ptr() != given.data_ptr():
                    own.data.copy_(given)
            with torch.enable_grad():
                state["found"] = function(*like)
            for own, found in zip(outputs, state["found"], strict=True):
                own.copy_(found.detach())
            return tuple(own.detach() for own in outputs)

        @staticmethod
        def backward(_: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
            leaves = [like[i] for i in wanted]
            sent = torch.autograd.grad(state["found"][0], leaves, gradients[0], allow_unused=True, retain_graph=True)
            for i, one in zip(wanted, sent, strict=True):
                if one is not None:
                    kept.setdefault(i, torch.empty_like(one)).copy_(one)
            return tuple(kept[i].detach() if i in kept else None for i in range(len(like)))

    return lambda *inputs: Played.apply(*inputs)  # type: ignore[no-untyped-call]


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[tuple[torch.Size, ...]]:
    """Recordings on a machine without a GPU, at first sight; gives the shapes that were recorded."""
    shapes = []

    def record(function: Callable[..., Any], like: tuple[Tensor, ...], **more: Any) -> Callable[..., Any]:
        shapes.append(tuple(one.shape for one in like))
        return stand_in(function, like, **more)

    monkeypatch.setattr(torch.cuda, "make_graphed_callables", record)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 1))
    monkeypatch.setattr(Relation, "_records", lambda *_: True)
    monkeypatch.setattr(cuda_graph, "SIGHTS", 1)
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


def doubled(owner: nn.Module, x: Tensor) -> tuple[Tensor, ...]:
    return (2 * x * (1 + 0 * sum(one.sum() for one in owner.parameters())),)


def test_each_combination_of_shapes_is_recorded_once_and_no_more_than_there_is_room_for(
    played: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_graph, "MOST", 2)
    function, owner = CapturedFunction(doubled), nn.ReLU()
    for rows in (3, 4, 3, 5, 4, 5):
        assert torch.equal(function(owner, torch.ones(rows).requires_grad_())[0], torch.full((rows,), 2.0))
    assert played == [((3,),), ((4,),)]


@pytest.mark.parametrize("change", ["a gradient", "evaluating", "other weights", "frozen weights"])
def test_what_a_recording_depends_on_is_recorded_anew(played: list[Any], change: str) -> None:
    function, owner, x = CapturedFunction(doubled), nn.Linear(2, 2), torch.ones(3).requires_grad_()
    function(owner, x)
    function(owner, x)
    assert len(played) == 1
    if change == "a gradient":
        x = torch.ones(3)
    elif change == "evaluating":
        owner.eval()
    elif change == "other weights":
        owner.weight = nn.Parameter(torch.ones(2, 2))
    else:
        owner.weight.requires_grad_(False)
    function(owner, x)
    assert len(played) == 2


def test_a_shape_is_recorded_when_it_comes_again_and_again(played: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_graph, "SIGHTS", 3)
    function, x = CapturedFunction(doubled), torch.ones(3).requires_grad_()
    for expected in (0, 0, 1, 1):
        assert function(nn.ReLU(), x)[0].sum() == 6
        assert len(played) == expected


def test_where_memory_is_too_short_for_a_recording_it_is_computed_as_ever(
    played: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    function, owner = CapturedFunction(doubled), nn.ReLU()
    function(owner, torch.ones(3).requires_grad_())
    tried = []

    def too_much(*_: Any, **__: Any) -> None:
        tried.append(1)
        raise torch.cuda.OutOfMemoryError

    monkeypatch.setattr(torch.cuda, "make_graphed_callables", too_much)
    for rows in (4, 4, 5, 3):
        assert function(owner, torch.ones(rows).requires_grad_())[0].sum() == 2 * rows
    assert len(tried) == 1, "it is not tried again"


def test_recording_leaves_luck_alone_and_what_it_gives_is_ones_own(played: list[Any]) -> None:
    function, owner = CapturedFunction(doubled), nn.ReLU()
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    first = function(owner, torch.ones(2).requires_grad_())[0]
    assert torch.equal(torch.random.get_rng_state(), before)
    function(owner, torch.full((2,), 7.0).requires_grad_())
    assert torch.equal(first, torch.full((2,), 2.0))
    assert len(played) == 1


@pytest.mark.parametrize("mechanism", ["fusion", "standalone"])
def test_a_batch_in_the_form_that_is_recorded_has_the_same_loss_and_gradients(
    played: list[Any], mechanism: Any
) -> None:
    pairs = batch([0, 0, 1, 2, 3], [0, 1, 2, 3], 0, DIM)
    through, anew = made(mechanism=mechanism), plain(made(mechanism=mechanism))
    for step in range(3):
        for found, expected in zip(told(through, pairs, step), told(anew, pairs, step), strict=True):
            torch.testing.assert_close(found, expected)
    (shapes,) = played
    texts, words, *_ = shapes[len(list(through.parameters())) :]
    assert texts == (5, DIM)
    assert words == (5, relation._WORDS, 4)


def two_batches() -> list[Pairs]:
    return [batch([0, 1, 2, 3], [0, 1, 2, 3], seed, DIM) for seed in range(2)]


@pytest.mark.parametrize("zeroed", [None, True, False])
def test_gradients_add_up_over_batches_and_are_zeroed_either_way(played: list[Any], zeroed: bool | None) -> None:
    found = []
    for one in (made(), plain(made())):
        for pairs in two_batches():
            if zeroed is not None:
                one.zero_grad(set_to_none=zeroed)
            value(one, pairs).backward()  # type: ignore[no-untyped-call]
        found.append([parameter.grad for parameter in one.parameters() if parameter.grad is not None])
    assert len(played) == 1
    for through, anew in zip(*found, strict=True):
        torch.testing.assert_close(through, anew)


def test_going_back_late_or_twice_is_refused_instead_of_wrong(played: list[Any]) -> None:
    one, (first, second) = made(), two_batches()
    both = value(one, first) + value(one, second)
    with pytest.raises(SightlineError, match="computed again"):
        both.backward()  # type: ignore[no-untyped-call]
    loss = value(one, first)
    loss.backward(retain_graph=True)  # type: ignore[no-untyped-call]
    with pytest.raises(SightlineError, match="twice"):
        loss.backward()  # type: ignore[no-untyped-call]
    assert len(played) == 1


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_copy_has_weights_and_recordings_of_its_own(
    played: list[Any], copied: Callable[[Relation], Relation]
) -> None:
    one, (pairs, _) = made(), two_batches()
    value(one, pairs)
    before = [parameter.clone() for parameter in one.parameters()]
    another = copied(one)
    with torch.no_grad():
        for parameter in another.parameters():
            parameter.mul_(2)
    anew = plain(made())
    anew.load_state_dict(another.state_dict())
    for found, expected in zip(told(another, pairs), told(anew, pairs), strict=True):
        torch.testing.assert_close(found, expected)
    assert all(torch.equal(old, now) for old, now in zip(before, one.parameters(), strict=True))
    assert len(played) == 2


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
    for step in range(2 * cuda_graph.SIGHTS + 4):
        some = pairs[step % 2]
        for found, expected in zip(told(through, some, step), told(anew, some, step), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
    assert len(through._recorded._kept.by_key) == 2


@gpu
def test_played_again_it_follows_the_weights() -> None:
    pairs = on_gpu(batch([0, 1, 2, 3], [0, 1, 2, 3], 0, DIM))
    through, anew = made().cuda(), plain(made().cuda())
    for one in (through, anew):
        optimizer = torch.optim.AdamW(one.parameters(), lr=1e-2)
        for step in range(cuda_graph.SIGHTS + 4):
            value(one, pairs, step).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
    for found, expected in zip(told(through, pairs), told(anew, pairs), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-3)
