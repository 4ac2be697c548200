"""Errors as problem details (RFC 9457) with cause and cure."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from tunefleet.errors import (
    DeviceError,
    DiskFullError,
    InputError,
    InternalError,
    JobError,
    RetryElsewhereError,
    SetupError,
    TunefleetError,
    internal,
    is_mistake,
    machine_error,
)

_CURE = "see /openapi.json for what is expected"
MEDIA_TYPE = "application/problem+json"
#: By the class of an error, the first that fits.
_STATUS: tuple[tuple[type[TunefleetError], int], ...] = (
    (DiskFullError, 507),
    (InputError, 422),
    (JobError, 422),
    (RetryElsewhereError, 503),
    (DeviceError, 503),
    (SetupError, 503),
    (InternalError, 500),
)
_TITLES = {
    400: "The request cannot be understood",
    401: "No valid token",
    403: "Not allowed",
    404: "Not found",
    405: "Not possible here",
    408: "Too slow",
    409: "In conflict with what is there",
    412: "It has changed",
    413: "Too large",
    415: "Not of a kind that is understood",
    416: "No such part",
    422: "What is asked cannot be done",
    429: "Too many requests",
    500: "An internal error",
    503: "Not possible now",
    507: "A disk is full",
}


class Refused(Exception):
    """A request that is answered by a problem: its status, the cause and the cure."""

    def __init__(
        self, status: int, detail: str, *, cure: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.cure = cure
        self.headers = dict(headers or {})


def not_found(what: str) -> Refused:
    """Also for what belongs to another user, so that its existence is not revealed."""
    return Refused(404, f"no {what}", cure="see the list of what is yours")


def title_of(status: int) -> str:
    """The title of a status."""
    return _TITLES.get(status, "Refused")


def problem(
    status: int,
    detail: str,
    cure: str = "",
    headers: Mapping[str, str] | None = None,
    **more: Any,
) -> JSONResponse:
    """A response."""
    value = {"type": "about:blank", "title": title_of(status), "status": status}
    details = {"detail": detail, **({"cure": cure} if cure else {}), **more}
    return JSONResponse(
        {**value, **details}, status, headers=dict(headers or {}), media_type=MEDIA_TYPE
    )


def handle_errors(app: FastAPI, bugs: Path) -> None:
    """Make an application answer every error by a problem; reports of bugs are kept in a folder."""

    @app.exception_handler(Refused)
    def refused(request: Request, error: Refused) -> JSONResponse:
        return problem(error.status, error.detail, error.cure, error.headers)

    @app.exception_handler(HTTPException)
    def by_framework(request: Request, error: HTTPException) -> JSONResponse:
        return problem(error.status_code, str(error.detail), _CURE, headers=error.headers)

    @app.exception_handler(RequestValidationError)
    def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"] if part != "body")
        detail = f"{place}: {first['msg']}" if place else str(first["msg"])
        return problem(422, detail, _CURE)

    @app.exception_handler(TunefleetError)
    def of_tree(request: Request, error: TunefleetError) -> JSONResponse:
        status = next((code for kind, code in _STATUS if isinstance(error, kind)), 500)
        if status == 500:
            return _bug(error, bugs)
        return problem(status, error.what, error.cure, kind=type(error).__name__)

    @app.exception_handler(Exception)
    def other(request: Request, error: Exception) -> JSONResponse:
        if isinstance(error, OSError) and not is_mistake(error):
            return of_tree(request, machine_error(error))
        return _bug(internal(error), bugs)


def _bug(error: TunefleetError, bugs: Path) -> JSONResponse:
    """Store a report; the response has its number alone."""
    number = f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:8]}"
    bugs.mkdir(parents=True, exist_ok=True)
    details = error.details if isinstance(error, InternalError) else ""
    report = bugs / f"bug-{number}.txt"
    report.write_text(f"{error}\n{details}\n", encoding="utf-8")
    return problem(500, f"report {number} was kept", "tell the operator this number")
