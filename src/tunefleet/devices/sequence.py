"""Runs the parts of a network one after another, each on its device."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from tunefleet.core.device import DeviceSpec
from tunefleet.devices._base import Array, Network
from tunefleet.devices.opening import open_device

#: Inferences of one plan that are timed before the next plan's turn.
_IN_A_ROW = 3


@dataclass(frozen=True, slots=True)
class PartModule:
    """A compiled part: the place of its device among those that are opened, the module's path, and
    the numbers of the tensors that it takes and gives."""

    device: int
    path: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SequenceRun:
    """Seconds of each inference from inputs in this process to outputs in it, and the outputs."""

    seconds: tuple[float, ...]
    outputs: tuple[Array, ...]


def run_sequences(
    devices: Sequence[tuple[DeviceSpec, int]],
    plans: Sequence[Sequence[PartModule]],
    inputs: Sequence[Array],
    outputs: Sequence[int],
    rounds: int,
    away_s: float | None = None,
) -> list[SequenceRun]:
    """Inferences of several plans in turn, a few of A, of B, of C, of A again, ... so that a slow
    minute hits all alike.

    A device is given with the threads that its kernels have, and opened once, as `open_device`
    does with `away_s`. `inputs` are tensors
    0, 1, ...; `outputs` the numbers of those that are wanted.
    Raises what `Device.network` raises.
    """
    opened = [open_device(spec, threads, away_s=away_s) for spec, threads in devices]
    try:
        loaded = [
            [(part, opened[part.device].network(part.path, "main")) for part in plan]
            for plan in plans
        ]
        seconds: list[list[float]] = [[] for _ in plans]
        results: list[list[Array]] = [[] for _ in plans]
        for _ in range(rounds):
            for index, plan in enumerate(loaded):
                # What another left in the caches, there and here, is not this one's.
                _inference(plan, inputs, outputs)
                for _ in range(_IN_A_ROW):
                    started = time.perf_counter()
                    results[index] = _inference(plan, inputs, outputs)
                    seconds[index].append(time.perf_counter() - started)
        loaded.clear()  # networks hold their sessions
        pairs = zip(seconds, results, strict=True)
        return [SequenceRun(tuple(own), tuple(result)) for own, result in pairs]
    finally:
        for device in opened:
            device.close()


def _inference(
    plan: Sequence[tuple[PartModule, Network]], inputs: Sequence[Array], outputs: Sequence[int]
) -> list[Array]:
    tensors = dict(enumerate(inputs))
    for part, network in plan:
        made = network.run([tensors[number] for number in part.inputs])
        tensors |= dict(zip(part.outputs, made, strict=True))
    return [tensors[number] for number in outputs]
