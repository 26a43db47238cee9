"""The ASGI application, with access control and its OpenAPI description."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from sightline import __version__
from sightline.errors import SightlineError
from sightline.server import actions, routes
from sightline.server.access import AccessControl, is_loopback
from sightline.server.limits import Limits
from sightline.server.middleware import RequestMiddleware
from sightline.server.problems import ProblemDetails, RefusedError, answer
from sightline.server.service import Service
from sightline.server.static import page_files
from sightline.server.worker_pool import BusyError

_ABOUT = "Find images by words and words by images. Errors follow RFC 9457."


def create_app(
    service: Service,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    start: Callable[[], None] | None = None,
    stop: Callable[[], None] | None = None,
    is_ready: Callable[[], bool] = lambda: True,
) -> FastAPI:
    """Create the ASGI application for a service.

    host: the address to listen at; it determines the accepted host names and whether clients are rate-limited.
    port: the port to listen at, for the name of the login cookie.
    token: the token that clients must send; may be None only if no other machine can reach the address.
    start, stop: called when the server starts, and after it has answered its last request.
    is_ready: whether the server can take requests, for `/readyz`.
    """
    files = page_files()
    access_control = AccessControl(
        host,
        token,
        service.limits,
        port,
        open_paths=frozenset({"/healthz", "/readyz", *files}),
        page_paths=frozenset({*files, "/docs"}),
    )

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        if start:
            start()
        yield
        if stop:
            stop()

    app = FastAPI(
        title="Sightline",
        version=__version__,
        description=f"{_ABOUT} {_sizes(service.limits)}",
        docs_url=None,  # FastAPI's own pages load scripts from other sites
        redoc_url=None,
        lifespan=lifespan,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,  # short names for generated clients
    )
    app.add_middleware(RequestMiddleware, access_control=access_control, limits=service.limits, metrics=service.metrics)
    for kind in (RefusedError, SightlineError, BusyError, RequestValidationError, ValidationError):
        app.add_exception_handler(kind, answer)
    app.add_exception_handler(HTTPException, _wrong_address)
    app.include_router(routes.search_routes(service))
    app.include_router(routes.item_routes(service))
    is_local = token is None and is_loopback(host)
    app.include_router(actions.action_routes(service, is_local, routes.OF_ITEMS))
    app.include_router(routes.model_routes(service))
    app.include_router(routes.operations_routes(service, access_control, is_ready))
    app.include_router(routes.page_routes(files, lambda: app.openapi()))
    _describe(app, needs_token=token is not None)
    return app


def _sizes(limits: Limits) -> str:
    small, large = limits.body_bytes // 2**10, limits.upload_bytes // 2**20
    return f"A request has at most {small:,} kB, or {large:,} MB if it may contain pictures."


def _describe(app: FastAPI, *, needs_token: bool) -> None:
    """Add the schema of error responses to the OpenAPI document and, if a token is needed, how to send it."""
    generated = app.openapi

    @cache
    def openapi() -> dict[str, Any]:
        document = generated()
        problem = ProblemDetails.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        schemas.update({**problem.pop("$defs"), "ProblemDetails": problem})
        if needs_token:
            document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            document["security"] = [{"token": []}]
            for path in ("/healthz", "/readyz"):
                document["paths"][path]["get"]["security"] = []
        return document

    app.openapi = openapi  # type: ignore[method-assign]


async def _wrong_address(request: Request, error: Exception) -> Response:
    """Return the response to an unknown path or method, with all allowed methods, not only one as in the framework."""
    response = await answer(request, error)
    described = request.app.openapi()["paths"].get(getattr(request.scope.get("route"), "path", ""))
    if response.status_code == HTTPStatus.METHOD_NOT_ALLOWED and described:
        response.headers["Allow"] = ", ".join(sorted(method.upper() for method in described))
    return response
