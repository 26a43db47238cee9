"""Actions on search results: download them, list their paths, and add them to albums."""

import logging
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import unquote_to_bytes

from fastapi import APIRouter, Request
from fastapi import Path as InPath
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse, Response
from starlette.routing import Match
from starlette.types import Scope

from sightline.collection import Collection, Item
from sightline.collection.albums import FAVOURITES
from sightline.errors import CollectionError
from sightline.server import responses
from sightline.server.bodies import JSON, MULTIPART, URL_ENCODED, body_type
from sightline.server.download import ArchiveResponse, Entry, archive, entries
from sightline.server.library import Library, Member, split_ids
from sightline.server.limits import Limits
from sightline.server.problems import RefusedError, not_found
from sightline.server.requests import Id
from sightline.server.service import Service
from sightline.unicode_text import as_unicode

_log = logging.getLogger(__name__)

_LIMITS = Limits()  # limits in the API description; the server may be stricter
Name = Annotated[str, InPath(min_length=1, max_length=100, description="The name of an album.")]


class Chosen(BaseModel):
    """Items selected by id."""

    model_config = ConfigDict(extra="forbid", strict=True)

    ids: list[Id] = Field(min_length=1, max_length=_LIMITS.ids)


_FORM: dict[str, Any] = {
    "type": "object",
    "required": ["ids"],
    "properties": {
        "ids": {
            "type": "string",
            "pattern": "^[0-9]+(,[0-9]+)*$",
            "description": f"At most {_LIMITS.ids:,} ids, separated by commas.",
        }
    },
}
_DOWNLOAD_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            JSON: {"schema": Chosen.model_json_schema()},
            URL_ENCODED: {"schema": _FORM},
            MULTIPART: {"schema": _FORM},
        },
    }
}
"""The request body of `POST /v1/download`, for the API description."""


class _RemovalRoute(APIRoute):
    """Matches only if "remove" is a segment of its own: `Italy%2Fremove` is the name of an album, to be added to."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return whether a request is for this route, from its path before decoding."""
        sent = scope.get("raw_path") or scope["path"].encode()
        if unquote_to_bytes(sent.rpartition(b"/")[2]) != b"remove":
            return Match.NONE, {}
        return super().matches(scope)


def action_routes(service: Service, is_local: bool, usual: dict[int | str, dict[str, Any]]) -> APIRouter:
    """Return routes for downloads, paths and albums.

    is_local: whether only this machine can reach the server; only then are full paths shown and folders opened.
    """
    router = APIRouter(prefix="/v1", tags=["actions"], responses=usual)
    zip_schema = {"application/zip": {"schema": {"type": "string", "format": "binary"}}}

    @router.post(
        "/download",
        response_class=Response,
        responses={200: {"description": "A ZIP archive.", "content": zip_schema}},
        openapi_extra=_DOWNLOAD_BODY,
    )
    async def download(request: Request) -> Response:
        """Download the files of items as one ZIP archive. Send the ids as JSON or as a form."""
        ids = await _ids(request)
        files, unknown = await service.quick.run(_entries, service.library, ids)
        return ArchiveResponse(archive(files, service.limits, unknown), service.images)

    @router.post("/paths", response_model=responses.PathsAnswer)
    async def paths(chosen: Chosen) -> Response:
        """Return the paths of items: absolute if only this machine can reach the server, else relative to the root."""
        return JSONResponse(await service.quick.run(_paths, service.library, chosen.ids, is_local))

    @router.post("/items/{id}/reveal", status_code=204, response_class=Response)
    async def reveal(id: Id) -> Response:
        """Open the folder of an item's file in the file manager, but only if no other machine can reach the server."""
        if not is_local:
            raise RefusedError(403, "folders can be opened only from the server's own machine")
        folder = await service.quick.run(_folder, service.library, id)
        await service.quick.run(open_folder, folder)
        return Response(status_code=204)

    @router.get("/albums", response_model=responses.AlbumsAnswer)
    async def albums() -> Response:
        """List all albums and the number of items in each; favourites come first."""
        return JSONResponse({"albums": await service.quick.run(_albums, service.library)})

    async def remove_from_album(name: Name, chosen: Chosen) -> Response:
        """Remove items from an album. The items are kept; an empty album is deleted."""
        return JSONResponse(
            await service.quick.run(_change, service.library, Collection.remove_from_album, name, chosen.ids)
        )

    router.add_api_route(
        "/albums/{name:path}/remove",
        remove_from_album,
        methods=["POST"],
        response_model=responses.ChangedAlbumsAnswer,
        route_class_override=_RemovalRoute,
    )

    @router.post("/albums/{name:path}", response_model=responses.ChangedAlbumsAnswer)
    async def add_to_album(name: Name, chosen: Chosen) -> Response:
        """Add items to an album, creating it if needed. In a name that ends in "/remove", send the slash as %2F."""
        return JSONResponse(
            await service.quick.run(_change, service.library, Collection.add_to_album, name, chosen.ids)
        )

    @router.delete("/albums/{name:path}", response_model=responses.AlbumsAnswer)
    async def delete_album(name: Name) -> Response:
        """Delete an album, in all collections. The items are kept."""
        return JSONResponse({"albums": await service.quick.run(_delete_album, service.library, name)})

    return router


async def _ids(request: Request) -> list[int]:
    """Return the ids in a request: as JSON, or as a form, so that browsers can save the response as a file."""
    if body_type(request.headers) == JSON:
        return Chosen.model_validate_json(await request.body(), strict=True).ids
    async with request.form(max_files=0, max_fields=4) as form:
        given = str(form.get("ids", ""))
    if not all(part.isdecimal() and part.isascii() for part in given.split(",")):
        raise RefusedError(422, "ids must be numbers", "Separate them with commas.")
    return Chosen.model_validate({"ids": given.split(",")}, strict=False).ids


def _items(members: Sequence[Member], ids: Sequence[int]) -> tuple[list[tuple[Member, list[Item]]], list[int]]:
    """Return the items with these ids, by collection, in order, and the ids that no item has.

    Raises an error if there are no items.
    """
    chosen = []
    for member, own in split_ids(members, ids):
        found = member.collection.items(own)
        chosen.append((member, [found[id] for id in dict.fromkeys(own) if id in found]))
    known = {member.outer(item.id) for member, items in chosen for item in items}
    if not known:
        raise not_found(ids[0])
    return chosen, [id for id in dict.fromkeys(ids) if id not in known]


def _with_unknown(answer: dict[str, Any], unknown: list[int]) -> dict[str, Any]:
    """Add the ids that no item has to an answer, if there are any."""
    return {**answer, "unknown_ids": unknown} if unknown else answer


def _entries(library: Library, ids: Sequence[int]) -> tuple[list[Entry], list[int]]:
    with library.use() as members:
        if members[0].collection.kind != "images":
            raise RefusedError(422, "texts cannot be downloaded", "Use /v1/items.")
        chosen, unknown = _items(members, ids)
        return entries(chosen), unknown


def _paths(library: Library, ids: Sequence[int], is_local: bool) -> dict[str, Any]:
    with library.use() as members:
        chosen, unknown = _items(members, ids)
        files = {member.outer(item.id): item.files[0] for member, items in chosen for item in items}
    paths = [as_unicode(files[id].where) if is_local else files[id].path for id in dict.fromkeys(ids) if id in files]
    return _with_unknown({"paths": paths}, unknown)


def _folder(library: Library, id: int) -> Path:
    with library.use() as members:
        ((_, items),), _ = _items(members, [id])
    file = items[0].files[0]
    folder = file.where.parent
    if not file.is_trusted or not folder.is_dir():
        raise RefusedError(404, f"the folder of item {id} is not available")
    return folder


def open_folder(folder: Path) -> None:
    """Show a folder in this machine's file manager."""
    command = {"darwin": "open", "win32": "explorer"}.get(sys.platform, "xdg-open")
    try:
        subprocess.Popen([command, os.fspath(folder)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    except OSError as error:
        raise RefusedError(501, "no file manager was found on this machine") from error


def _albums(library: Library) -> list[dict[str, Any]]:
    """Return the albums of all collections; albums with the same name count as one."""
    counts: Counter[str] = Counter()
    with library.use() as members:
        for member in members:
            if isinstance(member.collection.at, Path):
                counts.update(member.collection.album_sizes())
    ordered = sorted(counts, key=lambda name: (name != FAVOURITES, name.lower()))
    return [{"name": name, "items": counts[name]} for name in ordered]


def _delete_album(library: Library, name: str) -> list[dict[str, Any]]:
    with library.use() as members:
        own = [member.collection for member in members if isinstance(member.collection.at, Path)]
        having = [collection for collection in own if name in collection.albums.all()]
        if not having:
            raise RefusedError(404, f"there is no album {name!r}", "GET /v1/albums lists them.")
        with _writing():
            for collection in having:
                collection.delete_album(name)
    return _albums(library)


def _change(
    library: Library,
    change: Callable[[Collection, str, Sequence[int]], object],
    name: str,
    ids: Sequence[int],
) -> dict[str, Any]:
    with library.use() as members:
        chosen, unknown = _items(members, ids)
        for member, items in chosen:
            if items and not isinstance(member.collection.at, Path):
                raise RefusedError(
                    403,
                    "a collection on a server has no albums",
                    "Serve it by its folder, on the machine that indexes it.",
                )
            if items:
                with _writing():
                    change(member.collection, name, [item.id for item in items])
    return _with_unknown({"albums": _albums(library)}, unknown)


@contextmanager
def _writing() -> Iterator[None]:
    """Say that a change cannot be written, without the path in the error."""
    try:
        yield
    except CollectionError as error:
        _log.error("%s", error)
        disk = "The disk may be full or read-only. The server's log has the details."
        way_out = disk if isinstance(error.__cause__, OSError) else error.way_out
        raise RefusedError(503, "albums cannot be changed now", way_out) from error
