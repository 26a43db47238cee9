"""Batches of images or texts for the model, and the vectors that it returns."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from sightline.bundle import Encoded, Model
from sightline.collection.indexing.readers import Outcome
from sightline.collection.indexing.writer import EncodedBatch
from sightline.device import Device
from sightline.media import stack_inputs
from sightline.retrieval.query import ItemKind

AT_ONCE: dict[Device, dict[ItemKind, int]] = {"cpu": {"images": 4, "texts": 32}, "gpu": {"images": 128, "texts": 1024}}
"""Batch size by device and kind of item."""


def at_once(model: Model, kind: ItemKind) -> int:
    """Batch size for this model and kind of item."""
    return AT_ONCE[model.device][kind]


def is_new(outcome: Outcome, known: set[bytes]) -> bool:
    """Whether an outcome has new content to encode; its hash is added to `known`."""
    if outcome.payload is None or outcome.facts is None or outcome.facts.hash in known:
        return False
    known.add(outcome.facts.hash)
    return True


def encoded(model: Model, new: Sequence[Outcome], files: list[Outcome]) -> EncodedBatch:
    """Encode the new contents into a batch to write, with all files. Vectors with NaN or infinity are left out."""
    if not new:
        return EncodedBatch([], files)
    payloads: list[Any] = [outcome.payload for outcome in new]
    is_texts = isinstance(payloads[0], str)
    found = model.encode_texts(payloads) if is_texts else model.encode_images(stack_inputs(payloads))
    finite: npt.NDArray[np.bool_] = np.isfinite(found.embedding).all(axis=1)  # type: ignore[assignment]
    facts = [outcome.facts for outcome, fine in zip(new, finite, strict=True) if fine and outcome.facts]
    return EncodedBatch([(facts, rows(found, finite))] if facts else [], files, count_truncated(found))


def encode_in_batches(model: Model, kind: ItemKind, outcomes: Iterable[Outcome]) -> EncodedBatch:
    """Encode everything as one batch; identical contents are encoded once."""
    block, seen = EncodedBatch(), set[bytes]()
    new: list[Outcome] = []
    files: list[Outcome] = []
    for outcome in outcomes:
        if is_new(outcome, seen):
            new.append(outcome)
        files.append(replace(outcome, payload=None))
        if len(new) >= at_once(model, kind):
            block.add(encoded(model, new, files))
            new, files = [], []
    block.add(encoded(model, new, files))
    return block


def without_known(batch: EncodedBatch, known: set[bytes]) -> EncodedBatch:
    """Drop the contents that are already in `known`; the hashes of the others are added to it."""
    left = EncodedBatch([], batch.files)
    for facts, found in batch.contents:
        chosen = np.array([fact.hash not in known for fact in facts])
        if chosen.any():
            kept = [fact for fact, wanted in zip(facts, chosen, strict=True) if wanted]
            known.update(fact.hash for fact in kept)
            left.contents.append((kept, rows(found, chosen)))
            left.truncated += count_truncated(left.contents[-1][1])
    return left


def count_truncated(found: Encoded) -> int:
    """The number of texts that exceed the model's input length."""
    return 0 if found.truncated is None else int(found.truncated.sum())


def rows(found: Encoded, chosen: npt.NDArray[np.bool_]) -> Encoded:
    """Select items of an encoded batch."""
    if chosen.all():
        return found
    parts = (found.embedding, found.mask, found.fragments, found.states, found.truncated)
    return Encoded(*(None if part is None else part[chosen] for part in parts))  # type: ignore[arg-type]
