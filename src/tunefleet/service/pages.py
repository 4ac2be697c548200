"""What all pages for browsers share: rendering, and errors. Their content comes from the
functions of the API."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import RedirectResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.templating import Jinja2Templates

from tunefleet.errors import InputError
from tunefleet.report import units
from tunefleet.service.caller import COOKIE, Caller, caller_of
from tunefleet.service.problems import Refused, title_of

_FOLDER = Path(__file__).parent
#: A page of this service, as an address that is part of another one.
_OWN_PAGE = re.compile(r"/(?:[\w?=&%.+:-][\w/?=&%.+:-]*)?", re.ASCII)
_SIGN_IN = "/signin"

_environment = Environment(
    loader=PackageLoader("tunefleet.service"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_templates = Jinja2Templates(env=_environment)


def _moment(at: float | None) -> str:
    """Seconds since the epoch as a time of the server, as in the reasons of jobs."""
    return units.UNKNOWN if at is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


def _iso(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


def _milliseconds(value: float | None) -> str:
    return units.format_latency(None if value is None else value / 1e3)


_environment.filters.update(
    moment=_moment,
    iso=_iso,
    latency=units.format_latency,
    ms=_milliseconds,
    seconds=units.format_seconds,
    count=units.format_count,
    share=units.format_share,
    bytes=units.format_bytes,
    significant=units.significant,
    interval=units.format_interval,
    query=urlencode,
)
_environment.globals.update(UNKNOWN=units.UNKNOWN, TIMES=units.TIMES)


def show(
    request: Request, caller: Caller | None, name: str, status: int = 200, **values: Any
) -> Response:
    """Render a template, for a caller or without one."""
    return _templates.TemplateResponse(request, name, {"caller": caller, **values}, status)


class PageRoute(APIRoute):
    """Shows errors as pages. Without a session it redirects to the sign-in page, which leads
    back."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        made = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await made(request)
            except Refused as refused:
                if refused.status == 401:
                    return _to_sign_in(request)
                return _problem(request, refused.status, refused.detail, refused.cure)
            except InputError as error:
                return _problem(request, 422, error.what, error.cure)
            except RequestValidationError as error:
                return _problem(request, 422, str(error.errors()[0]["msg"]), "follow a link")

        return answer


def _problem(request: Request, status: int, detail: str, cure: str) -> Response:
    return show(
        request, None, "problem.html", status, title=title_of(status), detail=detail, cure=cure
    )


def _to_sign_in(request: Request) -> Response:
    place = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    if request.headers.get("sec-fetch-site") == "cross-site":
        # A link on another site: the browser kept back the cookie, and sends it from this page.
        return show(request, None, "again.html", place=place)
    address = f"{_SIGN_IN}?next={quote(place)}"
    if request.headers.get("hx-request"):
        return Response(status_code=204, headers={"HX-Redirect": address})
    return RedirectResponse(address, 303)


class StaticFolder(StaticFiles):
    """Scripts and styles, which browsers revalidate each time."""

    def file_response(self, *given: Any, **more: Any) -> Response:
        response = super().file_response(*given, **more)
        response.headers["Cache-Control"] = "no-cache"
        return response


def static_files() -> StaticFolder:
    return StaticFolder(directory=_FOLDER / "static")


def page_router() -> APIRouter:
    """Routes of pages, which are not part of the API."""
    return APIRouter(route_class=PageRoute, include_in_schema=False)


router = page_router()


@router.get("/")
def first_page() -> Response:
    return RedirectResponse("/jobs", 303)


@router.get(_SIGN_IN)
def sign_in_page(
    request: Request, next_page: Annotated[str, Query(alias="next", max_length=2000)] = ""
) -> Response:
    """The form that exchanges a token for a session."""
    place = next_page if _OWN_PAGE.fullmatch(next_page) else "/jobs"
    try:
        caller_of(request, None, request.cookies.get(COOKIE))
    except Refused as refused:
        if refused.status != 401:
            raise
        return show(request, None, "signin.html", place=place)
    return RedirectResponse(place, 303)
