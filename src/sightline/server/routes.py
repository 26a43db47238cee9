"""The routes of the HTTP API."""

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from fastapi import Path as InPath
from starlette.responses import HTMLResponse, JSONResponse, Response

from sightline.server import browse, responses
from sightline.server.access import AccessControl
from sightline.server.bodies import JSON, body_type
from sightline.server.byte_ranges import UnsatisfiableRangeError, parse_range
from sightline.server.file_response import FileResponse
from sightline.server.image_files import SIDES, ImageContent, is_known
from sightline.server.metrics import CONTENT_TYPE
from sightline.server.problems import MEDIA_TYPE, RefusedError
from sightline.server.reference import reference
from sightline.server.requests import (
    SEARCH_BODY,
    SEARCH_QUERY,
    Embed,
    Id,
    Lang,
    Match,
    ModelText,
    Search,
    Text,
    read_form,
    read_query,
)
from sightline.server.service import Service
from sightline.server.static import content_type, tag
from sightline.server.videos import VideoFile
from sightline.server.worker_pool import WorkerPool

Filter = Annotated[str | None, Query(max_length=2000, description="A filter, such as: folder = 'holiday'")]
Language = Annotated[Lang | None, Query(description="The language of the query; detected if left out.")]
ItemId = Annotated[Id, InPath(description="The id of an item, as in results.")]
IfNoneMatch = Annotated[str | None, Header(include_in_schema=False)]
Version = Annotated[
    str | None,
    Query(pattern="^[0-9a-f]{16}$", description="As in the URLs of results: such an image never changes."),
]
Moment = Annotated[
    float | None, Query(ge=0, le=1e6, description="Of a video: seconds; the nearest of its moments is shown.")
]
_SIDE = "Length of the longer side, in pixels; rounded up. A panorama's is up to four times as long."
_VERSIONED, _UNVERSIONED = "private, max-age=86400, immutable", "private, no-cache"


def _problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    schema = {"$ref": "#/components/schemas/ProblemDetails"}
    return {
        status: {"description": HTTPStatus(status).phrase, "content": {MEDIA_TYPE: {"schema": schema}}}
        for status in (400, 401, 403, 408, 413, 415, 421, 422, 429, 500, 503, *statuses)
    }


_USUAL, OF_ITEMS = _problems(), _problems(404)
_IMAGE: dict[int | str, dict[str, Any]] = {
    **OF_ITEMS,
    200: {"description": "The picture.", "content": {"image/*": {"schema": {"type": "string", "format": "binary"}}}},
    304: {"description": "The client has it already."},
}


_VIDEO: dict[int | str, dict[str, Any]] = {
    **_problems(404, 416),
    200: {"description": "The video.", "content": {"video/*": {"schema": {"type": "string", "format": "binary"}}}},
    206: {"description": "A range of it.", "content": {"video/*": {"schema": {"type": "string", "format": "binary"}}}},
    304: {"description": "The client has it already."},
}


def search_routes(service: Service) -> APIRouter:
    """Return routes for searches and explanations."""
    router = APIRouter(prefix="/v1", tags=["search"], responses=_USUAL)

    @router.get("/search", response_model=responses.SearchAnswer, openapi_extra=SEARCH_QUERY)
    async def search(request: Request) -> Response:
        """Find items by text."""
        return JSONResponse(await service.found(read_query(request)))

    @router.post("/search", response_model=responses.SearchAnswer, openapi_extra=SEARCH_BODY)
    async def search_by_post(request: Request) -> Response:
        """Find items by text, sent as JSON, or by text, an image or both, sent as a form."""
        asked: Search
        image = None
        if body_type(request.headers) == JSON:
            asked = Search.model_validate_json(await request.body(), strict=True)
        else:
            asked, image = await read_form(request, service.limits)
        return JSONResponse(await service.found(asked, image))

    @router.get("/explain", response_model=responses.ExplainAnswer, responses=OF_ITEMS)
    async def explain(q: Annotated[ModelText, Query()], id: Annotated[Id, Query()], lang: Language = None) -> Response:
        """Compare each word of a query with each part of an image; returns a grid of cosines."""
        return JSONResponse(await service.slow.run(service.explain, q, id, lang))

    @router.get("/timeline", response_model=responses.TimelineAnswer)
    async def timeline(where: Filter = None) -> Response:
        """The number of items in each month, by capture date or, if unknown, modification date."""
        return JSONResponse(await service.quick.run(browse.timeline, service.library, where))

    @router.get("/timeline/items", response_model=responses.TimelineItemsAnswer)
    async def timeline_items(
        k: Annotated[int, Query(ge=1, le=service.limits.results)] = 100,
        where: Filter = None,
        start: Annotated[int, Query(ge=0, le=2**53, description="The position of the first item.")] = 0,
        after: Annotated[
            str | None, Query(max_length=40, description="Instead of start: the `next` of the previous response.")
        ] = None,
    ) -> Response:
        """Items by time, newest first. Continue with `after`, which stays valid when items are added."""
        return JSONResponse(await service.quick.run(browse.timeline_items, service.library, k, where, start, after))

    @router.get("/understand", response_model=responses.UnderstoodAnswer)
    async def understand(
        q: Annotated[Text, Query()],
        literal: Annotated[
            list[Text] | None,
            Query(max_length=8, description="Phrases to search for as words, not as filters; may be repeated."),
        ] = None,
        lang: Language = None,
    ) -> Response:
        """Find dates, file names, folders and albums in a query, and return the matching filters."""
        return JSONResponse(await service.quick.run(browse.understood, service.library, q, literal or [], lang))

    @router.get("/examples", response_model=responses.ExamplesAnswer)
    async def examples() -> Response:
        """A few searches with good results in this collection."""
        return JSONResponse({"examples": await service.slow.run(service.examples)})

    @router.get("/filters", response_model=responses.FiltersAnswer)
    async def filters() -> Response:
        """The folders and dates to filter by."""
        return JSONResponse(await service.quick.run(browse.filter_choices, service.library))

    return router


def item_routes(service: Service) -> APIRouter:
    """Return routes for items by id."""
    router = APIRouter(prefix="/v1/items", tags=["items"], responses=OF_ITEMS)

    @router.get("", response_model=responses.ItemsAnswer)
    async def items(k: Annotated[int, Query(ge=1, le=service.limits.results)] = 10, where: Filter = None) -> Response:
        """A sample of items, spread evenly over the collection or over the matches of a filter."""
        return JSONResponse(await service.quick.run(browse.some_items, service.library, k, where))

    @router.get("/{id}", response_model=responses.ItemAnswer)
    async def item(id: ItemId) -> Response:
        """The metadata of an item."""
        return JSONResponse(await service.quick.run(service.item, id))

    @router.get("/{id}/similar", response_model=responses.SearchAnswer)
    async def similar(id: ItemId, k: Annotated[int, Query(ge=1, le=service.limits.results)] = 10) -> Response:
        """The items most similar to this one."""
        return JSONResponse(await service.quick.run(service.similar, id, k))

    @router.get("/{id}/camera", response_model=responses.CameraAnswer, response_model_exclude_none=True)
    async def camera(id: ItemId) -> Response:
        """The camera data in the file: camera, lens and exposure."""
        return JSONResponse(await service.images.run(service.camera, id))

    @router.get("/{id}/text", response_model=responses.PictureTextAnswer)
    async def text(id: ItemId, q: Annotated[Text | None, Query()] = None) -> Response:
        """The text in the image, and the positions of a query's words in it."""
        return JSONResponse(await service.quick.run(service.text, id, q or ""))

    @router.get("/{id}/image", responses=_IMAGE, response_class=Response)
    async def image(id: ItemId, v: Version = None, at: Moment = None, if_none_match: IfNoneMatch = None) -> Response:
        """The image itself, if its file is unchanged since indexing; rare types and video frames are sent as JPEG."""
        found = await service.images.run(service.image, id, v, at, _knows(if_none_match))
        return _image_response(service.images, v, *found)

    @router.get("/{id}/video", responses=_VIDEO, response_class=Response)
    async def video(
        id: ItemId,
        v: Version = None,
        range: Annotated[str | None, Header(description="A range of bytes, such as bytes=0-1023.")] = None,
        if_range: Annotated[str | None, Header(include_in_schema=False)] = None,
        if_none_match: IfNoneMatch = None,
    ) -> Response:
        """The file of a video, or a range of it, if it is unchanged since indexing."""
        tag, found = await service.images.run(service.video, id, v)
        return _video_response(service.images, v, tag, found, range if if_range in (None, tag) else None, if_none_match)

    @router.get("/{id}/thumbnail", responses=_IMAGE, response_class=Response)
    async def thumbnail(
        id: ItemId,
        v: Version = None,
        at: Moment = None,
        side: Annotated[int, Query(ge=1, le=SIDES[-1], description=_SIDE)] = 320,
        if_none_match: IfNoneMatch = None,
    ) -> Response:
        """A thumbnail of the image."""
        rounded = next(one for one in SIDES if one >= side)
        found = await service.images.run(service.thumbnail, id, v, at, rounded, _knows(if_none_match))
        return _image_response(service.images, v, *found)

    return router


def model_routes(service: Service) -> APIRouter:
    """Return routes for other programs: embed and match many items at once."""
    router = APIRouter(prefix="/v1", tags=["model"], responses=OF_ITEMS)

    @router.post("/embed", response_model=responses.EmbedAnswer)
    async def embed(asked: Embed) -> Response:
        """Embed texts and images; returns unit vectors, so that their dot product is the cosine."""
        pool = service.slow if asked.images else service.quick
        return JSONResponse(await pool.run(service.embed, asked))

    @router.post("/match", response_model=responses.MatchAnswer)
    async def match(asked: Match) -> Response:
        """Score how well texts and images match, pair by pair."""
        return JSONResponse(await service.slow.run(service.match, asked))

    @router.get("/collection", response_model=responses.CollectionAnswer)
    async def collection() -> Response:
        """The collection, and what its model can do."""
        return JSONResponse(await service.quick.run(service.about))

    return router


def operations_routes(service: Service, access_control: AccessControl, is_ready: Callable[[], bool]) -> APIRouter:
    """Return the routes for health checks, metrics and the like."""
    router = APIRouter(tags=["operations"], responses=_USUAL)

    @router.get("/healthz", response_model=responses.HealthAnswer)
    async def healthz() -> Response:
        """Whether the server is alive; if not, restart it. Needs no token."""
        return JSONResponse({"status": "ok"})

    @router.get("/readyz", response_model=responses.HealthAnswer)
    async def readyz() -> Response:
        """Whether the server can answer searches and keeps up with changes to the collection. Needs no token."""
        if not is_ready() or not await asyncio.to_thread(lambda: service.library.is_available):
            raise RefusedError(503, "not ready", "The server's log says why.", headers={"Retry-After": "5"})
        return JSONResponse({"status": "ready"})

    @router.get(
        "/metrics",
        response_class=Response,
        responses={
            200: {"description": "Text for Prometheus.", "content": {"text/plain": {"schema": {"type": "string"}}}}
        },
    )
    async def metrics() -> Response:
        """Metrics for Prometheus."""
        about = await service.quick.run(service.about)
        return Response(service.metrics.text(about["items"]), media_type=CONTENT_TYPE)

    @router.post("/v1/session", status_code=204, response_class=Response)
    async def session() -> Response:
        """Exchange the token for a cookie, because browsers request the images of a page without the token's header."""
        return Response(status_code=204, headers={"Set-Cookie": access_control.session})

    return router


def page_routes(files: dict[str, Path], document: Callable[[], dict[str, Any]]) -> APIRouter:
    """Return routes for the web page and the API description."""
    router = APIRouter(include_in_schema=False)

    @router.get("/docs")
    async def docs() -> Response:
        return HTMLResponse(reference(document()))

    async def file(request: Request, if_none_match: IfNoneMatch = None) -> Response:
        path = files[request.scope["route"].path]
        data = path.read_bytes()
        headers = {"ETag": tag(data), "Cache-Control": "no-cache"}
        if is_known(headers["ETag"], if_none_match):
            return Response(status_code=304, headers=headers)
        return Response(data, headers={**headers, "Content-Type": content_type(path)})

    for place in files:
        router.add_api_route(place, file, methods=["GET"])
    return router


def _knows(header: str | None) -> Callable[[str], bool]:
    return lambda etag: is_known(etag, header)


def _image_response(pool: WorkerPool, version: str | None, etag: str, content: ImageContent | None) -> Response:
    headers = {"ETag": etag, "Cache-Control": _VERSIONED if version else _UNVERSIONED}
    if content is None:
        return Response(status_code=304, headers=headers)
    headers["Content-Disposition"] = "inline"
    if content.file is None:
        return Response(content.data, headers=headers, media_type=content.content_type)
    return FileResponse(content.file, content.size, pool, headers, content.content_type)


def _video_response(
    pool: WorkerPool, version: str | None, etag: str, video: VideoFile, asked: str | None, known: str | None
) -> Response:
    headers = {"ETag": etag, "Cache-Control": _VERSIONED if version else _UNVERSIONED, "Accept-Ranges": "bytes"}
    size = video.size
    try:
        if is_known(etag, known):
            video.file.close()
            return Response(status_code=304, headers=headers)
        part = parse_range(asked, size)
    except UnsatisfiableRangeError:
        video.file.close()
        raise RefusedError(
            416,
            f"the file has {size:,} bytes",
            "Request a range within it.",
            headers={"Content-Range": f"bytes */{size}"},
        ) from None
    headers["Content-Disposition"] = "inline"
    return FileResponse(video.file, size, pool, headers, video.content_type, part)
