"""A network divided over two unlike devices: where its tasks are predicted and measured to be
fastest, what everything on one device takes, and whether a division takes what was calculated.

    python benchmarks/placement.py [--quick] [--json FILE]

The devices are TVM's RPC servers on this machine, each on a core of its own where there are two:
`new` runs code for this processor, `old` code for one of 2009 (x86-64-v2: vectors of 4 floats, no
fused multiply-add). Every plan is compiled in parts, and run from inputs here to outputs here, in
turn with the others.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import common
from common import Check, at_least, at_most, table
from rpc_devices import Server, register
from tunefleet import BenchmarkContext, tune
from tunefleet.core.importing import DEFAULT_IMPORT
from tunefleet.core.placement import CallDevices, Connection, best_placement, parts_of
from tunefleet.runs.placement import Placing, Ran, told
from tunefleet.runs.request import source_of

_OLD = "x86-64-v2"
#: Of float32 sums in another order.
_TOLERANCE = 1e-3


def main(options: argparse.Namespace) -> int:
    began = time.time()
    networks = {"zoo:tiny_cnn": 8} if options.quick else _NETWORKS
    rounds = 8 if options.quick else 20
    checks: list[Check] = []
    figures: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        contexts = _devices(stack, home)
        for network, trials in networks.items():
            for name, context in contexts.items():
                _tune(network, context, trials, name)
            own = {name: context.another() for name, context in contexts.items()}
            source = source_of(network, DEFAULT_IMPORT, next(iter(own.values())))
            with Placing(source, own, tell=print) as placing:
                figures[network] = _placed(network, placing, rounds, checks)
    return common.finish("placement", began, figures, checks, options.json)


_NETWORKS = {"zoo:tiny_cnn": 64, "zoo:mobilenet_v2?size=96": 400}


def _devices(stack: contextlib.ExitStack, home: Path) -> dict[str, BenchmarkContext]:
    cores = sorted(os.sched_getaffinity(0))
    contexts = {}
    for name, core, target in (("new", cores[-1], "cpu"), ("old", cores[0], _OLD)):
        server = Server(core)
        stack.callback(server.kill)
        register(home, name, server.spec)
        contexts[name] = BenchmarkContext(target, device=name, threads=1, home=home)
    return contexts


def _tune(network: str, context: BenchmarkContext, trials: int, name: str) -> None:
    (outcome,) = tune([network], context=context.another(), trials=trials)
    if outcome.result is None or outcome.result.tuned_ms is None:
        raise RuntimeError(f"{network} on {name}: {outcome.error or 'not measured'}")
    print(f"{network} tuned on {name}: {outcome.result.tuned_ms.median:.3g} ms")


def _placed(network: str, placing: Placing, rounds: int, checks: list[Check]) -> dict[str, Any]:
    plans = _plans(placing)
    runs = placing.run(list(plans.values()), rounds)
    rows = [_row(placing, name, plans[name], ran) for name, ran in zip(plans, runs, strict=True)]
    table(rows, list(rows[0]))
    chosen = plans["placement"]
    report = told(placing, chosen)
    alike = _alike(placing)
    print(", ".join(f"{name}: {value:.3g}" for name, value in alike.items()))
    total, best = report["placement"]["total_s"], report["alone"][report["best_device"]]["total_s"]
    wrong = max(math.exp(abs(math.log(row["ran / calculated"]))) for row in rows)
    checks += [
        at_most(f"{network}: placement to the best device", total / best, 1.0, "condition"),
        at_most(f"{network}: outputs of divisions differ by",
                max(ran.difference for ran in runs), _TOLERANCE, "condition", any_size=True),
        at_most(f"{network}: factor between ran and calculated", wrong, 1.25, "aim"),
        at_least(f"{network}: calls predicted where they were measured, transfers free",
                 alike["same calls"], 0.8, "aim"),
        at_most(f"{network}: seconds lost by prediction, of all, transfers free",
                alike["regret"], 0.05, "aim"),
        at_most(f"{network}: seconds lost by prediction, of all",
                report["predicted"]["regret_s"] / total, 0.05, "aim"),
    ]  # fmt: skip
    return {"report": report, "plans": rows, "transfers free": alike}


def _plans(placing: Placing) -> dict[str, CallDevices]:
    """Everything on each device, the placement, and two divisions that it has to be faster than:
    they show whether transfers are counted right, also where the placement is one device."""
    measured = placing.measured
    half = len(measured.seconds) // 2
    return {
        **{f"all on {n}": measured.single(d) for d, n in enumerate(placing.names)},
        "placement": best_placement(measured),
        "halves": tuple(int(call >= half) for call in range(len(measured.seconds))),
        "quarters": tuple(call * 4 // (2 * half + 1) % 2 for call in range(len(measured.seconds))),
    }


def _row(placing: Placing, name: str, plan: CallDevices, ran: Ran) -> dict[str, Any]:
    cost = placing.measured.cost(plan)
    return {
        "plan": name,
        "parts": len(parts_of(placing.measured.flow, plan)),
        "kernels, ms": cost.kernels_s * 1e3,
        "transfers, ms": cost.transfers_s * 1e3,
        "calculated, ms": cost.total_s * 1e3,
        "ran, ms": ran.seconds * 1e3,
        "ran / calculated": ran.seconds / cost.total_s,
        "differs by": ran.difference,
    }


def _alike(placing: Placing) -> Mapping[str, float]:
    """How well predictions tell which device is faster, where no transfer hides it."""
    if placing.predicted is None:
        raise RuntimeError("nothing was recorded to predict from")
    free = (Connection(),) * len(placing.names)
    measured = replace(placing.measured, connections=free)
    predicted = replace(placing.predicted, connections=free)
    here, there = best_placement(measured), best_placement(predicted)
    least = measured.cost(here).total_s
    return {
        "same calls": _share(here, there),
        "regret": measured.cost(there).total_s / least - 1,
        "of the best device": least
        / measured.cost(measured.single(measured.best_single())).total_s,
    }


def _share(a: Sequence[int], b: Sequence[int]) -> float:
    return sum(x == y for x, y in zip(a, b, strict=True)) / len(a)


if __name__ == "__main__":
    common.run(main, common.parser("A network divided over two unlike devices."))
