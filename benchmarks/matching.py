"""How many pairs a second the matcher judges, against sentence-transformers' CrossEncoder of the same shape.

    python -m benchmarks.matching

Needs SIGHTLINE_DATA, a bundle (the bundled one) and, for the peer, `pip install 'sightline[bench]'`.

Sightline is measured as a search runs it: the stage that reads what a collection keeps of the best candidates, and
matches each with the query. The CrossEncoder is a BERT with a head for one score, in float32 under torch, with random
weights and as many layers, heads and numbers as the bundled matcher (SHAPE). It reads as many positions: the same
words, and one token for each part of the picture that the matcher reads. Making tokens of its texts is part of its
work, as it is whenever one is used; what a picture is encoded into was made when it was indexed. Both have all
processors, take turns in one process, and get the same numbers of pairs; medians count.
"""

import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.searching import encoded_photos, make
from benchmarks.timing import in_turns, options, write
from sightline.bundle import Bundle
from sightline.collection import Collection
from sightline.datasets import read_all
from sightline.registry.loader import locate

SHAPE = {"hidden_size": 384, "num_hidden_layers": 3, "num_attention_heads": 12, "intermediate_size": 1536}
PAIRS = (20, 100)
ITEMS = 200


class Peer:
    """A CrossEncoder with random weights, and a text as long as a picture has parts."""

    def __init__(self, folder: Path, bundle: Bundle, fragments: int) -> None:
        from sentence_transformers import CrossEncoder
        from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

        marks = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep")}
        self.tokenizer = PreTrainedTokenizerFast(
            tokenizer_file=str(bundle.folder / bundle.spec.text.tokenizer),
            model_max_length=bundle.spec.text.max_length + fragments,
            **marks,
        )
        self.tokenizer.save_pretrained(folder)
        config = BertConfig(vocab_size=len(self.tokenizer), num_labels=1, **SHAPE)
        BertForSequenceClassification(config).save_pretrained(folder)
        self.model = CrossEncoder(str(folder), device="cpu")
        mark = self.positions("dog", "dog") - self.positions("dog") - 1  # after the second text
        self.picture = " ".join(["dog"] * (fragments - mark))

    def positions(self, *texts: str) -> int:
        """How many tokens it reads of a text, or of two."""
        return len(self.tokenizer(*texts)["input_ids"])

    def judge(self, caption: str, pairs: int) -> None:
        """Score a caption with so many pictures."""
        self.model.predict([(caption, self.picture)] * pairs, show_progress_bar=False)


def peer_or_none(folder: Path, bundle: Bundle, fragments: int) -> Peer | None:
    """The peer, where it is installed."""
    try:
        return Peer(folder, bundle, fragments)
    except ModuleNotFoundError:
        return None


def measure(
    collection: Collection, bundle: Bundle, peer: Peer | None, caption: str, pairs: int, rounds: int
) -> dict[str, Any]:
    """Pairs a second for one caption, with as many pictures as `pairs` says at once, of both."""

    def stage() -> float:
        found = collection.search(caption, k=pairs, rerank=pairs, model=bundle, duplicates="show")
        return found.took_ms["match"] / 1000

    ways: dict[str, Callable[[], float | None]] = {"sightline": stage}
    if peer is not None:
        ways["cross_encoder"] = partial(peer.judge, caption, pairs)
    row: dict[str, Any] = {"pairs": pairs, "rounds": rounds}
    for name, seconds in in_turns(ways, rounds).items():
        row[name] = {"p50_ms": 1000 * median(seconds), "pairs_per_second": pairs / median(seconds)}
    if peer is None:
        return row | {"cross_encoder": "sentence-transformers is not installed"}
    return row | {"times": row["sightline"]["pairs_per_second"] / row["cross_encoder"]["pairs_per_second"]}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--photos", type=int, default=16, help="that the collection is made of")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--model", default="default")
    arguments = parser.parse_args()
    bundle = Bundle.open(locate(arguments.model))
    records = read_all([os.environ["SIGHTLINE_DATA"] + "/flickr8k-test.tar"])[: arguments.photos]
    captions = sorted((text for record in records for text in record.captions_in("en")), key=len)
    caption = captions[len(captions) // 2]
    photos, rounds = encoded_photos(bundle, records), arguments.rounds or (8 if arguments.quick else 40)
    with tempfile.TemporaryDirectory(prefix="sightline-matching-") as name:
        at, fragments = Path(name) / ".sightline", photos.mask.shape[1]
        make(at, bundle, photos, ITEMS)
        peer = peer_or_none(Path(name) / "peer", bundle, fragments)
        with Collection.open(at, bundle) as collection:
            rows = [measure(collection, bundle, peer, caption, pairs, rounds) for pairs in PAIRS]
    positions = {"sightline": int(bundle.tokenizer([caption]).mask.sum()) + fragments}
    if peer is not None:
        positions["cross_encoder"] = peer.positions(caption, peer.picture)
    ratios = {f"pairs a second, {row['pairs']} at once, times a CrossEncoder": row["times"] for row in rows if peer}
    shape = {"model": bundle.name, "shape": SHAPE, "positions": positions}
    write("matching", arguments, ["flickr8k-test"], rows, ratios, **shape)


if __name__ == "__main__":
    main()
