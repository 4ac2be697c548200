"""What calling a tuned network costs: `tunefleet.load` beside the bare module and other runtimes.

For each network: its module called through TVM alone with inputs in place (bare), through
`tunefleet.load` with NumPy arrays and with torch tensors, ONNX Runtime and PyTorch eager, in turn
in one process, one thread each. `zoo:tiny_cnn` takes microseconds: what a call costs. Modules are
compiled with the plain schedule; how fast they are is not the question.

Then eight threads call one module at once, each with inputs of its own, and 10,000 calls show what
memory grows by.

    python benchmarks/runtime.py --json runtime.json
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common

NETWORKS = ("zoo:tiny_cnn", "zoo:mobilenet_v2", "zoo:squeezenet")
_TURN_S = 0.2
#: A call may take so many times the bare module's time, of networks of a millisecond or more.
_MOST_OVERHEAD = 1.02
_LEAST_S = 1e-3
_CALLERS = 8


def delivered(spec: str, home: Path) -> Path:
    import tunefleet

    with tunefleet.Session(tunefleet.BenchmarkContext("cpu", threads=1, home=home)) as session:
        session.from_network(spec).build().save()
        return Path(str(session.result().artifact))


def runs_of(spec: str, artifact: Path, module: Any, folder: Path) -> dict[str, Callable[[], Any]]:
    """A call of each side on the same inputs."""
    import onnxruntime
    import torch

    from tunefleet import zoo
    from tunefleet.artifacts.network import LoadedNetwork

    network = zoo.build(zoo.parse(spec))
    tensors = network.example_inputs
    arrays = [tensor.numpy() for tensor in tensors]
    torch.set_num_threads(1)
    program = torch.onnx.export(network.module, tensors, dynamo=True)
    assert program is not None
    program.save(str(folder / "network.onnx"))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(folder / "network.onnx"), options)
    feed = {i.name: array for i, array in zip(session.get_inputs(), arrays, strict=True)}
    eager = network.module.eval()

    def in_torch() -> Any:
        with torch.inference_mode():
            return eager(*tensors)

    return {
        "bare": LoadedNetwork(artifact / "module.so").bound(arrays),
        "load, NumPy": lambda: module(*arrays),
        "load, torch": lambda: module(*tensors),
        "onnxruntime": lambda: session.run(None, feed),
        "eager": in_torch,
    }


def at_once(module: Any, inputs: list[Any], calls: int) -> tuple[float, int]:
    """Calls per second of eight threads, and how many results were not the caller's."""
    import numpy as np

    wanted = [module(each) for each in inputs]
    wrong = [0] * len(inputs)

    def call(index: int) -> None:
        for _ in range(calls):
            wrong[index] += not np.array_equal(module(inputs[index]), wanted[index])

    threads = [threading.Thread(target=call, args=(i,)) for i in range(len(inputs))]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(inputs) * calls / (time.perf_counter() - started), sum(wrong)


def resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]) * 4096 / 2**20


def grown_mb(module: Any, inputs: Any, calls: int) -> float:
    """What memory grew by from the hundredth call to the last."""
    for _ in range(100):
        module(inputs)
    before = resident_mb()
    for _ in range(calls - 100):
        module(inputs)
    return resident_mb() - before


def main(options: argparse.Namespace) -> int:
    import tunefleet
    from tunefleet.compiler.code.executable import time_interleaved, timer_of
    from tunefleet.core.statistics import interval, median
    from tunefleet.core.step import Rounds

    started = time.time()
    rows, checks = [], []
    specs = NETWORKS[:1] if options.quick else NETWORKS
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for spec in specs:
            artifact = delivered(spec, folder)
            with tunefleet.load(artifact) as module:
                runs = runs_of(spec, artifact, module, folder)
                timers = [timer_of(run) for run in runs.values()]
                rounds = time_interleaved(timers, Rounds(options.rounds, turn_s=_TURN_S))
                for side, seconds in zip(runs, rounds, strict=True):
                    ratio = interval([a / b for a, b in zip(seconds, rounds[0], strict=True)])
                    latency = interval(seconds).scaled(1e6)
                    row = {"network": spec, "side": side, "us": latency.median}
                    row["us over bare"] = latency.median - median(rounds[0]) * 1e6
                    row |= {"/ bare": ratio.median, "from": ratio.low, "to": ratio.high}
                    rows.append(row)
                    if side.startswith("load") and min(rounds[0]) >= _LEAST_S:
                        name = f"{spec}: {side} / bare"
                        checks.append(
                            common.at_most(name, ratio.median, _MOST_OVERHEAD, "condition")
                        )
        common.table(rows, list(rows[0]))
        figures: dict[str, Any] = {"calls": rows}
        artifact = delivered(NETWORKS[0], folder)
        with tunefleet.load(artifact) as module:
            figures |= _shared(module, options.calls, checks)
    return common.finish("runtime", started, figures, checks, options.json)


def _shared(module: Any, calls: int, checks: list[common.Check]) -> dict[str, Any]:
    import numpy as np

    (spec,) = module.signatures[0].inputs
    generator = np.random.default_rng(0)
    inputs = [generator.standard_normal(spec.shape, dtype=np.float32) for _ in range(_CALLERS)]
    alone, _ = at_once(module, inputs[:1], calls)
    together, wrong = at_once(module, inputs, calls // _CALLERS)
    grown = grown_mb(module, inputs[0], calls)
    print(f"\none thread {alone:.0f} calls/s, eight {together:.0f}, {wrong} wrong; "
          f"{calls} calls: {grown:+.2f} MB")  # fmt: skip
    checks.append(
        common.at_most("wrong results of eight threads", wrong, 0, "condition", any_size=True)
    )
    checks.append(common.at_most(f"MB after {calls} calls", grown, 1.0, "condition", any_size=True))
    return {"calls_per_s": alone, "of_eight": together, "wrong": wrong, "grown_mb": grown}


if __name__ == "__main__":
    made = common.parser("What calling a tuned network costs.")
    made.add_argument("--rounds", type=int, default=15)
    made.add_argument("--calls", type=int, default=10_000)
    common.run(main, made)
