"""End-to-end latency: tuned network, PyTorch eager and compile, ONNX Runtime.

Each network is tuned from nothing in a fresh home for at most `--minutes` (a home kept with
`--home` is tuned once), then all sides are
measured in one session, in turn, several rounds, each in a process of its own and with the same
number of threads. A side's latency is the median over the rounds of the fastest quarter's median
of each round: a shared machine only ever adds time.

    .venv/bin/python benchmarks/e2e_latency.py --json out.json
    .venv/bin/python benchmarks/e2e_latency.py --network zoo:mobilenet_v2 --minutes 20
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common
from turns import in_turn, serve

NETWORKS = ("zoo:mobilenet_v2", "zoo:resnet50", "zoo:bert_2l")


def side_process(side: str, spec: str, threads: int, extra: str) -> None:
    serve(_SIDES[side](spec, threads, extra))


def _module(spec: str, threads: int, path: str) -> Callable[[], Any]:
    from tunefleet.artifacts.network import LoadedNetwork
    from tunefleet.artifacts.runtime import set_threads
    from tunefleet.compiler.frontends import load_network

    inputs = load_network(spec).example_inputs
    set_threads(threads)
    return LoadedNetwork(path).bound(inputs)


def _torch(spec: str, threads: int, compiled: bool) -> Callable[[], Any]:
    import torch

    from tunefleet import zoo

    torch.set_num_threads(threads)
    network = zoo.build(zoo.parse(spec))
    module = torch.compile(network.module) if compiled else network.module

    def run() -> Any:
        with torch.inference_mode():
            return module(*network.example_inputs)

    return run


def _onnxruntime(spec: str, threads: int, extra: str) -> Callable[[], Any]:
    import onnxruntime
    import torch

    from tunefleet import zoo

    network = zoo.build(zoo.parse(spec))
    with tempfile.TemporaryDirectory() as directory:
        path = str(Path(directory) / "network.onnx")
        program = torch.onnx.export(network.module, network.example_inputs, dynamo=True)
        assert program is not None
        program.save(path)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        session = onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])
    feeds = {
        i.name: x.numpy() for i, x in zip(session.get_inputs(), network.example_inputs, strict=True)
    }
    return lambda: session.run(None, feeds)


_SIDES: dict[str, Callable[[str, int, str], Callable[[], Any]]] = {
    "tunefleet": _module,
    "eager": lambda spec, threads, extra: _torch(spec, threads, compiled=False),
    "compile": lambda spec, threads, extra: _torch(spec, threads, compiled=True),
    "onnxruntime": _onnxruntime,
}


def tune(spec: str, minutes: float, trials: int | None, home: Path) -> dict[str, Any]:
    """`tunefleet tune` as a user calls it."""
    output = home / "result.json"
    if output.exists():  # a kept home: the network was tuned before
        return _only(output)
    budget = ["--trials", str(trials)] if trials else ["--minutes", str(minutes)]
    command = [str(Path(sys.executable).parent / "tunefleet"), "tune", spec, *budget,
               "--home", str(home), "--json", str(output)]  # fmt: skip
    subprocess.run(command, check=True, stdout=sys.stderr)
    return _only(output)


def _only(output: Path) -> dict[str, Any]:
    """The result of the only network of a command."""
    found: list[dict[str, Any]] = json.loads(output.read_text(encoding="utf-8"))
    (result,) = found
    return result


def measure(spec: str, result: dict[str, Any], rounds: int) -> dict[str, list[float]]:
    """Seconds of each side, by round; the sides take turns and none runs beside another."""
    artifact = Path(result["artifact"])
    extras = {"tunefleet": str(artifact / "module.so")}
    commands = {
        side: [sys.executable, __file__, "--side", side, spec, str(result["threads"]),
               extras.get(side, "")]
        for side in _SIDES
    }  # fmt: skip
    found = in_turn(commands, rounds)
    for side, error in found.failed.items():
        print(f"{side} failed: {error}", file=sys.stderr)
    return found.rounds


def main(options: argparse.Namespace) -> int:
    if options.side:
        side, spec, threads, extra = options.side
        side_process(side, spec, int(threads), extra)
        return 0
    from tunefleet.core.statistics import interval, median

    started = time.time()
    rows: list[dict[str, Any]] = []
    checks: list[common.Check] = []
    details: dict[str, Any] = {}
    networks = ["zoo:tiny_cnn"] if options.quick else (options.network or list(NETWORKS))
    for spec in networks:
        with tempfile.TemporaryDirectory() as directory:
            home = options.home / spec.replace(":", "_") if options.home else Path(directory)
            home.mkdir(parents=True, exist_ok=True)
            result = tune(spec, options.minutes, 12 if options.quick else None, home)
            found = measure(spec, result, 3 if options.quick else options.rounds)
        latency = {side: interval(values).scaled(1e3) for side, values in found.items()}
        kernels = sorted(
            (t for t in result["tasks"] if t["peak_share"]),
            key=lambda t: (1 - t["peak_share"]) * t["network_share"],
            reverse=True,
        )
        details[spec] = {
            "result": {k: v for k, v in result.items() if k != "curve"},
            "latency_ms": {side: value.to_json() for side, value in latency.items()},
            "furthest_from_peak": kernels[:5],
        }
        for side, value in latency.items():
            ratio = [t / o for t, o in zip(found["tunefleet"], found[side], strict=False)]
            rows.append({"network": spec, "side": side, "ms": value.median, "low": value.low,
                         "high": value.high, "ours/this": median(ratio)})  # fmt: skip
        common.table(rows[-len(latency) :], list(rows[-1]))
        tuning_s = result["wall_s"]
        kernels_ms = result["kernels_ms"] or math.nan
        print(f"tuned {tuning_s / 60:.1f} min, {result['trials']} trials, sum of kernels "
              f"{kernels_ms:.2f} ms, peak {result['peak_gflops']:.0f} GFLOP/s; furthest "
              "from peak (time lost):")  # fmt: skip
        common.table(kernels[:5], ["name", "shapes", "weight", "latency_us", "gflops",
                                   "peak_share", "network_share"])  # fmt: skip
        checks += _checks(spec, found, tuning_s)
    return common.finish("e2e_latency", started, {"rows": rows, "details": details}, checks,
                         options.json)  # fmt: skip


def _checks(spec: str, found: dict[str, list[float]], tuning_s: float) -> list[common.Check]:
    from tunefleet.core.statistics import median

    def ratio(side: str) -> float:
        return median([t / o for t, o in zip(found["tunefleet"], found[side], strict=False)])

    checks = [common.at_most(f"{spec}: tuning, minutes", tuning_s / 60, 20.0, "condition")]
    for side, bound, kind in (
        ("onnxruntime", 1.25, "condition"),
        ("onnxruntime", 1.0, "aim"),
        ("eager", 1.0, "condition"),
        ("compile", 1.0, "condition"),
    ):
        if side in found:
            checks.append(common.at_most(f"{spec}: / {side}", ratio(side), bound, kind))  # type: ignore[arg-type]
        else:
            checks.append(common.not_measured(f"{spec}: / {side}", f"<= {bound:g}", kind))  # type: ignore[arg-type]
    return checks


if __name__ == "__main__":
    made = common.parser("End-to-end latency beside PyTorch and ONNX Runtime.")
    made.add_argument("--network", action="append", help=f"default: {', '.join(NETWORKS)}")
    made.add_argument("--minutes", type=float, default=15.0, help="budget of the search")
    made.add_argument("--rounds", type=int, default=12)
    made.add_argument("--home", type=Path, help="keep the homes here, to continue or look")
    made.add_argument("--side", nargs=4, help=argparse.SUPPRESS)
    common.run(main, made)
