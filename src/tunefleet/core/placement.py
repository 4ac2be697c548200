"""Assigns the calls of a network to devices so that one inference takes the least time.

Calls run one after another. Tensors move between devices through this machine's memory, as with
TVM's RPC, and with a GPU and the CPU that launches its kernels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from tunefleet.core.cut import CutGraph

#: The device index of each call.
CallDevices = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Link:
    """One direction between this machine and a device: latency and bandwidth."""

    latency_s: float = 0.0
    bytes_per_s: float = math.inf

    def __post_init__(self) -> None:
        if self.latency_s < 0 or not self.bytes_per_s > 0:
            raise ValueError(f"invalid link: {self.latency_s} s, {self.bytes_per_s} bytes/s")

    def seconds(self, size: int) -> float:
        return self.latency_s + size / self.bytes_per_s


@dataclass(frozen=True, slots=True)
class Connection:
    """The links to and from a device, and the overhead in seconds of calling a compiled part on it.
    All zero for this machine's own processor."""

    up: Link = Link()
    down: Link = Link()
    call_s: float = 0.0

    def arrival_s(self, size: int) -> float:
        """Seconds to send a tensor of `size` bytes and call the part that waits for it. Two tensors
        for one call count the overhead twice, which favours moving less."""
        return self.up.seconds(size) + self.call_s


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor between calls. `producer` and `consumers` are indices of calls; an input of the
    network has no producer."""

    size: int
    producer: int | None
    consumers: tuple[int, ...] = ()
    is_output: bool = False


@dataclass(frozen=True, slots=True)
class Dataflow:
    """The calls of one inference in a valid order, as the names of their programs, and the tensors
    between them. Weights are not included: each device has the weights that it needs."""

    calls: tuple[str, ...]
    tensors: tuple[Tensor, ...]

    def __post_init__(self) -> None:
        for tensor in self.tensors:
            first = -1 if tensor.producer is None else tensor.producer
            if not all(first < call < len(self.calls) for call in tensor.consumers):
                raise ValueError("a tensor is read before it is written")


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of one inference: in kernels, and in transfers and calls to devices."""

    kernels_s: float
    transfers_s: float

    @property
    def total_s(self) -> float:
        return self.kernels_s + self.transfers_s


@dataclass(frozen=True, slots=True)
class PlacementProblem:
    """`seconds[call][device]` is the time of a call, infinity if the device cannot run it. Raises
    ValueError if no device can run a call."""

    flow: Dataflow
    connections: tuple[Connection, ...]
    seconds: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        if len(self.seconds) != len(self.flow.calls):
            raise ValueError("each call needs one row of seconds")
        for name, row in zip(self.flow.calls, self.seconds, strict=True):
            if len(row) != len(self.connections) or not math.isfinite(min(row)):
                raise ValueError(f"{name} runs on no device")

    def cost(self, chosen: CallDevices) -> Cost:
        """The cost of an inference with each call on its `chosen` device. A tensor is sent to a
        device once and fetched once, however many calls read it."""
        transfers = 0.0
        for tensor in self.flow.tensors:
            home = None if tensor.producer is None else chosen[tensor.producer]
            others = {chosen[c] for c in tensor.consumers} - {home}
            if home is not None and (others or tensor.is_output):
                transfers += self.connections[home].down.seconds(tensor.size)
            transfers += sum(self.connections[o].arrival_s(tensor.size) for o in sorted(others))
        kernels = sum(row[device] for row, device in zip(self.seconds, chosen, strict=True))
        return Cost(kernels, transfers)

    def single(self, device: int) -> CallDevices:
        """All calls on one device."""
        return (device,) * len(self.flow.calls)

    def best_single(self) -> int:
        """The device that is fastest alone; its cost is infinite if none runs every call."""
        devices = range(len(self.connections))
        return min(devices, key=lambda device: self.cost(self.single(device)).total_s)


def best_placement(problem: PlacementProblem) -> CallDevices:
    """The assignment with the least total cost. For two devices it is exact: one minimum cut. For
    more, pairs of devices exchange calls, each exchange exact, until none gains (swap moves of
    Boykov, Veksler and Zabih). It is never worse than the best single device.
    """
    starts = [tuple(row.index(min(row)) for row in problem.seconds)]
    alone = problem.single(problem.best_single())
    if math.isfinite(problem.cost(alone).total_s):
        starts.insert(0, alone)
    return min((_exchanged(problem, s) for s in starts), key=lambda a: problem.cost(a).total_s)


def _exchanged(problem: PlacementProblem, chosen: CallDevices) -> CallDevices:
    """The best assignment found by exchanges between pairs of devices."""
    total = problem.cost(chosen).total_s
    gained = True
    while gained:
        gained = False
        for pair in combinations(range(len(problem.connections)), 2):
            moved = _Exchange(problem, chosen, pair).best()
            cost = problem.cost(moved).total_s
            if cost < total:  # strictly less, so that rounding cannot cause an endless loop
                chosen, total, gained = moved, cost, True
    return chosen


class _Exchange:
    """Redistributes the calls of two devices between them; all other calls keep their device. The
    first device of the pair is the source's side of the cut."""

    def __init__(
        self, problem: PlacementProblem, chosen: CallDevices, pair: tuple[int, int]
    ) -> None:
        self._problem = problem
        self._chosen = chosen
        self._pair = pair
        self._graph = CutGraph()
        calls = [call for call, device in enumerate(chosen) if device in pair]
        self._nodes = {call: self._graph.node() for call in calls}

    def best(self) -> CallDevices:
        first, second = self._pair
        for call in self._nodes:
            row = self._problem.seconds[call]
            self._add_own(call, row[first], row[second])
        for tensor in self._problem.flow.tensors:
            self._add_tensor(tensor)
        side = self._graph.source_side()
        moved = {c: first if node in side else second for c, node in self._nodes.items()}
        return tuple(moved.get(call, device) for call, device in enumerate(self._chosen))

    def _add_own(self, call: int, first_s: float, second_s: float) -> None:
        """Add the cost of a call on each of the two devices, independent of the other calls."""
        node, graph = self._nodes[call], self._graph
        graph.edge(node, graph.SINK, first_s)
        graph.edge(graph.SOURCE, node, second_s)

    def _add_tensor(self, tensor: Tensor) -> None:
        first, second = (self._problem.connections[device] for device in self._pair)
        readers = [self._nodes[c] for c in tensor.consumers if c in self._nodes]
        to_first, to_second = first.arrival_s(tensor.size), second.arrival_s(tensor.size)
        if tensor.producer not in self._nodes:
            # The tensor is in this machine's memory, or is fetched there in any case.
            self._add_crossing(self._graph.SOURCE, readers, to_second)
            self._add_crossing_back(self._graph.SINK, readers, to_first)
            return
        from_first, from_second = first.down.seconds(tensor.size), second.down.seconds(tensor.size)
        if tensor.is_output or len(readers) < len(tensor.consumers):
            self._add_own(tensor.producer, from_first, from_second)
        else:
            to_first, to_second = to_first + from_second, to_second + from_first
        maker = self._nodes[tensor.producer]
        self._add_crossing(maker, readers, to_second)
        self._add_crossing_back(maker, readers, to_first)

    def _add_crossing(self, maker: int, readers: Sequence[int], seconds: float) -> None:
        """Add a cost that is paid once if the producer is on the first device and a reader on the
        second."""
        if readers:
            between = self._graph.node()
            self._graph.edge(maker, between, seconds)
            for reader in readers:
                self._graph.edge(between, reader, math.inf)

    def _add_crossing_back(self, maker: int, readers: Sequence[int], seconds: float) -> None:
        """Add a cost that is paid once if the producer is on the second device and a reader on the
        first."""
        if readers:
            between = self._graph.node()
            self._graph.edge(between, maker, seconds)
            for reader in readers:
                self._graph.edge(reader, between, math.inf)


@dataclass(frozen=True, slots=True)
class Part:
    """Consecutive calls on one device, compiled as one module. `inputs` and `outputs` are indices
    of the tensors that it receives and that other parts need from it."""

    device: int
    calls: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def parts_of(flow: Dataflow, chosen: CallDevices) -> tuple[Part, ...]:
    """The parts of a placement in execution order. Each part continues while a call of its device
    is ready. The first device is the one that leads to fewer parts.
    """
    orders = [_runs(flow, chosen, first) for first in sorted(set(chosen))]
    shortest = min(orders, key=len, default=[])
    return tuple(_part(flow, chosen[calls[0]], calls) for calls in shortest)


def _runs(flow: Dataflow, chosen: CallDevices, device: int) -> list[tuple[int, ...]]:
    needed = _needed(flow)
    done: set[int] = set()
    runs: list[tuple[int, ...]] = []
    while len(done) < len(flow.calls):
        # The calls are in a valid order, so one pass is enough.
        run = tuple(_able(needed, chosen, device, done))
        if run:
            runs.append(run)
        left = [c for c in range(len(flow.calls)) if c not in done and needed[c] <= done]
        device = chosen[left[0]] if left else device
    return runs


def _able(
    needed: Sequence[set[int]], chosen: CallDevices, device: int, done: set[int]
) -> Iterator[int]:
    """The calls that a device can run next without other devices; adds them to `done`."""
    for call, own in enumerate(chosen):
        if own == device and call not in done and needed[call] <= done:
            done.add(call)
            yield call


def _needed(flow: Dataflow) -> list[set[int]]:
    """For each call the calls that it depends on."""
    needed: list[set[int]] = [set() for _ in flow.calls]
    for tensor in flow.tensors:
        if tensor.producer is not None:
            for consumer in tensor.consumers:
                needed[consumer].add(tensor.producer)
    return needed


def _part(flow: Dataflow, device: int, calls: tuple[int, ...]) -> Part:
    own = set(calls)
    inputs, outputs = [], []
    for number, tensor in enumerate(flow.tensors):
        readers = set(tensor.consumers)
        if tensor.producer in own:
            if tensor.is_output or readers - own:
                outputs.append(number)
        elif readers & own:
            inputs.append(number)
    return Part(device, calls, tuple(inputs), tuple(outputs))
