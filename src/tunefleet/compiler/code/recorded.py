"""Rebuilds programs of MetaSchedule's records from their steps, and computes their features."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefleet.compiler.code.loop_nests import statements_of
from tunefleet.compiler.space.intrinsics import make_all_known
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.errors import raise_mistake
from tunefleet.features.behaviours import Statement
from tunefleet.features.per_store import extract

tvm = load_tvm()
ms = tvm.s_tir.meta_schedule

#: Items of a step that is an instruction; one more is its decision.
_INSTRUCTION = 4


@lru_cache(maxsize=512)
def _module(workload: str, definition: str) -> Any:
    return ms.database.Workload.from_json([workload, definition]).mod


@lru_cache(maxsize=64)
def _target(text: str) -> Any:
    return tvm.target.Target(json.loads(text) if text.startswith("{") else text)


def schedule_of(workload: str, definition: str, steps: Sequence[str]) -> Any:
    """The scheduled program of a record.

    `workload` is its structural hash, `definition` its module in base64, each step an instruction
    as JSON `[kind, inputs, attributes, outputs]` with its decision, if any, as the fifth item.
    Raises TVM's own errors if they do not fit.
    """
    instructions = [json.loads(step) for step in steps]
    decisions = [
        [place, instruction[_INSTRUCTION]]
        for place, instruction in enumerate(instructions)
        if len(instruction) > _INSTRUCTION
    ]
    schedule = tvm.s_tir.Schedule(_module(workload, definition))
    trace = [[instruction[:_INSTRUCTION] for instruction in instructions], decisions]
    make_all_known(trace[0])
    tvm.s_tir.schedule.Trace.apply_json_to_schedule(trace, schedule)
    return schedule


def statements(workload: str, definition: str, steps: Sequence[str]) -> list[Statement]:
    """The statements of a record's program (schema `behaviours/1`); some 20 ms each.

    Raises ValueError, with TVM's last line, for a record that cannot be rebuilt.
    """
    with _fitting():
        return statements_of(schedule_of(workload, definition, steps).mod)


def per_store_features(
    workload: str, definition: str, target: str, steps: Sequence[str]
) -> NDArray[np.float32]:
    """The features `per-store/1` of a record, (stores, columns); some 10 ms each.

    Raises ValueError, with TVM's last line, for a record that cannot be rebuilt.
    """
    with _fitting():
        schedule = schedule_of(workload, definition, steps)
        context = ms.TuneContext(
            _module(workload, definition), target=_target(target), num_threads=1
        )
        candidate = ms.search_strategy.MeasureCandidate(schedule, [])
        (features,) = extract(context, [candidate])
    return features


@contextmanager
def _fitting() -> Iterator[None]:
    """Converts TVM's errors of many types for invalid texts."""
    try:
        yield
    except Exception as error:
        raise_mistake(error)
        lines = str(error).strip().splitlines()
        raise ValueError(lines[-1] if lines else type(error).__name__) from error
