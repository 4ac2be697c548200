"""Pages on what there is beside jobs: submitting to it, devices, best records."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import Query, Request
from starlette.responses import Response, StreamingResponse

from tunefleet.service.caller import ByUser
from tunefleet.service.pages import page_router, show
from tunefleet.service.routes_artifacts import best_records
from tunefleet.service.routes_devices import list_devices
from tunefleet.service.routes_networks import list_networks
from tunefleet.service.uploads import FORMATS
from tunefleet.zoo.registry import names

router = page_router()

#: Networks to choose from, records of a page and of a part of a file.
_NETWORKS, _RECORDS, _PART = 100, 50, 100
_COLUMNS = (
    "task_id",
    "name",
    "operator",
    "shapes",
    "latency_us",
    "gflops",
    "target",
    "device",
    "candidate_id",
)
#: A table calculates what begins so.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_Operator = Annotated[str, Query(max_length=100)]


@router.get("/submit")
def submit_page(request: Request, caller: ByUser) -> Response:
    """Where a network is given, with what is agreed."""
    return show(
        request,
        caller,
        "submit.html",
        formats=FORMATS,
        networks=list_networks(request, caller, "", _NETWORKS).networks,
        examples=names(),
        devices=list_devices(request, caller).devices,
    )


@router.get("/devices")
def devices_page(request: Request, caller: ByUser) -> Response:
    """What measures, and for whom."""
    return show(request, caller, "devices.html", devices=list_devices(request, caller).devices)


@router.get("/records")
def records_page(
    request: Request,
    caller: ByUser,
    operator: _Operator = "",
    cursor: Annotated[str, Query(max_length=400)] = "",
) -> Response:
    """The fastest verified program of each task."""
    page = best_records(request, caller, operator, cursor, _RECORDS)
    chosen = {"operator": operator} if operator else {}
    return show(
        request,
        caller,
        "records.html",
        records=page.records,
        operator=operator,
        cursor=cursor,
        chosen=chosen,
        next=None if page.next is None else {**chosen, "cursor": page.next},
    )


@router.get("/records.csv")
def records_file(request: Request, caller: ByUser, operator: _Operator = "") -> Response:
    """The same as a file for tables, all pages of it."""
    return StreamingResponse(
        _lines(request, caller, operator),
        media_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": 'attachment; filename="records.csv"'},
    )


def _lines(request: Request, caller: ByUser, operator: str) -> Iterator[str]:
    yield _line(_COLUMNS)
    cursor: str | None = ""
    while cursor is not None:
        page = best_records(request, caller, operator, cursor, _PART)
        yield "".join(_line([record[name] for name in _COLUMNS]) for record in page.records)
        cursor = page.next


def _line(cells: Any) -> str:
    text = io.StringIO()
    safe = [f"'{cell}" if str(cell).startswith(_FORMULA) else cell for cell in cells]
    csv.writer(text).writerow(safe)
    return text.getvalue()
