"""Failures of trials: what became of a call in a worker, and what a result says of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from tunefleet.core.result import RunResult
from tunefleet.core.trial import Failure, FailureKind, Trial
from tunefleet.errors import InternalError
from tunefleet.workers.pool import CallEnd, CallFailure

#: Different texts of one kind of failure that are kept.
_MOST_TEXTS = 3


def failure_of(outcome: object, kinds: Mapping[CallEnd, FailureKind]) -> Failure:
    """The failure that a call ended with; `kinds` says which one each end of a call is."""
    if isinstance(outcome, Failure):
        return outcome
    if isinstance(outcome, CallFailure):
        return Failure(kinds[outcome.end], outcome.text)
    raise InternalError(f"a worker returned {type(outcome).__name__}")


def failures_by_kind(trials: list[Trial]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for trial in trials:
        if isinstance(trial.outcome, Failure):
            kind = str(trial.outcome.kind)
            counts[kind] = counts.get(kind, 0) + 1
    return counts


def failure_texts(trials: list[Trial]) -> dict[str, tuple[tuple[str, int], ...]]:
    """What failed trials of each kind said most often, each with how many said it."""
    said: dict[str, Counter[str]] = {}
    for trial in trials:
        if isinstance(trial.outcome, Failure):
            said.setdefault(str(trial.outcome.kind), Counter())[trial.outcome.text] += 1
    return {kind: tuple(texts.most_common(_MOST_TEXTS)) for kind, texts in said.items()}


def search_failed(result: RunResult) -> str:
    """Why a search found nothing: no trial was made, or every one failed; "" where it did find. It
    did not fail where earlier jobs had tried every program."""
    if not result.tasks or result.reused:
        return ""
    trials, failures = result.trials, result.failures
    if not trials and result.known:
        return ""
    if not trials:
        return f"no program could be tried: {result.stopped or 'none was selected'}"
    if sum(failures.values()) < trials:
        return ""
    kind = max(failures, key=lambda k: failures[k])
    text = result.failure_texts[kind][0][0]
    return f"all {trials} trials failed, most often by {kind.replace('_', ' ')}: {text}"
