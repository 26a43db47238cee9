"""What the relation loss asks of a GPU: few operations, of which none makes the processor wait."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from losses.batches import batch, value
from sightline.losses import Loss, Relation, Triplet, graph

FREE = {"detach", "alias", "empty", "empty_like", "_unsafe_view"}
MOST = {"fusion": 245, "standalone": 410}
"""Operations beyond those of the triplet loss; four triplet losses one after another would make it 600 and more."""


class Launches(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts by name the operations that would launch something on a GPU: all but views and fresh memory."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        name = func.overloadpacket.__name__  # type: ignore[attr-defined]
        if not func.is_view and name not in FREE:  # type: ignore[attr-defined]
            self.counts[name] += 1
        return func(*args, **(kwargs or {}))


def launched(objective: Loss) -> Counter[str]:
    """What a loss of six texts and images launches, there and back."""
    pairs = batch(list(range(6)), list(range(6)), dim=8)
    launches = Launches()
    with launches:
        value(objective, pairs).backward()  # type: ignore[no-untyped-call]
    return launches.counts


def relation(mechanism: Any) -> Relation:
    made = Relation(mechanism, heads=2, matches=2, dropout=0.5)
    made.fit(SimpleNamespace(embedding_dim=8))  # type: ignore[arg-type]
    return made


@pytest.mark.parametrize("mechanism", MOST)
def test_relations_add_few_operations_to_a_triplet_loss(mechanism: str) -> None:
    added = launched(relation(mechanism)).total() - launched(Triplet(0.2, "distance")).total()
    assert added <= MOST[mechanism]


@pytest.mark.parametrize("mechanism", MOST)
def test_nothing_has_to_be_read_off_the_device(mechanism: str) -> None:
    counts = launched(relation(mechanism))
    assert not counts.keys() & {"nonzero", "masked_select", "bincount", "_unique2"}
    assert counts["_local_scalar_dense"] == 1, "the seed of the dropout alone, which is drawn on the processor"


def test_in_bfloat16_matches_are_nearly_those_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fragments are multiplied so on a GPU; the sums over them are in float32 all the same."""
    pairs = batch(list(range(6)), list(range(6)), dim=8)
    found = []
    for kind in (torch.float32, torch.bfloat16):
        monkeypatch.setitem(graph._MULTIPLIED, "cpu", kind)
        found.append([field for side in graph.matched(pairs, 2) for field in side])
    for exact, rounded in zip(*found, strict=True):
        assert rounded.dtype == torch.float32
        assert 0 < (rounded - exact).abs().max() < 0.02 * exact.abs().max()
