"""Build the table by which the language of a query is recognised: src/sightline/languages/table.npy and table.json.

A linear classifier over hashed words and letters, trained on short pieces of captions, prose and dictionaries:

    python -m bundles.language_table DATA DEBIAN

DATA: a folder with captioned shards; of Flickr8k, only the training shards are read. DEBIAN: see language_sources.py.
"""

import argparse
import json
import random
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from benchmarks.provenance import ROOT, provenance
from bundles import language_sources as sources
from sightline.languages.features import ROWS, features

PACKAGE = ROOT / "src/sightline/languages"
SHARDS = ("flickr8k-train-*.tar", "coco-train-*.tar", "web-train-*.tar", "names-train.tar")
SHARES = {"captions": 0.45, "stamps": 0.2, "prose": 0.25, "dictionaries": 0.1}
"""The share of a language's pieces from each kind of source; if a kind is missing, the others take its share."""

PIECES = 40_000  # per language
KEPT = 150_000  # texts of a kind and language
PLAIN_SHARE = 0.15  # pieces without accents, as many people type
EPOCHS, BATCH, RATE, DECAY = 4, 512, 0.02, 1e-7
CLIPPED = 0.9995  # quantile of the weights that int8 covers
SEED = 22


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("data", type=Path)
    parser.add_argument("debian", type=Path)
    given = parser.parse_args()
    rng = random.Random(SEED)
    texts = gathered(given.data, given.debian, rng)
    pieces = [(piece, row) for row, lang in enumerate(sources.LANGUAGES) for piece in sampled(texts[lang], rng)]
    rng.shuffle(pieces)
    weights, bias = trained([features(piece) for piece, _ in pieces], [row for _, row in pieces])
    scale = float(np.quantile(np.abs(weights), CLIPPED) / 127)
    np.save(PACKAGE / "table.npy", np.clip(np.round(weights / scale), -127, 127).astype(np.int8))
    counts = {lang: {kind: len(some) for kind, some in texts[lang].items()} for lang in sources.LANGUAGES}
    made = {**provenance(SEED, [*SHARDS, "Debian packages"]), "texts": counts}
    made["command"] = "python -m bundles.language_table DATA DEBIAN"
    about = {
        "languages": list(sources.LANGUAGES),
        "scale": round(scale, 6),
        "bias": [round(float(one), 4) for one in bias],
        "provenance": made,
    }
    (PACKAGE / "table.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


def gathered(data: Path, debian: Path, rng: random.Random) -> dict[str, dict[str, list[str]]]:
    """Return all texts by language and kind of source."""
    found: dict[str, dict[str, list[str]]] = {lang: defaultdict(list) for lang in sources.LANGUAGES}
    kinds = {
        "captions": sources.captions(data, *SHARDS),
        "stamps": sources.stamps(debian, test=False),
        "prose": sources.prose(debian),
        "dictionaries": sources.dictionaries(debian),
    }
    for kind, texts in kinds.items():
        for lang, text in texts:
            if lang in found and is_written(text, lang):
                found[lang][kind].append(text)
    for own in found.values():
        for kind, some in own.items():
            rng.shuffle(some)
            own[kind] = some[:KEPT]
    return found


def is_written(text: str, lang: str) -> bool:
    """Return whether a text has letters and, if its language is not written in Latin script, mostly non-Latin ones."""
    latin = sum(letter.isascii() and letter.isalpha() for letter in text)
    others = sum(letter.isalpha() for letter in text) - latin
    return others > latin if lang in ("ru", "uk", "bg", "ar", "fa", "zh", "ja") else latin + others > 1


def sampled(texts: dict[str, list[str]], rng: random.Random) -> Iterator[str]:
    """Yield pieces of text as short as queries: one to eight words, or up to twelve Chinese or Japanese characters."""
    kinds = [kind for kind in SHARES if texts.get(kind)]
    for kind in rng.choices(kinds, [SHARES[kind] for kind in kinds], k=PIECES):
        words = rng.choice(texts[kind]).split()
        count = rng.choice((1, 1, 2, 2, 3, 3, 4, 5, 6, 8))
        start = rng.randrange(max(1, len(words) - count + 1))
        piece = " ".join(words[start : start + count])
        if any("぀" <= letter <= "鿿" for letter in piece):
            at = rng.randrange(max(1, len(piece) - 3))
            piece = piece[at : at + rng.randrange(2, 13)]
        yield without_accents(piece) if rng.random() < PLAIN_SHARE else piece


def without_accents(text: str) -> str:
    """Return a text without its accents, as typed on a keyboard that has none."""
    return "".join(one for one in unicodedata.normalize("NFD", text) if not unicodedata.combining(one))


def trained(rows: Sequence[list[int]], labels: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights [rows, languages] and bias [languages] of a linear classifier on a text's mean features."""
    torch.manual_seed(SEED)
    bag = torch.nn.EmbeddingBag(ROWS, len(sources.LANGUAGES), mode="sum")
    torch.nn.init.zeros_(bag.weight)
    bias = torch.nn.Parameter(torch.zeros(len(sources.LANGUAGES)))
    steps = EPOCHS * (len(rows) // BATCH)
    optimizer = torch.optim.Adam([bag.weight, bias], lr=RATE)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, steps)
    order = np.random.default_rng(SEED)
    target = torch.tensor(labels)
    step = 0
    for _ in range(EPOCHS):
        for batch in np.array_split(order.permutation(len(rows)), len(rows) // BATCH):
            own = [rows[place] or [0] for place in batch]
            flat = torch.tensor([row for one in own for row in one])
            counts = torch.tensor([len(one) for one in own])
            share = torch.repeat_interleave(counts.float().rsqrt(), counts)
            offsets = torch.cumsum(counts, 0) - counts
            logits = bag(flat, offsets, per_sample_weights=share) + bias
            loss = torch.nn.functional.cross_entropy(logits, target[batch])
            loss = loss + DECAY * bag.weight.square().sum()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            if step < steps - 1:
                schedule.step()
            if step % 200 == 0:
                right = float((logits.argmax(1) == target[batch]).float().mean())
                print(f"{step}/{steps}: loss {loss.item():.3f}, right {right:.3f}", flush=True)
            step += 1
    return bag.weight.detach().numpy(), bias.detach().numpy()


if __name__ == "__main__":
    main()
