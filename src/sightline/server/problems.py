"""Errors as RFC 9457 problem details, without stack traces or local paths."""

import json
import logging
from http import HTTPStatus
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from sightline.errors import EvaluationError, MediaError, MissingDecoderError, ModelError, QueryError, SightlineError
from sightline.server.field_errors import FieldError, field_errors
from sightline.server.worker_pool import BusyError

MEDIA_TYPE = "application/problem+json"
_log = logging.getLogger(__name__)
_CLIENTS_OWN = (QueryError, ModelError, EvaluationError)


class ProblemDetails(BaseModel):
    """An error response as defined in RFC 9457; `way_out` says what to do about it."""

    type: str = "about:blank"
    title: str = Field(description="What the status means.")
    status: int
    detail: str
    way_out: str | None = None
    errors: list[FieldError] | None = None


class RefusedError(Exception):
    """Raised to answer a request with a problem; `headers` are added to the response."""

    def __init__(
        self, status: int, detail: str, way_out: str = "", *, headers: dict[str, str] | None = None, errors: Any = None
    ) -> None:
        super().__init__(detail)
        self.status, self.detail, self.way_out, self.headers, self.errors = status, detail, way_out, headers, errors

    def response(self, accept: str = "") -> Response:
        """Return the response that describes the problem: JSON, or text for a link opened in a browser.

        accept: the header of the request.
        """
        if "text/html" in accept:
            return self._text()
        status = HTTPStatus(self.status)
        body: dict[str, Any] = {"type": "about:blank", "title": status.phrase, "status": status.value}
        body["detail"] = self.detail
        if self.way_out:
            body["way_out"] = self.way_out
        if self.errors:
            body["errors"] = self.errors
        data = json.dumps(body).encode()
        return Response(data, self.status, {"Cache-Control": "no-store", **(self.headers or {})}, MEDIA_TYPE)

    def _text(self) -> Response:
        words = " ".join(filter(None, [f"{self.detail[:1].upper()}{self.detail[1:]}.", self.way_out]))
        return Response(words, self.status, {"Cache-Control": "no-store", **(self.headers or {})}, "text/plain")


def not_found(id: int) -> RefusedError:
    """Return the error for an id that does not exist, or no longer exists."""
    return RefusedError(404, f"no item has the id {id}", "It may have been deleted; search again.")


def unavailable() -> RefusedError:
    """Return the error for a collection whose folder was deleted or moved while it is served."""
    return RefusedError(
        503, "the collection is not available", "Its folder was deleted or moved. Put it back, or try later."
    )


def invalid(errors: Any) -> RefusedError:
    """Return the error for a malformed request, with the first of the `errors` that pydantic reports."""
    wrong = field_errors(errors)
    message = "; ".join(f"{one.where} {one.what}" for one in wrong[:3])
    return RefusedError(422, message, "See /docs.", errors=[one.model_dump() for one in wrong])


def refusal(error: Exception) -> RefusedError:
    """Convert an error to a problem. Internal errors are logged, and described to the client only in general terms."""
    if isinstance(error, RefusedError):
        return error
    if isinstance(error, ValidationError):
        return invalid(error.errors(include_url=False, include_input=False))
    if isinstance(error, RequestValidationError):
        return invalid(error.errors())
    if isinstance(error, HTTPException):
        return RefusedError(error.status_code, str(error.detail), headers=dict(error.headers or {}))
    if isinstance(error, _CLIENTS_OWN):
        return RefusedError(422, error.what, error.way_out)
    if isinstance(error, MissingDecoderError):
        _log.warning("%s", error)  # its hint names the server's Python
        way_out = "Convert it to JPEG, or ask whoever runs the server."
        return RefusedError(422, "the server cannot read this kind of picture", way_out)
    if isinstance(error, MediaError):
        return RefusedError(422, f"the picture {error.reason}", error.way_out)
    if isinstance(error, BusyError):
        return RefusedError(503, "too many requests are waiting", "Try again soon.", headers={"Retry-After": "1"})
    if isinstance(error, SightlineError):
        _log.error("%s", error)
    else:
        _log.error("a request failed", exc_info=error)
    return RefusedError(
        500, "something went wrong", "The server's log has the details. Try again, or ask whoever runs it."
    )


async def answer(request: Request, error: Exception) -> Response:
    """Return the response to a request that failed."""
    return refusal(error).response(request.headers.get("accept", ""))
