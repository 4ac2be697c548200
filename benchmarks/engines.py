"""Tuned networks beside the engines that people run them in: the fastest of each is the bar.

Files of other packages' networks, made by their exporters with seeded random weights
(`engines_networks.py`), are tuned by `tunefleet tune` from nothing. Then ONNX Runtime, OpenVINO,
PyTorch eager, torch.compile, LiteRT and the tuned module are measured in one session: each in a
process of its own, in turn, with the same number of threads set explicitly, inputs in place, in
float32. A round is the median of the fastest quarter of a second's inferences; ratios are of each
round's pair, with their 95 % interval. Every engine's outputs are compared with PyTorch's.

Each step leaves a JSON in `--folder`: the same command goes on where it stopped.

    pip install -e ".[test,engines]"
    python benchmarks/engines.py --folder engines --json engines.json
    python benchmarks/engines.py --folder engines --network crnn --measure

`--avx2` studies a processor with AVX2 alone on one with AVX-512: the module is compiled for it, and
the processes of all engines see no more than AVX2 (`avx2_only.py`).
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import avx2_only
import common
import engines_rows
from engines_files import network_file, step
from engines_rows import OURS
from turns import in_turn, serve

if TYPE_CHECKING:
    import numpy as np

#: Largest difference from PyTorch's outputs, relative to the largest output.
_TOLERANCE = 1e-3
#: Other processes' share of the cores above which a round says little.
DISTURBED = 0.05


def arrays_of(path: Path) -> list[np.ndarray]:
    import numpy as np

    with np.load(path) as found:
        return [found[f"arr_{i}"] for i in range(len(found.files))]


#: One inference, and the outputs of one.
Runs = tuple[Callable[[], Any], Callable[[], Sequence[Any]]]


def _tunefleet(name: str, folder: Path, threads: int, inputs: list[np.ndarray]) -> Runs:
    from tunefleet.artifacts.network import LoadedNetwork
    from tunefleet.artifacts.runtime import set_threads

    set_threads(threads)
    artifact = Path(json.loads((folder / "tuned.json").read_text(encoding="utf-8"))["artifact"])
    network = LoadedNetwork(str(artifact / "module.so"))
    return network.bound(inputs), lambda: network.run(inputs)


def _onnxruntime(name: str, folder: Path, threads: int, inputs: list[np.ndarray]) -> Runs:
    from tunefleet.compiler.frontends.onnx_ import OnnxReference
    from tunefleet.core.network import TensorSpec

    specs = [TensorSpec(f"input{i}", x.shape, str(x.dtype)) for i, x in enumerate(inputs)]
    session = OnnxReference(folder / "network.onnx", specs, {})
    return session.bound(inputs, threads), lambda: session(inputs, threads)


def _openvino(name: str, folder: Path, threads: int, inputs: list[np.ndarray]) -> Runs:
    import openvino

    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
        # It would take bfloat16 on a processor that has it.
        "INFERENCE_PRECISION_HINT": "f32",
    }
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(folder / "network.onnx"), "CPU", settings)
    request = compiled.create_infer_request()
    for i, each in enumerate(inputs):
        request.set_input_tensor(i, openvino.Tensor(each, shared_memory=True))

    def run() -> Any:
        return request.infer(share_outputs=True)

    def outputs() -> list[Any]:
        run()
        return [request.get_output_tensor(i).data.copy() for i in range(len(compiled.outputs))]

    return run, outputs


def _eager(name: str, folder: Path, threads: int, inputs: list[np.ndarray]) -> Runs:
    return _torch(name, threads, inputs, lambda module: module)


def _compiled(name: str, folder: Path, threads: int, inputs: list[np.ndarray]) -> Runs:
    import torch

    return _torch(name, threads, inputs, torch.compile)


def _torch(name: str, threads: int, inputs: list[np.ndarray], make: Callable[[Any], Any]) -> Runs:
    import torch

    from engines_networks import build

    torch.set_num_threads(threads)
    module = make(build(name).module)
    tensors = [torch.from_numpy(each) for each in inputs]

    def run() -> Any:
        with torch.inference_mode():
            return module(*tensors)

    return run, lambda: [output.numpy() for output in run()]


def _litert(name: str, folder: Path, threads: int, inputs: list[np.ndarray]) -> Runs:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(folder / "network.tflite"), num_threads=threads)
    interpreter.allocate_tensors()
    for described, each in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(described["index"], each)

    def outputs() -> list[Any]:
        interpreter.invoke()
        return [interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()]

    return interpreter.invoke, outputs


_ENGINES: dict[str, Callable[[str, Path, int, list[Any]], Runs]] = {
    OURS: _tunefleet,
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
    "eager": _eager,
    "compile": _compiled,
    "litert": _litert,
}


def engine_process(engine: str, name: str, folder: Path, threads: int) -> None:
    """One engine: prepares, compares its outputs, then measures when it is told to."""
    from tunefleet.compiler.code.executable import worst_difference

    # Engines that share memory do not keep it alive.
    inputs = arrays_of(folder / "inputs.npz")
    run, outputs = _ENGINES[engine](name, folder, threads, inputs)
    difference = worst_difference(arrays_of(folder / "expected.npz"), outputs())
    serve(run, {"difference": difference})


def tune(
    file: Path,
    minutes: float,
    threads: int | None,
    options: Sequence[str] = (),
    before: Sequence[str] = (),
) -> dict[str, Any]:
    """The result of `tunefleet tune` as a user calls it, and the seconds of the whole command; a
    search that was interrupted goes on. `before` is put before the command."""
    folder = file.parent
    output = folder / "results.json"
    command = [*before, str(Path(sys.executable).parent / "tunefleet"), "tune", str(file),
               "--minutes", str(minutes), "--home", str(folder / "home"),
               "--json", str(output), *options]  # fmt: skip
    command += ["--threads", str(threads)] if threads else []
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=sys.stderr)
    took_s = time.perf_counter() - started
    found: list[dict[str, Any]] = json.loads(output.read_text(encoding="utf-8"))
    (result,) = found
    return result | {"command_s": took_s}


def over_tasks(tuned: Mapping[str, Any]) -> float | None:
    """The module's latency over the sum of its tasks', as the command measured both; None where a
    task has no latency, since nothing of it could be measured."""
    latencies = [(task["weight"], task["latency_us"]) for task in tuned["tasks"]]
    if any(each is None for _, each in latencies):
        return None
    whole_us = sum(weight * each for weight, each in latencies)
    return float(tuned["tuned_ms"]["median"]) * 1e3 / float(whole_us)


def measure(name: str, folder: Path, threads: int, rounds: int, *, avx2: bool) -> dict[str, Any]:
    """Seconds of each engine by round, and how far its outputs are from PyTorch's."""
    missing = set() if (folder / "network.tflite").exists() else {"litert"}
    settings = avx2_only.environment(folder) if avx2 else {}
    python = ["env", *(f"{key}={value}" for key, value in settings.items()), sys.executable]
    commands = {
        engine: [*python, __file__, "--engine", engine, name, str(folder), str(threads)]
        for engine in _ENGINES
        if engine not in missing
    }
    turns = in_turn(commands, rounds)
    return {
        "threads": threads,
        "rounds": turns.rounds,
        "differences": {engine: told["difference"] for engine, told in turns.told.items()},
        "failed": turns.failed,
        "disturbed": turns.disturbed,
    }


def rows_of(name: str, measured: dict[str, Any]) -> list[dict[str, Any]]:
    """A row for each engine: latency, and tunefleet's as a multiple of it by round."""
    from tunefleet.core.statistics import interval

    rounds = measured["rounds"]
    ours = rounds.get(OURS)
    rows = []
    for engine, seconds in rounds.items():
        latency = interval(seconds).scaled(1e3)
        row = {"network": name, "engine": engine, "ms": latency.median, "low": latency.low,
               "high": latency.high, "difference": measured["differences"][engine],
               "ours/this": None, "from": None, "to": None}  # fmt: skip
        if ours is not None and engine != OURS:
            ratio = interval([a / b for a, b in zip(ours, seconds, strict=False)])
            row |= {"ours/this": ratio.median, "from": ratio.low, "to": ratio.high}
        rows.append(row)
    return rows


def anchor_of(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The row of the fastest engine but ours whose outputs are right."""
    others = [r for r in rows if r["engine"] != OURS and r["difference"] <= _TOLERANCE]
    return min(others, key=lambda row: float(row["ms"]))


def checks_of(figures: dict[str, Any]) -> list[common.Check]:
    checks = []
    ratios = []
    for name, figure in figures.items():
        anchor = figure["anchor"]
        ours = next((r for r in figure["rows"] if r["engine"] == OURS), None)
        against = f"{name}: / {anchor['engine']}"
        if ours is None:
            checks.append(common.not_measured(against, "<= 1.1", "condition"))
            continue
        ratios.append(float(anchor["ours/this"]))
        checks += [
            common.at_most(against, ratios[-1], 1.10, "condition"),
            common.at_most(against, ratios[-1], 1.0, "aim"),
            common.at_most(
                f"{name}: difference", ours["difference"], _TOLERANCE, "condition", any_size=True
            ),
        ]
        if figure["budget"] >= 4:
            over = figure["minutes"] / figure["budget"]
            over_budget = f"{name}: the command over its budget"
            checks.append(common.at_most(over_budget, over, 1 + engines_rows.BEYOND, "condition"))
        if figure["disturbed"] > DISTURBED:
            print(f"{name}: other processes took {figure['disturbed']:.0%} of the cores")
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        aim = engines_rows.aim_of(max(figure["budget"] for figure in figures.values()))
        checks.append(common.at_most("geometric mean", mean, aim, "aim"))
    return checks


def _widest() -> str:
    """The widest vectors of this processor."""
    from tunefleet.hardware.processor import cpu_info

    names = {"avx512f": "AVX-512", "avx2": "AVX2"}
    flags = cpu_info().facts.flags
    return next((name for flag, name in names.items() if flag in flags), "other")


def main(options: argparse.Namespace) -> int:
    if options.engine:
        engine, name, folder, threads = options.engine
        engine_process(engine, name, Path(folder), int(threads))
        return 0
    from engines_networks import NETWORKS
    from tunefleet.core.statistics import median

    target = ["--target", avx2_only.TARGET] if options.avx2 else []
    started = time.time()
    figures: dict[str, Any] = {}
    names = ["crnn"] if options.quick else (options.network or list(NETWORKS))
    for name in names:
        folder = (options.folder / name).resolve()
        file, files = network_file(name, folder, options.batch)
        minutes = 0.5 if options.quick else options.minutes
        tuning = partial(tune, file, minutes, options.threads, target)
        tuned = step(folder / "tuned.json", False, tuning)
        rounds = 3 if options.quick else options.rounds
        measuring = partial(measure, name, folder, tuned["threads"], rounds, avx2=options.avx2)
        measured = step(folder / "measured.json", options.measure, measuring)
        rows = rows_of(name, measured)
        if files["litert"]:
            measured["failed"]["litert"] = files["litert"]
        figures[name] = {
            "rows": rows,
            "anchor": anchor_of(rows),
            "threads": tuned["threads"],
            "failed": measured["failed"],
            "disturbed": median(measured["disturbed"]),
            "budget": minutes,
            "minutes": tuned["command_s"] / 60,
            "over tasks": over_tasks(tuned),
            "trials": tuned["trials"],
            "parameters": files["parameters"],
        }
        common.table(rows, list(rows[0]))
        for engine, reason in measured["failed"].items():
            print(f"{engine}: {reason}")
        print(f"tuned {tuned['command_s'] / 60:.1f} min, {tuned['trials']} trials\n", flush=True)
        if options.rows is not None:
            isa = "AVX2 alone" if options.avx2 else _widest()
            row = engines_rows.row_of(name, figures[name], minutes, options.batch, isa)
            engines_rows.merge(options.rows, [row])
    return common.finish("engines", started, figures, checks_of(figures), options.json)


if __name__ == "__main__":
    made = common.parser("Tuned networks beside the engines that people run them in.")
    made.add_argument("--folder", type=Path, default=Path("engines"), help="files, homes, figures")
    made.add_argument("--network", action="append", help="by default all")
    made.add_argument("--minutes", type=float, default=12.0, help="budget of each search")
    made.add_argument("--threads", type=int, help="by default one for each physical core")
    made.add_argument("--rounds", type=int, default=12)
    made.add_argument("--measure", action="store_true", help="measure again what was measured")
    made.add_argument("--batch", type=int, default=1)
    made.add_argument("--rows", type=Path, help="put a row for each network into this file")
    made.add_argument("--avx2", action="store_true", help="no more than AVX2")
    made.add_argument("--engine", nargs=4, help=argparse.SUPPRESS)
    common.run(main, made)
