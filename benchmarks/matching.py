"""Measure pairs scored per second by the matcher, compared with a sentence-transformers CrossEncoder of its shape.

    python -m benchmarks.matching

Needs `pip install 'sightline-search[bench]'`. Sightline is measured as a stage of a search, which reads
the stored states of the candidates and matches each with the query. The CrossEncoder is a BERT of the bundled matcher's
shape with random weights, in float32 in torch. It reads the same number of positions: the same words, and one token for
each part of the image that the matcher reads. Its time includes tokenizing, which it always has to do. Both use all
cores and take turns in one process; medians are reported.
"""

import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import samples
from benchmarks.baseline import tokenizer
from benchmarks.timing import in_turns, options, save
from sightline.bundle import Bundle
from sightline.collection import Collection

SHAPE = {"hidden_size": 384, "num_hidden_layers": 3, "num_attention_heads": 12, "intermediate_size": 1536}
PAIRS, ITEMS = (20, 100), 200


class Peer:
    """A CrossEncoder with random weights, and a text with as many tokens as an image has parts."""

    def __init__(self, folder: Path, bundle: Bundle, fragments: int) -> None:
        from sentence_transformers import CrossEncoder
        from transformers import BertConfig, BertForSequenceClassification

        self.tokenizer = tokenizer(bundle)
        self.tokenizer.model_max_length = bundle.spec.text.max_length + fragments
        self.tokenizer.save_pretrained(folder)
        config = BertConfig(vocab_size=len(self.tokenizer), num_labels=1, **SHAPE)
        BertForSequenceClassification(config).save_pretrained(folder)
        self.model = CrossEncoder(str(folder), device="cpu")
        mark = self.positions("dog", "dog") - self.positions("dog") - 1  # the special tokens after the second text
        self.image = " ".join(["dog"] * (fragments - mark))

    def positions(self, *texts: str) -> int:
        """Return the number of tokens that the model reads for one or two texts."""
        return len(self.tokenizer(*texts)["input_ids"])

    def score(self, text: str, pairs: int) -> None:
        """Score a text with this many images."""
        self.model.predict([(text, self.image)] * pairs, show_progress_bar=False)


def measure(collection: Collection, bundle: Bundle, peer: Peer | None, text: str, rounds: int) -> list[dict[str, Any]]:
    """Measure the pairs per second of both, for one caption with 20 and with 100 images."""
    rows = []
    for pairs in PAIRS:

        def stage(pairs: int = pairs) -> float:
            found = collection.search(text, k=pairs, rerank=pairs, model=bundle, duplicates="show")
            return found.took_ms["match"] / 1000

        ways: dict[str, Any] = {"sightline": stage}
        if peer is not None:
            ways["cross_encoder"] = lambda peer=peer, pairs=pairs: peer.score(text, pairs)
        row: dict[str, Any] = {"pairs": pairs, "rounds": rounds}
        row |= {
            name: {"p50_ms": 1000 * median(seconds), "pairs_per_second": pairs / median(seconds)}
            for name, seconds in in_turns(ways, rounds).items()
        }
        rows.append({"cross_encoder": "sentence-transformers is not installed"} | row)
    return rows


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--photos", type=int, default=16, help="that the collection is made of")
    parser.add_argument("--rounds", type=int)
    arguments = parser.parse_args()
    bundle, records = samples.bundle(arguments.model), samples.records(arguments.photos)
    known = samples.captions(records)
    whole = ~bundle.tokenizer(known).truncated  # captions that neither model truncates
    captions = sorted((caption for caption, fits in zip(known, whole, strict=True) if fits), key=len)
    caption, photos = captions[len(captions) // 2], samples.encode(bundle, records)
    rounds, fragments = arguments.rounds or (8 if arguments.quick else 40), photos.mask.shape[1]
    with tempfile.TemporaryDirectory(prefix="sightline-matching-") as name:
        at, peer = Path(name) / ".sightline", None
        samples.make_collection(at, bundle, photos, ITEMS)
        try:
            peer = Peer(Path(name) / "peer", bundle, fragments)
        except ModuleNotFoundError as error:
            print(f"without the CrossEncoder: {error}")
        with Collection.open(at, bundle) as collection:
            rows = measure(collection, bundle, peer, caption, rounds)
    positions, ratios = {"sightline": int(bundle.tokenizer([caption]).mask.sum()) + fragments}, {}
    if peer is not None:
        positions["cross_encoder"] = peer.positions(caption, peer.image)
        for row in rows:
            times = row["sightline"]["pairs_per_second"] / row["cross_encoder"]["pairs_per_second"]
            ratios[f"pairs a second, {row['pairs']} at once, times a CrossEncoder"] = times
    more = {"model": bundle.name, "shape": SHAPE, "positions": positions}
    save("matching", arguments, [samples.data()], rows, ratios, **more)


if __name__ == "__main__":
    main()
