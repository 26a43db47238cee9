"""The schemas of responses."""

from typing import Annotated

from pydantic import BaseModel, Field

UnknownIds = Annotated[
    list[int],
    Field(description="Requested ids that no item of an available collection has; omitted if there are none."),
]


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
    quote: str | None = Field(default=None, description="A line of text in the image with words from the query.")
    moments: list[float] = Field(default=[], description="Of a video: seconds of its best moments, best first.")
    duration: float | None = Field(default=None, description="Of a video, in seconds.")
    encoded_by: str | None = Field(default=None, description='"fast" if the fast image graph encoded it.')
    image: str | None = None
    thumbnail: str | None = None
    video: str | None = None


class SearchAnswer(BaseModel):
    """The results of a search, best first, and the time in milliseconds that each stage took."""

    query: str
    took_ms: dict[str, float]
    hits: list[HitAnswer]
    lang: str | None = Field(default=None, description="The language that the query was read in.")
    image: str | None = None
    not_: list[str] = Field(default=[], alias="not")
    where: str | None = None
    best_relevance: float | None = None
    line: float | None = Field(default=None, description="The relevance from which a hit counts as a match.")
    matches: int | None = Field(default=None, description="How many hits count as matches.")
    relevance_kind: str | None = Field(
        default=None, description='"older" for a bundle whose relevance falls as more items match.'
    )
    truncated: bool | None = None
    notice: str | None = Field(default=None, description="One line about a query that the model cannot read.")
    did_you_mean: str | None = Field(default=None, description="The query with misspelt words replaced.")


class PlaceAnswer(BaseModel):
    """The place where an image was taken, in degrees."""

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
    duration: float | None = Field(default=None, description="Of a video, in seconds.")
    moments: list[float] = Field(default=[], description="Of a video requested by its id: seconds, in ascending order.")
    image: str | None = None
    thumbnail: str | None = None
    video: str | None = None


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
    """A line of text, its four corners as fractions of width and height, and the corners of each word of the query."""

    text: str
    corners: list[tuple[float, float]]
    marks: list[list[tuple[float, float]]]


class PictureTextAnswer(BaseModel):
    """The lines of text in an image, from top to bottom; empty if it has no text, or if its text was not read."""

    id: int
    lines: list[TextLineAnswer]


class TextCountsAnswer(BaseModel):
    """The number of images whose text was read, and how many of them have text."""

    read: int
    with_text: int


class PathsAnswer(BaseModel):
    """Paths of items, in the order requested."""

    paths: list[str]
    unknown_ids: UnknownIds = []


class AlbumAnswer(BaseModel):
    """An album and the number of items in it."""

    name: str
    items: int


class AlbumsAnswer(BaseModel):
    """All albums."""

    albums: list[AlbumAnswer]


class ChangedAlbumsAnswer(AlbumsAnswer):
    """All albums, after one was changed."""

    unknown_ids: UnknownIds = []


class PhraseAnswer(BaseModel):
    """A part of a query that acts as a filter: a date, a file name, a folder or an album."""

    text: str
    kind: str
    label: str
    where: str


class UnderstoodAnswer(BaseModel):
    """The phrases of a query that act as filters, and the other words to search for; `where` combines all filters."""

    words: str
    phrases: list[PhraseAnswer]
    unmatched: list[PhraseAnswer] = Field(default=[], description="Dates from which there are no items.")
    where: str | None = None
    lang: str | None = Field(default=None, description="The language to search for the words in, if it was needed.")


class MonthAnswer(BaseModel):
    """A month such as 2023-08, and its number of items; `month` is empty for items without a date."""

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
    """The part of the image that the grid covers, as fractions of its width and height; may extend beyond the image."""

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
    """How well a pair matches: the cosine, the matcher's logit, and the probability.

    The probability is omitted if the model is not calibrated, and for a text such as "in the", which asks for nothing.
    """

    cosine: float
    logit: float
    relevance: float | None = None


class MatchAnswer(BaseModel):
    """The scores of the pairs, in the order requested."""

    model: str
    scores: list[MatchScore]


class MemberAnswer(BaseModel):
    """One of several collections: the name of its folder, and its number of items."""

    name: str
    items: int


class CollectionAnswer(BaseModel):
    """The collection, or all collections of the server together, and what their model can do."""

    kind: str
    items: int
    to_refine: int = Field(default=0, description="How many items the fast image graph encoded.")
    model: str
    abilities: list[str]
    languages: list[str]
    version: str
    collections: list[MemberAnswer] = Field(default=[], description="If the server has several.")
    text: TextCountsAnswer | None = Field(default=None, description="Absent if no text was read.")


class HealthAnswer(BaseModel):
    """The state of the server."""

    status: str
