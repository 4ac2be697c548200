"""Pages on submission, devices, records and cost models."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated
from urllib.parse import urlencode

from fastapi import Query, Request
from starlette.responses import Response, StreamingResponse

from tunefleet.runs.uploads import NETWORK_SUFFIXES
from tunefleet.service.caller import ByUser
from tunefleet.service.pages import page_router, show
from tunefleet.service.routes_artifacts import best_records
from tunefleet.service.routes_costmodels import list_cost_models
from tunefleet.service.routes_devices import get_queue, list_devices
from tunefleet.service.routes_networks import list_networks
from tunefleet.service.routes_records import Chosen, Cursor, Order, csv_line, list_records
from tunefleet.store import RecordColumn, RecordOrder
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
_Operator = Annotated[str, Query(max_length=100)]


@router.get("/submit")
def submit_page(request: Request, caller: ByUser) -> Response:
    """The form that submits a network with its agreement."""
    sent = list_networks(request, caller, "", _NETWORKS).networks
    return show(
        request,
        caller,
        "submit.html",
        formats=NETWORK_SUFFIXES,
        networks=[each for each in sent if each.kind == "network"],
        examples=names(),
        devices=list_devices(request, caller).devices,
        queue=get_queue(request, caller),
    )


@router.get("/devices")
def devices_page(request: Request, caller: ByUser) -> Response:
    """The devices and the jobs that use them."""
    return show(request, caller, "devices.html", devices=list_devices(request, caller).devices)


@router.get("/cost-models")
def cost_models_page(request: Request, caller: ByUser) -> Response:
    """The cost models of one's searches, and what they learned."""
    listed = list_cost_models(request, caller)
    return show(
        request,
        caller,
        "cost_models.html",
        models=listed.models,
        learnings=listed.learnings,
        names={model.id: model.name for model in listed.models},
    )


@router.get("/records")
def records_page(
    request: Request, caller: ByUser, chosen: Chosen, order: Order, cursor: Cursor = ""
) -> Response:
    """All records, filtered and sorted by the address."""
    page = list_records(request, caller, chosen, order, cursor, _RECORDS)
    filters = {name: value for name, value in asdict(chosen).items() if value}
    sorting = {"sort": order.column.value, "ascending": str(not order.descending).lower()}
    here = filters | (sorting if order != RecordOrder() else {})
    return show(
        request,
        caller,
        "records.html",
        records=page.records,
        filters=asdict(chosen),
        chosen=filters,
        order=order,
        columns=list(RecordColumn),
        sortings={column: _sorted_by(column, order, filters) for column in RecordColumn},
        here=here,
        cursor=cursor,
        next=None if page.next is None else {**here, "cursor": page.next},
    )


def _sorted_by(column: RecordColumn, order: RecordOrder, filters: dict[str, str]) -> str:
    """The address of the same list sorted by a column; reversed where it is sorted by it
    already."""
    ascending = column is not RecordColumn.MEASURED
    if column is order.column:
        ascending = order.descending
    return urlencode({**filters, "sort": column.value, "ascending": str(ascending).lower()})


@router.get("/records/best")
def best_page(
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
        "best.html",
        records=page.records,
        operator=operator,
        cursor=cursor,
        chosen=chosen,
        next=None if page.next is None else {**chosen, "cursor": page.next},
    )


@router.get("/records/best.csv")
def best_file(request: Request, caller: ByUser, operator: _Operator = "") -> Response:
    """The same as CSV, with all pages."""
    return StreamingResponse(
        _lines(request, caller, operator),
        media_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": 'attachment; filename="best.csv"'},
    )


def _lines(request: Request, caller: ByUser, operator: str) -> Iterator[str]:
    yield csv_line(_COLUMNS)
    cursor: str | None = ""
    while cursor is not None:
        page = best_records(request, caller, operator, cursor, _PART)
        yield "".join(csv_line([record[name] for name in _COLUMNS]) for record in page.records)
        cursor = page.next
