"""Published models that read words and detected regions in one transformer: Oscar (and VinVL), and UNITER.

Neither is part of transformers. Their checkpoints are state dicts, read here by the names that their authors published:
each has a plain BERT, a region embedding, and a head that classifies whether text and image match.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import BertConfig, BertModel

from sightline.errors import ModelError
from sightline.media import RegionConfig
from sightline.models.pretrained_model import Pretrained, encoded, hiding
from sightline.models.retriever import EncodedTensors, Regions, TextInput, Tokens, TowerFeatures
from sightline.models.towers import check_whole

Weights = Mapping[str, Tensor]

_EPS = 1e-12


class OscarRegions(nn.Module):
    """Oscar's region embedding: an affine map of feature and box concatenated; normalised only if trained that way."""

    def __init__(self, regions: RegionConfig, hidden: int, eps: float | None) -> None:
        super().__init__()
        self.img_embedding = nn.Linear(regions.feature_dim + regions.box_dim, hidden)
        self.LayerNorm = nn.Identity() if eps is None else nn.LayerNorm(hidden, eps=eps)

    def forward(self, regions: Regions, type_vector: Tensor) -> Tensor:
        """Embed regions: [batch, n, hidden]. Oscar uses neither positions nor types for them."""
        return self.LayerNorm(self.img_embedding(torch.cat([regions.features, regions.boxes], -1)))  # type: ignore[no-any-return]


class UniterRegions(nn.Module):
    """UNITER's region embedding: feature and box, each mapped and normalised, plus the image type, normalised."""

    def __init__(self, regions: RegionConfig, hidden: int) -> None:
        super().__init__()
        self.img_linear = nn.Linear(regions.feature_dim, hidden)
        self.pos_linear = nn.Linear(regions.box_dim, hidden)
        self.img_layer_norm, self.pos_layer_norm, self.LayerNorm = (nn.LayerNorm(hidden, eps=_EPS) for _ in range(3))

    def forward(self, regions: Regions, type_vector: Tensor) -> Tensor:
        """Embed regions: [batch, n, hidden]."""
        features = self.img_layer_norm(self.img_linear(regions.features))
        boxes = self.pos_layer_norm(self.pos_linear(regions.boxes))
        return self.LayerNorm(features + boxes + type_vector)  # type: ignore[no-any-return]


class RegionMatcher(Pretrained):
    """A BERT over words and regions, as a matcher. States are its inputs.

    embed: maps regions to [batch, n, hidden]. head: one logit, or two of which the second means "yes".
    """

    has = frozenset(("match",))
    reads_pixels = False

    def __init__(
        self,
        bert: BertModel,
        embed: OscarRegions | UniterRegions,
        head: nn.Linear,
        text_input: TextInput,
        regions: RegionConfig,
    ) -> None:
        super().__init__(bert, regions, text_input)
        self.embed = embed
        self.head = head

    def image_features(self, pixels: Tensor) -> TowerFeatures:
        """Raise an error, because this model does not read pixels."""
        raise ModelError("this model reads regions, not pixels", "Use regions from a detector.")

    def encode_images(self, images: Tensor | TowerFeatures | Regions) -> EncodedTensors:
        """Embed regions."""
        if not isinstance(images, Regions):
            raise ModelError("this model reads regions, not pixels", "Use regions from a detector.")
        types = self.model.embeddings.token_type_embeddings.weight
        return encoded(images.mask, None, self.embed(images, types[1]))

    def encode_texts(self, tokens: Tokens) -> EncodedTensors:
        """Embed words."""
        return encoded(tokens.mask, None, self.model.embeddings(input_ids=tokens.ids))

    def match(self, text_states: Tensor, text_mask: Tensor, image_states: Tensor, image_mask: Tensor) -> Tensor:
        """Return the logits [batch] that text i and image i belong together."""
        both = torch.cat([text_states, image_states], 1)
        mask = hiding(torch.cat([text_mask, image_mask], 1), both)
        read = self.model.encoder(both, attention_mask=mask).last_hidden_state
        logits = self.head(self.model.pooler(read))
        return logits[:, -1] if logits.shape[1] == 1 else logits[:, 1] - logits[:, 0]  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class _Names:
    """The names of a family's weights.

    regions: the name of its region embedding, which identifies its checkpoints.
    heads: the names of its matching heads, the one for retrieval first; a checkpoint without any of them cannot match.
    parts: published prefixes of names, each with our prefix; the first that matches is used.
    """

    regions: str
    heads: tuple[str, ...]
    parts: tuple[tuple[str, str], ...]

    def ours(self, name: str) -> str:
        """Return our name for a checkpoint's `name`."""
        return next((own + name.removeprefix(theirs) for theirs, own in self.parts if name.startswith(theirs)), name)

    def theirs(self, name: str) -> str:
        """Return a checkpoint's name for our `name`."""
        return next((theirs + name.removeprefix(own) for theirs, own in self.parts if name.startswith(own)), name)


_OSCAR = _Names(
    "bert.img_embedding.weight",
    ("classifier",),
    (("bert.img_embedding.", "embed.img_embedding."), ("bert.LayerNorm.", "embed.LayerNorm."), ("bert.", "model.")),
)
_UNITER = _Names(
    "uniter.img_embeddings.img_linear.weight",
    ("rank_output", "itm_output"),
    (("uniter.img_embeddings.", "embed."), ("uniter.", "model.")),
)
_BERT_KEYS = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "hidden_act",
    "max_position_embeddings",
    "type_vocab_size",
    "layer_norm_eps",
)


def is_region_checkpoint(weights: Weights) -> bool:
    """Return whether a state dict is from Oscar or UNITER, judging by its names."""
    return any(names.regions in weights for names in (_OSCAR, _UNITER))


def region_matcher(folder: Path, config: Mapping[str, Any], weights: Weights) -> RegionMatcher:
    """Build the model from an Oscar or UNITER state dict; the error for missing weights uses their published names."""
    weights = {_modern(name): tensor.float() for name, tensor in weights.items()}
    names = _OSCAR if _OSCAR.regions in weights else _UNITER
    bert = BertModel(BertConfig(**{key: config[key] for key in _BERT_KEYS if key in config}))
    hidden, width = int(bert.config.hidden_size), weights[names.regions].shape[1]
    regions = RegionConfig(width - 6, 6) if names is _OSCAR else RegionConfig(width, 7)
    embed = _oscar_regions(regions, hidden, config, weights) if names is _OSCAR else UniterRegions(regions, hidden)
    head = next((head for head in names.heads if f"{head}.weight" in weights), names.heads[0])
    text_input = TextInput(int(bert.config.max_position_embeddings))
    matcher = RegionMatcher(bert, embed, _head(folder, head, hidden, weights), text_input, regions)
    _fill(matcher, folder, weights, dataclasses.replace(names, parts=((f"{head}.", "head."), *names.parts)))
    return matcher.eval()


def _oscar_regions(regions: RegionConfig, hidden: int, config: Mapping[str, Any], weights: Weights) -> OscarRegions:
    normalises = "bert.LayerNorm.weight" in weights
    return OscarRegions(regions, hidden, float(config.get("img_layer_norm_eps", _EPS)) if normalises else None)


def _head(folder: Path, name: str, hidden: int, weights: Weights) -> nn.Linear:
    """Return a new matching head with one output, or with two for "no" and "yes"."""
    outputs = len(weights.get(f"{name}.weight", torch.empty(2)))
    if outputs > 2:
        raise ModelError(
            f"{folder}: {name}.weight has {outputs} classes: it was not trained for matching",
            "Use a checkpoint that was fine-tuned for retrieval.",
        )
    return nn.Linear(hidden, outputs)


def _modern(name: str) -> str:
    """Rename gamma and beta of old checkpoints to weight and bias."""
    for old, new in ((".gamma", ".weight"), (".beta", ".bias")):
        name = name.removesuffix(old) + new if name.endswith(old) else name
    return name


def _fill(matcher: RegionMatcher, folder: Path, weights: Weights, names: _Names) -> None:
    """Copy the weights of a checkpoint into a model; weights of other tasks are ignored."""
    wanted = {name for name, _ in matcher.named_parameters()}
    found = {own: tensor for name, tensor in weights.items() if (own := names.ours(name)) in wanted}
    check_whole(str(folder), "a region matcher", [names.theirs(name) for name in wanted - found.keys()])
    try:
        matcher.load_state_dict(found, strict=False)
    except RuntimeError as error:  # a shape that differs from the configuration
        raise ModelError(f"{folder}: its weights do not fit its config.json: {error}") from error
