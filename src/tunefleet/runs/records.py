"""The best verified programs of a home: listed, and written to take elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tunefleet.core.known import RECORD
from tunefleet.errors import InputError
from tunefleet.store import EVERYONE, FIRST, OWN_COMMANDS, BestEntry, Store, open_store

#: Entries that are read at once.
_PAGE = 256


def best_records(
    home: Path, *, task: str = "", operator: str = "", device: str = "", limit: int | None = None
) -> list[dict[str, Any]]:
    """The fastest verified program of each task as JSON values, by task id, `limit` of them.

    `task` begins its id, `operator` is its anchor operator, `device` a part of the device's name,
    or its key. None where there is no home: looking creates nothing.
    """
    if not home.is_dir():
        return []
    store = open_store(home)
    try:
        listed: list[dict[str, Any]] = []
        for entry in _entries(store, task, operator, device):
            if limit is not None and len(listed) >= limit:
                break
            listed.append(_listed(entry))
    finally:
        store.close()
    return listed


def record_page(
    store: Store, operator: str, cursor: str, limit: int, *, tenant: str
) -> tuple[list[dict[str, Any]], str | None]:
    """A page of what a tenant is given of the same, and the cursor of the next one. Whose job
    measured it is left out. Raises InputError for what is no cursor."""
    after = FIRST
    if cursor:
        task, device, toolchain, *more = [*cursor.split("."), "", ""]
        if more != ["", ""]:
            raise InputError("that is no cursor of records", cure="take that of the page before")
        after = (task, device, toolchain)
    page = store.records.best_page(operator=operator, after=after, limit=limit, tenant=tenant)
    listed = [{k: v for k, v in _listed(entry).items() if k != "job"} for entry in page]
    return listed, ".".join(page[-1].place) if len(page) == limit else None


def share_records(home: Path, reader: str, *, shared: bool) -> list[str]:
    """Let a user of the home's service, or `EVERYONE`, begin with what its commands measured, or
    not any more; "" changes nothing. Returns who may. Raises InputError for an unknown user."""
    if not home.is_dir():
        raise InputError(f"no records in {home}", cure="choose another home")
    store = open_store(home)
    try:
        if reader and reader != EVERYONE and store.accounts.user(reader) is None:
            raise InputError(f"no user {reader}", cure="tunefleet users list, or all")
        if reader:
            store.accounts.share(OWN_COMMANDS, reader, shared)
        return store.accounts.readers(OWN_COMMANDS)
    finally:
        store.close()


def export_records(
    home: Path, out: Path, *, task: str = "", operator: str = "", device: str = ""
) -> int:
    """Write the same as lines of JSON, with their programs and with who measured them; returns how
    many there are. Their traces are completed, so that TVM alone can replay them."""
    from tunefleet.compiler.code.replay import completed
    from tunefleet.dataset.files import Draft

    store = open_store(home)
    count = 0
    try:
        with Draft(out) as draft, draft.open("w", encoding="utf-8") as file:
            for entry in _entries(store, task, operator, device):
                record, of = entry.record, entry.task
                value = {
                    "schema": RECORD,
                    "task_id": of.task_id,
                    "name": of.name,
                    "shapes": of.shapes,
                    "target": str(entry.target),
                    "device": record.device.to_json(),
                    "toolchain": record.toolchain.to_json(),
                    "candidate_id": record.candidate.candidate_id,
                    "trace": completed(of.program, entry.target, record.candidate.trace),
                    "latencies_s": list(record.measurement.latencies_s),
                    "checks": entry.checks,
                }
                file.write(json.dumps(value, sort_keys=True) + "\n")
                count += 1
    finally:
        store.close()
    return count


def _entries(store: Store, task: str, operator: str, device: str) -> Iterator[BestEntry]:
    page = store.records.best_page(operator=operator, limit=_PAGE)
    while page:
        for entry in page:
            names = (entry.record.device.name.lower(), entry.record.device.key.lower())
            if entry.task.task_id.startswith(task) and any(device.lower() in n for n in names):
                yield entry
        page = store.records.best_page(operator=operator, after=page[-1].place, limit=_PAGE)


def _listed(entry: BestEntry) -> dict[str, Any]:
    task, record = entry.task, entry.record
    return {
        "task_id": task.task_id,
        "name": task.name,
        "operator": task.operator,
        "shapes": task.shapes,
        "latency_us": record.measurement.latency_s * 1e6,
        "gflops": task.flops / record.measurement.latency_s / 1e9,
        "target": str(entry.target),
        "device": record.device.name,
        "device_key": record.device.key,
        "device_exact": record.device.exact,
        "toolchain_exact": record.toolchain.exact,
        "job": record.job_id,
        "candidate_id": record.candidate.candidate_id,
    }
