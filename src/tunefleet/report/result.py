"""Reads results back from JSON: from artifacts and stores, also those of earlier versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from tunefleet.core.agreement import Agreed, JudgedAgreement, judge
from tunefleet.core.result import (
    SCHEMA,
    Baseline,
    Evaluation,
    MeasuredShape,
    RunResult,
    TaskResult,
    of_shape,
)
from tunefleet.core.undisturbed import why_not_measurable
from tunefleet.errors import InputError


def read_result(value: Mapping[str, Any], name: str) -> RunResult:
    """The result in `value`, the JSON of the file or job called `name`.

    Whatever version wrote it, a ratio is left out where its measurement does not support one.
    Raises InputError where `value` is no result that can be shown.
    """
    try:
        result = msgspec.convert(_of_this_version(value), RunResult)
    except (msgspec.ValidationError, ValueError, TypeError, OverflowError, AttributeError) as error:
        raise InputError(
            f"{name} is damaged: its result cannot be shown: {error}",
            cure="copy the artifact again, or tune again",
        ) from error
    return replace(
        result,
        **of_shape(_judged(result)),
        shapes=tuple(map(_judged, result.shapes)),
        tasks=_without_shares_of_a_part(result.tasks),
        agreement=result.agreement or _target_of_earlier_versions(value, result),
        tuned_tasks=result.tuned_tasks or sum(each.trials > each.failed for each in result.tasks),
    )


def read_evaluation(value: Mapping[str, Any]) -> Evaluation:
    """The evaluation that `Evaluation.to_dict` gave."""
    return msgspec.convert(
        {key: each for key, each in value.items() if each is not None}, Evaluation
    )


def _of_this_version(value: Mapping[str, Any]) -> dict[str, Any]:
    """A result of any version with this one's names; what is null there is left out."""
    known = {key: each for key, each in value.items() if each is not None}
    known["schema"] = SCHEMA
    if "baselines" not in known and "untuned_ms" in known:  # schema 1
        known["baselines"] = [
            {
                "name": "untuned TVM",
                "kind": "untuned",
                "latency_ms": known["untuned_ms"],
                "speedup": known.get("speedup"),
            }
        ]
    if "why_untuned" in known:
        known.setdefault("why_plain", known["why_untuned"])
    if known.get("delivered") == "untuned":
        known["delivered"] = "plain"
    difference = known.get("difference")
    if isinstance(difference, dict) and "untuned" in difference:
        known["difference"] = {"plain": difference["untuned"]} | difference
    return known


def _target_of_earlier_versions(
    value: Mapping[str, Any], result: RunResult
) -> JudgedAgreement | None:
    """They had nothing else that was agreed, under this name."""
    target = value.get("target_latency")
    if not isinstance(target, dict) or not target.get("target_ms"):
        return None
    agreed = Agreed(latency_ms=target["target_ms"])
    return judge(agreed, result.measured_shapes, trials=result.trials)


def _judged(shape: MeasuredShape) -> MeasuredShape:
    disturbed = shape.disturbed or 0.0
    baselines = tuple(_judged_baseline(each, disturbed) for each in shape.baselines)
    judged: dict[str, Any] = {"baselines": baselines}
    if shape.speedup is not None and baselines:
        first = baselines[0]
        judged |= {"speedup": first.speedup, "why_no_speedup": first.why_no_speedup}
    if shape.tuned_ms is not None and shape.why_disturbed is None:
        judged["why_disturbed"] = why_not_measurable(disturbed, shape.tuned_ms) or None
    return MeasuredShape(**of_shape(shape) | judged)


def _judged_baseline(baseline: Baseline, disturbed: float) -> Baseline:
    why = why_not_measurable(disturbed, baseline.speedup) if baseline.speedup else ""
    return replace(baseline, speedup=None, why_no_speedup=why) if why else baseline


def _without_shares_of_a_part(tasks: tuple[TaskResult, ...]) -> tuple[TaskResult, ...]:
    """Until version 3 a task that was not measured counted as nothing in the shares of others."""
    if all(task.latency_us for task in tasks):
        return tasks
    return tuple(replace(task, network_share=None) for task in tasks)


# msgspec looks at a class when it is first asked for it, and crashes where two threads ask at once.
for _kind in (RunResult, Evaluation):
    msgspec.json.Decoder(_kind)
