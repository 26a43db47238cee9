"""Responses: results without local paths, with the URLs of their images."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from sightline.collection import Collection, Item
from sightline.retrieval.results import Hit, SearchResult


class HitAnswer(BaseModel):
    """One result. What is not known, or empty, is left out."""

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
    image: str | None = None
    thumbnail: str | None = None


class SearchAnswer(BaseModel):
    """The results of a search, best first, and how many milliseconds each part of it took."""

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
    """What is known of an item."""

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
    """Some items, and of how many."""

    total: int
    items: list[ItemAnswer]


class CameraAnswer(BaseModel):
    """What the camera wrote into a photo; what is not known is left out."""

    camera: str | None = None
    lens: str | None = None
    exposure: str | None = None
    aperture: str | None = None
    iso: str | None = None
    focal_length: str | None = None


class PathsAnswer(BaseModel):
    """Paths of items, in the order in which they were asked for."""

    paths: list[str]


class AlbumAnswer(BaseModel):
    """An album, and how many contents it has."""

    name: str
    items: int


class AlbumsAnswer(BaseModel):
    """All albums."""

    albums: list[AlbumAnswer]


class PhraseAnswer(BaseModel):
    """A part of a query that is a filter: a date, the name of a file, a folder or an album."""

    text: str
    kind: str
    label: str
    where: str


class UnderstoodAnswer(BaseModel):
    """The words of a query that are left to search for, and its phrases; `where` is all their filters as one."""

    words: str
    phrases: list[PhraseAnswer]
    where: str | None = None


class MonthAnswer(BaseModel):
    """A month such as 2023-08, and how many items it has; its name is empty for items without a date."""

    month: str
    items: int


class TimelineAnswer(BaseModel):
    """How many items there are in all, and in each month, newest first."""

    total: int
    months: list[MonthAnswer]


class TimelineItemsAnswer(BaseModel):
    """Items by time, newest first. `next` is the cursor to go on with; it is left out at the end."""

    total: int
    start: int
    next: str | None = None
    items: list[ItemAnswer]


class ExamplesAnswer(BaseModel):
    """Searches that find something in the collection."""

    examples: list[str]


class FolderAnswer(BaseModel):
    """A folder, and how many files are in and below it. `root` is given where several folders were indexed."""

    path: str
    items: int
    root: str | None = None


class TakenAnswer(BaseModel):
    """When the first and the last image were taken, as far as it is known."""

    first: str
    last: str


class FiltersAnswer(BaseModel):
    """What filters can choose from; `taken` is left out where no date is known."""

    folders: list[FolderAnswer]
    taken: TakenAnswer | None = None


class WordAnswer(BaseModel):
    """A word, where it stands in the query, its best cosine, and its cosine with each part of the image."""

    word: str
    start: int
    end: int
    score: float
    grid: list[list[float]]


class BoxAnswer(BaseModel):
    """The part of the image that the grid covers, as shares of its width and height; it may reach beyond."""

    left: float
    top: float
    right: float
    bottom: float


class ExplainAnswer(BaseModel):
    """Which parts of an image each word of a query resembles."""

    query: str
    id: int
    rows: int
    columns: int
    box: BoxAnswer
    words: list[WordAnswer]


class EmbedAnswer(BaseModel):
    """Unit vectors, in the order of what was sent."""

    model: str
    dim: int
    texts: list[list[float]]
    images: list[list[float]]


class MatchScore(BaseModel):
    """How well a pair fits: the cosine, the matcher's logit, and the probability where the model knows it."""

    cosine: float
    logit: float
    relevance: float | None = None


class MatchAnswer(BaseModel):
    """The scores of pairs, in their order."""

    model: str
    scores: list[MatchScore]


class CollectionAnswer(BaseModel):
    """What there is to search, and what the model can do."""

    kind: str
    items: int
    model: str
    abilities: list[str]
    languages: list[str]
    version: str


class HealthAnswer(BaseModel):
    """That the server is up."""

    status: str


def search_answer(result: SearchResult, collection: Collection) -> dict[str, Any]:
    """What `sightline search --json` writes, less what only this machine's owner should see."""
    return {**result.about(), "hits": hit_answers(result.hits, collection)}


def hit_answers(hits: Sequence[Hit], collection: Collection) -> list[dict[str, Any]]:
    """Results, their other files named as `path` is."""
    urls, names = _image_urls([hit.id for hit in hits], collection), set(root_names(collection).values())
    return [{**_hit_answer(hit), **_root(hit.root, names), **urls.get(hit.id, {})} for hit in hits]


def item_answers(items: Sequence[Item], collection: Collection) -> list[dict[str, Any]]:
    """What is known of items; what is not is left out."""
    urls, names = _image_urls([item.id for item in items], collection), set(root_names(collection).values())
    return [{**_item_answer(item), **_root(item.files[0].root, names), **urls.get(item.id, {})} for item in items]


def root_names(collection: Collection) -> dict[int, str]:
    """The names of the folders that were indexed, by their numbers, if there are several; as filters know them."""
    if collection.kind != "images" or isinstance(collection.at, str):
        return {}
    roots = collection.catalog.roots()
    return {id: _name(root) for id, root in roots.items()} if len(roots) > 1 else {}


def _root(root: Path, names: set[str]) -> dict[str, str]:
    return {"root": _name(root)} if _name(root) in names else {}


def _name(root: Path) -> str:
    return root.name.encode("utf-8", "replace").decode()


def version(hash: bytes) -> str:
    """The part of an image's URL that tells it from the images of other collections, which have the same ids."""
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
    """The albums that an item is in, if any."""
    hash = collection.catalog.hash_of(id) if isinstance(collection.at, Path) else None
    names = collection.albums.of(hash) if hash else []
    return {"albums": names} if names else {}


def _image_urls(ids: Sequence[int], collection: Collection) -> dict[int, dict[str, str]]:
    """Where the images of items are, with a version of each, so that a browser may keep them."""
    if collection.kind != "images":
        return {}
    return {
        id: {form: f"/v1/items/{id}/{form}?v={version(hash)}" for form in ("image", "thumbnail")}
        for id, hash in collection.catalog.hashes_of(ids).items()
    }


def _below(path: Path, root: Path) -> str:
    """A path below the root of the result; of one elsewhere, only its name. What is no text is replaced."""
    shown = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name
    return shown.encode("utf-8", "replace").decode()
