"""What users want of jobs that run: a word per job in a directory that every process can reach."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path

from tunefleet.core.home import Home


class ControlRequest(StrEnum):
    """RUN is what is wanted of a job of which nothing was said."""

    RUN = "run"
    PAUSE = "pause"
    CANCEL = "cancel"


class Controls:
    """Requests outlive processes: a job paused stays paused when its command is given again."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def ask(self, job_id: str, request: ControlRequest) -> None:
        path = self._path(job_id)
        if request is ControlRequest.RUN:
            path.unlink(missing_ok=True)
            return
        self._directory.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".draft")
        draft.write_text(request, encoding="utf-8")
        os.replace(draft, path)

    def of(self, job_id: str) -> ControlRequest:
        """What is wanted of a job; of none (""), that it runs."""
        if not job_id:
            return ControlRequest.RUN
        try:
            return ControlRequest(self._path(job_id).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return ControlRequest.RUN

    def _path(self, job_id: str) -> Path:
        return self._directory / job_id


def controls_of(home: Path) -> Controls:
    return Controls(Home(home).control)
