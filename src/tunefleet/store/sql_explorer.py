"""Lists of records, in a database.

What is filtered by is in `origins`, a row for all records that agree in it, so a page is found in
one of two ways. Where many records match, the first places of the whole order have enough of them,
and an index has that order. Where few match, or all far behind, an index has them by their origin,
and the page is the least of them. The first way is tried up to a bound, unless few match.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    func,
    literal,
    literal_column,
    or_,
    select,
    tuple_,
)

from tunefleet.store import rules
from tunefleet.store._explorer import (
    ListedRecord,
    RecordColumn,
    RecordFilter,
    RecordOrder,
    RecordPlace,
)
from tunefleet.store.reuse import sharing_with
from tunefleet.store.schema import origins, stages, tasks, trials
from tunefleet.store.sql_learnings import SqlLearnings

#: Places of the whole order that are looked at: first for each record that is asked for, then at
#: most; and how many origins are few.
_FIRST_LOOK, _LOOKED_AT, _FEW_ORIGINS = 4, 20_000, 5_000
_TEXTS = {
    RecordColumn.NETWORK: origins.c.network,
    RecordColumn.TASK: origins.c.name,
    RecordColumn.OPERATOR: origins.c.operator,
    RecordColumn.DEVICE: origins.c.device,
    RecordColumn.TARGET: origins.c.target,
}


class SqlExplorer(SqlLearnings):
    """`RecordExplorer` in a database."""

    def page(
        self,
        chosen: RecordFilter,
        order: RecordOrder,
        *,
        after: RecordPlace | None = None,
        limit: int,
        tenant: str = "",
    ) -> list[ListedRecord]:
        rules.check_limit(limit)
        with self._database.reading() as connection:
            owners = [tenant, *connection.scalars(sharing_with(tenant))]
            # The sign keeps SQLite from reading all origins in the order of an index.
            matching = [literal_column("+origins.tenant").in_(owners), *_conditions(chosen)]
            if order.column in _TEXTS:
                column = _TEXTS[order.column]
                found = _by_text(connection, matching, column, order, after, limit)
            elif order.column is RecordColumn.LATENCY:
                found = _by_latency(connection, matching, order, after, limit)
            else:
                place = None if after is None else (after.seq,)
                found = _least(connection, matching, (trials.c.seq,), order, place, limit)
            return _listed(connection, found, order, tenant)


def _conditions(chosen: RecordFilter) -> Iterator[ColumnElement[bool]]:
    of = origins.c
    for wanted, column in (
        (chosen.network, of.network),
        (chosen.device, of.device),
        (chosen.target, of.target),
        (chosen.operator, of.operator),
    ):
        if wanted:
            yield _has(column, wanted)
    if chosen.task:
        begins = of.task_id.like(f"{_escaped(chosen.task)}%", escape="\\")
        yield or_(_has(of.name, chosen.task), begins)
    if chosen.text:
        columns = (of.network, of.name, of.operator, of.device, of.target, of.shapes)
        yield or_(*(_has(column, chosen.text) for column in columns))


def _has(column: ColumnElement[str], wanted: str) -> ColumnElement[bool]:
    return column.like(f"%{_escaped(wanted)}%", escape="\\")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _before(
    columns: Sequence[ColumnElement[Any]], order: RecordOrder, place: Sequence[Any] | None
) -> list[ColumnElement[bool]]:
    """Behind a place in an order, where one is given."""
    if place is None:
        return []
    here, there = tuple_(*columns), tuple_(*place)
    return [here < there if order.descending else here > there]


def _ordered(columns: Sequence[ColumnElement[Any]], order: RecordOrder) -> list[ColumnElement[Any]]:
    return [column.desc() if order.descending else column.asc() for column in columns]


def _by_latency(
    connection: Connection,
    matching: list[ColumnElement[bool]],
    order: RecordOrder,
    after: RecordPlace | None,
    limit: int,
) -> list[int]:
    """Those that have a latency, and behind them the failures."""
    columns = (trials.c.latency_s, trials.c.origin, trials.c.seq)
    signed = _signed(columns)
    if after is not None and after.value is None:
        failed = trials.c.latency_s.is_(None)
        behind_it = (after.origin, after.seq)
        return _least(connection, matching, columns[1:], order, behind_it, limit, (failed,))
    place = None if after is None else (after.value, after.origin, after.seq)
    measured = [columns[0].is_not(None), *_before(columns, order, place)]
    behind = [or_(signed[0].is_(None), *_before(signed, order, place))] if place else []
    return _found(connection, matching, columns, order, measured, behind, limit)


def _least(
    connection: Connection,
    matching: list[ColumnElement[bool]],
    columns: Sequence[ColumnElement[Any]],
    order: RecordOrder,
    place: tuple[Any, ...] | None,
    limit: int,
    kind: Sequence[ColumnElement[bool]] = (),
) -> list[int]:
    """The numbers of the first records behind a place in the order of some columns."""
    first = [*kind, *_before(columns, order, place)]
    behind = [*kind, *_before(_signed(columns), order, place)]
    return _found(connection, matching, columns, order, first, behind, limit)


def _found(
    connection: Connection,
    matching: list[ColumnElement[bool]],
    columns: Sequence[ColumnElement[Any]],
    order: RecordOrder,
    first: list[ColumnElement[bool]],
    behind: list[ColumnElement[bool]],
    limit: int,
) -> list[int]:
    """The numbers of the first records: of those that `first` says, where they suffice; else of
    those that `behind` says."""
    if found := _among(connection, matching, columns, order, first, limit, _FIRST_LOOK * limit):
        return found
    of = select(origins.c.key).where(*matching)
    keys = list(connection.scalars(of.limit(_FEW_ORIGINS + 1)))
    is_few = len(keys) <= _FEW_ORIGINS
    if is_few:
        own = select(literal(1)).where(trials.c.origin.in_(keys)).limit(_LOOKED_AT + 1)
        count = connection.scalar(select(func.count()).select_from(own.subquery()))
        is_few = count is not None and count <= _LOOKED_AT
    if not is_few and (
        found := _among(connection, matching, columns, order, first, limit, _LOOKED_AT)
    ):
        return found
    query = (
        select(trials.c.seq)
        .where(trials.c.origin.in_(keys if is_few else of), *behind)
        .order_by(*(column.nulls_last() for column in _ordered(_signed(columns), order)))
        .limit(limit)
    )
    return list(connection.scalars(query))


def _signed(columns: Sequence[ColumnElement[Any]]) -> list[ColumnElement[Any]]:
    """The columns of trials by which no index is chosen: their sign keeps SQLite from it."""
    return [literal_column(f"+trials.{column.name}") for column in columns]


def _among(
    connection: Connection,
    matching: list[ColumnElement[bool]],
    columns: Sequence[ColumnElement[Any]],
    order: RecordOrder,
    first: list[ColumnElement[bool]],
    limit: int,
    most: int,
) -> list[int]:
    """They, where so many are among so many first places of the whole order; else none."""
    looked = (
        select(*{*columns, trials.c.origin, trials.c.seq})
        .where(*first)
        .order_by(*_ordered(columns, order))
        .limit(most)
        .subquery()
    )
    query = (
        select(looked.c.seq)
        .join_from(looked, origins, looked.c.origin == origins.c.key)
        .where(*matching)
        .order_by(*_ordered([looked.c[column.name] for column in columns], order))
        .limit(limit)
    )
    found = list(connection.scalars(query))
    return found if len(found) == limit else []


def _by_text(
    connection: Connection,
    matching: list[ColumnElement[bool]],
    column: ColumnElement[str],
    order: RecordOrder,
    after: RecordPlace | None,
    limit: int,
) -> list[int]:
    """Origin by origin: each has a record."""
    found: list[int] = []
    columns = (column, origins.c.key)
    place = None
    if after is not None:
        place = (after.value, after.origin)
        own = select(func.count()).where(origins.c.key == after.origin, *matching)
        if connection.scalar(own):
            found = _of_origin(connection, after.origin, order, after.seq, limit)
    query = (
        select(origins.c.key)
        .where(*matching, *_before(columns, order, place))
        .order_by(*_ordered(columns, order))
        .limit(limit)
    )  # without an index of the column: reading all of them in that order takes longer
    for key in list(connection.scalars(query)) if len(found) < limit else ():
        found += _of_origin(connection, key, order, None, limit - len(found))
        if len(found) == limit:
            break
    return found


def _of_origin(
    connection: Connection, key: int, order: RecordOrder, after: int | None, limit: int
) -> list[int]:
    seq = (trials.c.seq,)
    query = (
        select(*seq)
        .where(trials.c.origin == key, *_before(seq, order, None if after is None else (after,)))
        .order_by(*_ordered(seq, order))
        .limit(limit)
    )
    return list(connection.scalars(query))


def _listed(
    connection: Connection, found: Sequence[int], order: RecordOrder, tenant: str
) -> list[ListedRecord]:
    columns = [column for column in origins.c if column.name not in ("key", "tenant")]
    own: Any = origins.c.tenant == tenant
    query = (
        select(
            trials.c.seq, trials.c.origin, trials.c.job_id, trials.c.candidate_id,
            trials.c.latency_s, trials.c.failure, stages.c.started_at, tasks.c.flops,
            own.label("own"), *columns,
        )
        .join_from(trials, origins, trials.c.origin == origins.c.key)
        .join(stages, stages.c.seq == trials.c.stage)
        .join(tasks, tasks.c.task_id == trials.c.task_id)
        .where(trials.c.seq.in_(found))
    )  # fmt: skip
    rows = {row.seq: row for row in connection.execute(query)}
    return [_record(rows[seq], order) for seq in found]


def _record(row: Row[Any], order: RecordOrder) -> ListedRecord:
    value: str | float | None = None
    if order.column in _TEXTS:
        value = row._mapping[_TEXTS[order.column].name]
    elif order.column is RecordColumn.LATENCY:
        value = row.latency_s
    return ListedRecord(
        place=RecordPlace(value, row.origin, row.seq),
        own=bool(row.own),
        job_id=row.job_id,
        network=row.network,
        device=row.device,
        target=row.target,
        task_id=row.task_id,
        name=row.name,
        operator=row.operator,
        shapes=row.shapes,
        flops=row.flops,
        candidate_id=row.candidate_id,
        at=row.started_at,
        latency_s=row.latency_s,
        failure=row.failure,
    )
