"""What it takes to reach a device: its links, by a sweep over sizes, and a call of a network."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tunefleet.compiler.code.executable import compile_network, save_network
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.core.placement import Connection, Link
from tunefleet.core.target import Target
from tunefleet.core.trial import ranking_latency
from tunefleet.devices._base import Device
from tunefleet.devices.rpc import RpcDevice
from tunefleet.devices.rpc_session import RpcSession

tvm = load_tvm()
relax = tvm.relax

#: Bytes that are sent and fetched, the fewest first.
_SIZES = (64, 2**12, 2**15, 2**18, 2**20, 2**22)
_REPEATS = 15
#: A size that takes longer than this is the last: a slow line tells its rate sooner.
_LONG_S = 0.5
#: What a call is measured with: so few numbers that neither they nor the kernel take time.
_NUMBERS = 16


def compile_probe(target: Target, path: Path) -> None:
    """Write the network that `connection_of` calls."""
    builder = relax.BlockBuilder()
    data = relax.Var("data", relax.TensorType((_NUMBERS,), "float32"))
    with builder.function("main", [data]):
        with builder.dataflow():
            outputs = builder.emit_output(relax.Tuple([builder.emit(relax.op.add(data, data))]))
        builder.emit_func_output(outputs)
    module = relax.transform.LegalizeOps()(builder.finalize())
    save_network(compile_network(module, target, {}), path)


def connection_of(device: Device, probe: str) -> Connection:
    """How this process reaches a device; `probe` is the path of `compile_probe`'s network. This
    machine's own processor reads and writes where this process does.

    Raises what `Device.network` raises.
    """
    up, down = Link(), Link()
    if isinstance(device, RpcDevice):
        up, down = device.of_network(_links)
    network = device.network(probe, "main")
    numbers = np.zeros(_NUMBERS, np.float32)
    call_s = _seconds_of(lambda: network.run([numbers]))
    there_and_back = up.seconds(numbers.nbytes) + down.seconds(numbers.nbytes)
    return Connection(up, down, max(0.0, call_s - there_and_back))


def _links(session: RpcSession) -> tuple[Link, Link]:
    times: list[tuple[int, float, float]] = []
    for size in _SIZES:
        sent = np.zeros(size, np.uint8)
        tensor = session.send(sent)
        up_s = _seconds_of(lambda: session.put(sent, tensor))  # noqa: B023
        down_s = _seconds_of(lambda: session.fetch(tensor, size))  # noqa: B023
        times.append((size, up_s, down_s))
        if max(up_s, down_s) > _LONG_S:
            break
    return (
        fitted_link([(size, up_s) for size, up_s, _ in times]),
        fitted_link([(size, down_s) for size, _, down_s in times]),
    )


def fitted_link(times: Sequence[tuple[int, float]]) -> Link:
    """The link that explains the seconds of each size: the smallest gives the latency, the others
    the median of their rates beyond it, those left out that cannot be told from the smallest."""
    (least, latency_s), *others = times
    rates = [
        (size - least) / (seconds - latency_s) for size, seconds in others if seconds > latency_s
    ]
    # The large ones tell the rate, the small ones their noise.
    return Link(latency_s, statistics.median(rates[-3:])) if rates else Link(latency_s)


def _seconds_of(call: Callable[[], Any]) -> float:
    """Of a call that was made before, as kernels are timed: what others do only adds to it."""
    call()
    seconds = []
    for _ in range(_REPEATS):
        started = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - started)
    return ranking_latency(tuple(seconds))
