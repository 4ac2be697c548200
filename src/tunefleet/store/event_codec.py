"""Events of jobs as JSON values and back."""

from __future__ import annotations

from typing import Any

import msgspec

from tunefleet.core import events as known
from tunefleet.core.events import Event, LaneUpdated, StageCommitted, StageProgressed
from tunefleet.core.stage import (
    BuildResult,
    ProfileResult,
    SelectResult,
    StageKey,
    StageKind,
    StageResult,
    StageRun,
    UpdateResult,
    WorkKind,
)
from tunefleet.core.step import StepKind
from tunefleet.store.database import UnreadableError

#: Raised where what an older version wrote is read otherwise.
SCHEMA = 1
#: Told to those who watch now.
UNKEPT = (StageProgressed, known.Progressed)
_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in known.Event.__args__ if kind not in UNKEPT
}
#: The results themselves are kept with their stages.
_EMPTY: dict[WorkKind, StageResult] = {
    StageKind.SELECT: SelectResult(()),
    StageKind.BUILD: BuildResult(()),
    StageKind.PROFILE: ProfileResult(()),
    StageKind.UPDATE: UpdateResult(),
}


def event_value(event: Event) -> dict[str, Any]:
    """The fields of an event, as JSON."""
    if isinstance(event, StageCommitted):
        run = event.run
        return {
            "key": msgspec.to_builtins(run.key),
            "started_at": run.started_at,
            "seconds": run.seconds,
            "note": run.note,
            "resource_id": run.resource_id,
            "attempt": run.attempt,
            "trials_done": event.trials_done,
            "elapsed_s": event.elapsed_s,
        }
    value: dict[str, Any] = msgspec.to_builtins(event)
    if isinstance(event, LaneUpdated):
        del value["weighted"]["task"]["program"]
    return value


def event_of(kind: str, schema: int, value: Any) -> Event | None:
    """The event of a kind; None for one that only a newer version knows."""
    wanted = _KINDS.get(kind)
    if wanted is None or schema > SCHEMA:
        return None
    try:
        return _decoded(wanted, value)
    except (msgspec.ValidationError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UnreadableError(f"an event is not what was written: {error}") from error


def _decoded(wanted: type[Any], value: dict[str, Any]) -> Event:
    event: Event
    if wanted is StageCommitted:
        key = _key(value["key"])
        ran = (value["started_at"], value["seconds"], value["note"], value["resource_id"])
        run = StageRun(key, _EMPTY[key.kind], *ran, value["attempt"])
        return StageCommitted(run, value["trials_done"], value["elapsed_s"])
    if "key" in value:
        return wanted(**{**value, "key": _key(value["key"])})  # type: ignore[no-any-return]
    if wanted is LaneUpdated:
        task = {**value["weighted"]["task"], "program": ""}
        value = {**value, "weighted": {**value["weighted"], "task": task}}
    event = msgspec.convert(value, wanted)
    return event


def _key(value: dict[str, Any]) -> StageKey:
    kind = value["kind"]
    of = StageKind if kind in tuple(StageKind) else StepKind
    return StageKey(value["job_id"], value["task_id"], value["iteration"], of(kind))


# As in `codec`: before there are threads. Those with the key of a stage are decoded otherwise.
for _known in _KINDS.values():
    if _known is not StageCommitted and "key" not in _known.__dataclass_fields__:
        msgspec.json.Decoder(_known)
