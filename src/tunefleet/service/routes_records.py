"""Records: the trials of one's own jobs, and shared ones."""

from __future__ import annotations

import base64
import binascii
import csv
import io
import json
from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import StreamingResponse

from tunefleet.errors import InputError
from tunefleet.service.caller import ByUser
from tunefleet.service.values_records import ExploredPage, ExploredRecord
from tunefleet.store import (
    ListedRecord,
    RecordColumn,
    RecordExplorer,
    RecordFilter,
    RecordOrder,
    RecordPlace,
)

router = APIRouter(prefix="/v1/records", tags=["records"])

#: Records of a part of a file.
_PART = 1000
#: Spreadsheets take cells that begin so for formulas.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_Text = Annotated[str, Query(max_length=200)]
#: The largest number of a cursor, as of SQLite.
_MOST = 2**63 - 1


def filter_of(
    network: _Text = "",
    device: _Text = "",
    target: _Text = "",
    task: _Text = "",
    operator: _Text = "",
    text: _Text = "",
) -> RecordFilter:
    """The filter that the query parameters give."""
    return RecordFilter(network, device, target, task, operator, text)


def order_of(sort: RecordColumn = RecordColumn.MEASURED, ascending: bool = False) -> RecordOrder:
    """The order that the query parameters give; by default the newest first."""
    return RecordOrder(sort, not ascending)


Chosen = Annotated[RecordFilter, Depends(filter_of)]
Order = Annotated[RecordOrder, Depends(order_of)]
Cursor = Annotated[str, Query(max_length=2000)]


@router.get("")
def list_records(
    request: Request,
    caller: ByUser,
    chosen: Chosen,
    order: Order,
    cursor: Cursor = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
) -> ExploredPage:
    """Records that contain each of these texts: in the name of the network or the device, in the
    target or the operator; `task` is a part of a task's name or the beginning of its id; `text`
    matches anywhere."""
    found = request.app.state.store.explorer.page(
        chosen, order, after=_place(cursor, order), limit=limit, tenant=caller.user.name
    )
    more = _cursor(found[-1], order) if len(found) == limit else None
    return ExploredPage(records=[_view(each) for each in found], next=more)


@router.get(".csv", response_class=StreamingResponse)
def records_file(
    request: Request, caller: ByUser, chosen: Chosen, order: Order
) -> StreamingResponse:
    """The whole list as CSV."""
    explorer, tenant = request.app.state.store.explorer, caller.user.name
    return StreamingResponse(
        _lines(explorer, chosen, order, tenant),
        media_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": 'attachment; filename="records.csv"'},
    )


def _lines(
    explorer: RecordExplorer, chosen: RecordFilter, order: RecordOrder, tenant: str
) -> Iterator[str]:
    columns = list(ExploredRecord.model_fields)
    yield csv_line(columns)
    after = None
    while page := explorer.page(chosen, order, after=after, limit=_PART, tenant=tenant):
        views = [_view(record).model_dump() for record in page]
        yield "".join(csv_line([view[name] for name in columns]) for view in views)
        after = page[-1].place
        if len(page) < _PART:
            return


def csv_line(cells: Any) -> str:
    """A line of CSV without formulas."""
    text = io.StringIO()
    safe = [f"'{cell}" if str(cell).startswith(_FORMULA) else cell for cell in cells]
    csv.writer(text).writerow(safe)
    return text.getvalue()


def _view(record: ListedRecord) -> ExploredRecord:
    latency_s = record.latency_s
    return ExploredRecord(
        measured_at=record.at,
        network=record.network,
        task=record.name,
        task_id=record.task_id,
        operator=record.operator,
        shapes=record.shapes,
        device=record.device,
        target=record.target,
        latency_us=None if latency_s is None else latency_s * 1e6,
        gflops=record.flops / latency_s / 1e9 if latency_s else None,
        failure=record.failure,
        candidate_id=record.candidate_id,
        job=record.job_id if record.own else None,
    )


def _cursor(last: ListedRecord, order: RecordOrder) -> str:
    place = last.place
    value = [order.column, order.descending, place.value, place.origin, place.seq]
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def _place(cursor: str, order: RecordOrder) -> RecordPlace | None:
    """The position of a cursor. Raises InputError where it is not one of this order."""
    if not cursor:
        return None
    wrong = InputError("that is no cursor of these records", cure="take that of the page before")
    try:
        text = base64.urlsafe_b64decode(f"{cursor}{'=' * (-len(cursor) % 4)}")
        column, descending, value, origin, seq = json.loads(text)
        str(value).encode()
    except (binascii.Error, ValueError, TypeError, RecursionError) as error:
        raise wrong from error
    kinds: dict[RecordColumn, tuple[type, ...]] = {
        RecordColumn.MEASURED: (type(None),),
        RecordColumn.LATENCY: (float, type(None)),
    }
    numbers = all(type(each) is int and 0 <= each <= _MOST for each in (origin, seq))
    is_value = type(value) in kinds.get(order.column, (str,))
    if not (numbers and is_value and (column, descending) == (order.column, order.descending)):
        raise wrong
    return RecordPlace(value, origin, seq)
