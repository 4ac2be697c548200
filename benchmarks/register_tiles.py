"""Shares of a core's measured peak that float32 operators reach, by class of shape.

Of each operator so many random programs are measured of either kind: in register tiles of a
designed size, and MetaSchedule's tilings, which was all there was before. No search chooses among
them. Beside them is OpenVINO, whose products and convolutions are oneDNN's, in the same rounds.
One thread; weights are hot. `--avx2`: as `engines.py` has it.

    pip install -e ".[test,engines]"
    .venv/bin/python benchmarks/register_tiles.py [--avx2] --json tiles.json
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import avx2_only
import common

_ROUNDS, _TURN_S = 7, 0.05

#: Rows, depth and columns of products; size, channels in and out, window and stride of
#: convolutions; size, channels, window and stride of depthwise ones.
PRODUCTS = {
    "49 rows": (49, 1024, 256), "77 rows": (77, 512, 2048), "197 rows": (197, 768, 3072),
    "257 rows": (257, 1024, 1024), "261 rows": (261, 384, 1536), "1,500 rows": (1500, 384, 384),
}  # fmt: skip
CONVOLUTIONS = {
    "1x1 on 7x7": (7, 1024, 256, 1, 1), "1x1 on 14x14": (14, 160, 640, 1, 1),
    "3x3 on 56x56": (56, 64, 64, 3, 1), "3x3 on 160x160": (160, 48, 48, 3, 1),
    "3x3 stride 2": (112, 32, 128, 3, 2), "3x3 of 3 channels, stride 2": (224, 3, 32, 3, 2),
    "116 columns": (28, 116, 116, 1, 1), "255 columns": (20, 256, 255, 1, 1),
    "3x3 of 18 columns": (56, 18, 18, 3, 1), "3x3 of 58 columns": (28, 24, 58, 3, 1),
}  # fmt: skip
DEPTHWISE = {
    "depthwise 3x3": (56, 192, 3, 1), "depthwise 5x5": (28, 480, 5, 1),
    "depthwise 3x3 stride 2": (112, 96, 3, 2),
}  # fmt: skip


def network_of(name: str) -> tuple[Any, Any]:
    """The operator with bias and ReLU as a torch module, and its input."""
    import torch
    from torch import nn

    if name in PRODUCTS:
        rows, depth, columns = PRODUCTS[name]
        return nn.Sequential(nn.Linear(depth, columns), nn.ReLU()), torch.randn(1, rows, depth)
    if name in CONVOLUTIONS:
        size, inputs, outputs, window, stride = CONVOLUTIONS[name]
        groups = 1
    else:
        size, inputs, window, stride = DEPTHWISE[name]
        outputs = groups = inputs
    layer = nn.Conv2d(inputs, outputs, window, stride, window // 2, groups=groups)
    return nn.Sequential(layer, nn.ReLU()), torch.randn(1, inputs, size, size)


def openvino_run(module: Any, data: Any) -> Callable[[], Any]:
    import openvino

    model = openvino.convert_model(module, example_input=data)
    model.reshape(list(data.shape))
    settings = {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    request = openvino.Core().compile_model(model, "CPU", settings).create_infer_request()
    request.set_input_tensor(0, openvino.Tensor(data.numpy(), shared_memory=True))
    return lambda: request.infer(share_outputs=True)


def task_of(module: Any, data: Any, target: Any, folder: Path) -> Any:
    """The task of the operator: the one with the most FLOPs."""
    import torch

    from tunefleet.core.importing import ImportOptions
    from tunefleet.stages.importing import tasks_of

    file = folder / "operator.pt2"
    torch.export.save(torch.export.export(module.eval(), (data,)), file)
    tasks = tasks_of(str(file), target, folder, ImportOptions()).tasks
    return max((weighted.task for weighted in tasks), key=lambda task: task.flops)


def programs_of(task: Any, target: Any, count: int, folder: Path) -> list[tuple[bool, str, Any]]:
    """So many random programs of either kind: whether in designed tiles, the kind, what runs it."""
    import numpy as np

    from tunefleet.compiler.code.build import build_candidate
    from tunefleet.compiler.space.opening import task_space
    from tunefleet.compiler.toolchain import load_tvm
    from tunefleet.core.forms import WINOGRAD, kind_of
    from tunefleet.core.trial import Built

    tvm = load_tvm()
    rng = np.random.default_rng(0)
    space = task_space(task.program, target).decisions
    traces = space.traces(space.sample(64 * count, rng).distinct())
    made = []
    for designed in (True, False):
        of_kind = [trace for trace in traces if (kind_of(trace) > WINOGRAD) == designed]
        for number, trace in enumerate(of_kind[:count]):
            name = f"p{designed}{number}"
            built = build_candidate(task.program, target, name, trace, str(folder))
            assert isinstance(built, Built), built
            arrays = [rng.standard_normal(shape).astype(dtype) for shape, dtype in built.args]
            arguments = [tvm.runtime.tensor(array) for array in arrays]
            function = tvm.runtime.load_module(built.path)["main"]
            made.append((designed, trace, partial(function, *arguments)))
    return made


def fastest_s(run: Callable[[], Any]) -> float:
    """The fastest of the calls of a turn, in seconds."""
    best, end = float("inf"), time.perf_counter() + _TURN_S
    while time.perf_counter() < end:
        begun = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - begun)
    return best


def row_of(name: str, target: Any, peak: float, count: int) -> dict[str, Any]:
    from tunefleet.core.forms import is_winograd

    module, data = network_of(name)
    with tempfile.TemporaryDirectory() as folder:
        task = task_of(module, data, target, Path(folder))
        programs = programs_of(task, target, count, Path(folder))
        engine = openvino_run(module, data)
        engine()
        first = [fastest_s(run) for _, _, run in programs]
        #: By kind, the place of its fastest program; Winograd's need fewer multiply-adds.
        best = {
            kind: min(places, key=lambda place: first[place])
            for kind, places in _by_kind(programs, is_winograd).items()
        }
        rounds = [
            {"OpenVINO": fastest_s(engine)}
            | {k: fastest_s(programs[n][2]) for k, n in best.items()}
            for _ in range(_ROUNDS)
        ]
    of_peak = task.flops / peak / 1e9
    shares = {kind: of_peak / median(each[kind] for each in rounds) for kind in rounds[0]}
    medians = [of_peak / s for (designed, _, _), s in zip(programs, first, strict=True) if designed]
    ratio = median(
        min(s for kind, s in each.items() if kind != "OpenVINO") / each["OpenVINO"]
        for each in rounds
    )
    return (
        {"operator": name}
        | shares
        | {"median, tiles": median(medians or [0.0]), "/OpenVINO": ratio}
    )


def _by_kind(programs: Any, is_winograd: Any) -> dict[str, list[int]]:
    kinds: dict[str, list[int]] = {}
    for place, (designed, trace, _) in enumerate(programs):
        kind = "Winograd, " * is_winograd(trace) + ("tiles" if designed else "tilings")
        kinds.setdefault(kind, []).append(place)
    return kinds


def _with_avx2_alone() -> int:
    """This command once more, where no more is seen."""
    with tempfile.TemporaryDirectory() as folder:
        settings = avx2_only.environment(Path(folder))
        command = [sys.executable, *sys.argv]
        return subprocess.run(command, check=False, env=os.environ | settings).returncode


def main(options: argparse.Namespace) -> int:
    if options.avx2 and not avx2_only.is_set():
        return _with_avx2_alone()
    started = time.time()
    os.environ["TVM_NUM_THREADS"] = "1"
    from tunefleet.compiler.toolchain.host import native_target, parse_target
    from tunefleet.hardware.processor import machine_layout
    from tunefleet.stages import work
    from tunefleet.workers.machine import Machine

    native = native_target(1)
    target = parse_target(avx2_only.TARGET, 1) if options.avx2 else native
    with Machine(machine_layout(1).layout) as machine:
        peak = machine.device.call(work.peak_gflops, target, str(machine.scratch))
    assert isinstance(peak, float), peak
    names = options.operator or [*PRODUCTS, *CONVOLUTIONS, *DEPTHWISE]
    rows = []
    for name in names[:2] if options.quick else names:
        rows.append(row_of(name, target, peak, 4 if options.quick else options.programs))
        print(rows[-1], flush=True)
    common.table(rows, list({column: None for row in rows for column in row}))
    bound = [row for row in rows if row["operator"] not in DEPTHWISE]
    checks = [
        common.at_least(
            f"{row['operator']}: share of the peak", row.get("tiles", 0.0), 0.85, "condition"
        )
        for row in bound
        if row["/OpenVINO"] > 1
    ]
    return common.finish("register_tiles", started, {"peak": peak, "rows": rows}, checks,
                         options.json)  # fmt: skip


if __name__ == "__main__":
    made = common.parser("Shares of the peak that operators reach, by class of shape.")
    made.add_argument("--avx2", action="store_true", help="no more than AVX2")
    made.add_argument("--operator", nargs="+", help="by default all")
    made.add_argument("--programs", type=int, default=16, help="random ones of either kind")
    common.run(main, made)
