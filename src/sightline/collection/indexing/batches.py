"""Batches of images or texts for the model, and the vectors it returns."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from sightline.bundle import Encoded, Model
from sightline.collection.catalog.files import Facts
from sightline.collection.indexing.readers import Outcome
from sightline.collection.indexing.writer import EncodedBatch
from sightline.device import Device
from sightline.media import normalise, require_pixels, stack_inputs
from sightline.retrieval.query import ItemKind

AT_ONCE: dict[Device, dict[ItemKind, int]] = {"cpu": {"images": 4, "texts": 32}, "gpu": {"images": 128, "texts": 1024}}
"""Batch size by device and kind of item."""


def at_once(model: Model, kind: ItemKind) -> int:
    """Return the batch size for this model and kind of item."""
    return AT_ONCE[model.device][kind]


def is_new(outcome: Outcome, known: set[bytes]) -> bool:
    """Return whether an outcome has new content to encode; its hash is added to `known`."""
    if outcome.payload is None or outcome.facts is None or outcome.facts.hash in known:
        return False
    known.add(outcome.facts.hash)
    return True


def content_count(outcomes: Iterable[Outcome]) -> int:
    """Return the number of contents to encode: one for an image or a text, one for each moment of a video."""
    return sum(1 + len(outcome.moments) for outcome in outcomes)


def encoded(model: Model, new: Sequence[Outcome], files: list[Outcome]) -> EncodedBatch:
    """Encode the new contents as a batch to write, together with all files. Vectors with NaN or infinity are left out.

    The moments of a video stay in one batch, so that a crash leaves all of them or none.
    """
    facts = [fact for outcome in new if outcome.facts for fact in (outcome.facts, *outcome.moments)]
    payloads = [payload for outcome in new for payload in _payloads(model, outcome)]
    batch, step = EncodedBatch([], files), max(at_once(model, "images"), len(new))
    for start in range(0, len(facts), step):
        some: list[Any] = payloads[start : start + step]
        found = model.encode_texts(some) if isinstance(some[0], str) else model.encode_images(stack_inputs(some))
        batch.contents.append((facts[start : start + step], found))
        batch.truncated += count_truncated(found)
    return _finite(batch)


def _payloads(model: Model, outcome: Outcome) -> Iterable[Any]:
    """Return the model's input for each content of an outcome."""
    payload: Any = outcome.payload
    is_video = isinstance(payload, np.ndarray) and payload.dtype == np.uint8
    return normalise(payload, require_pixels(model.preprocess)) if is_video else [payload]


def _finite(batch: EncodedBatch) -> EncodedBatch:
    """Leave out contents whose vectors have NaN or infinity; for a video, leave out all its moments."""
    broken = {
        fact.parent or fact.hash
        for facts, found in batch.contents
        for fact, embedding in zip(facts, found.embedding, strict=True)
        if not np.isfinite(embedding).all()
    }
    contents: list[tuple[Sequence[Facts], Encoded]] = []
    for facts, found in batch.contents:
        chosen = np.array([(fact.parent or fact.hash) not in broken for fact in facts])
        if chosen.any():
            contents.append(([fact for fact, kept in zip(facts, chosen, strict=True) if kept], rows(found, chosen)))
    return EncodedBatch(contents, batch.files, batch.truncated)


def encode_in_batches(model: Model, kind: ItemKind, outcomes: Iterable[Outcome]) -> EncodedBatch:
    """Encode everything as one batch; identical contents are encoded once."""
    block, seen = EncodedBatch(), set[bytes]()
    new: list[Outcome] = []
    files: list[Outcome] = []
    for outcome in outcomes:
        if is_new(outcome, seen):
            new.append(outcome)
        files.append(replace(outcome, payload=None))
        if content_count(new) >= at_once(model, kind):
            block.add(encoded(model, new, files))
            new, files = [], []
    block.add(encoded(model, new, files))
    return block


def without_known(batch: EncodedBatch, known: set[bytes]) -> EncodedBatch:
    """Drop the contents that are already in `known`, and add the hashes of the others to it."""
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
    """Return the number of texts that exceed the model's input length."""
    return 0 if found.truncated is None else int(found.truncated.sum())


def rows(found: Encoded, chosen: npt.NDArray[np.bool_]) -> Encoded:
    """Select items from an encoded batch."""
    if chosen.all():
        return found
    parts = (found.embedding, found.mask, found.fragments, found.states, found.truncated)
    return Encoded(*(None if part is None else part[chosen] for part in parts))  # type: ignore[arg-type]
