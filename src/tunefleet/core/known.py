"""Programs that earlier jobs verified, and the module that is made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tunefleet.core.ids import digest
from tunefleet.core.step import Preparation
from tunefleet.core.trial import Trial

#: The schema of a line of `records.jsonl`, of artifacts and of `records export`.
RECORD = "tunefleet-record/1"


@dataclass(frozen=True, slots=True)
class KnownProgram:
    """A verified program of a task: the winner of `job_id`, with the checks that chose it."""

    job_id: str
    trial: Trial
    checks: Any

    @property
    def trace(self) -> str:
        return self.trial.candidate.trace


#: The known programs of a network, by task id.
KnownPrograms = Mapping[str, KnownProgram]


def traces_of(known: KnownPrograms) -> dict[str, str]:
    """The traces by task id."""
    return {task_id: program.trace for task_id, program in known.items()}


def module_id(preparation: Preparation, known: KnownPrograms) -> str:
    """Names the module of a preparation with these programs: the same ones give the same module."""
    programs = sorted((task_id, digest(trace)) for task_id, trace in traces_of(known).items())
    return digest(["module", preparation.id, [list(each) for each in programs]], 32)
