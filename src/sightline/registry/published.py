"""Published models that Sightline can open, as a list to choose from; Sightline has not measured any of them."""

from dataclasses import dataclass
from typing import Any

from sightline.bundle.layout import HUB_PREFIX
from sightline.bundle.model import Ability


@dataclass(frozen=True, slots=True)
class PublishedModel:
    """A model on the hub. languages: "mul" for many. parameters: the number of weights."""

    name: str
    abilities: tuple[Ability, ...]
    languages: tuple[str, ...]
    parameters: int

    @property
    def model(self) -> str:
        """Its name in commands."""
        return HUB_PREFIX + self.name

    @property
    def megabytes(self) -> float:
        """The size on disk of a float32 bundle made from it."""
        return 4 * self.parameters / 1e6

    def to_json(self) -> dict[str, Any]:
        """Return the model's entry in the output of `sightline models --json`, like a bundle's but with no results."""
        return {
            "model": self.model,
            "abilities": list(self.abilities),
            "languages": list(self.languages),
            "megabytes": round(self.megabytes, 1),
            "results": [],
        }


PUBLISHED_MODELS = (
    PublishedModel("openai/clip-vit-base-patch32", ("embed",), ("en",), 151_277_313),
    PublishedModel("openai/clip-vit-base-patch16", ("embed",), ("en",), 149_620_737),
    PublishedModel("openai/clip-vit-large-patch14", ("embed",), ("en",), 427_616_513),
    PublishedModel("google/siglip-base-patch16-224", ("embed",), ("en",), 203_155_970),
    PublishedModel("google/siglip2-base-patch16-224", ("embed",), ("mul",), 375_187_970),
    PublishedModel("google/siglip2-base-patch16-naflex", ("embed",), ("mul",), 375_234_050),
    PublishedModel("Salesforce/blip-itm-base-coco", ("embed", "match"), ("en",), 223_744_258),
    PublishedModel("Salesforce/blip-itm-base-flickr", ("embed", "match"), ("en",), 223_744_258),
    PublishedModel("dandelin/vilt-b32-finetuned-coco", ("match",), ("en",), 111_595_777),
    PublishedModel("dandelin/vilt-b32-finetuned-flickr30k", ("match",), ("en",), 111_595_777),
)
"""A few models of each family; other models of these families can be opened too."""
