"""The image preprocessing and the tokenizer of a published model, from its processor and tokenizer files."""

import json
from collections.abc import Sequence
from math import isqrt
from pathlib import Path
from typing import Any

from PIL import Image
from tokenizers import Regex, normalizers
from transformers import (
    AutoImageProcessor,
    AutoTokenizer,
    BertTokenizer,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    T5Tokenizer,
)

from sightline.bundle.tokenizer import Tokenizer
from sightline.errors import ModelError
from sightline.media import Preprocess
from sightline.media.pixels import Interpolation
from sightline.models.towers import backend_of

_INTERPOLATIONS: dict[int, Interpolation] = {Image.Resampling.BICUBIC: "bicubic", Image.Resampling.BILINEAR: "bilinear"}
_PUNCTUATION = r"[!-/:-@\[-`{-~]"


def preprocess_of(folder: Path, square: int | None = None) -> Preprocess:
    """Return the image preprocessing of a model, from its processor's configuration.

    square: for a model whose processor keeps an image's aspect ratio, the side of the square to resize images to
    instead.
    """
    said = _processor(folder)
    if said.get("resample") not in _INTERPOLATIONS:
        raise ModelError(
            f"{folder}: unsupported resampling method {said.get('resample')}",
            "Only bilinear and bicubic are supported.",
        )
    plain = not said.get("do_normalize", True)
    rule = {"resize": "squash", "size": square} if square else _rule(folder, said)
    return Preprocess(
        **rule,
        mean=(0.0, 0.0, 0.0) if plain else said["image_mean"],
        std=(1.0, 1.0, 1.0) if plain else said["image_std"],
        interpolation=_INTERPOLATIONS[said["resample"]],
    )


def square_of_patches(folder: Path) -> int:
    """Return the side of the square to which a NaFlex processor resizes a square image."""
    said = _processor(folder)
    return int(said["patch_size"]) * isqrt(int(said["max_num_patches"]))


def _processor(folder: Path) -> dict[str, Any]:
    """Return the settings of a model's image processor, including the defaults of its class."""
    try:
        return dict(AutoImageProcessor.from_pretrained(folder).to_dict())
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(
            f"{folder}: cannot determine how to preprocess images: {error}",
            "Put the model's preprocessor_config.json into the folder.",
        ) from error


def _rule(folder: Path, said: dict[str, Any]) -> dict[str, Any]:
    """Return the resize rule that corresponds to a processor's settings."""
    size, crop = said["size"], said.get("crop_size") if said.get("do_center_crop") else None
    if crop and "shortest_edge" in size and crop["height"] == crop["width"] <= size["shortest_edge"]:
        short = size["shortest_edge"]
        return {"resize": "crop", "size": crop["height"], "short": None if short == crop["height"] else short}
    if "height" in size and size["height"] == size["width"] and (not crop or crop == size):
        return {"resize": "squash", "size": size["height"]}
    raise ModelError(
        f"{folder}: unsupported processor (resizes images to {size}, {f'crops to {crop}' if crop else 'no crop'})",
        "Sightline supports squashing to a square, and cropping a square of at most the shorter side.",
    )


def tokenizer_of(folder: Path, positions: int, before: Sequence[normalizers.Normalizer] = ()) -> Tokenizer:
    """Return the tokenizer of a model with this many positions for the tokens of a text.

    Read from the model's `tokenizer.json`, or converted by transformers from older files: SentencePiece, or word lists.
    before: a normaliser to apply first.
    """
    try:
        found = _found(folder)
    except (OSError, ValueError, ImportError) as error:
        raise ModelError(
            f"{folder}: cannot load a tokenizer from it: {error}", "Put the model's tokenizer.json into the folder."
        ) from error
    backend = backend_of(found, str(folder))
    if before:
        backend.normalizer = normalizers.Sequence([*before, *([backend.normalizer] if backend.normalizer else [])])
    return Tokenizer(backend, min(positions, found.model_max_length), found.pad_token_id or 0)


def siglip_tokenizer_of(folder: Path, positions: int) -> Tokenizer:
    """Return the tokenizer of a SigLIP model, with the text normalisation used in training.

    That is lower case and, for the first SigLIP, no punctuation. The classes of transformers do this outside
    `tokenizer.json`; if the file does it as well, doing it twice is harmless.
    """
    if _settings(folder).get("padding_side", "right") != "right":
        raise ModelError(
            f"{folder}: its tokenizer pads texts on the left, but SigLIP was trained with padding on the right",
            'Set "padding_side" to "right" in tokenizer_config.json.',
        )
    before: list[normalizers.Normalizer] = [normalizers.Lowercase()]
    if is_first_siglip(folder):
        before += [
            normalizers.Replace(Regex(_PUNCTUATION), ""),
            normalizers.Replace(Regex(r"\s+"), " "),
            normalizers.Strip(),
        ]
    return tokenizer_of(folder, positions, before)


def is_first_siglip(folder: Path) -> bool:
    """Return whether a SigLIP model's tokenizer is that of the first SigLIP, and not Gemma's, which SigLIP 2 uses."""
    return str(_settings(folder).get("tokenizer_class", "")).startswith("SiglipTokenizer")


def _settings(folder: Path) -> dict[str, Any]:
    path = folder / "tokenizer_config.json"
    try:
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: cannot be read: {error}") from error


def _found(folder: Path) -> PreTrainedTokenizerBase:
    if (folder / "tokenizer.json").is_file():
        return PreTrainedTokenizerFast.from_pretrained(folder)
    if (folder / "spiece.model").is_file():
        return T5Tokenizer.from_pretrained(folder, extra_ids=0)
    if (folder / "vocab.txt").is_file():
        return BertTokenizer.from_pretrained(folder, do_lower_case=_is_lower_case(folder))
    return AutoTokenizer.from_pretrained(folder)


def _is_lower_case(folder: Path) -> bool:
    """Return whether a BERT is uncased, according to its settings or else to its word list."""
    listed = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
    capitals = any(piece != piece.lower() for piece in listed if not piece.startswith("["))
    return bool(_settings(folder).get("do_lower_case", not capitals))
