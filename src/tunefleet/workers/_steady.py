"""A pool whose calls have time limits by a clock that nobody sets.

Pebble takes the time of day. When that is set forward, or a machine wakes up from sleep, every call
under way has lasted for hours, and a network is blamed for it. And what comes back from workers in
a sandbox is read as data.
"""

from __future__ import annotations

import time
from typing import Any

from pebble import ProcessPool
from pebble.pool.base_pool import Task
from pebble.pool.process import TaskManager, WorkerManager

from tunefleet.workers._received import MOST_BYTES, received


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


class _ConfinedWorkers(WorkerManager):  # type: ignore[misc]
    def create_channels(self) -> None:
        super().create_channels()
        answers = self.pool_channel.reader
        self.pool_channel.recv = lambda: received(answers.recv_bytes(MOST_BYTES))


class SteadyPool(ProcessPool):  # type: ignore[misc]
    def __init__(self, *args: Any, confined: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Nothing of pebble takes the clock as a parameter, nor how answers are read.
        self._pool_manager.task_manager = _Tasks(self._context.task_queue.task_done)
        if confined:
            own = self._pool_manager.worker_manager
            self._pool_manager.worker_manager = _ConfinedWorkers(
                own.workers_number, own.worker_parameters, own.mp_context
            )

    def lost(self) -> bool:
        """Whether a thread of a pool that is in use has ended: its calls would not end."""
        ended = not all(loop.is_alive() for loop in self._loops)
        return ended and bool(self.active)
