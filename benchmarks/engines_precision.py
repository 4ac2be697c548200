"""Networks in int8 or bf16 beside the engines that people run them in.

Networks of other packages with seeded random weights (`engines_networks.py`). In int8 each engine
has its own quantised file, made with the same seeded inputs: for ONNX Runtime by its own tool
(static, and for networks of attention dynamic too, as its guide advises), for OpenVINO by NNCF, by
`tunefleet tune --precision int8 --calibrate`. In bf16 engines round as they go: OpenVINO by its
hint, PyTorch by autocast, eager and compiled. Then all are measured in one session: each in a
process of its own, in turn, with the same number of threads. ONNX Runtime in float32 stands beside,
for what the precision is worth here.

What was lost is told on other seeded inputs than those of the calibration: the error of the first
output relative to its size, and the share of its rows whose largest number is where it is in
float32.

    pip install -e ".[test,engines]"
    python benchmarks/engines_precision.py --precision int8 --folder engines-int8 --json int8.json
    python benchmarks/engines_precision.py --precision bf16 --folder engines-bf16 --json bf16.json
    python benchmarks/engines_precision.py --folder engines-int8 --network resnet50 --measure
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import common
from engines import DISTURBED, arrays_of, tune
from engines_files import step
from engines_rows import OURS
from turns import in_turn, serve

if TYPE_CHECKING:
    import numpy as np

NETWORKS = ("mobilenet_v2", "resnet50", "bert_base")
_ATTENTION = frozenset({"bert_base"})
_CALIBRATED, _ASKED = 16, 32
_SAMPLES, _QUESTIONS, _ANSWERS = "calibration.npz", "questions.npz", "answers.npz"

INT8, BF16 = "int8", "bf16"
#: Outputs of one inference, by inputs; and one inference of inputs in place.
Engine = tuple[Callable[[list["np.ndarray"]], Sequence["np.ndarray"]], Callable[[], Any]]
#: Of the network's name, the engine's file, the folder, threads and inputs.
Make = Callable[[str, str, Path, int, list["np.ndarray"]], Engine]


def make_files(name: str, folder: Path, precision: str) -> dict[str, Any]:
    """The network in float32, inputs, what PyTorch makes of them; in int8 each engine's file."""
    import numpy as np
    import torch

    from corpus import export
    from engines_networks import build

    example = build(name)
    export(example, "onnx", folder / "network.onnx")
    drawn = [_drawn(example.inputs, seed) for seed in range(_CALIBRATED + _ASKED)]
    samples, questions = drawn[:_CALIBRATED], drawn[_CALIBRATED:]
    with torch.no_grad():
        answers = [example.module(*each)[0].numpy() for each in questions]
    np.savez(folder / "inputs.npz", *(t.numpy() for t in questions[0]))
    np.savez(folder / _QUESTIONS, *(t.numpy() for each in questions for t in each))
    np.savez(folder / _ANSWERS, *answers)
    parameters = {"parameters": sum(p.numel() for p in example.module.parameters())}
    if precision != INT8:
        return parameters
    names = _inputs_of(folder / "network.onnx")
    # The first axis of calibration data counts samples.
    stacked = [np.concatenate([each[i].numpy() for each in samples]) for i in range(len(names))]
    np.savez(folder / _SAMPLES, **dict(zip(names, stacked, strict=True)))
    feeds = [{n: t.numpy() for n, t in zip(names, each, strict=True)} for each in samples]
    quantise_onnxruntime(folder, feeds, name in _ATTENTION)
    quantise_openvino(folder, feeds, name in _ATTENTION)
    return parameters


def _drawn(inputs: tuple[Any, ...], seed: int) -> list[Any]:
    """Others of the same kind: numbers of a normal distribution, and words of the same range."""
    import torch

    generator = torch.Generator().manual_seed(seed)

    def drawn(given: Any) -> Any:
        if given.dtype.is_floating_point:
            return torch.randn(given.shape, generator=generator)
        most = int(given.max()) + 1
        return torch.randint(0, most, given.shape, generator=generator, dtype=given.dtype)

    return [drawn(each) for each in inputs]


def _inputs_of(path: Path) -> list[str]:
    import onnx

    graph = onnx.load(path, load_external_data=False).graph
    weights = {tensor.name for tensor in graph.initializer}
    return [value.name for value in graph.input if value.name not in weights]


def quantise_onnxruntime(folder: Path, feeds: list[Any], attention: bool) -> None:
    """`network.onnx` of the folder as `ort-static.onnx` and, with attention, `ort-dynamic.onnx`."""
    import onnx
    from onnxruntime import quantization as ort

    # What it writes on the way would look for weights beside it.
    whole, plain = folder / "whole.onnx", folder / "plain.onnx"
    onnx.save(onnx.load(folder / "network.onnx"), whole)
    ort.quant_pre_process(whole, plain, skip_symbolic_shape=True)

    class Reader(ort.CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.rest = iter(feeds)

        def get_next(self) -> Any:
            return next(self.rest, None)

    ort.quantize_static(
        plain, folder / "ort-static.onnx", Reader(), per_channel=True,
        activation_type=ort.QuantType.QUInt8, weight_type=ort.QuantType.QInt8,
        extra_options={"MatMulConstBOnly": True},
    )  # fmt: skip
    if attention:
        ort.quantize_dynamic(plain, folder / "ort-dynamic.onnx", per_channel=True)


def quantise_openvino(folder: Path, feeds: list[Any], attention: bool) -> None:
    """`network.onnx` of the folder as `openvino.xml`."""
    import nncf
    import openvino

    network = openvino.Core().read_model(folder / "network.onnx")
    kind = nncf.ModelType.TRANSFORMER if attention else None
    preset = nncf.QuantizationPreset.MIXED
    quantised = nncf.quantize(
        network, nncf.Dataset(feeds), preset=preset, model_type=kind, subset_size=len(feeds)
    )
    openvino.save_model(quantised, folder / "openvino.xml", compress_to_fp16=False)


def _tunefleet(
    name: str, file: str, folder: Path, threads: int, inputs: list[np.ndarray]
) -> Engine:
    from tunefleet.artifacts.network import LoadedNetwork
    from tunefleet.artifacts.runtime import set_threads

    set_threads(threads)
    artifact = Path(json.loads((folder / "tuned.json").read_text(encoding="utf-8"))["artifact"])
    network = LoadedNetwork(str(artifact / "module.so"))
    return network.run, network.bound(inputs)


def _onnxruntime(
    name: str, file: str, folder: Path, threads: int, inputs: list[np.ndarray]
) -> Engine:
    from tunefleet.compiler.frontends.onnx_ import OnnxReference
    from tunefleet.core.network import TensorSpec

    specs = [TensorSpec(f"input{i}", x.shape, str(x.dtype)) for i, x in enumerate(inputs)]
    session = OnnxReference(folder / file, specs, {})
    return lambda given: session(given, threads), session.bound(inputs, threads)


def _openvino(name: str, file: str, folder: Path, threads: int, inputs: list[np.ndarray]) -> Engine:
    import openvino

    settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads}
    if file.endswith(".onnx"):
        settings["INFERENCE_PRECISION_HINT"] = "bf16"
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(folder / file), "CPU", settings)
    asked, request = compiled.create_infer_request(), compiled.create_infer_request()
    for i, each in enumerate(inputs):
        request.set_input_tensor(i, openvino.Tensor(each, shared_memory=True))

    def outputs(given: list[np.ndarray]) -> list[np.ndarray]:
        return [found.copy() for found in asked.infer(given).values()]

    return outputs, lambda: request.infer(share_outputs=True)


def _autocast(compiled: bool) -> Make:
    def make(name: str, file: str, folder: Path, threads: int, inputs: list[np.ndarray]) -> Engine:
        import torch

        from engines_networks import build

        torch.set_num_threads(threads)
        module = build(name).module
        module = torch.compile(module) if compiled else module

        def run(given: list[np.ndarray]) -> Any:
            tensors = [torch.from_numpy(each) for each in given]
            with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
                return module(*tensors)

        return lambda given: [found.float().numpy() for found in run(given)], partial(run, inputs)

    return make


_FLOAT = "onnxruntime float32"
#: Each engine and its file, by precision.
_ENGINES: dict[str, dict[str, tuple[Make, str]]] = {
    INT8: {
        OURS: (_tunefleet, "network.onnx"),
        "onnxruntime": (_onnxruntime, "ort-static.onnx"),
        "onnxruntime dynamic": (_onnxruntime, "ort-dynamic.onnx"),
        "openvino": (_openvino, "openvino.xml"),
        _FLOAT: (_onnxruntime, "network.onnx"),
    },
    BF16: {
        OURS: (_tunefleet, "network.onnx"),
        "openvino": (_openvino, "network.onnx"),
        "eager": (_autocast(False), "network.onnx"),
        "compile": (_autocast(True), "network.onnx"),
        _FLOAT: (_onnxruntime, "network.onnx"),
    },
}


def engine_process(precision: str, engine: str, name: str, folder: Path, threads: int) -> None:
    """One engine: answers the questions, then measures when it is told to."""
    import numpy as np

    inputs = arrays_of(folder / "inputs.npz")
    make, file = _ENGINES[precision][engine]
    outputs, run = make(name, file, folder, threads, inputs)
    asked = arrays_of(folder / _QUESTIONS)
    lists = [asked[i : i + len(inputs)] for i in range(0, len(asked), len(inputs))]
    expected = np.stack(arrays_of(folder / _ANSWERS))
    found = np.stack([np.asarray(outputs(each)[0]) for each in lists])
    error = np.sqrt(np.mean((found - expected) ** 2) / np.mean(expected**2))
    same = np.mean(found.argmax(-1) == expected.argmax(-1))
    serve(run, {"error": float(error), "agreement": float(same)})


def _in_process(name: str, folder: Path, precision: str) -> dict[str, Any]:
    """Exporters and quantisers leave gigabytes behind in the process that calls them."""
    command = [sys.executable, __file__, "--files", name, str(folder), precision]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    return found


def measure(precision: str, name: str, folder: Path, threads: int, rounds: int) -> dict[str, Any]:
    told = [name, str(folder), str(threads)]
    commands = {
        engine: [sys.executable, __file__, "--engine", precision, engine, *told]
        for engine, (_, file) in _ENGINES[precision].items()
        if (folder / file).exists()
    }
    turns = in_turn(commands, rounds)
    return {"rounds": turns.rounds, "told": turns.told, "failed": turns.failed,
            "disturbed": turns.disturbed}  # fmt: skip


def rows_of(name: str, measured: dict[str, Any]) -> list[dict[str, Any]]:
    """A row for each engine: latency, what it lost, and tunefleet's latency as a multiple of it."""
    from tunefleet.core.statistics import interval

    ours = measured["rounds"].get(OURS)
    rows = []
    for engine, seconds in measured["rounds"].items():
        latency = interval(seconds).scaled(1e3)
        row = {"network": name, "engine": engine, "ms": latency.median, "low": latency.low,
               "high": latency.high, **measured["told"][engine]}  # fmt: skip
        if ours is not None:
            ratio = interval([a / b for a, b in zip(ours, seconds, strict=False)])
            row |= {"ours/this": ratio.median, "from": ratio.low, "to": ratio.high}
        rows.append(row)
    return rows


def checks_of(figures: dict[str, Any]) -> list[common.Check]:
    checks = []
    for name, figure in figures.items():
        rows = [row for row in figure["rows"] if row["engine"] not in (OURS, _FLOAT)]
        fastest = min(rows, key=lambda row: float(row["ms"]))
        against = f"{name}: / {fastest['engine']}"
        if OURS not in [row["engine"] for row in figure["rows"]]:
            checks.append(common.not_measured(against, "<= 1.1", "condition"))
            continue
        checks += [
            common.at_most(against, fastest["ours/this"], 1.10, "condition"),
            common.at_most(against, fastest["ours/this"], 1.0, "aim"),
        ]
        if figure["disturbed"] > DISTURBED:
            print(f"{name}: other processes took {figure['disturbed']:.0%} of the cores")
    return checks


def main(options: argparse.Namespace) -> int:
    if options.files:
        name, folder, precision = options.files
        print("\n" + json.dumps(make_files(name, Path(folder), precision)))
        return 0
    if options.engine:
        precision, engine, name, folder, threads = options.engine
        engine_process(precision, engine, name, Path(folder), int(threads))
        return 0
    from tunefleet.core.statistics import median

    started = time.time()
    figures: dict[str, Any] = {}
    names = ["mobilenet_v2"] if options.quick else (options.network or list(NETWORKS))
    for name in names:
        folder = (options.folder / name).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        making = partial(_in_process, name, folder, options.precision)
        files = step(folder / "files.json", False, making)
        minutes = 0.5 if options.quick else options.minutes
        asked = ["--precision", options.precision]
        asked += ["--calibrate", str(folder / _SAMPLES)] if options.precision == INT8 else []
        tuning = partial(tune, folder / "network.onnx", minutes, options.threads, asked)
        tuned = step(folder / "tuned.json", False, tuning)
        rounds = 3 if options.quick else options.rounds
        measuring = partial(measure, options.precision, name, folder, tuned["threads"], rounds)
        measured = step(folder / "measured.json", options.measure, measuring)
        rows = rows_of(name, measured)
        figures[name] = {
            "rows": rows,
            "failed": measured["failed"],
            "disturbed": median(measured["disturbed"]),
            "minutes": tuned["wall_s"] / 60,
            "trials": tuned["trials"],
            "parameters": files["parameters"],
        }
        common.table(rows, list(rows[0]))
        for engine, reason in measured["failed"].items():
            print(f"{engine}: {reason}")
        print(f"tuned {tuned['wall_s'] / 60:.1f} min, {tuned['trials']} trials\n", flush=True)
    return common.finish(
        f"engines_{options.precision}", started, figures, checks_of(figures), options.json
    )


if __name__ == "__main__":
    made = common.parser("Networks in int8 or bf16 beside the engines that people run them in.")
    made.add_argument("--precision", choices=list(_ENGINES), default=INT8)
    made.add_argument("--folder", type=Path, default=Path("engines-int8"), help="files, homes")
    made.add_argument("--network", action="append", help="by default all")
    made.add_argument("--minutes", type=float, default=12.0, help="budget of each search")
    made.add_argument("--threads", type=int, help="by default one for each physical core")
    made.add_argument("--rounds", type=int, default=12)
    made.add_argument("--measure", action="store_true", help="measure again what was measured")
    made.add_argument("--files", nargs=3, help=argparse.SUPPRESS)
    made.add_argument("--engine", nargs=5, help=argparse.SUPPRESS)
    common.run(main, made)
