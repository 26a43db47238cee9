"""Cut the vocabulary of a multilingual encoder to what some texts need: its word table makes up most of its size.

    python -m bundles.cut_vocabulary DIR/multilingual-e5-small --text DIR --out DIR/e5-small-multilingual --pieces 64000
    python -m bundles.cut_vocabulary DIR/multilingual-e5-small --captions DATA… --out DIR/e5-small-captions

Keeps the pieces of a unigram tokenizer that the texts use most, and single characters, so that any word can be spelt.
The texts are those of `bundles.languages`, in which captions count more than dictionary words, or the captions of data
sets in all of their languages.
"""

import argparse
import gzip
import json
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import tokenizers
import torch
from transformers import AutoConfig, AutoModel

from bundles.languages import kind_of
from sightline.datasets import read_all

_CAPTION, _WORD = 3, 1  # the weight of a piece, by where it occurs
_LEAST = 3
_BATCH = 20_000
_SETTINGS = "tokenizer_config.json"


def pieces_to_keep(tokenizer: dict[str, Any], counts: Counter[int], most: int) -> list[int]:
    """Return the ids to keep, in their old order: special tokens, single letters, then the most frequent pieces."""
    vocabulary = tokenizer["model"]["vocab"]
    special = [token["id"] for token in tokenizer.get("added_tokens", ())]
    keep = dict.fromkeys([*special, tokenizer["model"]["unk_id"]])
    letters = (number for number, (piece, _) in enumerate(vocabulary) if _is_letter(piece))
    frequent = (number for number, count in counts.most_common() if count >= _LEAST)
    for number in (*letters, *frequent):
        if len(keep) == most:
            break
        keep[number] = None
    return sorted(keep)


def _is_letter(piece: str) -> bool:
    """Return whether a piece is one character, but not of a script with thousands of them."""
    return len(piece) == 1 and not unicodedata.name(piece, "").startswith(("CJK", "HANGUL"))


def cut_tokenizer(tokenizer: dict[str, Any], keep: Sequence[int]) -> dict[str, Any]:
    """Return the tokenizer with only these pieces, renumbered."""
    new = {old: number for number, old in enumerate(keep)}
    cut = json.loads(json.dumps(tokenizer))
    cut["model"]["vocab"] = [tokenizer["model"]["vocab"][old] for old in keep]
    cut["model"]["unk_id"] = new[tokenizer["model"]["unk_id"]]
    cut["added_tokens"] = [{**token, "id": new[token["id"]]} for token in tokenizer.get("added_tokens", ())]
    for token in ((cut.get("post_processor") or {}).get("special_tokens") or {}).values():
        token["ids"] = [new[old] for old in token["ids"]]
    return cut  # type: ignore[no-any-return]


def count_pieces(tokenizer: tokenizers.Tokenizer, texts: Iterable[tuple[str, int]]) -> Counter[int]:
    """Return how often each piece occurs in the texts, each of which counts with its weight."""
    counts: Counter[int] = Counter()
    waiting: dict[int, list[str]] = {}
    for text, weight in texts:
        some = waiting.setdefault(weight, [])
        some.append(text)
        if len(some) == _BATCH:
            _add(counts, tokenizer, waiting.pop(weight), weight)
    for weight, some in waiting.items():
        _add(counts, tokenizer, some, weight)
    return counts


def _add(counts: Counter[int], tokenizer: tokenizers.Tokenizer, texts: list[str], weight: int) -> None:
    for encoding in tokenizer.encode_batch(texts, add_special_tokens=False):
        for number in encoding.ids:
            counts[number] += weight


def _texts(folder: Path) -> Iterator[tuple[str, int]]:
    for path in sorted(folder.glob("*.jsonl.gz")):
        if not path.name.startswith("held"):
            with gzip.open(path, "rt", encoding="utf-8") as file:
                for line in map(json.loads, file):
                    yield line["text"], _WORD if kind_of(line["source"]) == "words" else _CAPTION


def _captions(data: Sequence[str]) -> Iterator[tuple[str, int]]:
    for record in read_all(data):
        for captions in record.captions.values():
            yield from ((caption, _CAPTION) for caption in captions)


def main(argv: Sequence[str] | None = None) -> None:
    """Read the encoder, count the pieces in the texts, and write the smaller encoder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("encoder", type=Path, help="folder with config.json, model.safetensors and tokenizer.json")
    texts = parser.add_mutually_exclusive_group(required=True)
    texts.add_argument("--text", type=Path, help="folder with the texts of bundles.languages")
    texts.add_argument("--captions", nargs="+", help="captioned data sets, as for sightline eval")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--pieces", type=int, default=64_000)
    args = parser.parse_args(argv)
    whole = json.loads((args.encoder / "tokenizer.json").read_text(encoding="utf-8"))
    if whole["model"]["type"] != "Unigram":
        parser.error(f"{args.encoder}: the tokenizer's model is {whole['model']['type']}, but only Unigram can be cut")
    found = _captions(args.captions) if args.captions else _texts(args.text)
    counts = count_pieces(tokenizers.Tokenizer.from_file(str(args.encoder / "tokenizer.json")), found)
    keep = pieces_to_keep(whole, counts, args.pieces)
    cut = cut_tokenizer(whole, keep)
    config = AutoConfig.from_pretrained(args.encoder)
    model = AutoModel.from_pretrained(args.encoder, config=config, dtype=torch.float32)
    table = model.get_input_embeddings().weight.detach()[keep]
    model.resize_token_embeddings(len(keep))
    model.get_input_embeddings().weight.data.copy_(table)
    if config.pad_token_id is not None:
        model.config.pad_token_id = keep.index(config.pad_token_id)
    model.save_pretrained(args.out)
    (args.out / "tokenizer.json").write_text(json.dumps(cut, ensure_ascii=False), encoding="utf-8")
    if (settings := args.encoder / _SETTINGS).is_file():
        (args.out / _SETTINGS).write_bytes(settings.read_bytes())
    print(f"{len(keep):,} of {len(whole['model']['vocab']):,} pieces kept")


if __name__ == "__main__":
    main()
