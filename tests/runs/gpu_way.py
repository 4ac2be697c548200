"""A network's way to a loaded artifact on a GPU, as a program that `test_gpu.py` runs with an
emulated driver. Writes what it saw as JSON."""

from __future__ import annotations

import json
import sys
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import numpy as np

from tunefleet.core.settings import TuneSettings


def main(home: Path, precision: str) -> dict[str, Any]:
    ways = {"float32": whole_way, "segments": with_segments}
    return ways[precision](home) if precision in ways else until_saved(home, precision)


def whole_way(home: Path) -> dict[str, Any]:
    import tunefleet
    from tunefleet.compiler.frontends.examples import seeded_inputs

    learned = trained_on_a_log(home)
    settings = patient_settings()
    settings = replace(settings, search=replace(settings.search, pretrained="gpus"))
    context = tunefleet.BenchmarkContext("cuda", home=home)
    with tunefleet.Session(context) as session:
        session.from_network("zoo:tiny_cnn").autotune(trials=12, settings=settings)
        session.build().save().evaluate(rounds=3)
        result = session.result()
    signature = tunefleet.load(result.run, home=home).signatures[0]
    (given,) = seeded_inputs(signature.inputs)
    with tunefleet.load(result.run, home=home, gpu=0) as module:
        expected = module(given)
        again = on_the_gpu(module, given)
        free = [memory_after(module, given, calls) for calls in (20, 200)]
    return {
        "learned": learned,
        "scored": scored_tasks(home),
        "notes": list(result.notes),
        "kind": result.device.kind if result.device else "",
        "device": result.device.name if result.device else "",
        "target": result.target,
        "trials": result.trials,
        "failures": dict(result.failures),
        "verified": result.verified,
        "delivered": result.delivered,
        "baselines": [baseline.name for baseline in result.baselines],
        "tuned_ms": result.tuned_ms.median if result.tuned_ms else None,
        "finite": bool(np.isfinite(expected).all()),
        "same_from_gpu": again,
        "taken_by_180_calls": free[0] - free[1],
        "evaluated": [
            baseline.name
            for baseline in tunefleet.evaluate_artifact(result.run, home=home).baselines
        ],
    }


def patient_settings() -> TuneSettings:
    """Of small jobs, with time for a GPU that is emulated: a slow processor that is busy with
    other tests takes longer than a GPU may."""
    from tests.fleet.jobs import SETTINGS

    return replace(
        SETTINGS,
        build=replace(SETTINGS.build, timeout_s=120),
        measure=replace(SETTINGS.measure, timeout_s=120),
    )


def trained_on_a_log(home: Path) -> Any:
    """Trains the cost model "gpus" on made-up records of a GPU; what its card says it learned."""
    from tunefleet.cli.app import run
    from tunefleet.costmodel.registry import registry_of

    lines = [
        {
            "i": [
                [f'["w{task}", 64, {task}]', "cuda -keys=cuda,gpu", _HARDWARE, "", 0, []],
                [[], [["SP", 0, 0, 64, [program + 1], 1]]],
            ],
            "r": [[1.0 / (1 + program)], 0, 1.0, 1614689820],
            "v": "v0.6",
        }
        for task in range(4)
        for program in range(20)
    ]
    log = home / "v100.json"
    log.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    train = ("costmodel", "train", str(log), "--model", "xgb", "--name", "gpus", "--quiet")
    assert run([*train, "--measured-on", "V100", "--home", str(home)]) == 0
    return [list(astuple(each)) for each in registry_of(home).get("gpus").card.learned]


#: What auto_scheduler wrote of a GPU.
_HARDWARE = [-1, 16, 64, 49152, 2147483647, 1024, 8, 32]


def scored_tasks(home: Path) -> list[int]:
    """Of the tasks that were measured: those whose first programs all have a score, which is 0
    where no cost model gave one, and all."""
    from tunefleet.store import open_store

    store = open_store(home)
    first: dict[str, list[float]] = {}
    job = store.jobs.page()[0].job_id
    for weighted in store.work.tasks(job):
        for trial in store.records.trials(job, weighted.task.task_id):
            if trial.iteration == 0:
                first.setdefault(weighted.task.task_id, []).append(trial.candidate.score)
    store.close()
    return [sum(all(scores) for scores in first.values()), len(first)]


def until_saved(home: Path, precision: str) -> dict[str, Any]:
    import tunefleet
    from tunefleet.store import open_store

    context = tunefleet.BenchmarkContext("cuda", home=home)
    with tunefleet.Session(context) as session:
        network = session.from_network("zoo:tiny_cnn", precision=precision)
        result = network.autotune(trials=4, settings=patient_settings()).build().save().result()
    store = open_store(home)
    tasks = [weighted.task for weighted in store.work.tasks(store.jobs.page()[0].job_id)]
    store.close()
    return {
        "network": result.network.name,
        "notes": list(result.notes),
        "scored": scored_tasks(home),
        "trials": result.trials,
        "failures": dict(result.failures),
        "verified": result.verified,
        "difference": result.difference.tuned,
        "tolerance": result.tolerance,
        "precisions": {task.name: task.precision for task in tasks},
    }


#: It ends with a segment, and begins with one without inputs. What is between is no small work,
#: or all would be one segment.
SEGMENTS = """<ir_version: 9, opset_import: ["":18]> g (float[4,16] x) => (float[4,16] y) {
    r = Relu(x) zero = Constant<value=float {0.0}>() n = RandomNormal<shape=[64,2048]>()
    nothing = Mul(n, zero) none = ReduceSum<keepdims=0>(nothing) s = Add(r, none)
    t = Cast<to=8>(s) y = Cast<to=1>(t) }"""


def with_segments(home: Path) -> dict[str, Any]:
    import onnx

    import tunefleet
    from tunefleet.core.result import to_json
    from tunefleet.report.words import outside_lines

    onnx.save(onnx.parser.parse_model(SEGMENTS), home / "network.onnx")
    with tunefleet.Session(tunefleet.BenchmarkContext("cuda", home=home)) as session:
        result = session.from_network(home / "network.onnx").build().save().result()
    outside = to_json(result.outside)
    numbers = np.random.default_rng(0).integers(-9, 10, (2, 4, 16)).astype("float32")
    with tunefleet.load(result.run, home=home, gpu=0) as module:
        differences = [float(abs(module(x) - x.clip(0)).max()) for x in numbers]
    return {
        "verified": result.verified,
        "copies": outside["copies"],
        "lines": outside_lines(outside),
        "differences": differences,
    }


def on_the_gpu(module: Any, given: Any) -> bool:
    """Whether tensors that are on the GPU give the same there, without NumPy between."""
    from tunefleet.artifacts.tensors import array_of, on_cpu, tensor_of

    class Tensor:
        """What has DLPack and no NumPy."""

        def __init__(self, tensor: Any) -> None:
            self.tensor, self.shape, self.dtype = tensor, tuple(given.shape), given.dtype

        def __dlpack__(self, **how: Any) -> Any:
            return self.tensor.__dlpack__(**how)

        def __dlpack_device__(self) -> Any:
            return self.tensor.__dlpack_device__()

    output = module(Tensor(tensor_of(given, 0)))
    return not on_cpu(output) and bool(np.array_equal(array_of(output), module(given)))


def memory_after(module: Any, given: Any, calls: int) -> int:
    """Bytes of the GPU that are free."""
    from tunefleet.compiler.toolchain import load_tvm

    for _ in range(calls):
        module(given)
    return int(load_tvm().cuda(0).available_global_memory)


if __name__ == "__main__":
    home = Path(sys.argv[1])
    (home / "seen.json").write_text(json.dumps(main(home, sys.argv[2])), encoding="utf-8")
