"""A network placed on several devices: each task where it is fastest, transfers included."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from tunefleet.core.home import Home
from tunefleet.core.importing import NetworkSource
from tunefleet.core.placement import (
    CallDevices,
    Cost,
    Part,
    PlacementProblem,
    best_placement,
    parts_of,
)
from tunefleet.core.trial import ranking_latency
from tunefleet.devices.health import check_all_there
from tunefleet.errors import InputError, JobError
from tunefleet.runs.context import BenchmarkContext
from tunefleet.runs.timing import (
    AWAY_S,
    DeviceTimings,
    TaskTiming,
    device_spec,
    device_worker,
    measuring_on,
    time_tasks,
)
from tunefleet.stages.place import source_here
from tunefleet.system.scratch import scratch_folder

if TYPE_CHECKING:
    from tunefleet.stages.division import DivisibleNetwork

SCHEMA = "tunefleet-placement/1"
#: Turns of each plan that is run, and what all may take.
_ROUNDS, _RUN_S = 8, 900.0


def _unheard(text: str) -> None:
    """Nobody watches."""


@dataclass(frozen=True, slots=True)
class Ran:
    """A placement as it ran: seconds of an inference, of several in turn with the others the low
    quantile that kernels are ranked by, and by how much its outputs differ from those of the first
    (relative to the largest)."""

    seconds: float
    difference: float


class Placing:
    """A network and devices that it may be divided over; each by the context that it is tuned with.

    Imports the network for each device, looks up and measures its tasks there, then answers. The
    first shape counts where a network has several. A context names one device, or none for this
    machine. `tell` hears what is done. To be closed, or used in a `with` block.

    Raises InputError for a GPU and for fewer than two devices; JobError for a network that cannot
    be divided; RetryElsewhereError where a device does not answer.
    """

    def __init__(
        self,
        source: NetworkSource,
        contexts: Mapping[str, BenchmarkContext],
        tell: Callable[[str], None] = _unheard,
    ) -> None:
        check_division(contexts)
        self.names = tuple(contexts)
        self.contexts = tuple(contexts.values())
        self._tell = tell
        # Before the import, which takes long: a device is asked for its answers only after it.
        check_all_there([device_spec(context) for context in self.contexts])
        source = source_here(Home(self.contexts[0].home), source)
        self._scratch = scratch_folder("placement")
        try:
            self.networks = self._imported(source)
            self.timings = self._timed()
            #: What each device's tasks were measured to take, and what they were predicted to.
            self.measured = self._problem(lambda timing: timing.measured_s)
            self.predicted = self._predicted()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._scratch.cleanup()

    def fastest_each(self) -> CallDevices:
        """Each call where it is fastest, whatever its transfers take."""
        return tuple(row.index(min(row)) for row in self.measured.seconds)

    def run(self, plans: Sequence[CallDevices], rounds: int = _ROUNDS) -> list[Ran]:
        """Compile the parts of each plan for their devices, and run inferences of all plans in
        turn, from this machine's memory and back to it.

        Raises JobError where a part fails.
        """
        from tunefleet.artifacts.arrays import load_arrays
        from tunefleet.stages import work
        from tunefleet.workers.pool import CallFailure

        flow = self.networks[0].flow
        modules = self._compiled([parts_of(flow, chosen) for chosen in plans])
        (inputs,) = load_arrays(self.networks[0].examples, 1)
        outputs = [number for number, tensor in enumerate(flow.tensors) if tensor.is_output]
        devices = [(device_spec(c), c.target.threads) for c in self.contexts]
        self._tell("running the parts in turn")
        with (
            measuring_on(self.contexts, self._tell),
            device_worker(self._nearest()) as worker,
        ):
            asked = (devices, modules, inputs, outputs, rounds, AWAY_S)
            runs = worker.pool.call(work.run_sequences, *asked, timeout_s=_RUN_S)
        if isinstance(runs, CallFailure):
            raise JobError(f"the parts cannot be run: {runs.text}", cure="tunefleet devices")
        return [
            Ran(ranking_latency(run.seconds), _difference(runs[0].outputs, run.outputs))
            for run in runs
        ]

    def _nearest(self) -> BenchmarkContext:
        """This machine's own device, whose threads the worker must have, or any other."""
        return next((c for c in self.contexts if not c.devices), self.contexts[0])

    def _imported(self, source: NetworkSource) -> tuple[DivisibleNetwork, ...]:
        from tunefleet.stages.division import divisible_network

        networks: list[DivisibleNetwork] = []
        # All are looked up before anything takes time.
        targets = [context.target for context in self.contexts]
        for name, target in zip(self.names, targets, strict=True):
            self._tell(f"importing it for {name}")
            folder = Path(self._scratch.name, str(len(networks)))
            folder.mkdir()
            networks.append(divisible_network(source.spec, target, folder, source.options))
            if networks[-1].flow != networks[0].flow:
                raise JobError(
                    f"on {self.names[0]} and {name} the network is not made of the same programs: "
                    "integers of 8 bits are kept as each processor multiplies them",
                    cure="tune it for one of them",
                )
        return tuple(networks)

    def _timed(self) -> tuple[DeviceTimings, ...]:
        from tunefleet.store import open_store

        timings = []
        store = open_store(self.contexts[0].home)
        try:
            for name, context, network in zip(
                self.names, self.contexts, self.networks, strict=True
            ):
                self._tell(f"measuring what has no record on {name}, and how it is reached")
                timings.append(time_tasks(context, network, store, self._tell))
        finally:
            store.close()
        return tuple(timings)

    def timing(self, call: int, device: int) -> TaskTiming:
        """Of the task of a call on a device."""
        return self.timings[device].tasks[self.networks[device].task_ids[call]]

    def _problem(self, seconds: Callable[[TaskTiming], float | None]) -> PlacementProblem:
        devices, flow = range(len(self.names)), self.networks[0].flow
        rows = []
        for call in range(len(flow.calls)):
            known = [seconds(self.timing(call, device)) for device in devices]
            rows.append(tuple(math.inf if s is None else s for s in known))
            if not math.isfinite(min(rows[-1])):
                raise JobError(
                    f"a task runs on none of {', '.join(self.names)}", cure="tune the network first"
                )
        connections = tuple(timings.connection for timings in self.timings)
        return PlacementProblem(flow, connections, tuple(rows))

    def _predicted(self) -> PlacementProblem | None:
        """None where some device has no records that a prediction could be made from."""
        if any(t.predicted_s is None for own in self.timings for t in own.tasks.values()):
            return None
        return self._problem(lambda timing: timing.predicted_s)

    def _compiled(self, plans: Sequence[Sequence[Part]]) -> list[list[Any]]:
        """Modules of the parts of each plan; one for a part that several plans have."""
        from tunefleet.devices.sequence import PartModule

        paths = {
            part: Path(self._scratch.name, f"part{number}.so")
            for number, part in enumerate(dict.fromkeys(p for plan in plans for p in plan))
        }
        for device, (name, network) in enumerate(zip(self.names, self.networks, strict=True)):
            own = [(part, path) for part, path in paths.items() if part.device == device]
            timed = self.timings[device].tasks
            traces = {i: t.trace for i, t in timed.items() if t.trace is not None}
            if own:
                self._tell(f"compiling {len(own)} parts for {name}")
                network.compile_parts(self.contexts[device].target, traces, own)
        return [
            [PartModule(p.device, str(paths[p]), p.inputs, p.outputs) for p in plan]
            for plan in plans
        ]


def _difference(expected: Sequence[Any], actual: Sequence[Any]) -> float:
    from tunefleet.compiler.code.executable import worst_difference

    return worst_difference(expected, actual)


def check_division(contexts: Mapping[str, BenchmarkContext]) -> None:
    """Raises InputError for what no network can be divided over."""
    for name, context in contexts.items():
        if device_spec(context).gpu is not None:
            raise InputError(
                f"a network is divided over processors, and {name} is a GPU",
                cure=f"tune it for the GPU alone: tunefleet tune NETWORK --device {name}",
            )
    if len(contexts) < 2:
        raise InputError(
            "a network is divided over two devices or more", cure="give --device again"
        )


def placed(
    source: NetworkSource,
    contexts: Mapping[str, BenchmarkContext],
    tell: Callable[[str], None] = _unheard,
) -> dict[str, Any]:
    """What `errands.place` answers. Raises as `Placing`."""
    with Placing(source, contexts, tell) as placing:
        return judged(placing)


def judged(placing: Placing) -> dict[str, Any]:
    """What `placed` says of a network and devices."""
    measured = placing.measured
    chosen, single = best_placement(measured), measured.best_single()
    alone = measured.single(single)
    possible = math.isfinite(measured.cost(alone).total_s)
    ran: list[Ran] = []
    if chosen != alone:
        ran = placing.run([alone, chosen] if possible else [chosen])
    report = told(placing, chosen)
    report["ran"] = None
    report["pays"] = bool(ran) and (not possible or ran[1].seconds < ran[0].seconds)
    if ran:
        report["ran"] = {
            "placement_s": ran[-1].seconds,
            "alone_s": ran[0].seconds if possible else None,
            "difference": ran[-1].difference,
        }
    return report


def told(placing: Placing, chosen: CallDevices) -> dict[str, Any]:
    """What is known of a placement: its calls, what it takes and what others would."""
    measured, names = placing.measured, placing.names
    costs = [measured.cost(measured.single(d)) for d in range(len(names))]
    first = placing.networks[0]
    return {
        "schema": SCHEMA,
        "network": first.name,
        "devices": [_device(placing, device) for device in range(len(names))],
        "tasks": _tasks(placing, chosen),
        "best_device": names[measured.best_single()],
        "placement": _described(measured, chosen, names),
        "fastest_each": _described(measured, placing.fastest_each(), names),
        "alone": {name: _cost(cost) for name, cost in zip(names, costs, strict=True)},
        "predicted": _prediction(placing, chosen),
    }


def _device(placing: Placing, device: int) -> dict[str, Any]:
    context, timings = placing.contexts[device], placing.timings[device]
    connection = timings.connection
    links = {"up": connection.up, "down": connection.down}
    return {
        "name": placing.names[device],
        "target": str(context.target),
        "identity": context.device.to_json(),
        "call_s": connection.call_s,
        **{
            name: {"latency_s": link.latency_s, "bytes_per_s": _finite(link.bytes_per_s)}
            for name, link in links.items()
        },
        "recorded_tasks": timings.recorded,
        "typical_error": timings.typical_error,
    }


def _tasks(placing: Placing, chosen: CallDevices) -> list[dict[str, Any]]:
    """A row for each task, with how many of its calls went to each device."""
    first = placing.networks[0]
    rows = []
    for weighted in first.tasks:
        task = weighted.task
        calls = [c for c, task_id in enumerate(first.task_ids) if task_id == task.task_id]
        if not calls:  # only another shape of the network calls it
            continue
        timings = [placing.timing(calls[0], device) for device in range(len(placing.names))]
        rows.append(
            {
                "name": task.name,
                "shapes": task.shapes,
                "calls": len(calls),
                "on": {
                    name: sum(chosen[call] == device for call in calls)
                    for device, name in enumerate(placing.names)
                },
                "seconds": {
                    name: {
                        "predicted_s": timing.predicted_s,
                        "measured_s": timing.measured_s,
                        "program": "plain" if timing.trace is None else "record",
                    }
                    for name, timing in zip(placing.names, timings, strict=True)
                },
            }
        )
    return rows


def _prediction(placing: Placing, chosen: CallDevices) -> dict[str, Any] | None:
    """The placement that predictions alone lead to, beside the one that was measured: what it was
    expected to take, what it takes, and what is lost by it."""
    if placing.predicted is None:
        return None
    guessed = best_placement(placing.predicted)
    takes = placing.measured.cost(guessed).total_s
    return {
        **_described(placing.predicted, guessed, placing.names),
        "measured_total_s": _finite(takes),
        "same_calls": sum(a == b for a, b in zip(guessed, chosen, strict=True)),
        "calls": len(chosen),
        "regret_s": _finite(takes - placing.measured.cost(chosen).total_s),
    }


def _described(
    problem: PlacementProblem, chosen: CallDevices, names: Sequence[str]
) -> dict[str, Any]:
    return {
        "calls_on": {name: chosen.count(device) for device, name in enumerate(names)},
        "parts": len(parts_of(problem.flow, chosen)),
        "devices_of_calls": [names[device] for device in chosen],
        **_cost(problem.cost(chosen)),
    }


def _cost(cost: Cost) -> dict[str, float | None]:
    figures = {**asdict(cost), "total_s": cost.total_s}
    return {name: _finite(value) for name, value in figures.items()}


def _finite(value: float) -> float | None:
    """JSON has no infinity: nothing stands for what takes no time, or cannot be."""
    return value if math.isfinite(value) else None
