"""What each task of a network takes on a device: predicted by others' records, and measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunefleet.core.device import THIS_MACHINE, DeviceSpec
from tunefleet.core.identity import Tier
from tunefleet.core.placement import Connection
from tunefleet.core.predicting import Timed, Workload, predicted_s, typical_error
from tunefleet.core.settings import TuneSettings
from tunefleet.core.task import Task
from tunefleet.core.trial import Built, Measurement
from tunefleet.errors import JobError
from tunefleet.runs.context import BenchmarkContext
from tunefleet.system.scratch import scratch_folder

if TYPE_CHECKING:
    from tunefleet.stages.division import DivisibleNetwork
    from tunefleet.stages.place import DeviceWorker
    from tunefleet.store import Store

_PROBE = "probe.so"
_CALL_S = 300.0
#: For which a device that is gone is waited for: others do not take its work, and whoever placed a
#: network looks on.
AWAY_S = 3.0


@dataclass(frozen=True, slots=True)
class TaskTiming:
    """Seconds of a task on a device. `predicted_s` knows nothing of this task there, and is None
    where nothing else was recorded either. `measured_s` is that of the record whose `trace` it is,
    or of the plain program without one; None where that failed."""

    predicted_s: float | None
    measured_s: float | None
    trace: str | None


@dataclass(frozen=True, slots=True)
class DeviceTimings:
    """A device's timings by task id. `recorded` counts the tasks that predictions are made from,
    and `typical_error` is the factor by which those are wrong in the median."""

    tasks: dict[str, TaskTiming]
    connection: Connection
    recorded: int
    typical_error: float | None


def time_tasks(
    context: BenchmarkContext,
    network: DivisibleNetwork,
    store: Store,
    tell: Callable[[str], None],
) -> DeviceTimings:
    """Look up the verified records of a network's tasks on the device of a context, and measure
    there what has none, and how it is reached. `tell` is told while others have the device.

    Raises RetryElsewhereError where the device does not answer, JobError where it cannot be called.
    """
    recorded = recorded_tasks(context, store)
    identities = context.device, _toolchain(context)
    best = {
        t.task.task_id: store.records.best(t.task.task_id, *identities, tenant=context.tenant)
        for t in network.tasks
    }
    unknown = [t.task for t in network.tasks if best[t.task.task_id] is None]
    with (
        measuring_on([context], tell),
        device_worker(context) as worker,
        scratch_folder("timing") as folder,
    ):
        connection = _connection(context, worker, Path(folder))
        plain = _measured_plain(context, worker, network, unknown, folder)
    timings = {}
    for each in network.tasks:
        task, record = each.task, best[each.task.task_id]
        others = [timed for task_id, timed in recorded.items() if task_id != task.task_id]
        timings[task.task_id] = TaskTiming(
            predicted_s(workload_of(task), others),
            record.measurement.latency_s if record else plain[task.task_id],
            record.candidate.trace if record else None,
        )
    error = typical_error(list(recorded.values()))
    return DeviceTimings(timings, connection, len(recorded), error)


def recorded_tasks(context: BenchmarkContext, store: Store) -> dict[str, Timed]:
    """The best record of every task that any job tuned on the device and the target of a
    context."""
    from tunefleet.store import each_job

    device, toolchain = context.device, _toolchain(context)
    tasks = {
        weighted.task.task_id: weighted.task
        for job in each_job(store.jobs)
        if (job.spec.target, job.spec.device.exact) == (context.target, device.exact)
        and job.spec.tenant == context.tenant
        for weighted in store.work.tasks(job.job_id)
    }
    timed = {}
    for task_id, task in tasks.items():
        found = store.records.fastest(
            task_id, device, toolchain, tier=Tier.EXACT, limit=1, tenant=context.tenant
        )
        for record in found:
            timed[task_id] = Timed(workload_of(task), record.measurement.latency_s)
    return timed


def workload_of(task: Task) -> Workload:
    """Of a task's shapes, such as `1x16 16x10 -> 1x10`, the numbers in all of them."""
    numbers = 0
    for shape in task.shapes.replace("->", " ").split():
        size = 1
        for extent in shape.split("x"):
            size *= int(extent) if extent.isdigit() else 1
        numbers += size
    return Workload(task.operator, task.flops, numbers)


def device_spec(context: BenchmarkContext) -> DeviceSpec:
    """The one device that a context measures on."""
    return context.devices[0].spec if context.devices else THIS_MACHINE


def measuring_on(
    contexts: Sequence[BenchmarkContext], tell: Callable[[str], None]
) -> AbstractContextManager[None]:
    """Have the devices of contexts that have one home, while nothing else is measured there."""
    from tunefleet.fleet.leases import measuring, units_alone

    units: set[str] = set()
    for context in contexts:
        name = context.devices[0].name if context.devices else ""
        units |= units_alone(name, device_spec(context), context.layout)
    return measuring(contexts[0].home, units, "placement", tell)


@contextmanager
def device_worker(context: BenchmarkContext) -> Iterator[DeviceWorker]:
    """A worker that measures on the device of a context."""
    from tunefleet.stages.place import DeviceWorker
    from tunefleet.workers.pool import WorkerPool

    spec = device_spec(context)
    with scratch_folder("device") as folder, WorkerPool(1, _config(context, folder)) as pool:
        yield DeviceWorker(pool, context.target.threads, spec, AWAY_S)


def _config(context: BenchmarkContext, folder: str) -> Any:
    from tunefleet.workers.memory import machine_memory
    from tunefleet.workers.pool import WorkerConfig

    # Whole networks are sent by it, and address space is more than memory.
    gib = 4 * machine_memory().total / 2**30
    threads = 1 if context.devices else context.target.threads
    return WorkerConfig(threads, gib, f"{folder}/log", context.layout.device_cores)


def _toolchain(context: BenchmarkContext) -> Any:
    from tunefleet.compiler.toolchain.host import toolchain_of

    return toolchain_of(context.target)


def _connection(context: BenchmarkContext, worker: DeviceWorker, folder: Path) -> Connection:
    from tunefleet.stages import work
    from tunefleet.workers.pool import CallFailure

    probe = folder / _PROBE
    made = worker.pool.call(work.compile_probe, context.target, probe, timeout_s=_CALL_S)
    if not isinstance(made, CallFailure):
        connection = worker.call(work.connection, str(probe), timeout_s=_CALL_S)
        if isinstance(connection, Connection):
            return connection
        made = connection
    raise JobError(f"the device cannot be called: {made.text}", cure="tunefleet devices")


def _measured_plain(
    context: BenchmarkContext,
    worker: DeviceWorker,
    network: DivisibleNetwork,
    tasks: list[Task],
    folder: str,
) -> dict[str, float | None]:
    """The seconds of the plain programs of tasks, weights as cold as in the network."""
    from tunefleet.stages import work
    from tunefleet.stages.weights import weights_of

    settings = TuneSettings()
    weights = weights_of(network.tasks, worker.pool, settings.build.timeout_s)
    seconds: dict[str, float | None] = {}
    for task in tasks:
        build = (task.program, context.target, "plain", folder)
        built = worker.pool.call(work.build_default, *build, timeout_s=_CALL_S)
        seconds[task.task_id] = None
        if isinstance(built, Built):
            arguments = (built, settings.measure, None, weights[task.task_id])
            outcome = worker.call(work.profile_candidate, *arguments, timeout_s=_CALL_S)
            if isinstance(outcome, Measurement):
                seconds[task.task_id] = outcome.latency_s
    return seconds
