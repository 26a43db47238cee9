"""Requests: searches by query string, JSON or form, and batches of texts and images."""

import base64
import binascii
from collections.abc import Iterable
from typing import Annotated, Any, Literal, Self

from fastapi import Request
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic_core import PydanticCustomError
from starlette.datastructures import UploadFile

from sightline.errors import MediaError
from sightline.fusion_names import FusionRule
from sightline.languages.letters import plain_letters
from sightline.media import ImageBytes, ImageSource
from sightline.retrieval.options import SearchOptions
from sightline.server.limits import Limits
from sightline.server.problems import RefusedError

_LIMITS = Limits()  # limits in the API description; the server may be stricter
_FIELD_BYTES = 64 * 2**10
Id = Annotated[int, Field(ge=1, le=2**63 - 1)]
Text = Annotated[str, StringConstraints(min_length=1, max_length=_LIMITS.characters, pattern=r"\S")]
ModelText = Annotated[Text, AfterValidator(plain_letters)]
"""A text for the model: its letters are made plain here, as the collection does with the texts of a search."""
Lang = Annotated[str, StringConstraints(pattern="^[a-z]{2,3}$")]
_LANG = "The language of the texts; by default the model's main one; it is not detected."
_IMAGE = f"An image file, in base64. The request has at most {_LIMITS.upload_bytes // 2**20} MB."
Base64 = Annotated[str, Field(min_length=1, description=_IMAGE)]


def _late(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    """Validate `late`; pydantic would report an error for each of its two types."""
    try:
        return handler(value)
    except ValidationError:
        raise PydanticCustomError("late", f"must be a whole number from 0 to {_LIMITS.late:,}, or all") from None


Late = Annotated[Annotated[int, Field(ge=0, le=_LIMITS.late)] | Literal["all"], WrapValidator(_late)]


class Search(BaseModel):
    """A search by text; all fields but `q` are optional."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, populate_by_name=False)

    q: Text = Field(description="What to find, in words.")
    not_: list[Text] = Field(default=[], alias="not", max_length=8, description="What results should not show.")
    where: Annotated[str, StringConstraints(max_length=2000)] | None = Field(
        default=None, description="A filter, such as: taken >= '2023-06' and folder = 'holiday'"
    )
    k: int = Field(default=10, ge=1, le=_LIMITS.results, description="How many results.")
    start: int = Field(default=0, ge=0, le=_LIMITS.deepest, description="Skip this many results.")
    late: Late | None = Field(
        default=None, description="Rescore this many of the best by late interaction, or rank all by it."
    )
    late_fragments: int | None = Field(
        default=None, ge=1, le=4096, description="Use only this many of the first fragments in late interaction."
    )
    rerank: int | None = Field(
        default=None, ge=0, le=_LIMITS.rerank, description="Rescore this many of the best by matching."
    )
    fusion: FusionRule | None = Field(default=None, description="How the matcher's score and the cosine are combined.")
    weight: float | None = Field(default=None, ge=-1e6, le=1e6, description="Weight of the cosine in the fusion.")
    min_relevance: float | None = Field(default=None, ge=0, le=1, description="Hide results below this relevance.")
    budget_ms: float | None = Field(default=None, gt=0, le=30_000, description="How long the search may take.")
    duplicates: Literal["fold", "show"] = Field(
        default="fold", description="Fold images that look the same into one result, or show them all."
    )
    lang: Lang | None = Field(
        default=None, description="The language of the query, one of the collection's; detected if left out."
    )

    @property
    def is_plain(self) -> bool:
        """Whether the search is by text only, so that it can be batched with others."""
        return bool(self.q) and not self.not_ and self.where is None and not self.start and self.budget_ms is None

    def options(self, image: ImageSource | None = None) -> SearchOptions:
        """Return the search options that correspond to this request."""
        given = {name: value for name, value in self.__dict__.items() if name not in ("q", "not_")}
        return SearchOptions(text=self.q, image=image, not_=tuple(self.not_), **given)


class ImageSearch(Search, title="PictureSearch"):
    """A search by text, an image, or both."""

    q: Text | None = Field(default=None, description="What to find, in words.")  # type: ignore[assignment]
    image_weight: float = Field(
        default=0.5, ge=0, le=1, description="With a text and an image: how much the image counts."
    )


class Embed(BaseModel):
    """Texts and images to embed."""

    model_config = ConfigDict(extra="forbid", strict=True)

    texts: list[ModelText] = Field(default=[], max_length=_LIMITS.items)
    images: list[Base64] = Field(default=[], max_length=_LIMITS.items)
    lang: Lang | None = Field(default=None, description=_LANG)


class Pair(BaseModel):
    """A text, and an uploaded image or an item of the collection."""

    model_config = ConfigDict(extra="forbid", strict=True)

    text: ModelText
    image: Base64 | None = None
    id: Id | None = None

    @model_validator(mode="after")
    def _has_one_image(self) -> Self:
        if (self.image is None) == (self.id is None):
            raise ValueError("must have either image or id")
        return self


class Match(BaseModel):
    """Pairs of a text and an image to match."""

    model_config = ConfigDict(extra="forbid", strict=True)

    pairs: list[Pair] = Field(min_length=1, max_length=_LIMITS.items)
    lang: Lang | None = Field(default=None, description=_LANG)


def read_query(request: Request) -> Search:
    """Read a search from a query string, at a third of the cost of FastAPI's own parsing."""
    return Search.model_validate(_fields(request.query_params.multi_items()))


def _fields(items: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Return the fields of a query string or form; `not` may be repeated."""
    fields: dict[str, Any] = {}
    for name, value in items:
        if name == "not":
            fields.setdefault(name, []).append(value)
        else:
            fields[name] = value
    return fields


async def read_form(request: Request, limits: Limits) -> tuple[ImageSearch, ImageBytes | None]:
    """Read a search from a form: the same fields as in JSON, and an image in the field `image`."""
    texts: list[tuple[str, str]] = []
    image: ImageBytes | None = None
    async with request.form(max_files=1, max_fields=32, max_part_size=_FIELD_BYTES) as form:
        for name, value in form.multi_items():
            if isinstance(value, UploadFile):
                image = await _upload(name, value)
            elif name == "image":
                raise RefusedError(422, "image is not a file", "Send the picture as a file, with a file name.")
            else:
                texts.append((name, value))
    return ImageSearch.model_validate(_fields(texts)), image


async def _upload(name: str, file: UploadFile) -> ImageBytes:
    if name != "image":
        raise RefusedError(422, f"unexpected file field {name[:40]!r}", 'Send one picture, in the field "image".')
    kind = (file.content_type or "").lower()
    if not kind.startswith("image/") and kind != "application/octet-stream":
        raise RefusedError(415, f"unsupported picture type {kind[:40] or 'none'}", "Use a type such as image/jpeg.")
    return ImageBytes("the picture", await file.read())


def decoded(data: str) -> ImageBytes:
    """Decode a base64 image."""
    try:
        return ImageBytes("the picture", base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError) as error:
        raise MediaError("the picture", "is not in base64", "Encode the bytes of the file as base64.") from error


def _parameters(schema: dict[str, Any]) -> list[dict[str, Any]]:
    required = schema.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in required, "schema": field}
        for name, field in schema["properties"].items()
    ]


SEARCH_QUERY: dict[str, Any] = {"parameters": _parameters(Search.model_json_schema())}
"""The query string of `GET /v1/search`, for the API description."""

SEARCH_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": Search.model_json_schema()},
            "multipart/form-data": {
                "schema": {
                    **ImageSearch.model_json_schema(),
                    "properties": {
                        **ImageSearch.model_json_schema()["properties"],
                        "image": {
                            "type": "string",
                            "format": "binary",
                            "description": f"A picture of at most {_LIMITS.upload_bytes // 2**20} MB to search by.",
                        },
                    },
                },
                "encoding": {"image": {"contentType": "image/jpeg, image/png, image/webp, image/*"}},
            },
        },
    }
}
"""The request body of `POST /v1/search`, JSON or a form, for the API description."""
