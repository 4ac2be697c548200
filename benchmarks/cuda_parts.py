"""The parts of `cuda_search.py`: what each does on the GPU and what it gives."""

from __future__ import annotations

import importlib.metadata
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tunefleet.core.device import DeviceKind, DeviceSpec
from tunefleet.core.step import Rounds
from tunefleet.core.target import CudaTarget

if TYPE_CHECKING:
    from cuda_search import Scale

ROOT = Path(__file__).resolve().parents[1]
SPEC = DeviceSpec(DeviceKind.CUDA)
_SUITE = ROOT / "tests" / "devices" / "cuda_conformance.py"
#: Of a WMMA product: rows, columns, depth; the last divides into no fragments.
_PRODUCTS = ((64, 64, 48), (31, 30, 40))
_ROUNDS = Rounds(12, turn_s=0.2)
_CALL_S = 600.0


def target_here() -> CudaTarget:
    from tunefleet.runs.context import BenchmarkContext

    target = BenchmarkContext("cuda").target
    assert isinstance(target, CudaTarget)
    return target


def conformance(scale: Scale, home: Path) -> dict[str, Any]:
    """The suite of devices; random programs executed and compared."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(_SUITE)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    counted = {word: int(n) for n, word in re.findall(r"(\d+) (passed|failed|error)", ended.stdout)}
    rows = [*_wmma_rows(scale), *_space_rows(scale)]
    wrong = [row for row in rows if row["outcome"] not in ("right", "not built")]
    return {
        "suite": counted,
        "suite_output": ended.stdout[-4000:] if ended.returncode else "",
        "programs": rows,
        "summary": {
            "suite": counted,
            "programs": len(rows),
            "not_built": sum(row["outcome"] == "not built" for row in rows),
            "wrong": len(wrong) + max(counted.get("failed", 0), int(ended.returncode != 0)),
        },
    }


def _wmma_rows(scale: Scale) -> Iterator[dict[str, Any]]:
    from gpu_intrinsics import program_of, traces_of
    from tunefleet.compiler.space.intrinsics import warp_products_of

    target, tasks = target_here(), []
    products = warp_products_of(target)
    for intrinsic in products[:: len(products) // 2] if scale.emulated else products:
        for shape in _PRODUCTS[: 1 if scale.emulated else 2]:
            program = program_of(shape, intrinsic)
            tasks.append((intrinsic.name, program, traces_of(program, target, intrinsic, 2)))
    yield from _executed(tasks)


def _space_rows(scale: Scale) -> Iterator[dict[str, Any]]:
    """Random programs of the tasks of all networks, as many of each."""
    from tunefleet.compiler.space.opening import task_space
    from tunefleet.stages.importing import import_network

    target, tasks = target_here(), []
    for network in dict.fromkeys(scale.networks.values()):
        tasks += [weighted.task for weighted in import_network(network, target).tasks]
    each = max(1, math.ceil(scale.programs / len(tasks)))
    rng = np.random.default_rng(0)
    drawn = []
    for task in tasks:
        space = task_space(task.program, target).decisions
        traces = list(space.traces(space.sample(each, rng).distinct()))[:each]
        drawn.append((task.name, task.program, traces))
    yield from _executed(drawn)


def _executed(tasks: Sequence[tuple[str, str, Sequence[str]]]) -> Iterator[dict[str, Any]]:
    """Compares each program with the task's plain one, on the GPU, on random numbers."""
    from tunefleet.core.trial import Built
    from tunefleet.devices import Check
    from tunefleet.stages import work

    target = target_here()
    with tempfile.TemporaryDirectory() as folder, _pools(folder) as (hosts, device):
        for name, program, traces in tasks:
            jobs: list[tuple[Any, ...]] = [
                (work.build_default, (program, target, "default", folder))
            ]
            jobs += [
                (work.build_candidate, (program, target, f"p{n}", trace, folder))
                for n, trace in enumerate(traces)
            ]
            plain, *built = hosts.map(work.call, jobs, timeout_s=120)
            for candidate in built:
                row = {"task": name, "outcome": "not built", "said": ""}
                if isinstance(candidate, Built) and isinstance(plain, Built):
                    check = device.call(
                        work.on_device, SPEC, 1, None, work.check_output, (plain, candidate, 1),
                        timeout_s=60, lives=1,
                    )  # fmt: skip
                    right = isinstance(check, Check) and not check.difference
                    row |= {
                        "outcome": "right" if right else "wrong",
                        "said": "" if right else str(getattr(check, "difference", check)),
                    }
                else:
                    row["said"] = str(getattr(candidate, "text", candidate))[:200]
                yield row


@contextmanager
def _pools(folder: str) -> Iterator[tuple[Any, Any]]:
    from tunefleet.workers.pool import WorkerConfig, WorkerPool

    config = WorkerConfig(1, math.inf, str(Path(folder, "log")))
    cores = len(os.sched_getaffinity(0))
    with WorkerPool(cores, config) as hosts, WorkerPool(1, config) as device:
        yield hosts, device


def network(scale: Scale, home: Path, name: str, precision: str) -> dict[str, Any]:
    """A search and stock's at equal time; then all modules and PyTorch, alternating."""
    stock, part, name = dict[str, Any](), name, scale.networks[name]
    ours = _tuned(name, precision, home, minutes=scale.minutes, trials=scale.trials)
    if part in scale.stock and precision == "float32":
        stock = _stock(name, minutes=scale.minutes, trials=None if scale.minutes else scale.trials)
    return _compared(name, precision, ours, stock)


def equal_trials(scale: Scale, home: Path) -> dict[str, Any]:
    """As many trials for both sides, whatever time they take."""
    name = scale.networks["resnet18"]
    ours = _tuned(name, "float32", home, minutes=None, trials=scale.trials)
    stock = _stock(name, minutes=None, trials=scale.trials)
    return _compared(name, "float32", ours, stock)


def products(scale: Scale, home: Path) -> dict[str, Any]:
    """Single products in float16 against PyTorch's, each a network of one layer."""
    import torch

    import tunefleet

    rows: list[dict[str, Any]] = []
    for rows_, columns, depth in scale.products:
        layer = torch.nn.Linear(depth, columns).eval()
        given = (torch.randn(rows_, depth),)
        context = tunefleet.BenchmarkContext(device="cuda:0", home=home)
        with tunefleet.Session(context) as session:
            session.from_network(layer, example_inputs=given, precision="fp16")
            session.autotune(trials=scale.trials).build().save()
            latency = session.result().tasks
        best = min(task.latency_us for task in latency if task.latency_us)
        cublas = _torch_kernel_us(layer, given)
        rows.append({
            "product": f"{rows_}x{columns}x{depth}", "ours_us": best, "cublas_us": cublas,
            "of_cublas": None if cublas is None else cublas / best,
        })  # fmt: skip
    shares = [row["of_cublas"] for row in rows if row["of_cublas"]]
    return {"rows": rows, "summary": {"of_cublas": min(shares)} if shares else {}}


def _torch_kernel_us(layer: Any, given: Any) -> float | None:
    """By events, with as many runs as hide the launch; None where torch has no CUDA."""
    import torch

    if not torch.cuda.is_available():
        return None
    layer, inputs = layer.half().cuda(), [each.half().cuda() for each in given]
    times = []
    with torch.no_grad():
        for _ in range(12):
            event: Any = torch.cuda.Event
            begin, end = (event(enable_timing=True) for _ in range(2))
            begin.record()
            for _ in range(100):
                layer(*inputs)
            end.record()
            torch.cuda.synchronize()
            times.append(begin.elapsed_time(end) * 10)
    return float(statistics.median(times[2:]))


def records(scale: Scale, home: Path) -> dict[str, Any]:
    """Programs by tensor cores, measured, as a file of records."""
    out = home / "cuda-tensor.parquet"
    name = scale.networks["bert"]
    command = [
        sys.executable, "-m", "tunefleet", "dataset", "collect",
        "--networks", f"{name}?precision=int8", "--tensorised", "--device", "cuda:0",
        "--programs-per-task", str(scale.records // 10 or 1),
        "--home", str(home), "-o", str(out), "--force", "--quiet",
    ]  # fmt: skip
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode:
        raise RuntimeError(f"nothing was collected: {ended.stderr[-2000:]}")
    import pyarrow.parquet as parquet

    count = parquet.read_metadata(out).num_rows
    return {"records": count, "summary": {"records": count}}


def _tuned(
    name: str, precision: str, home: Path, *, minutes: float | None, trials: int
) -> dict[str, Any]:
    import tunefleet

    context = tunefleet.BenchmarkContext(device="cuda:0", home=home)
    budget: dict[str, Any] = {"trials": trials} if minutes is None else {"minutes": minutes}
    began = time.time()
    (outcome,) = tunefleet.tune(
        [name],
        context=context,
        precision=precision,
        new_job=True,
        **budget,
    )
    if outcome.result is None:
        raise RuntimeError(f"{name}: {outcome.error}")
    result = outcome.result
    return {
        "artifact": result.artifact,
        "trials": result.trials,
        "failures": dict(result.failures),
        "wall_s": time.time() - began,
        "stages_s": dict(result.wall),
        "verified": result.verified,
        "delivered": result.delivered,
        "warnings": list(result.warnings),
    }


def _stock(name: str, *, minutes: float | None, trials: int | None) -> dict[str, Any]:
    """MetaSchedule's own search of the same tasks with its rules for CUDA; its best traces."""
    from search import stock
    from searching import STUB

    if not any(each.name == "cuda-bindings" for each in importlib.metadata.distributions()):
        # Without its package for NVRTC TVM alone compiles nothing.
        os.environ["TVM_CUDA_COMPILE_MODE"] = "nvcc"
    limit_s = None if minutes is None else 60 * minutes
    with tempfile.TemporaryDirectory() as folder:
        # What it starts imports TVM without half a minute of tensor intrinsics, which would be its
        # whole time limit of a build.
        Path(folder, "sitecustomize.py").write_text(STUB, encoding="utf-8")
        others = os.environ.get("PYTHONPATH", "")
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [folder, others]))
        try:
            return stock(name, 1, trials or 10**6, target=target_here(), limit_s=limit_s)
        finally:
            os.environ["PYTHONPATH"] = others


def _compared(
    name: str, precision: str, ours: dict[str, Any], stock: dict[str, Any]
) -> dict[str, Any]:
    """Latencies of all sides in turn, in a worker."""
    from tunefleet.compiler.code.executable import compile_network, save_network
    from tunefleet.core.importing import ImportOptions
    from tunefleet.stages.importing import import_network

    target = target_here()
    tasked = import_network(name, target, options=ImportOptions(precision=precision))
    inputs = list(tasked.variants[0].example_inputs)
    modules = {"tunefleet": str(Path(ours["artifact"], "module.so"))}
    with tempfile.TemporaryDirectory() as folder, _pools(folder) as (_, device):
        if stock:
            path = Path(folder, "stock.so")
            save_network(compile_network(tasked.module, target, stock["best"]), path)
            modules["stock"] = str(path)
        source = tasked.variants[0].reference.describe()
        call = (in_turn, (modules, source, inputs, precision == "fp16"))
        rounds: Any = device.call(_on_gpu, *call, timeout_s=_CALL_S, lives=1)
    measured = len({task for _, task, _ in stock.get("points", ())})
    if stock and not measured:
        raise RuntimeError(f"stock measured nothing: {stock['error']}")
    if not isinstance(rounds, Mapping):
        raise RuntimeError(f"{name}: {rounds}")
    medians = {side: statistics.median(of) * 1e3 for side, of in rounds.items()}
    mine = medians["tunefleet"]
    summary = {side: round(mine / ms, 3) for side, ms in medians.items() if side != "tunefleet"}
    return {
        "not_measured": ["ONNX Runtime's CUDA provider: its wheel does not travel"],
        "network": name, "precision": precision, "rounds_s": dict(rounds), "median_ms": medians,
        "tunefleet": ours,
        "stock": {k: stock[k] for k in ("wall_s", "trials") if stock} | {"tasks": measured},
        "summary": {"median_ms": {s: round(ms, 4) for s, ms in medians.items()}, **summary},
    }  # fmt: skip


def _on_gpu(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    from tunefleet.artifacts.cuda import load_cuda

    load_cuda()
    return function(*args)


def in_turn(
    modules: dict[str, str], source: dict[str, Any], inputs: list[Any], half: bool
) -> dict[str, list[float]]:
    """Seconds per inference of each round: modules, and PyTorch where it has CUDA."""
    from tunefleet.compiler.code.executable import time_interleaved, timer_of
    from tunefleet.devices.local import LocalNetwork

    timers = {side: LocalNetwork(path, "main", 0).timer(inputs) for side, path in modules.items()}
    timers |= {side: timer_of(run) for side, run in _torch_sides(source, inputs, half).items()}
    times = time_interleaved(list(timers.values()), _ROUNDS)
    return dict(zip(timers, times, strict=True))


def _torch_sides(
    source: dict[str, Any], inputs: list[Any], half: bool
) -> dict[str, Callable[[], Any]]:
    import torch

    from tunefleet.compiler.frontends.references import reference_of

    if not torch.cuda.is_available():
        return {}
    reference: Any = reference_of(source, 0)
    module, args, kwargs, _ = reference._prepared(inputs)
    if half:
        module = module.half()
        args = [
            a.half() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args
        ]

    def bound(called: Any) -> Callable[[], Any]:
        def run() -> Any:
            with torch.no_grad():
                outputs = called(*args, **kwargs)
            torch.cuda.synchronize()
            return outputs

        run()
        return run

    sides = {"eager": bound(module)}
    for side, mode in (("compile", "default"), ("max-autotune", "max-autotune")):
        try:
            sides[side] = bound(torch.compile(module, mode=mode))
        except Exception as error:  # what torch.compile makes of a network it does not take
            print(f"{side}: {error}", file=sys.stderr)
    return sides
