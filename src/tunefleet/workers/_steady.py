"""A pool whose calls have time limits by a clock that nobody sets.

Pebble takes the time of day. When that is set forward, or a machine wakes up from sleep, every call
under way has lasted for hours, and a network is blamed for it.
"""

from __future__ import annotations

import time
from typing import Any

from pebble import ProcessPool
from pebble.pool.base_pool import Task
from pebble.pool.process import TaskManager


class _Tasks(TaskManager):  # type: ignore[misc]
    def task_start(self, task_id: int, worker_id: int | None) -> None:
        super().task_start(task_id, worker_id)
        task = self.tasks.get(task_id)
        if task is not None:
            task.timestamp = time.monotonic()

    @staticmethod
    def timeout(task: Task) -> bool:
        return bool(
            task.timeout and task.started and time.monotonic() - task.timestamp > task.timeout
        )


class SteadyPool(ProcessPool):  # type: ignore[misc]
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Nothing of pebble takes the clock as a parameter.
        self._pool_manager.task_manager = _Tasks(self._context.task_queue.task_done)

    def lost(self) -> bool:
        """Whether a thread of a pool that is in use has ended: its calls would not end."""
        ended = not all(loop.is_alive() for loop in self._loops)
        return ended and bool(self.active)
