"""Responses: results without absolute paths, with the URLs of their images."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from sightline.collection import Collection, Item
from sightline.collection.group import GroupHit, GroupResult
from sightline.collection.manifest import DEFAULT_FOLDER
from sightline.retrieval.results import Hit
from sightline.server.library import Member


class HitAnswer(BaseModel):
    """One result. Unknown and empty fields are omitted."""

    rank: int
    id: int
    path: str
    root: str | None = None
    score: float
    relevance: float | None = None
    stage: str
    text: str | None = None
    line: int | None = None
    key: str | None = None
    copies: list[str] = []
    folded: list[str] = []
    width: int | None = None
    height: int | None = None
    taken: str | None = None
    quote: str | None = Field(default=None, description="A line of text in the image that contains words of the query.")
    image: str | None = None
    thumbnail: str | None = None


class SearchAnswer(BaseModel):
    """The results of a search, best first, and the milliseconds that each stage took."""

    query: str
    took_ms: dict[str, float]
    hits: list[HitAnswer]
    image: str | None = None
    not_: list[str] = Field(default=[], alias="not")
    where: str | None = None
    best_relevance: float | None = None
    line: float | None = Field(default=None, description="The relevance from which a hit counts as a match.")
    matches: int | None = Field(default=None, description="How many hits count as matches.")
    relevance_kind: str | None = Field(
        default=None, description='"older" for a bundle whose relevance falls with the number of items that fit.'
    )
    truncated: bool | None = None
    notice: str | None = Field(default=None, description="One line about a query that the model cannot read.")
    did_you_mean: str | None = Field(default=None, description="The query with misspelt words replaced.")


class PlaceAnswer(BaseModel):
    """Where an image was taken, in degrees."""

    latitude: float
    longitude: float


class ItemAnswer(BaseModel):
    """The metadata of an item."""

    id: int
    path: str
    root: str | None = None
    copies: list[str]
    albums: list[str] = []
    width: int | None = None
    height: int | None = None
    taken: str | None = None
    place: PlaceAnswer | None = None
    text: str | None = None
    line: int | None = None
    key: str | None = None
    image: str | None = None
    thumbnail: str | None = None


class ItemsAnswer(BaseModel):
    """A selection of items, and the total number of matches."""

    total: int
    items: list[ItemAnswer]


class CameraAnswer(BaseModel):
    """Camera data of a photo; unknown fields are omitted."""

    camera: str | None = None
    lens: str | None = None
    exposure: str | None = None
    aperture: str | None = None
    iso: str | None = None
    focal_length: str | None = None


class TextLineAnswer(BaseModel):
    """A line of text, its four corners as fractions of width and height, and those of the words that were asked for."""

    text: str
    corners: list[tuple[float, float]]
    marks: list[list[tuple[float, float]]]


class PictureTextAnswer(BaseModel):
    """The text in an image, from top to bottom; empty if it has none, or if it was not read."""

    id: int
    lines: list[TextLineAnswer]


class TextCountsAnswer(BaseModel):
    """The number of images whose text was read, and how many of them have text."""

    read: int
    with_text: int


class PathsAnswer(BaseModel):
    """Paths of items, in the order requested."""

    paths: list[str]


class AlbumAnswer(BaseModel):
    """An album and its number of contents."""

    name: str
    items: int


class AlbumsAnswer(BaseModel):
    """All albums."""

    albums: list[AlbumAnswer]


class PhraseAnswer(BaseModel):
    """A part of a query that is a filter: a date, a file name, a folder or an album."""

    text: str
    kind: str
    label: str
    where: str


class UnderstoodAnswer(BaseModel):
    """The remaining words of a query to search for, and its phrases; `where` combines all their filters."""

    words: str
    phrases: list[PhraseAnswer]
    where: str | None = None


class MonthAnswer(BaseModel):
    """A month such as 2023-08, and its number of items; the name is empty for items without a date."""

    month: str
    items: int


class TimelineAnswer(BaseModel):
    """The number of items in total and in each month, newest first."""

    total: int
    months: list[MonthAnswer]


class TimelineItemsAnswer(BaseModel):
    """Items by time, newest first. `next` is the cursor of the next page; it is omitted on the last."""

    total: int
    start: int
    next: str | None = None
    items: list[ItemAnswer]


class ExamplesAnswer(BaseModel):
    """Searches that have good results in the collection."""

    examples: list[str]


class FolderAnswer(BaseModel):
    """A folder and its number of files, including subfolders. `root` is present if several folders were indexed."""

    path: str
    items: int
    root: str | None = None


class TakenAnswer(BaseModel):
    """The earliest and latest known capture times."""

    first: str
    last: str


class FiltersAnswer(BaseModel):
    """The values that filters can use; `taken` is omitted if no date is known."""

    folders: list[FolderAnswer]
    taken: TakenAnswer | None = None


class WordAnswer(BaseModel):
    """A word, its position in the query, its best cosine, and its cosine with each part of the image."""

    word: str
    start: int
    end: int
    score: float
    grid: list[list[float]]


class BoxAnswer(BaseModel):
    """The part of the image that the grid covers, as fractions of its width and height; it may extend beyond."""

    left: float
    top: float
    right: float
    bottom: float


class ExplainAnswer(BaseModel):
    """How similar each part of an image is to each word of a query."""

    query: str
    id: int
    rows: int
    columns: int
    box: BoxAnswer
    words: list[WordAnswer]


class EmbedAnswer(BaseModel):
    """Unit vectors, in the order of the inputs."""

    model: str
    dim: int
    texts: list[list[float]]
    images: list[list[float]]


class MatchScore(BaseModel):
    """How well a pair matches: the cosine, the matcher's logit, and the probability if the model is calibrated."""

    cosine: float
    logit: float
    relevance: float | None = None


class MatchAnswer(BaseModel):
    """The scores of pairs, in order."""

    model: str
    scores: list[MatchScore]


class MemberAnswer(BaseModel):
    """One of several collections: the name of its folder, and its number of items."""

    name: str
    items: int


class CollectionAnswer(BaseModel):
    """The collection, or all collections of the server together, and the abilities of their model."""

    kind: str
    items: int
    model: str
    abilities: list[str]
    languages: list[str]
    version: str
    collections: list[MemberAnswer] = Field(default=[], description="If the server has several.")
    text: TextCountsAnswer | None = Field(default=None, description="Absent if no text was read.")


class HealthAnswer(BaseModel):
    """The state of the server."""

    status: str


def text_counts(members: Sequence[Member]) -> dict[str, Any]:
    """How much text was read from the images, if any was."""
    counts = [text.counts() for text in (member.collection.picture_text for member in members) if text is not None]
    if not counts:
        return {}
    return {"text": {"read": sum(one.read for one in counts), "with_text": sum(one.with_text for one in counts)}}


def search_answer(result: GroupResult, members: Sequence[Member]) -> dict[str, Any]:
    """The output of `sightline search --json`, without what only the owner of the machine should see."""
    return {**result.flat().about(), "hits": group_hit_answers(result.hits, members)}


def group_hit_answers(hits: Sequence[GroupHit], members: Sequence[Member]) -> list[dict[str, Any]]:
    """Results of several collections, in their order."""
    own = {
        number: iter(hit_answers([one.hit for one in hits if one.member == number], member))
        for number, member in enumerate(members)
    }
    return [next(own[one.member]) for one in hits]


def hit_answers(hits: Sequence[Hit], member: Member) -> list[dict[str, Any]]:
    """Results, with their other files shown relative to the root, like `path`."""
    urls, names = _image_urls([hit.id for hit in hits], member), set(root_names(member).values())
    return [
        {**_hit_answer(hit), "id": member.outer(hit.id), **_root(hit.root, names), **urls.get(hit.id, {})}
        for hit in hits
    ]


def item_answers(items: Sequence[Item], member: Member) -> list[dict[str, Any]]:
    """The metadata of items; unknown fields are omitted."""
    urls, names = _image_urls([item.id for item in items], member), set(root_names(member).values())
    return [
        {
            **_item_answer(item),
            "id": member.outer(item.id),
            **_root(item.files[0].root, names),
            **urls.get(item.id, {}),
        }
        for item in items
    ]


def collection_name(collection: Collection) -> str:
    """The name of the folder whose images a collection contains, or of its own."""
    at = Path(collection.at)
    return _name(at.parent if at.name == DEFAULT_FOLDER else at)


def root_names(member: Member) -> dict[int, str]:
    """The names of the indexed folders by root number, as used in filters; empty if there is only one in all."""
    collection = member.collection
    if collection.kind != "images" or isinstance(collection.at, str):
        return {}
    roots = collection.catalog.roots()
    return {id: _name(root) for id, root in roots.items()} if len(roots) > 1 or not member.is_alone else {}


def _root(root: Path, names: set[str]) -> dict[str, str]:
    return {"root": _name(root)} if _name(root) in names else {}


def _name(root: Path) -> str:
    return root.name.encode("utf-8", "replace").decode()


def version(hash: bytes) -> str:
    """The part of an image's URL that distinguishes it from images of other collections with the same ids."""
    return hash.hex()[:16]


def _hit_answer(hit: Hit) -> dict[str, Any]:
    found = hit.to_json()
    del found["file"], found["root"]
    for name, paths in (("copies", hit.copies), ("folded", hit.folded)):
        if paths:
            found[name] = [_below(path, hit.root) for path in paths]
    return found


def _item_answer(item: Item) -> dict[str, Any]:
    first, *others = item.files
    found = {
        "id": item.id,
        "path": first.path,
        "width": item.width,
        "height": item.height,
        "taken": item.taken,
        "place": {"latitude": item.place.latitude, "longitude": item.place.longitude} if item.place else None,
        "text": item.text,
        "line": first.line,
        "key": first.key,
    }
    known = {name: value for name, value in found.items() if value is not None}
    return {**known, "copies": [file.path for file in others]}


def album_names(collection: Collection, id: int) -> dict[str, list[str]]:
    """The albums that contain an item, if any."""
    hash = collection.catalog.hash_of(id) if isinstance(collection.at, Path) else None
    names = collection.albums.of(hash) if hash else []
    return {"albums": names} if names else {}


def _image_urls(ids: Sequence[int], member: Member) -> dict[int, dict[str, str]]:
    """The URLs of items' images, with a version, so that browsers can cache them."""
    if member.collection.kind != "images":
        return {}
    return {
        id: {form: f"/v1/items/{member.outer(id)}/{form}?v={version(hash)}" for form in ("image", "thumbnail")}
        for id, hash in member.collection.catalog.hashes_of(ids).items()
    }


def _below(path: Path, root: Path) -> str:
    """A path relative to the root, or only the name of a path outside it. Invalid characters are replaced."""
    shown = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name
    return shown.encode("utf-8", "replace").decode()
