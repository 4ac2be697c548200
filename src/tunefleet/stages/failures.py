"""What became of a call in a worker, as the failure of a trial."""

from __future__ import annotations

from collections.abc import Mapping

from tunefleet.core.trial import Failure, FailureKind
from tunefleet.errors import InternalError
from tunefleet.workers.pool import CallEnd, CallFailure


def failure_of(outcome: object, kinds: Mapping[CallEnd, FailureKind]) -> Failure:
    """The failure that a call ended with; `kinds` says which one each end of a call is."""
    if isinstance(outcome, Failure):
        return outcome
    if isinstance(outcome, CallFailure):
        return Failure(kinds[outcome.end], outcome.text)
    raise InternalError(f"a worker returned {type(outcome).__name__}")
