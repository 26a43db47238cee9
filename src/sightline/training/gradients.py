"""Gradient caching for batches that exceed memory: encode in chunks, once for the loss and once for gradients.

The loss of a contrastive batch needs all of its embeddings at once, but not all of its activations. So every chunk is
encoded without a graph, the loss is computed on the gathered results, and its gradient is backpropagated through each
chunk, encoded a second time with the same random numbers (Gao et al. 2021). The gradients equal those of the whole
batch. The last chunk keeps its graph: memory suffices for one, and it need not be encoded again.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from sightline.errors import SightlineError
from sightline.losses.base import Field, Inputs, Loss, Pairs, Sides
from sightline.models.retriever import EncodedTensors, Retriever
from sightline.training.distributed import World

Encode = Callable[[slice], EncodedTensors]
"""Encodes a slice of this process's share of the rows."""

_APART = 1_000_003  # offset between the seeds of two rows, so that seeds of adjacent steps do not collide


@dataclass(frozen=True, slots=True)
class Side:
    """The texts or the images of a batch: how to encode this process's share, and the ids of all rows."""

    encode: Encode
    ids: Tensor

    def share(self, world: World) -> slice:
        """Return the rows that this process encodes, at least one: encoders cannot run on an empty batch."""
        if len(self.ids) < world.size:
            raise SightlineError(
                f"a batch with {len(self.ids)} texts or images cannot be split among {world.size} processes",
                "Raise data.batch_size, or train with fewer processes.",
            )
        return world.share(len(self.ids))

    @staticmethod
    def chunks(own: slice, chunk: int) -> list[slice]:
        """Split this process's share into the chunks to encode."""
        rows = own.stop - own.start
        step = chunk or rows
        return [slice(start, min(start + step, rows)) for start in range(0, rows, step)]


def backward(
    model: Retriever,
    losses: Mapping[str, tuple[Loss, float]],
    texts: Side,
    images: Side,
    *,
    seed: int,
    chunk: int = 0,
    world: World | None = None,
    teacher_scores: Tensor | None = None,
    inputs: Inputs | None = None,
    also_positive: Tensor | None = None,
    excluded: Tensor | None = None,
) -> dict[str, Tensor]:
    """Add the gradients of the weighted losses to the parameters; returns each loss's value, on the device.

    seed: the random seed of this step. chunk: rows encoded at once; 0 encodes all of them. inputs: the encoder inputs
    of this process's share. teacher_scores, also_positive, excluded: see `Pairs`.

    A parameter that no loss of this step depends on gets no gradient, rather than one of zeros, so that the optimiser
    skips it: if losses alternate, a step must not decay parameters that only other losses train.
    """
    world = world or World()
    sides = [(side, side.share(world)) for side in (texts, images)]
    fields = [_fields(side, losses) for side in ("texts", "images")]
    encoded = [_Encoding.of(side, own, world, chunk, seed * 2 + i, fields[i]) for i, (side, own) in enumerate(sides)]
    text, image = (part.gathered for part in encoded)
    own = encoded[0].own, encoded[1].own
    pairs = Pairs(text, image, texts.ids, images.ids, *own, teacher_scores, inputs, also_positive, excluded)
    values = {}
    total = torch.zeros((), device=texts.ids.device)
    for name, (loss, weight) in losses.items():
        share = loss(pairs, model, torch.Generator().manual_seed(seed))
        values[name] = share.detach()
        total = total + weight * share
    if total.requires_grad:
        total.backward()  # type: ignore[no-untyped-call]
    for part in encoded:
        part.send_back(world)
    world.add_gradients(_parameters(model, losses))
    return {name: world.add(value) for name, value in values.items()}


def _fields(side: Sides, losses: Mapping[str, tuple[Loss, float]]) -> set[Field]:
    """Return the fields of a side that receive gradients from the losses."""
    return {field for loss, _ in losses.values() if side in loss.sends_to for field in loss.needs}


def _parameters(model: Retriever, losses: Mapping[str, tuple[Loss, float]]) -> Iterable[Tensor]:
    yield from model.parameters()
    for loss, _ in losses.values():
        yield from loss.parameters()


class _Encoding:
    """One encoded side: its gathered rows as leaves, and the backward pass into the encoder for this process's rows."""

    def __init__(
        self,
        side: Side,
        own: slice,
        chunks: list[slice],
        seed: int,
        kept: EncodedTensors | None,
        gathered: EncodedTensors,
    ) -> None:
        self.own = own
        self.gathered = gathered
        self._side, self._chunks, self._seed, self._kept = side, chunks, seed, kept

    @classmethod
    def of(cls, side: Side, own: slice, world: World, chunk: int, seed: int, fields: set[Field]) -> "_Encoding":
        count = len(side.ids)
        chunks = side.chunks(own, chunk)
        seed += own.start * _APART  # offset the seed per process
        with torch.no_grad():
            parts = [_seeded(side.encode, rows, seed) for rows in chunks[:-1]]
        torch.clear_autocast_cache()  # older torch would reuse weights cast without a graph
        with torch.set_grad_enabled(bool(fields)):
            parts.append(_seeded(side.encode, chunks[-1], seed))
        joined = EncodedTensors(*(_joined([part[i] for part in parts]) for i in range(len(EncodedTensors._fields))))  # type: ignore[arg-type]
        gathered = EncodedTensors(
            *(None if value is None else world.gather(value.detach(), count) for value in joined)  # type: ignore[arg-type]
        )
        for field in fields:
            leaf = getattr(gathered, field)
            if leaf is not None:
                leaf.requires_grad_()
        return cls(side, own, chunks, seed, parts[-1] if fields else None, gathered)

    def send_back(self, world: World) -> None:
        """Backpropagate the gradients at the leaves into the encoder."""
        gradients = {}
        for field in ("embedding", "fragments", "states", "pooled"):
            leaf = getattr(self.gathered, field)
            if leaf is not None and leaf.requires_grad:
                whole = leaf.grad if leaf.grad is not None else torch.zeros_like(leaf)
                gradients[field] = world.add(whole)[self.own]
        for rows in reversed(self._chunks if gradients else []):
            part = _seeded(self._side.encode, rows, self._seed) if self._kept is None else self._kept
            self._kept = None  # free its memory
            outputs = [(getattr(part, field), gradient[rows]) for field, gradient in gradients.items()]
            outputs = [(value, gradient) for value, gradient in outputs if value.requires_grad]
            if outputs:
                torch.autograd.backward([v for v, _ in outputs], [g.to(v.dtype) for v, g in outputs])


def _seeded(encode: Encode, rows: slice, seed: int) -> EncodedTensors:
    """Encode with reproducible random numbers (dropout), different for different rows."""
    torch.manual_seed(seed + rows.start * _APART)
    return encode(rows)


def _joined(parts: list[Tensor | None]) -> Tensor | None:
    whole = [part for part in parts if part is not None]
    return torch.cat(whole) if whole else None
